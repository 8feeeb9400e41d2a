// SPDX-License-Identifier: Apache-2.0
// The gated delta rule.
#include <algorithm>
#include <cmath>
#include <string>

#include "engine/recipe/block_rules.h"

namespace tally {
namespace {

Status CheckDeltaRule(const Recipe& r, size_t layer) {
  const DeltaRule& d = r.layers[layer].delta;
  if (d.key_heads < 1 || d.value_heads < 1 || d.key_dim < 1 || d.value_dim < 1 || d.value_heads % d.key_heads != 0) {
    return BadInput("the delta rule cannot share " + std::to_string(d.key_heads) + " key heads of " + std::to_string(d.key_dim) +
                    " among " + std::to_string(d.value_heads) + " value heads of " + std::to_string(d.value_dim));
  }
  if (int64_t{d.value_heads} * std::max(d.key_dim, d.value_dim) > kMaxWidth) {
    return BadInput(std::to_string(d.value_heads) + " value heads of " + std::to_string(d.key_dim) + " x " +
                    std::to_string(d.value_dim) + " are wider than " + std::to_string(kMaxWidth));
  }
  if (d.gate_rank < 0 || d.gate_rank > kMaxWidth)
    return BadInput("gates of the delta rule have a rank of " + std::to_string(d.gate_rank));
  if (d.gate_rank > 0 && !d.channel_decay) return BadInput("gate_rank is for decays by channel");
  if (!(d.decay_bound <= 0) || !std::isfinite(d.decay_bound) || (d.decay_bound != 0 && !d.channel_decay)) {
    return BadInput("logarithms of decays have a bound of " + std::to_string(d.decay_bound));
  }
  if (!(d.l2_norm_eps > 0)) return BadInput("l2_norm_eps is " + std::to_string(d.l2_norm_eps));
  return CheckTaps(d.taps);
}

double DeltaParameters(const Recipe& r, const LayerRecipe& l) {
  const DeltaRule& d = l.delta;
  return double{1} * r.d_model * d.value_heads * (3.0 * d.key_dim + 3.0 * d.value_dim + 2);
}

void DivideDeltaRule(const LayerRecipe& l, const Dividers& by, LayerPart& part) {
  const DeltaRule& d = l.delta;
  const int64_t each = d.value_heads / d.key_heads;
  const Span own = part.delta.key_heads = PartOf(d.key_heads, 1, by.shard);
  if (!d.tiled || own.size() == d.key_heads) {
    part.delta.value_heads = {Times(own, each)};
  } else {
    for (int64_t t = 0; t < each; ++t) part.delta.value_heads.push_back(Plus(own, t * d.key_heads));
  }
}

bool HoldDeltaRule(const DividedWeight& w) {
  const DeltaRule& d = w.layer.delta;
  const DeltaPart& part = w.part.delta;
  const int64_t keys = int64_t{d.key_heads} * d.key_dim;
  switch (w.division) {
    case Division::kKeyHeads: w.Add(Times(part.key_heads, w.rows / d.key_heads), w.copied); return true;
    case Division::kStateHeads:
      for (const Span& v : part.value_heads) w.Add(Times(v, w.rows / d.value_heads), w.copied);
      return true;
    case Division::kConvolved:
      w.Add(Times(part.key_heads, d.key_dim), w.copied);
      w.Add(Plus(Times(part.key_heads, d.key_dim), keys), w.copied);
      for (const Span& v : part.value_heads) w.Add(Plus(Times(v, d.value_dim), 2 * keys), w.copied);
      return true;
    case Division::kStateNorm: w.Add({0, w.rows}, w.later); return true;
    default: return false;
  }
}

}  // namespace

const BlockRules kDeltaRuleRules = {.check = CheckDeltaRule,
                                    .alike = [](const LayerRecipe& a, const LayerRecipe& b) { return a.delta == b.delta; },
                                    .parameters = DeltaParameters,
                                    .divide = DivideDeltaRule,
                                    .hold = HoldDeltaRule};

}  // namespace tally
