// Looking at a checkpoint without loading its weights.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/dtype.h"
#include "engine/base/export.h"
#include "engine/base/status.h"
#include "engine/recipe/recipe.h"
#include "engine/text/tokenizer.h"
#include "loaders/inventory/inventory.h"

namespace tally {

// Owns all it tells; sizes in bytes, shapes outermost first.
struct Inspection {
  Inventory inventory;  // files, metadata, tensors
  struct TypeTotal {
    DType dtype = DType::kF32;
    uint64_t tensors = 0, elements = 0, bytes = 0;
  };
  std::vector<TypeTotal> types;  // by bytes, most first
  uint64_t elements = 0, bytes = 0;
  Status runnable;  // why the engine does not run it, where it does not
  Recipe recipe;    // where a family reads it
};

// A GGUF file (any shard of a split one) or a Hugging Face directory; weights are not read. kBadInput: a file that cannot be read or
// is not what it should be. A checkpoint that no family of ours runs is no error: `runnable` says so.
TALLY_API Result<Inspection> InspectCheckpoint(const std::string& path);

// The tokenizer of a checkpoint; a tokenizer.json, or a directory that holds one, will do, weights or not (the ends that
// generation_config.json adds are then not among its eos()). Never null where it is ok. kBadInput: there is none, or one that is
// broken or of an unsupported kind.
TALLY_API Result<std::unique_ptr<Tokenizer>> LoadTokenizer(const std::string& path);
// A vocabulary without a model: a file of ranks as tiktoken publishes them. `encoding`: as TokenizerFromRanks (tokenizer.h) has it.
TALLY_API Result<std::unique_ptr<Tokenizer>> LoadRanks(const std::string& path, const std::string& encoding = "");

}  // namespace tally
