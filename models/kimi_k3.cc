// SPDX-License-Identifier: Apache-2.0
// Kimi K3 (Moonshot AI 2026): Kimi delta attention, every fourth layer latent attention whose output is gated, experts that work in a
// smaller space, and each block reads a mixture of what earlier blocks left. Counted, not run. Tensors are those of the published
// checkpoint, whose delta attention stores 128 decays for its 96 heads.
#include <algorithm>

#include "models/counted.h"
#include "models/family.h"
#include "models/readings.h"

namespace tally {
namespace {

constexpr std::string_view kHf[] = {"KimiK3ForConditionalGeneration"};
constexpr std::string_view kHfTypes[] = {"kimi_k3"};

void Read(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  if (c.inventory().tensors.empty()) spec.parts_not_run.push_back({"vision_tower", std::nullopt});
  EnterTextModel(c, spec, {"vision_tower.", "mm_projector."});
  const auto number = [&](std::string_view key, int64_t most) { return static_cast<uint64_t>(c.Int(key, 1, most)); };
  LatentAttention& l = r.all.latent;
  l.kv_rank = c.Int("kv_lora_rank", 1, kMaxWidth);
  l.q_rank = c.Int("q_lora_rank", 1, kMaxWidth);
  l.nope_dim = c.Int("qk_nope_head_dim", 1, kMaxHeads);
  l.rope_dim = c.Int("qk_rope_head_dim", 1, kMaxHeads);
  l.v_dim = c.Int("v_head_dim", 1, kMaxHeads);
  ReadDecoder(c, spec, {.norm_eps = 1e-5, .rope = false});
  ReadFeedForwardWidth(c, r);
  r.all.experts.n_experts = c.Int("num_experts", 1, kMaxExperts);
  r.all.experts.top_k = c.Int("num_experts_per_token", 1, r.all.experts.n_experts);
  r.all.experts.width = c.Int("moe_intermediate_size", 1, kMaxWidth);
  r.all.experts.shared_width = c.Int("num_shared_experts", 0, 64) * r.all.experts.width;
  r.all.experts.latent = c.Int("routed_expert_hidden_size", 0, kMaxWidth, 0);
  r.all.experts.router_bias = true;
  const int32_t dense = c.Int("first_k_dense_replace", 0, r.n_layers);
  const bool latent_norm = c.Bool("latent_moe_use_norm", false), gated = c.Bool("mla_use_output_gate", false),
             full_gate = c.Bool("linear_attn_config.use_full_rank_gate", false);
  const uint64_t heads = number("linear_attn_config.num_heads", kMaxHeads),
                 dim = number("linear_attn_config.head_dim", kMaxHeads),
                 taps = number("linear_attn_config.short_conv_kernel_size", kMaxTaps), E = static_cast<uint64_t>(r.d_model);
  const std::vector<int64_t> full = c.Ints("linear_attn_config.full_attn_layers");  // from 1
  if (!c.ok()) return;
  CountedParts parts(r);
  const auto residual = [&](const std::string& name) {
    parts.Vector(name + "_res_norm", Component::kStreams, E);
    parts.Vector(name + "_res_proj", Component::kStreams, E);
  };
  // What earlier blocks left, and the sum at hand: each has a product with a vector, and joins a weighted sum.
  const auto blocks = static_cast<uint64_t>(c.Int("attn_res_block_size", 1, kMaxLayers, 12));
  if (!c.ok()) return;
  const auto mix = [&](uint64_t earlier) {
    if (earlier > 0) parts.Work(Component::kStreams, 4 * E * (earlier + 1));
  };
  const auto begun = [&](uint64_t layers) { return (layers + blocks - 1) / blocks; };  // by so many layers
  residual("output_attn");
  mix(begun(static_cast<uint64_t>(r.n_layers)));
  for (int32_t i = 0; i < r.n_layers; ++i) {
    LayerRecipe& layer = r.layers[static_cast<size_t>(i)];
    SetSparse(layer, i >= dense);
    parts.At(i);
    residual("self_attention");
    residual("mlp");
    mix(begun(static_cast<uint64_t>(i)));
    mix(begun(static_cast<uint64_t>(i) + 1));
    if (std::ranges::find(full, i + 1) == full.end()) {
      layer.mixers = {};
      constexpr uint64_t kDecays = 128;
      parts.DeltaAttention(heads, dim, taps, full_gate, std::max(heads, kDecays));
    } else if (gated) {
      parts.Matrix("attn_gate", Component::kAttnGate,
                   static_cast<uint64_t>(r.all.attention.n_heads) * static_cast<uint64_t>(l.v_dim), E);
    }
    if (layer.sparse() && latent_norm) {
      parts.Vector("ffn_latent_norm", Component::kExpertNorm, static_cast<uint64_t>(r.all.experts.latent));
    }
  }
}

}  // namespace

extern constinit const Family kKimiK3Family = {
    "kimi-k3", {},   kHf,
    kHfTypes,  Read, {},
    {},        {},   "residuals that attend to earlier layers, a norm within the experts and SiTU activations"};

}  // namespace tally
