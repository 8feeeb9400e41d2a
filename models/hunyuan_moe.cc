// SPDX-License-Identifier: Apache-2.0
// Hunyuan-A13B (Tencent 2025): RMSNorm of each head's query and key, after rope; in all layers experts by the softmax of all, their weights
// divided by their sum, beside a shared one. Rope's theta grows with alpha (hf_rope.cc). The configuration may list a
// number for each layer.
#include <algorithm>

#include "models/family.h"

namespace tally {
namespace {

constexpr std::string_view kGguf[] = {"hunyuan-moe"};
constexpr std::string_view kHf[] = {"HunYuanMoEV1ForCausalLM"};
constexpr std::string_view kHfTypes[] = {"hunyuan_v1_moe"};

#define TALLY_LAYER "model.layers.#."
constexpr RoleName kHfNames[] = {{Role::kQNorm, TALLY_LAYER "self_attn.query_layernorm.weight"},
                                 {Role::kKNorm, TALLY_LAYER "self_attn.key_layernorm.weight"},
                                 {Role::kRouter, TALLY_LAYER "mlp.gate.wg.weight"},
                                 {Role::kSharedExpertGate, TALLY_LAYER "mlp.shared_mlp.gate_proj.weight"},
                                 {Role::kSharedExpertUp, TALLY_LAYER "mlp.shared_mlp.up_proj.weight"},
                                 {Role::kSharedExpertDown, TALLY_LAYER "mlp.shared_mlp.down_proj.weight"}};
#undef TALLY_LAYER

// A number, or the same one for each layer. `otherwise`: the default; 0: none.
int32_t OfAllLayers(Config& c, std::string_view key, int64_t max, int32_t otherwise) {
  const MetaValue* const value = c.Find(key);
  const auto* const list = value != nullptr ? std::get_if<std::vector<int64_t>>(value) : nullptr;
  if (list == nullptr || list->empty()) return otherwise > 0 ? c.Int(key, 1, max, otherwise) : c.Int(key, 1, max);
  const int64_t first = list->front();
  if (std::ranges::count(*list, first) != std::ssize(*list)) c.Unsupported(key, "that differs among layers");
  if (first < 1 || first > max) c.Fail(std::string(key) + " has " + std::to_string(first));
  return c.ok() ? static_cast<int32_t>(first) : 1;
}

void ReadMixture(Config& c, Recipe& r) {
  if (c.gguf()) {
    ReadExperts(c, r, "", "");
    r.all.experts.shared_width = c.Int("expert_shared_feed_forward_length|feed_forward_length", 1, kMaxWidth);
  } else {
    r.all.experts.n_experts = OfAllLayers(c, "num_experts", kMaxExperts, 0);
    r.all.experts.top_k = std::min(OfAllLayers(c, "moe_topk", kMaxExperts, 1), r.all.experts.n_experts);
    const int32_t width = c.Int("intermediate_size", 1, kMaxWidth);
    r.all.experts.width = OfAllLayers(c, "moe_intermediate_size", kMaxWidth, width);
    SetSharedWidth(c, r, int64_t{OfAllLayers(c, "num_shared_expert", kMaxExperts, 1)} * width, "num_shared_expert");
    c.ExpectBool("use_mixed_mlp_moe", true);
    c.ExpectBool("norm_topk_prob", true);
    c.ExpectBool("group_limited_greedy", false);
    c.ExpectNumber("moe_layer_num_skipped", 0);
    c.ExpectNumber("routed_scaling_factor", 1);
  }
  SetSparseFrom(r, 0);
  r.all.experts.routing = RoutingRule::kSoftmaxThenTopKRenormed;
  if (c.gguf()) r.all.experts.route_scale = static_cast<float>(ReadGgufFactor(c, "expert_weights_scale"));
}

void Read(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  ReadDecoder(c, spec, {.norm_eps = 1e-5, .dynamic_alpha = true});
  ReadMixture(c, r);
  r.rope.freq_factors = c.gguf() && IsStored(c.inventory(), GgufName(Role::kRopeFactors, -1));
  r.all.attention.qk_norm = c.gguf() || c.Bool("use_qk_norm", true) ? QkNormKind::kHead : QkNormKind::kNone;
  r.all.attention.qk_norm_after_rope = r.all.attention.qk_norm != QkNormKind::kNone;
  const bool bias = !c.gguf() && c.Bool("attention_bias", false);
  SetBiases(r, bias, bias);
  for (const char* key : {"mlp_bias", "use_cla"}) c.ExpectBool(key, false);
  ExpectSilu(c);
}

}  // namespace

extern constinit const Family kHunyuanMoeFamily = {"hunyuan-moe", kGguf, kHf, kHfTypes, Read, kHfNames};

}  // namespace tally
