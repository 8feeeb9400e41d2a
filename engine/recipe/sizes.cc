// SPDX-License-Identifier: Apache-2.0
#include "engine/recipe/sizes.h"

#include "engine/recipe/recipe.h"

namespace tally {

ModelSizes SizesOf(const Recipe& r) {
  ModelSizes s{.family = r.family,
               .layers = r.n_layers,
               .d_model = r.d_model,
               .vocab = r.vocab,
               .context = r.context,
               .end_tokens = r.eos_tokens};
  if (const LayerRecipe& l = FirstLayer(r, &LayerRecipe::attends); l.attends()) {
    const Attention& a = r.all.attention.n_heads > 0 ? r.all.attention : l.attention;
    const bool latent = l.mixers.has(Mixer::kLatentAttention);
    s.heads = a.n_heads;
    s.kv_heads = latent ? a.n_heads : a.n_kv_heads;
    s.head_dim = latent ? l.latent.nope_dim + l.latent.rope_dim : a.head_dim;
  }
  if (const LayerRecipe& l = FirstLayer(r, &LayerRecipe::dense); l.dense()) {
    s.d_ff = r.all.ffn.width > 0 ? r.all.ffn.width : l.ffn.width;
  }
  const Experts& x = ExpertsOf(r);
  s.experts = x.n_experts;
  s.experts_used = x.top_k;
  s.expert_d_ff = x.width;
  return s;
}

SharedRecipe::SharedRecipe() {
  static const std::shared_ptr<const Recipe> kNone = std::make_shared<const Recipe>();
  recipe_ = kNone;
}

SharedRecipe::SharedRecipe(const Recipe& recipe) : recipe_(std::make_shared<const Recipe>(recipe)) {}

}  // namespace tally
