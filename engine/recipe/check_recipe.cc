// SPDX-License-Identifier: Apache-2.0
#include "engine/recipe/check_recipe.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <map>
#include <string>
#include <utility>

#include "engine/recipe/block_rules.h"

namespace tally {
namespace {

std::string Text(int64_t n) { return std::to_string(n); }

Status CheckDimensions(const Recipe& r) {
  const std::pair<const char*, int64_t> positive[] = {{"n_layers", r.n_layers}, {"d_model", r.d_model}, {"vocab", r.vocab}};
  for (const auto& [name, value] : positive) {
    if (value < 1) return BadInput(std::string(name) + " is " + Text(value) + "; expected at least 1");
  }
  if (r.layers.size() != static_cast<size_t>(r.n_layers)) {
    return BadInput("the recipe describes " + Text(static_cast<int64_t>(r.layers.size())) + " layers of " + Text(r.n_layers));
  }
  if (r.learned_positions && r.context < 1) return BadInput("learned positions need a context; it is " + Text(r.context));
  if (r.tied_head && r.head_bias) return BadInput("a head that is the embedding has no bias");
  if (r.first_position < 0 || r.first_position > kMaxWidth) return BadInput("first_position is " + Text(r.first_position));
  if (r.layer_embedding < 0 || r.layer_embedding > kMaxWidth) return BadInput("layer_embedding is " + Text(r.layer_embedding));
  if (int64_t{r.layer_embedding} * r.n_layers > kMaxWidth) {
    return BadInput("embeddings of " + Text(r.layer_embedding) + " for each of " + Text(r.n_layers) + " layers are wider than " +
                    Text(kMaxWidth));
  }
  if (r.local_rope.freq_factors) return BadInput("the local rope has no stored frequency factors");
  return {};
}

Status CheckResidual(const Recipe& r, const ResidualRule& x) {
  TALLY_RETURN_IF_ERROR(CheckFactors({{"residual_scale", x.scale}}));
  if (!(x.post_norm_eps >= 0) || !std::isfinite(x.post_norm_eps)) {
    return BadInput("post_norm_eps is " + std::to_string(x.post_norm_eps));
  }
  if (!x.pre_norms && !x.post_norms && !r.counted_only) return BadInput("the blocks have norms neither before nor after them");
  return {};
}

Status CheckLayer(const Recipe& r, size_t layer) {
  const LayerRecipe& l = r.layers[layer];
  const Attention& a = l.attention;
  if (std::min({a.n_heads, a.n_kv_heads, a.head_dim, l.ffn.width}) < 0) return BadInput("a layer has a negative size");
  TALLY_RETURN_IF_ERROR(CheckResidual(r, l.residual));
  Status status;
  const auto check = [&](const BlockRules& block) {
    if (status.ok()) status = block.check(r, layer);
  };
  ForMixers(l, check);
  if (status.ok() && l.mixers.has(Mixer::kDeltaRule) && l.mixers.has(Mixer::kMamba2)) {
    return BadInput("a layer has the delta rule and Mamba-2");  // their weights have the same names
  }
  ForFeedForwards(l, check);
  return status;
}

// The symbols of the closed forms, and the step's groups of rows by expert, are the model's.
Status CheckAlike(const Recipe& r) {
  std::map<const BlockRules*, const LayerRecipe*> first;
  bool alike = true;
  for (const LayerRecipe& l : r.layers) {
    const auto compare = [&](const BlockRules& block) {
      const LayerRecipe& before = *first.try_emplace(&block, &l).first->second;
      alike = alike && (block.alike == nullptr || block.alike(before, l));
    };
    ForMixers(l, compare);
    ForFeedForwards(l, compare);
  }
  return alike ? Status() : BadInput("layers have blocks of one kind and different sizes");
}

Status CheckCounted(const Recipe& r) {
  if (!r.counted_only) return {};
  for (const CountedTensor& t : r.counted_only->tensors) {
    if (t.layer < -1 || t.layer >= r.n_layers + std::max(r.mtp_layers, 0)) {
      return BadInput(t.name + " is of layer " + Text(t.layer) + " of " + Text(r.n_layers));
    }
  }
  return {};
}

// In double, whose rounding does not matter here: the largest published models have 10^12.
Status CheckSize(const Recipe& r) {
  constexpr double kMost = 1e15;
  const double width = r.d_model;
  const auto size = [&](const LayerRecipe& l) {
    double blocks = 0;
    for (const BlockRules* block : kBlockRules) blocks += block->parameters(r, l);
    return blocks;
  };
  double layers = r.mtp_layers * size(r.all);
  for (const LayerRecipe& l : r.layers) layers += size(l);
  const double tables = double{1} * r.layer_embedding * r.n_layers * (r.vocab + 3 * width);
  const double all = layers + 2 * width * r.vocab + tables + (r.learned_positions ? width * r.context : 0);
  if (all > kMost) return BadInput("the model would have more than 10^15 parameters");
  return {};
}

}  // namespace

Status CheckFactors(std::initializer_list<std::pair<const char*, float>> positive) {
  for (const auto& [name, value] : positive) {
    if (!std::isfinite(value) || !(value > 0)) {
      return BadInput(std::string(name) + " is " + std::to_string(value) + "; expected a positive finite number");
    }
  }
  return {};
}

Status CheckRecipe(const Recipe& recipe) {
  TALLY_RETURN_IF_ERROR(CheckDimensions(recipe));
  TALLY_RETURN_IF_ERROR(CheckFactors(
      {{"norm_eps", recipe.norm_eps}, {"embedding_scale", recipe.embedding_scale}, {"logit_scale", recipe.logit_scale}}));
  for (size_t i = 0; i < recipe.layers.size(); ++i) TALLY_RETURN_IF_ERROR(CheckLayer(recipe, i));
  TALLY_RETURN_IF_ERROR(CheckAlike(recipe));
  TALLY_RETURN_IF_ERROR(CheckCounted(recipe));
  return CheckSize(recipe);
}

}  // namespace tally
