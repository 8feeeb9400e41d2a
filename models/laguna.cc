// SPDX-License-Identifier: Apache-2.0
// Laguna (poolside 2026): RMSNorm of each head's query and key; layers with a sliding window, a rope and heads of their own; attention's
// output times the softplus of a gate of each head (XS, S) or of each element (M); experts by sigmoids with a bias that only the choice
// sees, beside a shared one, dense layers first.
#include <algorithm>

#include "engine/base/format.h"
#include "models/family.h"

namespace tally {
namespace {

constexpr std::string_view kGguf[] = {"laguna"};
constexpr std::string_view kHf[] = {"LagunaForCausalLM"};
constexpr std::string_view kHfTypes[] = {"laguna"};

#define TALLY_LAYER "model.layers.#."
constexpr RoleName kHfNames[] = {{Role::kAttnGate, TALLY_LAYER "self_attn.g_proj.weight"},
                                 {Role::kRouterBias, TALLY_LAYER "mlp.experts.e_score_correction_bias"},
                                 {Role::kRouterBias, TALLY_LAYER "mlp.gate.e_score_correction_bias"},
                                 {Role::kSharedExpertGate, TALLY_LAYER "mlp.shared_expert.gate_proj.weight"},
                                 {Role::kSharedExpertUp, TALLY_LAYER "mlp.shared_expert.up_proj.weight"},
                                 {Role::kSharedExpertDown, TALLY_LAYER "mlp.shared_expert.down_proj.weight"},
                                 {Role::kSharedExpertGate, TALLY_LAYER "mlp.shared_experts.gate_proj.weight"},
                                 {Role::kSharedExpertUp, TALLY_LAYER "mlp.shared_experts.up_proj.weight"},
                                 {Role::kSharedExpertDown, TALLY_LAYER "mlp.shared_experts.down_proj.weight"}};
#undef TALLY_LAYER
constexpr RoleName kGgufNames[] = {{Role::kAttnGate, "blk.#.attn_gate.weight"}, {Role::kRouterBias, "blk.#.exp_probs_b.bias"}};

// GGUF without the key: every fourth layer, from the first on, sees all of the past.
void ReadWindows(Config& c, Recipe& r) {
  const int32_t window = c.Int(c.Pick("attention.sliding_window", "sliding_window"), 0, kMaxContext, c.gguf() ? 0 : 512);
  constexpr std::string_view kPattern = "attention.sliding_window_pattern";
  if (!c.gguf()) {
    ReadHfLayerTypes(c, r, window);
  } else if (c.Has(kPattern)) {
    ReadWindowPattern(c, r, kPattern, window, 4);
  } else {
    for (size_t i = 0; i < r.layers.size(); ++i) r.layers[i].attention.window = i % 4 == 0 ? 0 : window;
  }
  if (!AnyLayer(r, [](const LayerRecipe& l) { return l.attention.window > 0; })) return;
  for (LayerRecipe& layer : r.layers) layer.attention.rope = layer.attention.window > 0 ? LayerRope::kLocal : LayerRope::kGlobal;
  const std::string p = "rope_parameters.sliding_attention.";
  r.local_rope = {.style = r.rope.style, .dim = r.all.attention.head_dim, .scaling = {}};
  r.local_rope.theta = c.Positive(c.gguf() ? "rope.freq_base_swa" : p + "rope_theta", 10000);
  if (c.gguf()) {
    r.local_rope.dim = c.Int("rope.dimension_count_swa", 1, kMaxHeads, r.all.attention.head_dim);
  } else {
    const double rotated = c.Positive(p + "partial_rotary_factor", 1);
    if (rotated > 1) return c.Fail(p + "partial_rotary_factor is above 1");
    r.local_rope.dim = std::max(1, static_cast<int32_t>(r.all.attention.head_dim * rotated));
    c.ExpectText(p + "rope_type", "default");
  }
}

void ReadHeadsOfLayers(Config& c, Recipe& r) {
  const std::vector<int64_t> heads = c.gguf() ? std::vector<int64_t>() : c.Ints("num_attention_heads_per_layer");
  if (heads.empty()) return;
  if (heads.size() != r.layers.size()) {
    return c.Fail("num_attention_heads_per_layer lists " + std::to_string(heads.size()) + " layers of " +
                  std::to_string(r.layers.size()));
  }
  for (const int64_t n : heads) {
    if (n < 1 || n > kMaxHeads) return c.Fail("num_attention_heads_per_layer has " + std::to_string(n));
  }
  r.all.attention.n_heads = static_cast<int32_t>(heads[0]);
  for (size_t i = 0; i < heads.size(); ++i)
    r.layers[i].attention.n_heads = heads[i] == r.all.attention.n_heads ? 0 : static_cast<int32_t>(heads[i]);
}

// GGUF: by the rows of the first layer's gate.
bool GatesEachHead(Config& c, const Recipe& r) {
  if (c.gguf()) {
    const StoredTensor* const gate = c.inventory().Find("blk.0.attn_gate.weight");
    return gate == nullptr || gate->shape.empty() || gate->shape[0] == static_cast<uint64_t>(r.all.attention.n_heads);
  }
  std::vector<std::string> kinds = c.Strings("gating_types");
  const MetaValue* const gating = c.Find("gating");
  if (gating != nullptr && std::holds_alternative<bool>(*gating)) {
    c.ExpectBool("gating", true);
    kinds.emplace_back("per-head");
  } else {
    kinds.push_back(c.String("gating", "per-head"));
  }
  for (std::string& kind : kinds) {
    std::ranges::replace(kind, '_', '-');
    if (kind != kinds.back() || (kind != "per-head" && kind != "per-element")) c.Unsupported("gating", Quote(kind));
  }
  return kinds.back() == "per-head";
}

void ReadMixture(Config& c, Recipe& r) {
  ReadExperts(c, r, "num_experts", "moe_intermediate_size");
  const std::string_view shared = c.Pick("expert_shared_feed_forward_length", "shared_expert_intermediate_size");
  r.all.experts.shared_width = c.gguf() ? c.Int(shared, 0, kMaxWidth, r.all.experts.width) : c.Int(shared, 0, kMaxWidth, 512);
  if (c.gguf()) {
    const int32_t dense = c.Int("leading_dense_block_count", 0, kMaxLayers);
    for (int32_t i = dense; i < r.n_layers; ++i) SetSparse(r.layers[static_cast<size_t>(i)], true);
  } else if (!ReadMlpLayerTypes(c, r)) {
    const std::vector<int64_t> dense = c.Has("mlp_only_layers") ? c.Ints("mlp_only_layers") : std::vector<int64_t>{0};
    for (int64_t i = 0; i < r.n_layers; ++i)
      SetSparse(r.layers[static_cast<size_t>(i)], std::ranges::find(dense, i) == dense.end());
  }
  if (!c.gguf()) c.ExpectBool("norm_topk_prob", true);  // the published code always divides
  ReadSigmoidRouting(c, r, /*normed=*/true, 1, "moe_routed_scaling_factor");
  c.ExpectNumber("moe_router_logit_softcapping", 0);
  c.ExpectBool("moe_apply_router_weight_on_input", false);
}

void Read(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  ReadDecoder(c, spec,
              {.norm_eps = 1e-6,
               .n_kv_heads = 8,
               .head_dim = 128,
               .n_heads = 48,
               .context = 131072,
               .vocab = 100352,
               .rope_theta = 500000,
               // the class's default holds only if the configuration says nothing of rope
               .rotated = c.Has("rope_parameters.full_attention.rope_type|rope_parameters.full_attention.rope_theta") ? 1 : 0.5});
  ReadHeadsOfLayers(c, r);
  ReadWindows(c, r);
  ReadFeedForwardWidth(c, r);
  ReadMixture(c, r);
  r.all.attention.qk_norm = QkNormKind::kHead;
  r.all.attention.gate = true;
  r.all.attention.gate_softplus = true;
  r.all.attention.gate_each_head = GatesEachHead(c, r);
  const bool bias = !c.gguf() && c.Bool("attention_bias", false);
  SetBiases(r, bias, bias);
  ExpectSilu(c);
}

}  // namespace

extern constinit const Family kLagunaFamily = {"laguna", kGguf, kHf, kHfTypes, Read, kHfNames, kGgufNames};

}  // namespace tally
