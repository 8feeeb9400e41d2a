// SPDX-License-Identifier: Apache-2.0
// DeepSeekMoE (Dai et al. 2024): shared experts beside those that are chosen among, dense layers first. DeepSeek-V2 and -V3 (2024): the
// same with multi-head latent attention, and experts chosen from a few groups; V3, whose architecture Kimi-K2 has too, with routing by
// sigmoids, a bias that only the choice sees, and layers for multi-token prediction. Defaults are those of
// transformers and of the code published beside the weights. GLM-4.7-Flash (Zhipu 2026) is V3 by another name. Mistral Small 4 (Mistral AI
// 2026) has V2's experts, weights divided by their sum, and queries that grow with their position; a checkpoint with a vision tower has
// its text model below text_config. Kimi-K2.5 (Moonshot AI 2026) is Kimi-K2 there, beside a tower. GGUF permutes q and k of DeepSeekMoE
// as it does Llama's, and has V2 and V3 as deepseek2: old files with the matrix of keys and values whole, new ones cut by head with the
// part of the keys transposed.
#include <cmath>

#include "engine/base/format.h"
#include "engine/recipe/rope_freqs.h"
#include "models/deepseek.h"
#include "models/family.h"
#include "models/latent_rows.h"
#include "models/vision.h"

namespace tally {
namespace {

constexpr std::string_view kGguf[] = {"deepseek", "deepseek2", "mistral4"};
constexpr std::string_view kHf[] = {"DeepseekForCausalLM",    "DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM",
                                    "Glm4MoeLiteForCausalLM", "Mistral4ForCausalLM",   "KimiK25ForConditionalGeneration"};
constexpr std::string_view kHfTypes[] = {"deepseek", "deepseek_v2", "deepseek_v3", "glm4_moe_lite", "mistral4", "kimi_k25"};

#define TALLY_LAYER "~model.layers.#."
constexpr RoleName kHfNames[] = {{Role::kQA, TALLY_LAYER "self_attn.q_a_proj.weight"},
                                 {Role::kQANorm, TALLY_LAYER "self_attn.q_a_layernorm.weight"},
                                 {Role::kQB, TALLY_LAYER "self_attn.q_b_proj.weight"},
                                 {Role::kKvA, TALLY_LAYER "self_attn.kv_a_proj_with_mqa.weight"},
                                 {Role::kKvANorm, TALLY_LAYER "self_attn.kv_a_layernorm.weight"},
                                 {Role::kKB, TALLY_LAYER "self_attn.kv_b_proj.weight", Storage::kTransposedHeads, LatentKeyRows},
                                 {Role::kVB, TALLY_LAYER "self_attn.kv_b_proj.weight", Storage::kPlain, LatentValueRows},
                                 {Role::kRouterBias, TALLY_LAYER "mlp.gate.e_score_correction_bias"},
                                 {Role::kSharedExpertGate, TALLY_LAYER "mlp.shared_experts.gate_proj.weight"},
                                 {Role::kSharedExpertUp, TALLY_LAYER "mlp.shared_experts.up_proj.weight"},
                                 {Role::kSharedExpertDown, TALLY_LAYER "mlp.shared_experts.down_proj.weight"}};
#undef TALLY_LAYER
constexpr RoleName kGgufNames[] = {{Role::kKB, "blk.#.attn_k_b.weight"},
                                   {Role::kKB, "blk.#.attn_kv_b.weight", Storage::kTransposedHeads, LatentKeyRows},
                                   {Role::kVB, "blk.#.attn_v_b.weight"},
                                   {Role::kVB, "blk.#.attn_kv_b.weight", Storage::kPlain, LatentValueRows},
                                   {Role::kRouterBias, "blk.#.exp_probs_b.bias"}};

void ReadLatent(Config& c, Recipe& r, int32_t kv_rank = 512, int32_t q_rank = 1536, int32_t nope = 128, int32_t v = 128) {
  LatentAttention& l = r.all.latent;
  r.rope.style = RopeStyle::kAdjacentPair;
  l.kv_rank = c.gguf() ? c.Int("attention.kv_lora_rank", 1, kMaxWidth) : c.Int("kv_lora_rank", 1, kMaxWidth, kv_rank);
  if (c.gguf()) {
    l.q_rank = c.Int("attention.q_lora_rank", 1, kMaxWidth, 0);
    l.rope_dim = c.Int("rope.dimension_count", 1, kMaxHeads);
    l.nope_dim = c.Int("attention.key_length_mla|attention.key_length", l.rope_dim, kMaxHeads) - l.rope_dim;
    l.v_dim = c.Int("attention.value_length_mla|attention.value_length", 1, kMaxHeads);
    // Files of other converters have one eps for all norms; Tally's have the published code's.
    l.norm_eps =
        static_cast<float>(c.Positive("attention.latent_norm_rms_epsilon", c.Positive("attention.layer_norm_rms_epsilon")));
    return;
  }
  l.q_rank = c.Int("q_lora_rank", 1, kMaxWidth, c.IsNull("q_lora_rank") ? 0 : q_rank);
  l.nope_dim = c.Int("qk_nope_head_dim", 1, kMaxHeads, nope);
  l.rope_dim = c.Int("qk_rope_head_dim", 1, kMaxHeads, 64);
  l.v_dim = c.Int("v_head_dim", 1, kMaxHeads, v);
  if (!c.Bool("rope_interleave", true)) r.rope.style = RopeStyle::kRotateHalf;
}

// YaRN's magnitude that the checkpoint moves into the factor of q.k; 0: it moves none.
double AllDim(Config& c) {
  constexpr std::string_view kMultiplier = "rope.scaling.yarn_log_multiplier";
  if (c.gguf()) return c.Double(kMultiplier, 0) != 0 ? 10 * c.Positive(kMultiplier) : 0;
  constexpr std::string_view kAllDim = "rope_scaling.mscale_all_dim|rope_parameters.mscale_all_dim";
  return c.Has(kAllDim) ? c.Positive(kAllDim) : 0;
}

// Groups of experts, and what multiplies their weights. `best`: experts that a group is judged by.
void ReadGroups(Config& c, Recipe& r, int32_t groups, int32_t kept, int32_t best) {
  r.all.experts.groups = c.Int(c.Pick("expert_group_count", "n_group"), 1, kMaxExperts, groups);
  r.all.experts.kept_groups =
      c.Int(c.Pick("expert_group_used_count", "topk_group"), 1, r.all.experts.groups, std::min(kept, r.all.experts.groups));
  r.all.experts.group_best = r.all.experts.groups > 1 ? best : 1;
}

void ReadRoutingV2(Config& c, Recipe& r) {
  const std::string method = c.gguf() ? "group_limited_greedy" : c.String("topk_method", "greedy");
  if (method == "group_limited_greedy") {
    ReadGroups(c, r, 1, 1, 1);
  } else if (method != "greedy") {
    c.Unsupported("topk_method", Quote(method));
  }
  c.ExpectText("scoring_func", "softmax");
  const bool normed = c.Bool(c.Pick("expert_weights_norm", "norm_topk_prob"), false);
  r.all.experts.routing = normed ? RoutingRule::kSoftmaxThenTopKRenormed : RoutingRule::kSoftmaxThenTopK;
  const double scale = c.gguf() ? ReadGgufFactor(c, "expert_weights_scale") : c.Positive("routed_scaling_factor", 1);
  if (!normed || c.gguf())
    r.all.experts.route_scale = static_cast<float>(scale);  // the published code scales unnormalised weights
}

void ReadRoutingV3(Config& c, Recipe& r) {
  const bool normed = c.Bool(c.Pick("expert_weights_norm", "norm_topk_prob"), !c.gguf());
  r.all.experts.routing = normed ? RoutingRule::kSigmoidThenTopKRenormed : RoutingRule::kSigmoidThenTopK;
  r.all.experts.route_scale =
      static_cast<float>(c.gguf() ? ReadGgufFactor(c, "expert_weights_scale") : c.Positive("routed_scaling_factor", 2.5));
  c.gguf() ? ReadGroups(c, r, 1, 1, 2) : ReadGroups(c, r, 8, 4, 2);
  r.all.experts.router_bias = !c.gguf() || AnyLayerHas(c.inventory(), r, "blk.#.exp_probs_b.bias");
  c.ExpectText("topk_method", "noaux_tc");
  c.ExpectText("scoring_func", "sigmoid");
}

// DeepSeekMoE has no groups of experts. Its GGUF files imply that the weights are not normalised.
void ReadRoutingV1(Config& c, Recipe& r) {
  r.all.experts.routing = SoftmaxRule(c, false);
  c.ExpectText("scoring_func", "softmax");
  c.ExpectText("topk_method", "greedy");
  const double scale = c.gguf() ? ReadGgufFactor(c, "expert_weights_scale") : c.Positive("routed_scaling_factor", 1);
  if (scale != 1) c.Unsupported(c.Pick("expert_weights_scale", "routed_scaling_factor"), "other than 1");
}

// Mistral Small 4. Positions count in original contexts. Hugging Face: its rope's magnitudes are 1, and do not go into the factor of q.k.
void ReadMistral4(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  const bool towers = !c.gguf() && !c.Is({"Mistral4ForCausalLM"}) && c.inventory().metadata.Has("text_config.model_type");
  if (!c.gguf()) EnterTextModel(c, spec, {"vision_tower.", "multi_modal_projector."});
  if (towers && c.inventory().tensors.empty()) spec.parts_not_run.push_back({"vision_tower and projector", std::nullopt});
  r.family = "mistral4";
  ReadLatent(c, r, 256, 1024, 64);
  ReadMistralDecoder(c, spec, {.norm_eps = 1e-6, .n_heads = 32, .context = 1048576, .vocab = 131072}, /*required=*/true);
  const RopeScaling& s = r.rope.scaling;
  if (const double all = c.gguf() && s.kind == RopeScalingKind::kYarn ? AllDim(c) : 0; all > 0) {
    SetAttentionScale(r, UsualAttentionScale(r) * std::pow(YarnMagnitude(s.factor, all), 2));
  }
  ReadFeedForwardWidth(c, r);
  ReadSharedExperts(c, spec);
  ExpectSilu(c);
  c.ExpectBool("attention_bias", false);
  // GGUF: expert_gating_func 2 is the sigmoid.
  if (c.gguf() && c.Int("expert_gating_func", 0, 2, 1) == 2) return ReadSigmoidRouting(c, r, true);
  const bool normed = c.Bool(c.Pick("expert_weights_norm", "norm_topk_prob"), !c.gguf());
  r.all.experts.routing = normed ? RoutingRule::kSoftmaxThenTopKRenormed : RoutingRule::kSoftmaxThenTopK;
  r.all.experts.route_scale =
      static_cast<float>(c.gguf() ? ReadGgufFactor(c, "expert_weights_scale") : c.Positive("routed_scaling_factor", 1));
  if (c.Int(c.Pick("expert_group_count", "n_group"), 0, kMaxExperts, 1) > 1) c.Unsupported("n_group", "above 1");
}

// GLM-4.7-Flash in GGUF files of before expert_gating_func: by its layers, with or without the one for prediction, and its vocabulary.
bool IsGlm47Flash(Config& c) {
  const int32_t blocks = c.Int("block_count", 1, kMaxLayers);
  return !c.Has("expert_gating_func") && (blocks == 47 || blocks == 48) && GgufVocabulary(c) == 154880;
}

}  // namespace

void ReadDeepseek(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  if (c.Is({"Mistral4ForCausalLM", "mistral4"})) return ReadMistral4(c, spec);
  if (c.Is({"KimiK25ForConditionalGeneration", "kimi_k25"})) {
    if (c.inventory().tensors.empty()) AddKimiVision(c, spec);
    EnterTextModel(c, spec, {"vision_tower.", "mm_projector."});
  }
  const bool glm = c.Is({"Glm4MoeLiteForCausalLM", "glm4_moe_lite"});
  const bool latent = !c.Is({"DeepseekForCausalLM", "deepseek"});
  // GGUF: expert_gating_func 2 is the sigmoid.
  const bool v3 = c.gguf() ? c.Int("expert_gating_func", 1, 2, 1) == 2 || IsGlm47Flash(c)
                           : latent && !c.Is({"DeepseekV2ForCausalLM", "deepseek_v2"});
  if (latent) r.family = v3 ? "deepseek-v3" : "deepseek-v2";
  if (latent) glm ? ReadLatent(c, r, 512, 768, 192, 256) : ReadLatent(c, r);
  if (!latent && c.gguf()) r.rope.style = RopeStyle::kAdjacentPair;
  // V2 has two published classes, transformers' and the makers'. They differ in the default of vocab_size: it must be in the file.
  if (glm) {
    ReadDecoder(c, spec, {.norm_eps = 1e-5, .n_heads = 20, .context = 202752, .vocab = 154880});
  } else {
    ReadDecoder(c, spec, {.norm_eps = 1e-6, .context = v3 ? 4096 : 2048, .vocab = v3 ? 129280 : 0});
  }
  ReadFeedForwardWidth(c, r);
  ReadSharedExperts(c, spec, glm ? 1 : -1);
  if (c.gguf()) ReadGgufPredictionLayers(c, spec);
  if (glm) ReadMlpLayerTypes(c, r);
  ExpectSilu(c);
  for (const char* key : {"attention_bias", "mlp_bias"}) c.ExpectBool(key, false);
  const double all = latent && r.rope.scaling.kind == RopeScalingKind::kYarn ? AllDim(c) : 0;
  if (all > 0) {
    SetAttentionScale(r, UsualAttentionScale(r) * std::pow(YarnMagnitude(r.rope.scaling.factor, all), 2));
  }
  if (glm) return ReadSigmoidRouting(c, r, true, 1.8);
  if (v3) return ReadRoutingV3(c, r);
  latent ? ReadRoutingV2(c, r) : ReadRoutingV1(c, r);
}

extern constinit const Family kDeepseekFamily = {"deepseek", kGguf,      kHf, kHfTypes, ReadDeepseek,
                                                 kHfNames,   kGgufNames, {},  {},       true};

}  // namespace tally
