// SPDX-License-Identifier: Apache-2.0
// Internal to recipe/: what the recipe knows of each block (layer.h lists them): what it may be, and how processes divide it. A block's
// rules are in a file of its own, rules_*.cc.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <utility>

#include "engine/base/status.h"
#include "engine/recipe/check_recipe.h"
#include "engine/recipe/shard.h"

namespace tally {

// The processes that divide a block. `shard`: a mixer, a dense feed-forward, or whole experts among themselves. `units`: the hidden units
// of experts and of shared experts; one process, if each expert belongs to one.
struct Dividers {
  const Shard &shard, &units;
  int64_t d_model;
};

// A role's weight in a layer, and what a process holds of it.
struct DividedWeight {
  Division division;
  int64_t rows;  // of each slice; of vectors elements
  int64_t d_model;
  const LayerRecipe& layer;
  const LayerPart& part;
  bool later;   // the process is not the first
  bool copied;  // the same, of a block that every process runs whole
  Held& held;

  // Adds rows unless there are none. Adjacent runs become one.
  void Add(const Span& own, bool copy) const;
};

struct BlockRules {
  // Of the layer at this index, which has the block.
  Status (*check)(const Recipe& recipe, size_t layer) = nullptr;
  // True if two layers have equal blocks. Null: layers may differ.
  bool (*alike)(const LayerRecipe& a, const LayerRecipe& b) = nullptr;
  // About as many parameters, whether the layer has the block or not.
  double (*parameters)(const Recipe& recipe, const LayerRecipe& layer) = nullptr;
  // Sets the block's part.
  void (*divide)(const LayerRecipe& layer, const Dividers& by, LayerPart& part) = nullptr;
  // Adds the process's rows of a weight that is divided as the block is; false: the weight is another block's.
  bool (*hold)(const DividedWeight& weight) = nullptr;
};

#define TALLY_BLOCK(name, member) extern const BlockRules k##name##Rules;
TALLY_MIXERS(TALLY_BLOCK)
TALLY_FEED_FORWARDS(TALLY_BLOCK)
#undef TALLY_BLOCK
#define TALLY_BLOCK(name, member) &k##name##Rules,
inline constexpr const BlockRules* kBlockRules[] = {TALLY_MIXERS(TALLY_BLOCK) TALLY_FEED_FORWARDS(TALLY_BLOCK)};
#undef TALLY_BLOCK

// Calls visit(rules) for the layer's mixers, and for its feed-forwards.
template <class Visit>
void ForMixers(const LayerRecipe& layer, const Visit& visit) {
#define TALLY_BLOCK(name, member) \
  if (layer.mixers.has(Mixer::k##name)) visit(k##name##Rules);
  TALLY_MIXERS(TALLY_BLOCK)
#undef TALLY_BLOCK
}
template <class Visit>
void ForFeedForwards(const LayerRecipe& layer, const Visit& visit) {
#define TALLY_BLOCK(name, member) \
  if (layer.feed_forward.has(FeedForward::k##name)) visit(k##name##Rules);
  TALLY_FEED_FORWARDS(TALLY_BLOCK)
#undef TALLY_BLOCK
}

inline Span Times(const Span& s, int64_t n) { return {s.begin * n, s.end * n}; }
inline Span Plus(const Span& s, int64_t n) { return {s.begin + n, s.end + n}; }

// What several blocks' checks have in common.
//
// Factors that a family computes may leave the range of a float.
Status CheckFactors(std::initializer_list<std::pair<const char*, float>> positive);
Status CheckAttention(const Recipe& recipe, size_t layer);          // rules_attention.cc
Status CheckTaps(int32_t taps);                                     // rules_short_conv.cc
Status CheckNetwork(const Recipe& recipe, const Network& network);  // rules_feed_forward.cc

// Of a weight that is divided by query heads.
bool HoldHeads(const DividedWeight& weight);

}  // namespace tally
