// SPDX-License-Identifier: Apache-2.0
// MiniCPM (OpenBMB 2024): Llama's decoder with factors of the embedding, of what a block adds to the residual stream, and of the
// logits. GGUF permutes q and k as it does Llama's; a file without factors implies those of MiniCPM-2B. Defaults are those of the
// code published beside the weights.
#include <cmath>

#include "models/family.h"

namespace tally {
namespace {

constexpr std::string_view kGguf[] = {"minicpm"};
constexpr std::string_view kHf[] = {"MiniCPMForCausalLM"};
constexpr std::string_view kHfTypes[] = {"minicpm"};

void ReadScales(Config& c, Recipe& r) {
  const double root = std::sqrt(static_cast<double>(r.n_layers));
  if (c.gguf()) {
    r.embedding_scale = static_cast<float>(c.Positive("embedding_scale", 12));
    r.all.residual.scale = static_cast<float>(c.Positive("residual_scale", 1.4 / root));
    r.logit_scale = static_cast<float>(1 / c.Positive("logit_scale", r.d_model / 256.0));
    return;
  }
  r.embedding_scale = static_cast<float>(c.Positive("scale_emb", 1));
  r.all.residual.scale = static_cast<float>(c.Positive("scale_depth", 1) / root);
  r.logit_scale = static_cast<float>(c.Positive("dim_model_base", 1) / r.d_model);
}

void Read(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  if (c.gguf()) r.rope.style = RopeStyle::kAdjacentPair;
  ReadDecoder(c, spec, {.norm_eps = 1e-6, .n_heads = 32, .context = 2048, .vocab = 32000, .tied = true});
  ReadFeedForwardWidth(c, r);
  ExpectSilu(c);
  ReadScales(c, r);
  const bool bias = c.gguf() ? AnyLayerHas(c.inventory(), r, Role::kQBias) : c.Bool("attention_bias", false);
  SetBiases(r, bias, c.gguf() ? AnyLayerHas(c.inventory(), r, Role::kOBias) : bias);
  const std::string_view experts = c.Pick("expert_count", "num_experts");
  if (c.Has(experts) && c.Int(experts, 0, kMaxExperts) > 0) c.Unsupported(experts, "(MiniCPM-MoE)");
  if (c.gguf()) return;
  if (c.Has("sparse_config")) c.Unsupported("sparse_config", "(sparse attention)");
  // Other than with 1 the published code does not scale the logits.
  c.ExpectNumber("pretraining_tp", 1);
}

}  // namespace

extern constinit const Family kMiniCpmFamily = {"minicpm", kGguf, kHf, kHfTypes, Read};

}  // namespace tally
