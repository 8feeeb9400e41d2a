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

// What mixes the positions of a sequence. The last three are recurrent.
enum class Mixer : uint8_t { kAttention, kLatentAttention, kShortConv, kDeltaRule, kMamba2 };
inline constexpr Mixer kMixers[] = {Mixer::kAttention, Mixer::kLatentAttention, Mixer::kShortConv, Mixer::kDeltaRule,
                                    Mixer::kMamba2};

// The part of a layer that works on each position alone. kSparse: a mixture of experts.
enum class FeedForward : uint8_t { kDense, kSparse };

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
