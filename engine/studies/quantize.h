// SPDX-License-Identifier: Apache-2.0
// Writes a GGUF file, or that of a Hugging Face directory, with other types of weights.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/dtype.h"
#include "engine/base/export.h"
#include "engine/base/status.h"

namespace tally {

struct QuantizeOptions {
  std::string type = "Q4_K_M";  // a preset (QuantizePresets)
  bool pure = false;            // the preset's type for every matrix, head and embedding included, without its rules
  bool requantize = false;      // weights that are quantised already may be quantised again, which loses more
  std::string importance = {};  // a GGUF of llama.cpp's imatrix: weights of the columns' errors; empty: none
  // Of a directory's tokenizer: what may be lost (TokenizerLossNames). Our own reader loses nothing but "all".
  std::vector<std::string> tokenizer_loss = {};
  int threads = 0;                                                               // as EngineOptions::threads
  bool dry_run = false;                                                          // nothing is written
  std::function<bool(uint64_t done_bytes, uint64_t total_bytes)> progress = {};  // false: stop, kInterrupted
};

struct QuantizeReport {
  struct OfType {
    uint64_t tensors = 0, elements = 0, bytes = 0;
  };
  std::map<DType, OfType> types = {};                           // of the file written
  uint64_t tensors = 0, elements = 0, bytes_in = 0, bytes = 0;  // bytes: of the files
  uint64_t fallbacks = 0;               // tensors whose rows are not whole blocks of the type that the preset has for them
  uint64_t without_importance = 0;      // quantised tensors that the importance file does not have
  std::vector<std::string> notes = {};  // of a directory: ModelSpec::notes, and of its chat templates
  std::vector<std::string> tokenizer_losses = {};  // of a directory: what other engines do not read of its tokenizer
  std::string no_tokenizer = {};  // of a directory: why the file has no vocabulary; empty: it has one, or there is none
};

TALLY_API std::vector<std::string_view> QuantizePresets();

// Metadata is kept, but for general.file_type, general.quantization_version and what says how a file was split. Vectors, routers
// and learned positions stay as they are; so do MXFP4 experts. Every row that is written is finite, those that are copied too,
// where this program decodes their type. The file gets its name when it is complete. Of a directory it is what llama.cpp's
// converter would make: GGUF's names and keys, q and k in the order of its rope, experts stacked, vectors and routers as F32; FP8
// does not count as quantised. kBadInput, naming the file: it has a type that cannot be read; a family or a configuration that GGUF
// cannot say, or of the tokenizer what `tokenizer_loss` does not name; a quantised type without `requantize`; a NaN or infinity, or a
// value whose row the new type cannot hold (tensor and row are named); `out` is one of its files, or cannot be written; an
// importance of another width.
TALLY_API Result<QuantizeReport> Quantize(const std::string& in, const std::string& out, const QuantizeOptions& options);

}  // namespace tally
