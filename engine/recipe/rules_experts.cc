// SPDX-License-Identifier: Apache-2.0
// A mixture of experts.
#include <cmath>
#include <string>

#include "engine/recipe/block_rules.h"

namespace tally {
namespace {

Status CheckExperts(const Recipe& r, size_t layer) {
  const LayerRecipe& l = r.layers[layer];
  TALLY_RETURN_IF_ERROR(CheckNetwork(r, l.network));
  const Experts& x = l.experts;
  const ActivationKind activation = l.network.activation;
  TALLY_RETURN_IF_ERROR(CheckFactors({{"route_scale", x.route_scale}}));
  if (!(x.route_sum_eps >= 0)) return BadInput("route_sum_eps is " + std::to_string(x.route_sum_eps));
  if (x.width < 1) return BadInput("the experts have no width: d_expert is " + std::to_string(x.width));
  if (x.latent < 0 || x.latent > kMaxWidth) return BadInput("expert_latent is " + std::to_string(x.latent));
  if (x.top_k < 1 || x.top_k > x.n_experts) {
    return BadInput("top_k is " + std::to_string(x.top_k) + "; expected 1 to the number of experts, " +
                    std::to_string(x.n_experts));
  }
  const int32_t size = x.groups > 0 ? x.n_experts / x.groups : 0;
  if (x.groups < 1 || x.n_experts % x.groups != 0 || x.kept_groups < 1 || x.kept_groups > x.groups || x.group_best < 1 ||
      x.group_best > size || x.top_k > int64_t{size} * x.kept_groups) {
    return BadInput("top_k " + std::to_string(x.top_k) + " experts cannot be chosen from " + std::to_string(x.kept_groups) +
                    " of " + std::to_string(x.groups) + " groups of " + std::to_string(x.n_experts) + " experts");
  }
  if (SoftmaxOfAll(x.routing) && x.group_best > 1) return BadInput("group_best is for routing by sigmoids");
  if (x.shared_gate && x.shared_width < 1) {
    return BadInput("shared_gate is for shared experts, and there are none: d_shared is " + std::to_string(x.shared_width));
  }
  if (x.ungated && TakesTwo(activation)) return BadInput("ungated_experts: this model's activation has a gate");
  if (x.shared_activation &&
      (x.shared_width > 0 || !l.residual.pre_norms || activation == ActivationKind::kXielu || TakesTwo(activation))) {
    return BadInput("shared_activation is for blocks with a norm before them and without shared experts");
  }
  for (const float limit : {x.limit, x.shared_limit}) {
    if (!(limit >= 0) || !std::isfinite(limit)) return BadInput("SwiGLU has a limit of " + std::to_string(limit));
    if (limit == 0) continue;
    if (!l.network.gated || activation != ActivationKind::kSilu) return BadInput("gated: limits are of SwiGLU");
  }
  if (x.limit > 0 && x.ungated) return BadInput("ungated_experts: limits are of SwiGLU");
  return {};
}

// Layers may differ in their limits.
bool SameExperts(const LayerRecipe& a, const LayerRecipe& b) {
  const auto unlimited = [](Experts x) {
    x.limit = x.shared_limit = 0;
    return x;
  };
  return unlimited(a.experts) == unlimited(b.experts);
}

double ExpertsParameters(const Recipe& r, const LayerRecipe& l) {
  const Experts& x = l.experts;
  return r.d_model * (2.0 * x.latent + 3 * (double{1} * x.n_experts * x.width + x.shared_width));
}

void DivideExperts(const LayerRecipe& l, const Dividers& by, LayerPart& part) {
  const Shard alone;
  const bool owned = by.shard.own_experts;
  part.experts = {.experts = PartOf(l.experts.n_experts, 1, owned ? by.shard : alone),
                  .hidden = PartOf(l.experts.width, kShardRows, by.units),
                  .shared = PartOf(l.experts.shared_width, kShardRows, by.units),
                  .latent = PartOf(l.experts.latent, kShardRows, by.units)};
}

bool HoldExperts(const DividedWeight& w) {
  const ExpertsPart& part = w.part.experts;
  switch (w.division) {
    case Division::kExpertHidden:
    case Division::kExpertOut:
      w.held.slices = part.experts;
      w.Add(w.division == Division::kExpertHidden ? part.hidden : w.layer.experts.latent > 0 ? part.latent : w.part.fed, false);
      return true;
    case Division::kSharedHidden: w.Add(part.shared, w.copied); return true;
    case Division::kSharedOut: w.Add(w.part.fed, w.copied); return true;
    default: return false;
  }
}

}  // namespace

const BlockRules kSparseRules = {
    .check = CheckExperts, .alike = SameExperts, .parameters = ExpertsParameters, .divide = DivideExperts, .hold = HoldExperts};

}  // namespace tally
