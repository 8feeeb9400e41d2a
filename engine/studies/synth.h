// SPDX-License-Identifier: Apache-2.0
// Full-size checkpoints of public models with true names, shapes and types. Random weights, for timing and memory tests only.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/dtype.h"
#include "engine/base/export.h"
#include "engine/base/status.h"

namespace tally {

struct SynthOptions {
  DType type = DType::kBF16;  // of matrices, except experts published in another format; vectors and routers are F32
  uint64_t seed = 0;
  std::string vocab_from = {};    // a GGUF whose tokenizer is copied, padded to the model's vocabulary; empty: no tokenizer
  int32_t layers = 0, vocab = 0;  // for a smaller network; 0: the model's own
  bool prediction = false;        // with the first layer for multi-token prediction
  bool packed = false;            // a packed file (packed_model.h), without its source
  std::function<bool(uint64_t done_bytes, uint64_t total_bytes)> progress = {};  // false: stop, kInterrupted
};

struct SynthReport {
  uint64_t tensors = 0;
  uint64_t parameters = 0;  // elements of learned tensors (rope factors are a buffer)
  uint64_t bytes = 0;       // of the file of weights
};

// The built-in models (count.h); static names.
TALLY_API std::vector<std::string_view> SynthModels();

// Writes a GGUF file if `path` ends in ".gguf", else a Hugging Face directory of config.json and model.safetensors. What is there is
// replaced when the new one is complete. Packed: what PackModel makes of a GGUF file named as `path`, but with .gguf (of a directory,
// where GGUF cannot say all), byte for byte but for the source's stamp; a small directory stands beside it meanwhile. The same model,
// options and seed give the same bytes on every machine. `model`: a built-in model in any case, or a config.json. Other layers for
// multi-token prediction and vision towers are not written. kBadInput: an unknown model; a type or a number of layers or tokens that it
// cannot have; a model of which a GGUF file cannot say all; a vocabulary that does not fit or cannot be read; a file that cannot be
// written, or that the file system has no room for. Nothing is left behind. kInterrupted.
TALLY_API Result<SynthReport> Synthesize(std::string_view model, const std::string& path, const SynthOptions& options);

// What Synthesize would write, without writing it; packed: what it would pack. Errors as above.
TALLY_API Result<SynthReport> PlanSynth(std::string_view model, const std::string& path, const SynthOptions& options);

}  // namespace tally
