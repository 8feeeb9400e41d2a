// SPDX-License-Identifier: Apache-2.0
// OLMoE (Muennighoff et al. 2024): a mixture of experts in every layer; RMSNorm of all heads' queries, and keys, together.
#include "models/family.h"

namespace tally {
namespace {

constexpr std::string_view kGguf[] = {"olmoe"};
constexpr std::string_view kHf[] = {"OlmoeForCausalLM"};
constexpr std::string_view kHfTypes[] = {"olmoe"};

void Read(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  ReadDecoder(c, spec, {.norm_eps = 1e-5, .context = 4096});
  ReadFeedForwardWidth(c, r);
  ReadExperts(c, r, "num_experts", "intermediate_size");
  r.all.experts.routing = SoftmaxRule(c, false);
  r.all.attention.qk_norm = QkNormKind::kWhole;
  for (LayerRecipe& layer : r.layers) layer.feed_forward = FeedForward::kSparse;
  const bool bias = !c.gguf() && c.Bool("attention_bias", false);
  SetBiases(r, bias, bias);
  constexpr std::string_view kClip = "attention.clamp_kqv|clip_qkv";
  if (c.Has(kClip) && c.Double(kClip, 0) != 0) r.all.attention.qkv_limit = static_cast<float>(c.Positive(kClip));
  ExpectSilu(c);
}

}  // namespace

extern constinit const Family kOlmoeFamily = {"olmoe", kGguf, kHf, kHfTypes, Read};

}  // namespace tally
