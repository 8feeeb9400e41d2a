// SPDX-License-Identifier: Apache-2.0
// LFM2 (Liquid AI 2025): gated short convolutions in most layers, attention with norms of queries and keys in the others. LFM2-MoE: the
// same, dense layers first, then experts by sigmoids, with a bias that only the choice sees. Defaults are those of transformers. GGUF says
// 0 key-value heads of a layer that convolves, and has the last norm as token_embd_norm, files of ollama's as output_norm.
#include <algorithm>

#include "engine/base/format.h"
#include "models/family.h"

namespace tally {
namespace {

constexpr std::string_view kGguf[] = {"lfm2", "lfm2moe"};
constexpr std::string_view kHf[] = {"Lfm2ForCausalLM", "Lfm2MoeForCausalLM"};
constexpr std::string_view kHfTypes[] = {"lfm2", "lfm2_moe"};

#define TALLY_LAYER "model.layers.#."
#define TALLY_FFN TALLY_LAYER "feed_forward."
constexpr RoleName kHfNames[] = {
    {Role::kOutputNorm, "model.embedding_norm.weight"},
    {Role::kAttnNorm, TALLY_LAYER "operator_norm.weight"},
    {Role::kFfnNorm, TALLY_LAYER "ffn_norm.weight"},
    {Role::kQNorm, TALLY_LAYER "self_attn.q_layernorm.weight"},
    {Role::kKNorm, TALLY_LAYER "self_attn.k_layernorm.weight"},
    {Role::kO, TALLY_LAYER "self_attn.out_proj.weight"},
    {Role::kConvIn, TALLY_LAYER "conv.in_proj.weight"},
    {Role::kConv, TALLY_LAYER "conv.conv.weight", Storage::kConv1d},
    {Role::kConvOut, TALLY_LAYER "conv.out_proj.weight"},
    {Role::kGate, TALLY_FFN "w1.weight"},
    {Role::kUp, TALLY_FFN "w3.weight"},
    {Role::kDown, TALLY_FFN "w2.weight"},
    {Role::kRouter, TALLY_FFN "gate.weight"},
    {Role::kRouterBias, TALLY_FFN "expert_bias"},
    {Role::kExpertGate, TALLY_FFN "experts.*.w1.weight"},
    {Role::kExpertUp, TALLY_FFN "experts.*.w3.weight"},
    {Role::kExpertDown, TALLY_FFN "experts.*.w2.weight"},
};
#undef TALLY_FFN
#undef TALLY_LAYER
constexpr RoleName kGgufNames[] = {{Role::kOutputNorm, "token_embd_norm.weight"},
                                   {Role::kOutputNorm, "output_norm.weight"},
                                   {Role::kConv, "blk.#.shortconv.conv.weight", Storage::kTaps},
                                   {Role::kRouterBias, "blk.#.exp_probs_b.bias"}};

// Whether each layer attends. Hugging Face: by layer_types, or by the older list of indices; without either all do.
std::vector<bool> ReadAttends(Config& c, const Recipe& r) {
  std::vector<bool> attends(r.layers.size(), true);
  if (c.gguf()) {
    const std::vector<int32_t> kv_heads = ReadOfLayers(c, r, "attention.head_count_kv", kMaxHeads);
    for (size_t i = 0; i < kv_heads.size(); ++i) attends[i] = kv_heads[i] > 0;
    return attends;
  }
  const std::vector<std::string> types = c.Strings("layer_types");
  const std::vector<int64_t> listed = c.Ints("full_attn_idxs");
  if (!types.empty() && types.size() != attends.size()) {
    c.Fail("layer_types lists " + std::to_string(types.size()) + " layers of " + std::to_string(attends.size()));
    return attends;
  }
  for (size_t i = 0; i < attends.size(); ++i) {
    if (types.empty()) {
      attends[i] = listed.empty() || std::ranges::find(listed, static_cast<int64_t>(i)) != listed.end();
    } else {
      attends[i] = types[i] == "full_attention";
      if (!attends[i] && types[i] != "conv") c.Unsupported("layer_types", Quote(types[i]));
    }
  }
  return attends;
}

// Lfm2MLP: two thirds of the configured width, times a multiplier, rounded up to a multiple.
int32_t AdjustedWidth(Config& c, int32_t width) {
  if (!c.Bool("block_auto_adjust_ff_dim", true)) return width;
  int64_t n = int64_t{2} * width / 3;
  if (!c.IsNull("block_ffn_dim_multiplier"))
    n = static_cast<int64_t>(c.Positive("block_ffn_dim_multiplier", 1) * static_cast<double>(n));
  const int64_t step = c.Int("block_multiple_of", 1, kMaxWidth, 256), rounded = (n + step - 1) / step * step;
  if (rounded < 1 || rounded > kMaxWidth) c.Fail("the feed-forward would be " + std::to_string(rounded) + " wide");
  return c.ok() ? static_cast<int32_t>(rounded) : 1;
}

// GGUF has no key for weights that are not normalised: llama.cpp normalises them, whatever expert_weights_norm says.
void ReadMixture(Config& c, Recipe& r) {
  r.family = "lfm2-moe";
  ReadExperts(c, r, "num_experts", "moe_intermediate_size");
  const bool normed = c.gguf() || c.Bool("norm_topk_prob", true);
  r.all.experts.routing = normed ? RoutingRule::kSigmoidThenTopKRenormed : RoutingRule::kSigmoidThenTopK;
  r.all.experts.route_sum_eps = normed ? 1e-6f : 0;
  r.all.experts.route_scale =
      static_cast<float>(c.gguf() ? ReadGgufFactor(c, "expert_weights_scale") : c.Positive("routed_scaling_factor", 1));
  r.all.experts.router_bias =
      c.gguf() ? AnyLayerHas(c.inventory(), r, "blk.#.exp_probs_b.bias") : c.Bool("use_expert_bias", true);
  constexpr int32_t kSigmoid = 2;
  if (c.gguf() && c.Int("expert_gating_func", 0, 255, kSigmoid) != kSigmoid) c.Unsupported("expert_gating_func", "other than 2");
  const int32_t dense =
      c.gguf() ? c.Int("leading_dense_block_count", 0, kMaxLayers, 0) : c.Int("num_dense_layers", 0, kMaxLayers, 2);
  for (int32_t i = dense; i < static_cast<int32_t>(r.layers.size()); ++i) SetSparse(r.layers[static_cast<size_t>(i)], true);
}

void Read(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  const bool mixture = c.Is({"Lfm2MoeForCausalLM", "lfm2_moe", "lfm2moe"});
  ReadDecoder(c, spec,
              {.norm_eps = 1e-5,
               .n_kv_heads = 8,
               .n_heads = 32,
               .context = 128000,
               .vocab = 65536,
               .rope_theta = 1000000,
               .tied = true,
               .hf_eps = "norm_eps",
               .gguf_absent_heads = true});
  if (!c.gguf() && c.Has("tie_embedding"))
    r.tied_head = c.Bool("tie_embedding", true);  // the older key counts if both are present
  r.all.attention.qk_norm = QkNormKind::kHead;
  c.ExpectBool("conv_bias", false);
  r.all.conv.taps = c.gguf() ? c.Int("shortconv.l_cache", 1, kMaxTaps) : c.Int("conv_L_cache", 1, kMaxTaps, 3);
  const std::vector<bool> attends = ReadAttends(c, r);
  const int32_t window = c.gguf() ? c.Int("attention.sliding_window", 0, kMaxContext, 0) : 0;
  for (size_t i = 0; i < r.layers.size(); ++i) {
    r.layers[i].mixers = attends[i] ? Mixer::kAttention : Mixer::kShortConv;
    r.layers[i].attention.window = attends[i] ? window : 0;
  }
  if (c.gguf()) {
    ReadFeedForwardWidth(c, r);
  } else {
    const int32_t width = c.Int("block_ff_dim|intermediate_size", 1, kMaxWidth, mixture ? 7168 : 12288);
    r.all.ffn.width = mixture ? width : AdjustedWidth(c, width);
  }
  if (mixture) ReadMixture(c, r);
}

}  // namespace

extern constinit const Family kLfm2Family = {"lfm2", kGguf, kHf, kHfTypes, Read, kHfNames, kGgufNames};

}  // namespace tally
