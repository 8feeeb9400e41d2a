#include "engine/recipe/recipe_check.h"

#include <algorithm>

namespace tally {

std::vector<std::string> CannotRun(const Recipe& r) {
  const auto any_layer = [&](LayerRope rope) {
    return r.rope.style != RopeStyle::kNone &&
           std::ranges::any_of(r.layers, [&](const LayerRecipe& l) { return l.rope == rope; });
  };
  const std::pair<bool, const char*> options[] = {
      {r.latent.kv_rank > 0, "latent attention"},
      {r.qk_norm == QkNormKind::kWhole, "norms of whole queries and keys"},
      {r.routing == RoutingRule::kSigmoidThenTopKRenormed, "routing by sigmoids"},
      {r.d_shared > 0, "shared experts"},
      {r.mtp_layers > 0, "layers for multi-token prediction"},
      {r.post_norms, "norms after attention and feed-forward"},
      {r.residual == Residual::kParallel, "a parallel residual"},
      {any_layer(LayerRope::kLocal), "a rope of local layers"},
      {any_layer(LayerRope::kNone), "layers without rope"},
      {r.embedding_scale != 1, "a scaled embedding"},
  };
  std::vector<std::string> names;
  for (const auto& [needed, name] : options) {
    if (needed) names.emplace_back(name);
  }
  return names;
}

}  // namespace tally
