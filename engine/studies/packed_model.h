// SPDX-License-Identifier: Apache-2.0
// Packed files: a checkpoint with its weights as they lie in memory, which starts at the speed of the disk and needs no source.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "engine/base/export.h"
#include "engine/base/status.h"

namespace tally {

struct PackOptions {
  int threads = 0;  // that read and pack; 0: all cores
  // Bytes of each of the two windows that weights are packed in; 0: 128 MiB.
  uint64_t window_bytes = 0;
  std::function<bool(uint64_t done_bytes, uint64_t total_bytes)> progress = {};  // false: stop, kInterrupted
};

struct PackReport {
  uint64_t weights = 0;       // matrices and vectors
  uint64_t experts = 0;       // records of experts
  uint64_t bytes = 0;         // of the file
  uint64_t source_bytes = 0;  // of the source's files of weights
};

// Writes a packed file of a GGUF file (any shard of a split one) or a Hugging Face directory: everything that LoadModel and the other
// readers of checkpoints need, with the model's layer for multi-token prediction if it can be run. The file gets its name in one step
// when it is complete and on the disk; where that fails, nothing is left. What a killed run left is removed by the next one of the same
// name. Memory: two windows, and a matrix that is stored transposed as a whole. kBadInput: errors of LoadModel; `path` is packed
// already; `out` is one of its files. kNoRoom: no room on the file system, before anything is written; kInterrupted.
TALLY_API Result<PackReport> PackModel(const std::string& path, const std::string& out, const PackOptions& options = {});

}  // namespace tally
