// SPDX-License-Identifier: Apache-2.0
// A layer: its blocks, by value. Layers of one kind are equal.
#pragma once

#include <cstdint>

#include "engine/base/enum_set.h"
#include "engine/recipe/attention.h"
#include "engine/recipe/feed_forward.h"
#include "engine/recipe/recurrent.h"
#include "engine/recipe/residual.h"

namespace tally {

// The blocks in the order in which a layer runs them: name, and member of LayerRecipe. Three tables are made of these lists: what a block
// may be and how it is divided (recipe/block_rules.h), how it is planned (graph/block_planner.h), its closed forms (books/blocks.h).
// clang-format off
#define TALLY_MIXERS(BLOCK)          \
  BLOCK(Attention, attention)        \
  BLOCK(LatentAttention, latent)     \
  BLOCK(ShortConv, conv)             \
  BLOCK(DeltaRule, delta)            \
  BLOCK(Mamba2, mamba)
#define TALLY_FEED_FORWARDS(BLOCK)   \
  BLOCK(Dense, ffn)                  \
  BLOCK(Sparse, experts)
// clang-format on

#define TALLY_BLOCK(name, member) k##name,
// What mixes the positions of a sequence. The last three are recurrent.
enum class Mixer : uint8_t { TALLY_MIXERS(TALLY_BLOCK) };
// The part of a layer that works on each position alone. kSparse: a mixture of experts.
enum class FeedForward : uint8_t { TALLY_FEED_FORWARDS(TALLY_BLOCK) };
#undef TALLY_BLOCK

// A layer is a mixer and a feed-forward, either of which may be absent. Blocks that it does not have are not looked at.
struct LayerRecipe {
  EnumSet<Mixer> mixers = Mixer::kAttention;  // several read the same input, and their outputs are added up
  Attention attention = {};                   // of kAttention, and in part of kLatentAttention
  LatentAttention latent = {};
  ShortConv conv = {};
  DeltaRule delta = {};
  Mamba2 mamba = {};

  EnumSet<FeedForward> feed_forward = FeedForward::kDense;
  Network network = {};  // of both
  DenseFeedForward ffn = {};
  Experts experts = {};

  ResidualRule residual = {};

  bool recurrent() const { return mixers.has(Mixer::kShortConv) || mixers.has(Mixer::kDeltaRule) || mixers.has(Mixer::kMamba2); }
  bool attends() const { return mixers.has(Mixer::kAttention) || mixers.has(Mixer::kLatentAttention); }
  // Its queries have a temperature.
  bool tempered() const {
    const Temperature& t = attention.temperature;
    return attends() && t.scale != 0 && (t.everywhere || attention.rope == LayerRope::kNone);
  }
  bool dense() const { return feed_forward.has(FeedForward::kDense); }
  bool sparse() const { return feed_forward.has(FeedForward::kSparse); }
  // A dense feed-forward and experts side by side, each with norms of its own before and after it (Gemma 4).
  bool both() const { return dense() && sparse(); }
  // Positions that a convolution of the layer sees.
  int32_t taps() const {
    return mixers.has(Mixer::kShortConv)   ? conv.taps
           : mixers.has(Mixer::kDeltaRule) ? delta.taps
           : mixers.has(Mixer::kMamba2)    ? mamba.taps
                                           : 0;
  }
  bool operator==(const LayerRecipe&) const = default;
};

}  // namespace tally
