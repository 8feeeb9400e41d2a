// Looking at a checkpoint without loading its weights.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/dtype.h"
#include "engine/base/status.h"
#include "engine/graph/recipe.h"
#include "engine/text/tokenizer.h"
#include "loaders/inventory.h"

namespace tally {

struct Inspection {
  Inventory inventory;  // files, metadata, tensors
  struct TypeTotal {
    DType dtype = DType::kF32;
    uint64_t tensors = 0, elements = 0, bytes = 0;
  };
  std::vector<TypeTotal> types;  // by bytes, most first
  uint64_t elements = 0, bytes = 0;
  Status runnable;  // why no family of ours runs it, where none does
  Recipe recipe;    // where one does
};

// A GGUF file (any shard of a split one) or a Hugging Face directory. kBadInput: the reader's line.
Result<Inspection> InspectCheckpoint(const std::string& path);

// The tokenizer of a checkpoint; a tokenizer.json, or a directory that holds one, will do, weights or not (the ends that
// generation_config.json adds are then not among its eos()). kBadInput where there is none.
Result<std::unique_ptr<Tokenizer>> LoadTokenizer(const std::string& path);
// A vocabulary without a model: a file of ranks as tiktoken publishes them. `encoding`: as TokenizerFromRanks (tokenizer.h) has it.
Result<std::unique_ptr<Tokenizer>> LoadRanks(const std::string& path, const std::string& encoding = "");

}  // namespace tally
