// SPDX-License-Identifier: Apache-2.0
// What users of the library need of a model: its sizes. The recipe itself is internal.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/export.h"

namespace tally {

struct Recipe;
struct LayerRecipe;
struct CountedCache;
struct Shard;

// Where layers differ: the size that the configuration gives for all, or else that of the first layer with the block. 0: no layer has it.
struct ModelSizes {
  std::string family = {};                // "gpt2", "llama", "gpt-oss"
  int32_t layers = 0, d_model = 0;        // of the text
  int32_t vocab = 0;                      // rows of the embedding
  int32_t context = 0;                    // trained length, in positions
  int32_t heads = 0, kv_heads = 0;        // of attention; of latent attention `kv_heads` is `heads`
  int32_t head_dim = 0;                   // of a query and key
  int32_t d_ff = 0;                       // hidden units of a dense feed-forward
  int32_t experts = 0, experts_used = 0;  // of a layer that has experts; those that a token is routed to
  int32_t expert_d_ff = 0;                // hidden units of an expert
  std::vector<int32_t> end_tokens = {};   // ids
  bool operator==(const ModelSizes&) const = default;
};
TALLY_API ModelSizes SizesOf(const Recipe& recipe);

// A recipe by shared ownership, for values of the public interface; an empty one by default.
class TALLY_API SharedRecipe {
 public:
  SharedRecipe();
  SharedRecipe(const Recipe& recipe);  // NOLINT(google-explicit-constructor): it is a copy
  const Recipe& operator*() const { return *recipe_; }
  const Recipe* operator->() const { return recipe_.get(); }
  operator const Recipe&() const { return *recipe_; }  // NOLINT(google-explicit-constructor)

 private:
  std::shared_ptr<const Recipe> recipe_;  // not null
};

// A part of a model that a recipe leaves out, as nothing runs it: a vision tower, layers for multi-token prediction, a stored copy of
// a tied head.
struct PartNotRun {
  std::string name = {};                                // "vision_tower"
  std::optional<uint64_t> parameters = {}, bytes = {};  // nullopt: unknown. A copy has bytes and no parameters of its own.
};

}  // namespace tally
