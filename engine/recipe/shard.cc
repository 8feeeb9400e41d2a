// SPDX-License-Identifier: Apache-2.0
#include "engine/recipe/shard.h"

#include <algorithm>

#include "engine/recipe/block_rules.h"

namespace tally {

int64_t Held::size() const {
  int64_t n = 0;
  for (const HeldRows& r : rows) n += r.rows.size();
  return n;
}

int64_t Held::copied() const {
  int64_t n = 0;
  for (const HeldRows& r : rows) n += r.copy ? r.rows.size() : 0;
  return n;
}

Span PartOf(int64_t n, int64_t piece, const Shard& s) {
  const int64_t pieces = (n + piece - 1) / piece, each = pieces / s.ranks, more = pieces % s.ranks;
  const int64_t begin = s.rank * each + std::min<int64_t>(s.rank, more), end = begin + each + (s.rank < more ? 1 : 0);
  return {std::min(n, begin * piece), std::min(n, end * piece)};
}

HeadPart PartOfHeads(int64_t heads, int64_t groups, const Shard& shard) {
  if (groups == 0) return {};
  const int64_t each = heads / groups;
  if (groups >= shard.ranks) {
    const Span own = PartOf(groups, 1, shard);
    return {Times(own, each), own};
  }
  for (int64_t g = 0; g < groups; ++g) {
    const Span ranks = PartOf(shard.ranks, 1, {.rank = static_cast<int32_t>(g), .ranks = static_cast<int32_t>(groups)});
    if (shard.rank < ranks.begin || shard.rank >= ranks.end) continue;
    const int32_t at = shard.rank - static_cast<int32_t>(ranks.begin);
    const Span own = PartOf(each, 1, {.rank = at, .ranks = static_cast<int32_t>(ranks.size())});
    if (own.size() == 0) return {};
    return {Plus(own, g * each), {g, g + 1}, at > 0};
  }
  return {};
}

LayerPart PartOfLayer(const Recipe& r, const Shard& shard, int32_t layer) {
  const Shard alone;
  const LayerRecipe& l = r.layer(layer);
  const Shard &mixing = shard.whole_mixers ? alone : shard, &feeding = l.sparse() && shard.own_experts ? alone : shard;
  LayerPart part;
  part.mixed = PartOf(r.d_model, kShardRows, mixing);
  part.fed = PartOf(r.d_model, kShardRows, feeding);
  ForMixers(l, [&](const BlockRules& block) { block.divide(l, {mixing, mixing, r.d_model}, part); });
  ForFeedForwards(l, [&](const BlockRules& block) { block.divide(l, {shard, feeding, r.d_model}, part); });
  return part;
}

void DividedWeight::Add(const Span& own, bool copy) const {
  if (own.size() <= 0) return;
  if (!held.rows.empty() && held.rows.back().rows.end == own.begin && held.rows.back().copy == copy) {
    held.rows.back().rows.end = own.end;
  } else {
    held.rows.push_back({own, copy});
  }
}

Held HeldOf(const Recipe& r, const Shard& shard, Role role, int32_t layer) {
  const RoleFacts& facts = FactsOf(role);
  const std::vector<uint64_t> shape = RoleShape(r, role, layer);
  const int64_t rows = static_cast<int64_t>(facts.vector ? shape.back() : shape[shape.size() - 2]);
  const bool sliced = facts.experts || facts.heads || facts.taps;
  const bool copy = shard.rank > 0;
  Held held;
  held.slices = {0, sliced ? static_cast<int64_t>(shape[0]) : 1};
  const LayerPart part = layer < 0 ? LayerPart() : PartOfLayer(r, shard, layer);
  const LayerRecipe none, &l = layer < 0 ? none : r.layer(layer);
  // A whole mixer's parts are those of one process, which all ranks have.
  const bool mixer_copy = copy && shard.whole_mixers, fed_copy = copy && l.sparse() && shard.own_experts;
  const DividedWeight mixer{facts.division, rows, r.d_model, l, part, copy, mixer_copy, held},
      fed{facts.division, rows, r.d_model, l, part, copy, fed_copy, held};
  if (facts.division == Division::kVocab) {
    mixer.Add(PartOf(rows, kShardRows, shard), false);
  } else if (layer < 0 || facts.division == Division::kWhole) {
    mixer.Add({0, rows}, copy);
  } else if (facts.division == Division::kMixed) {
    mixer.Add(part.mixed, mixer_copy);
  } else if (facts.division == Division::kFed) {
    fed.Add(part.fed, fed_copy);
  } else {
    bool done = false;
    ForMixers(l, [&](const BlockRules& block) { done = done || block.hold(mixer); });
    ForFeedForwards(l, [&](const BlockRules& block) { done = done || block.hold(fed); });
  }
  return held;
}

}  // namespace tally
