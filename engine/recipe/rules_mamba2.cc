// SPDX-License-Identifier: Apache-2.0
// Mamba-2.
#include <algorithm>
#include <cmath>
#include <string>

#include "engine/recipe/block_rules.h"

namespace tally {
namespace {

Status CheckMamba2(const Recipe& r, size_t layer) {
  const Mamba2& m = r.layers[layer].mamba;
  if (m.heads < 1 || m.head_dim < 1 || m.groups < 1 || m.state_dim < 1 || m.heads % m.groups != 0) {
    return BadInput("Mamba-2 cannot share " + std::to_string(m.groups) + " groups of " + std::to_string(m.state_dim) + " among " +
                    std::to_string(m.heads) + " heads of " + std::to_string(m.head_dim));
  }
  const int64_t inner = int64_t{m.heads} * m.head_dim;
  if (std::max(inner, int64_t{m.heads} * m.state_dim) > kMaxWidth) {
    return BadInput(std::to_string(m.heads) + " heads of " + std::to_string(m.state_dim) + " x " + std::to_string(m.head_dim) +
                    " are wider than " + std::to_string(kMaxWidth));
  }
  if (m.norm_groups < 1 || inner % m.norm_groups != 0) {
    return BadInput("an output of " + std::to_string(inner) + " cannot be normalised as " + std::to_string(m.norm_groups) +
                    " vectors");
  }
  if (!(m.dt_min >= 0) || !(m.dt_max > m.dt_min)) {
    return BadInput("steps are limited to " + std::to_string(m.dt_min) + " to " + std::to_string(m.dt_max));
  }
  for (const float factor : m.multipliers) {
    if (!std::isfinite(factor)) return BadInput("a multiplier of Mamba-2 is " + std::to_string(factor));
  }
  TALLY_RETURN_IF_ERROR(CheckFactors({{"scales.mamba", m.out_scale}}));
  return CheckTaps(m.taps);
}

double Mamba2Parameters(const Recipe& r, const LayerRecipe& l) {
  const Mamba2& m = l.mamba;
  return double{1} * r.d_model * m.heads * (3.0 * m.head_dim + 2.0 * m.state_dim + 1);
}

void DivideMamba2(const LayerRecipe& l, const Dividers& by, LayerPart& part) {
  const Mamba2& m = l.mamba;
  static_cast<HeadPart&>(part.mamba) = PartOfHeads(m.heads, m.groups, by.shard);
  for (int32_t rank = 0; rank < by.shard.ranks; ++rank) {  // some process has a part of a vector
    const Span own = Times(PartOfHeads(m.heads, m.groups, by.shard.Of(rank)).heads, m.head_dim);
    const int64_t vector = int64_t{m.heads} * m.head_dim / std::max(m.norm_groups, 1);
    part.mamba.whole_norm |= m.norm && (own.begin % vector != 0 || own.end % vector != 0);
  }
}

bool HoldMamba2(const DividedWeight& w) {
  const Mamba2& m = w.layer.mamba;
  const MambaPart& part = w.part.mamba;
  const int64_t inner = int64_t{m.heads} * m.head_dim, of_b = int64_t{m.groups} * m.state_dim;
  const Span x = Times(part.heads, m.head_dim), b = Times(part.groups, m.state_dim);
  const bool b_copied = w.copied || part.copy, all = w.division == Division::kMambaIn;
  switch (w.division) {
    case Division::kStateHeads: w.Add(Times(part.heads, w.rows / m.heads), w.copied); return true;
    case Division::kMambaIn:
    case Division::kConvolved: {
      if (all) w.Add(x, w.copied);  // the gate
      const int64_t at = all ? inner : 0;
      w.Add(Plus(x, at), w.copied);
      w.Add(Plus(b, at + inner), b_copied);
      w.Add(Plus(b, at + inner + of_b), b_copied);
      if (all) w.Add(Plus(part.heads, at + inner + 2 * of_b), w.copied);
      return true;
    }
    case Division::kStateNorm: part.whole_norm ? w.Add({0, w.rows}, w.later) : w.Add(x, w.copied); return true;
    default: return false;
  }
}

}  // namespace

const BlockRules kMamba2Rules = {.check = CheckMamba2,
                                 .alike = [](const LayerRecipe& a, const LayerRecipe& b) { return a.mamba == b.mamba; },
                                 .parameters = Mamba2Parameters,
                                 .divide = DivideMamba2,
                                 .hold = HoldMamba2};

}  // namespace tally
