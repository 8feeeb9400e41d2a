// SPDX-License-Identifier: Apache-2.0
// Looking at a checkpoint without loading its weights.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "counters/books/books.h"
#include "engine/base/dtype.h"
#include "engine/base/export.h"
#include "engine/base/status.h"
#include "engine/recipe/sizes.h"
#include "engine/text/tokenizer.h"
#include "loaders/inventory/inventory.h"
#include "loaders/inventory/packed_header.h"

namespace tally {

// Owns its data. Shapes are outermost first.
struct Inspection {
  Inventory inventory = {};  // files, metadata, tensors
  struct TypeTotal {
    std::string type;  // StoredTensor::type_name
    uint64_t tensors = 0, elements = 0, bytes = 0;
  };
  std::vector<TypeTotal> types = {};  // by bytes, largest first
  uint64_t elements = 0, bytes = 0;
  Status runnable = {};  // not ok: the reason why the engine cannot run it
  // Set if a family reads it.
  SharedRecipe recipe = {};  // SizesOf it
  books::ParameterCounts parameters = {};
  books::NotRun not_run = {};
  std::vector<std::string> notes = {};  // as Model::notes; the defaults that are taken; why the tokenizer cannot be read
};

// Reads a GGUF file (any shard of a split one), a Hugging Face directory or a packed file, without weights. kBadInput: an unreadable or
// malformed file. A checkpoint that cannot be run is not an error (see `runnable`).
TALLY_API Result<Inspection> InspectCheckpoint(const std::string& path);

// The tokenizer of a checkpoint, of a tokenizer.json, or of a directory with one (for these two, eos() lacks the ends that
// generation_config.json adds). Not null on success. kBadInput: there is none, or it is malformed or of an unsupported kind.
TALLY_API Result<std::unique_ptr<Tokenizer>> LoadTokenizer(const std::string& path);
// The tokenizer of a file of ranks as tiktoken publishes them. `encoding`: see TokenizerFromRanks (tokenizer.h).
TALLY_API Result<std::unique_ptr<Tokenizer>> LoadRanks(const std::string& path, const std::string& encoding = "");

}  // namespace tally
