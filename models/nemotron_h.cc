// SPDX-License-Identifier: Apache-2.0
// Nemotron-H and Nemotron 3 (NVIDIA 2025): a layer is a norm and one of Mamba-2, attention without rope, a feed-forward with squared ReLU
// and no gate, or a mixture of such experts, by sigmoids, with a bias that only the choice sees and shared experts; the experts may
// work on a projection. GGUF says of each layer how many key-value heads it has and how wide its feed-forward is: both 0 is Mamba-2,
// 0 wide is attention. Defaults are those of transformers.
//
// The layer for multi-token prediction is attention, then experts (mtp_hybrid_override_pattern "*E"), stored as two layers in Hugging Face
// files and as one in GGUF's. Source: vLLM nemotron_h_mtp.py, TensorRT-LLM modeling_nemotron_h.py. Its last norm is RMSNorm in both;
// llama.cpp (nemotron-h-moe.cpp) subtracts the mean there.
#include <algorithm>
#include <optional>

#include "engine/base/format.h"
#include "models/family.h"
#include "models/mamba.h"

namespace tally {
namespace {

constexpr std::string_view kGguf[] = {"nemotron_h", "nemotron_h_moe"};
constexpr std::string_view kHf[] = {"NemotronHForCausalLM"};
constexpr std::string_view kHfTypes[] = {"nemotron_h"};

constexpr RoleName kGgufNames[] = {TALLY_MAMBA_GGUF,
                                   {Role::kFfnNorm, "blk.#.attn_norm.weight"},
                                   {.role = Role::kFfnNorm, .name = "blk.#.post_attention_norm.weight", .prediction = true},
                                   {Role::kRouterBias, "blk.#.exp_probs_b.bias"}};
#define TALLY_MIXER "~layers.#.mixer."
#define TALLY_PREDICTION(of, stored) \
  { Role::of, "mtp.layers." stored, Storage::kPlain, nullptr, std::nullopt, true }
constexpr RoleName kHfNames[] = {{Role::kTokenEmbedding, "~embeddings.weight"},
                                 {Role::kOutputNorm, "~norm_f.weight"},
                                 {Role::kHead, "lm_head.weight"},
                                 {Role::kAttnNorm, "~layers.#.norm.weight"},
                                 {Role::kFfnNorm, "~layers.#.norm.weight"},
                                 TALLY_MAMBA_HF(TALLY_MIXER),
                                 {Role::kQ, TALLY_MIXER "q_proj.weight"},
                                 {Role::kQBias, TALLY_MIXER "q_proj.bias"},
                                 {Role::kK, TALLY_MIXER "k_proj.weight"},
                                 {Role::kKBias, TALLY_MIXER "k_proj.bias"},
                                 {Role::kV, TALLY_MIXER "v_proj.weight"},
                                 {Role::kVBias, TALLY_MIXER "v_proj.bias"},
                                 {Role::kO, TALLY_MIXER "o_proj.weight"},
                                 {Role::kOBias, TALLY_MIXER "o_proj.bias"},
                                 {Role::kUp, TALLY_MIXER "up_proj.weight"},
                                 {Role::kUpBias, TALLY_MIXER "up_proj.bias"},
                                 {Role::kDown, TALLY_MIXER "down_proj.weight"},
                                 {Role::kDownBias, TALLY_MIXER "down_proj.bias"},
                                 {Role::kRouter, TALLY_MIXER "gate.weight"},
                                 {Role::kRouterBias, TALLY_MIXER "gate.e_score_correction_bias"},
                                 {Role::kExpertUp, TALLY_MIXER "experts.*.up_proj.weight"},
                                 {Role::kExpertDown, TALLY_MIXER "experts.*.down_proj.weight"},
                                 {Role::kSharedExpertUp, TALLY_MIXER "shared_experts.up_proj.weight"},
                                 {Role::kSharedExpertDown, TALLY_MIXER "shared_experts.down_proj.weight"},
                                 {Role::kLatentIn, TALLY_MIXER "fc1_latent_proj.weight"},
                                 {Role::kLatentOut, TALLY_MIXER "fc2_latent_proj.weight"},
                                 TALLY_PREDICTION(kNextEmbeddingNorm, "0.enorm.weight"),
                                 TALLY_PREDICTION(kNextHiddenNorm, "0.hnorm.weight"),
                                 TALLY_PREDICTION(kNextProj, "0.eh_proj.weight"),
                                 TALLY_PREDICTION(kAttnNorm, "0.norm.weight"),
                                 TALLY_PREDICTION(kQ, "0.mixer.q_proj.weight"),
                                 TALLY_PREDICTION(kQBias, "0.mixer.q_proj.bias"),
                                 TALLY_PREDICTION(kK, "0.mixer.k_proj.weight"),
                                 TALLY_PREDICTION(kKBias, "0.mixer.k_proj.bias"),
                                 TALLY_PREDICTION(kV, "0.mixer.v_proj.weight"),
                                 TALLY_PREDICTION(kVBias, "0.mixer.v_proj.bias"),
                                 TALLY_PREDICTION(kO, "0.mixer.o_proj.weight"),
                                 TALLY_PREDICTION(kOBias, "0.mixer.o_proj.bias"),
                                 TALLY_PREDICTION(kFfnNorm, "1.norm.weight"),
                                 TALLY_PREDICTION(kRouter, "1.mixer.gate.weight"),
                                 TALLY_PREDICTION(kRouterBias, "1.mixer.gate.e_score_correction_bias"),
                                 TALLY_PREDICTION(kExpertUp, "1.mixer.experts.*.up_proj.weight"),
                                 TALLY_PREDICTION(kExpertDown, "1.mixer.experts.*.down_proj.weight"),
                                 TALLY_PREDICTION(kSharedExpertUp, "1.mixer.shared_experts.up_proj.weight"),
                                 TALLY_PREDICTION(kSharedExpertDown, "1.mixer.shared_experts.down_proj.weight"),
                                 TALLY_PREDICTION(kLatentIn, "1.mixer.fc1_latent_proj.weight"),
                                 TALLY_PREDICTION(kLatentOut, "1.mixer.fc2_latent_proj.weight"),
                                 TALLY_PREDICTION(kNextHeadNorm, "1.final_layernorm.weight")};
#undef TALLY_PREDICTION
#undef TALLY_MIXER

// The kind of each layer: 'M', '*', '-' (a feed-forward) or 'E' (experts).
std::string ReadHfLayers(Config& c) {
  std::string kinds;
  for (const std::string& name : c.Strings("layers_block_type")) {
    const bool mamba = name == "mamba" || name == "linear_attention", attention = name == "attention" || name == "full_attention";
    kinds += mamba ? 'M' : attention ? '*' : name == "mlp" ? '-' : name == "moe" ? 'E' : '?';
    if (kinds.back() == '?') c.Unsupported("layers_block_type", Quote(name));
  }
  if (kinds.empty()) kinds = c.String("hybrid_override_pattern", "");
  if (const size_t other = kinds.find_first_not_of("M*-E"); other != kinds.npos) {
    c.Unsupported("hybrid_override_pattern", Quote(kinds.substr(other, 1)));
  }
  return kinds;
}

std::string ReadGgufLayers(Config& c, const Recipe& r) {
  const std::vector<int32_t> kv_heads = ReadOfLayers(c, r, "attention.head_count_kv", kMaxHeads),
                             widths = ReadOfLayers(c, r, "feed_forward_length", kMaxWidth);
  const bool mixture = c.Int("expert_count", 0, kMaxExperts, 0) > 0;
  std::string kinds;
  for (size_t i = 0; i < widths.size(); ++i) {
    const bool dense = !mixture || IsStored(c.inventory(), GgufName(Role::kUp, static_cast<int32_t>(i)));
    kinds += widths[i] > 0 ? (dense ? '-' : 'E') : kv_heads[i] > 0 ? '*' : 'M';
  }
  return kinds;
}

void ReadMixture(Config& c, Recipe& r) {
  r.family = "nemotron-h-moe";
  ReadExperts(c, r, "n_routed_experts|num_local_experts", "moe_intermediate_size");
  r.all.experts.shared_width =
      c.Int(c.Pick("expert_shared_feed_forward_length", "moe_shared_expert_intermediate_size"), 0, kMaxWidth, 0);
  const bool latent = c.gguf() ? c.Has("moe_latent_size") : c.Has("moe_latent_size") && !c.IsNull("moe_latent_size");
  if (latent) r.all.experts.latent = c.Int("moe_latent_size", 1, kMaxWidth);
  const bool normed = c.Bool(c.Pick("expert_weights_norm", "norm_topk_prob"), true);
  r.all.experts.routing = normed ? RoutingRule::kSigmoidThenTopKRenormed : RoutingRule::kSigmoidThenTopK;
  r.all.experts.router_bias = !c.gguf() || AnyLayerHas(c.inventory(), r, "blk.#.exp_probs_b.bias");
  r.all.experts.route_scale =
      static_cast<float>(c.gguf() ? ReadGgufFactor(c, "expert_weights_scale") : c.Positive("routed_scaling_factor", 1));
  r.all.experts.groups = c.Int(c.Pick("expert_group_count", "n_group"), 1, kMaxExperts, 1);
  r.all.experts.kept_groups = c.Int(c.Pick("expert_group_used_count", "topk_group"), 1, r.all.experts.groups, 1);
  r.all.experts.group_best = r.all.experts.groups > 1 ? 2 : 1;
}

void Read(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  if (!c.gguf() && c.tensor_prefix != kBody) {
    c.tensor_prefix = "backbone.";
    FindPrefix(c, "model.layers.");
    if (c.tensor_prefix == "model.layers.") c.tensor_prefix = "model.";
  }
  std::string kinds = c.gguf() ? std::string() : ReadHfLayers(c);
  ReadDecoder(c, spec,
              {.norm_eps = 1e-5,
               .n_kv_heads = 8,
               .head_dim = 128,
               .n_heads = 32,
               .context = 4096,
               .vocab = 131072,
               .n_layers = static_cast<int32_t>(std::min(kinds.size(), static_cast<size_t>(kMaxLayers))),
               .hf_eps = "layer_norm_epsilon",
               .gguf_eps = "attention.layer_norm_rms_epsilon|attention.layer_norm_epsilon",
               .gguf_absent_heads = true,
               .rope = false});
  r.all.network.gated = false;
  r.all.network.activation = ActivationKind::kRelu2;
  if (c.gguf()) kinds = ReadGgufLayers(c, r);
  if (c.ok() && kinds.size() != r.layers.size()) {
    c.Fail("it describes " + std::to_string(kinds.size()) + " layers of " + std::to_string(r.layers.size()));
  }
  for (size_t i = 0; i < r.layers.size() && i < kinds.size(); ++i) {
    LayerRecipe& layer = r.layers[i];
    layer.attention.rope = LayerRope::kNone;
    layer.mixers = {};
    layer.feed_forward = {};
    if (kinds[i] == 'M') layer.mixers = Mixer::kMamba2;
    if (kinds[i] == '*') layer.mixers = Mixer::kAttention;
    if (kinds[i] == '-') layer.feed_forward = FeedForward::kDense;
    if (kinds[i] == 'E') layer.feed_forward = FeedForward::kSparse;
  }
  if (AnyLayer(r, &LayerRecipe::dense)) {
    r.all.ffn.width = c.gguf() ? 0 : c.Int("intermediate_size", 1, kMaxWidth, 21504);
    const std::vector<int32_t> widths = c.gguf() ? ReadOfLayers(c, r, "feed_forward_length", kMaxWidth) : std::vector<int32_t>();
    for (size_t i = 0; i < widths.size(); ++i) {
      if (!r.layers[i].dense()) continue;
      if (r.all.ffn.width == 0) r.all.ffn.width = widths[i];
      r.layers[i].ffn.width = widths[i] == r.all.ffn.width ? 0 : widths[i];
    }
  }
  if (AnyLayer(r, &LayerRecipe::recurrent)) {
    ReadMamba2(c, r,
               {.heads = "mamba_num_heads",
                .head_dim = "mamba_head_dim",
                .state_dim = "ssm_state_size",
                .groups = "n_groups|mamba_n_groups",
                .taps = "conv_kernel|mamba_d_conv",
                .conv_bias = "use_conv_bias|mamba_conv_bias",
                .dim = 64,
                .n_state = 128,
                .n_groups = 8});
    r.all.mamba.norm_groups = r.all.mamba.groups;
  }
  if (AnyLayer(r, &LayerRecipe::sparse)) ReadMixture(c, r);
  if (c.gguf()) {
    ReadGgufPredictionLayers(c, spec);
  } else {
    if (c.Has("num_nextn_predict_layers")) r.mtp_layers = c.Int("num_nextn_predict_layers", 0, kMaxLayers);
    AddNotRun(c, spec, "mtp.");
    c.ExpectText("mlp_hidden_act", "relu2");
    c.ExpectBool("use_bias", false);
    r.all.ffn.bias = c.Bool("mlp_bias", false);
    const bool bias = c.Bool("attention_bias", false);
    SetBiases(r, bias, bias);
  }
}

}  // namespace

extern constinit const Family kNemotronHFamily = {"nemotron-h", kGguf, kHf, kHfTypes, Read, kHfNames, kGgufNames, {}, {}, true};

}  // namespace tally
