// SPDX-License-Identifier: Apache-2.0
// The part of a model that one of several processes holds and computes.
//
// Outputs are divided: heads, hidden units, channels, experts, rows of the vocabulary. A sum is never divided, so that the bits are those
// of one process. Every process has all that is not divided. Of equal parts, the lowest rank's is the original, and the others are copies.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/recipe/recipe.h"
#include "engine/recipe/roles.h"

namespace tally {

struct Span {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const Span&) const = default;
};

struct Shard {
  int32_t rank = 0, ranks = 1;
  bool whole_mixers = false;  // attention and the other mixers run whole in every process
  bool own_experts = false;   // an expert is in one process; else every process has a part of each
  bool alone() const { return ranks == 1; }
  Shard Of(int32_t other) const { return {other, ranks, whole_mixers, own_experts}; }
  bool operator==(const Shard&) const = default;
};

// The shard's part of n units, cut at multiples of `piece`. Parts are as equal as that allows; the first ones are the larger, the last
// ones may be empty.
Span PartOf(int64_t n, int64_t piece, const Shard& shard);

// Heads in equal groups that share something: a KV head of query heads, or B and C of Mamba-2's heads.
struct HeadPart {
  Span heads, groups;  // empty: the process is idle here
  bool copy = false;   // a lower rank has the group too
};
// Whole groups for each rank; with fewer groups than ranks, the heads of a group are divided among some ranks.
HeadPart PartOfHeads(int64_t heads, int64_t groups, const Shard& shard);

// The parts of blocks, empty where a layer does not have the block.
struct ShortConvPart {
  Span channels;
};
struct DeltaPart {
  Span key_heads;
  std::vector<Span> value_heads;
};
struct MambaPart : HeadPart {
  bool whole_norm = false;  // the norm is of vectors that more than one process has a part of
};
struct DensePart {
  Span hidden;
};
struct ExpertsPart {
  Span experts;
  Span hidden, shared;  // units of an expert, of the shared experts
  Span latent;          // columns of Experts::latent that this process computes in the experts' last matrices
};

// The parts of one layer.
struct LayerPart {
  HeadPart attention;  // of either kind: query heads, KV heads
  ShortConvPart conv;
  DeltaPart delta;
  MambaPart mamba;
  Span mixed;  // columns of d_model that this process computes in the mixers' last matrices
  DensePart ffn;
  ExpertsPart experts;
  Span fed;  // columns of d_model that it computes in the feed-forward's last matrix
};
LayerPart PartOfLayer(const Recipe& recipe, const Shard& shard, int32_t layer);

// Matrices are cut at multiples of so many rows: two panels, and a block of quantised activations.
inline constexpr int64_t kShardRows = 32;

// Rows of a weight that a process holds.
struct HeldRows {
  Span rows;
  bool copy = false;  // a lower rank holds them too
  bool operator==(const HeldRows&) const = default;
};
// What a process holds of a role's weight.
struct Held {
  Span slices;                 // experts, heads
  std::vector<HeldRows> rows;  // of each slice; of vectors elements. In the order in which they are held, none of them empty
  bool empty() const { return slices.size() == 0 || rows.empty(); }
  int64_t size() const;    // rows
  int64_t copied() const;  // rows that a lower rank holds too
  bool operator==(const Held&) const = default;
};
Held HeldOf(const Recipe& recipe, const Shard& shard, Role role, int32_t layer);

}  // namespace tally
