// SPDX-License-Identifier: Apache-2.0
// The dense feed-forward, and what experts have of it.
#include <cmath>
#include <string>

#include "engine/recipe/block_rules.h"

namespace tally {
namespace {

Status CheckDense(const Recipe& r, size_t layer) {
  const LayerRecipe& l = r.layers[layer];
  if (l.ffn.width < 1) return BadInput("the dense layers have no width: d_ff is " + std::to_string(l.ffn.width));
  return CheckNetwork(r, l.network);
}

double DenseParameters(const Recipe& r, const LayerRecipe& l) { return 3.0 * r.d_model * l.ffn.width; }

void DivideDense(const LayerRecipe& l, const Dividers& by, LayerPart& part) {
  part.ffn.hidden = PartOf(l.ffn.width, kShardRows, by.shard);
}

bool HoldDense(const DividedWeight& w) {
  if (w.division != Division::kHidden) return false;
  w.Add(w.part.ffn.hidden, false);
  return true;
}

}  // namespace

Status CheckNetwork(const Recipe& r, const Network& n) {
  TALLY_RETURN_IF_ERROR(CheckFactors({{"scales.gate", n.gate_scale}, {"scales.down", n.down_scale}}));
  const bool xielu = n.activation == ActivationKind::kXielu;
  if (!n.gated && n.gate_scale != 1) return BadInput("scales.gate is for a feed-forward with a gate");
  if (!n.gated && TakesTwo(n.activation)) return BadInput("gated: this model's activation has a gate");
  if (n.activation == ActivationKind::kNone) return BadInput("the feed-forward has no activation");
  if (xielu && (n.gated || r.layer_embedding > 0)) return BadInput("gated: this model's activation has no gate");
  if ((n.stored_xielu || n.stored_xielu_beta || n.stored_xielu_eps) && !xielu)
    return BadInput("numbers of xIELU are stored, and it is not the activation");
  const Xielu& x = n.xielu;
  if (!std::isfinite(x.alpha_n) || !std::isfinite(x.alpha_p) || !std::isfinite(x.beta) || !(x.eps <= 0)) {
    return BadInput("a number of xIELU is not finite, or its eps is above 0");
  }
  return {};
}

const BlockRules kDenseRules = {.check = CheckDense, .parameters = DenseParameters, .divide = DivideDense, .hold = HoldDense};

}  // namespace tally
