// Defaults and layouts are those of transformers' configuration_*.py and modeling_*.py of each architecture, and of the code that
// DeepSeek publishes beside its weights.
#include "models/count_recipe.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string_view>
#include <vector>

#include "engine/base/format.h"
#include "models/catalog/recipe_settings.h"
#include "models/config.h"
#include "models/family.h"

namespace tally {
namespace {

// Empty where something was wrong before: what follows goes by layers.size().
void SetLayers(Config& c, Recipe& r) {
  r.rope.style = RopeStyle::kRotateHalf;
  if (r.rope.dim == 0) r.rope.dim = r.head_dim;
  r.layers.resize(c.ok() ? r.n_layers : 0);
  UsualAttentionScale(r);
}

void ExpectSilu(Config& c) {
  const std::string act = c.String("hidden_act", "silu");
  if (act != "silu" && act != "swish") c.Unsupported("hidden_act", Quote(act));
}

void SetBiases(Recipe& r, bool qkv, bool o) {
  r.q_bias = r.k_bias = r.v_bias = qkv;
  r.o_bias = o;
}

// Experts of one kind: n, k, width.
void ReadExperts(Config& c, Recipe& r, std::string_view count_keys, std::string_view width_keys) {
  r.n_experts = c.Int(count_keys, 1, kMaxExperts);
  r.top_k = c.Int("num_experts_per_tok", 1, r.n_experts);
  r.d_expert = c.Int(width_keys, 1, kMaxWidth);
}

void ReadTying(Config& c, bool otherwise, Recipe& r) {
  ModelSpec spec;
  ReadHfTying(c, otherwise, spec);
  r.tied_head = spec.recipe.tied_head;
}

RoutingRule SoftmaxRule(Config& c, bool normed_by_default) {
  return c.Bool("norm_topk_prob", normed_by_default) ? RoutingRule::kSoftmaxThenTopKRenormed : RoutingRule::kSoftmaxThenTopK;
}

// Qwen2 and Qwen3: windows only where use_sliding_window says so, then from layer max_window_layers on.
void ReadQwenWindows(Config& c, Recipe& r) {
  if (!c.Bool("use_sliding_window", false) || c.IsNull("sliding_window")) return;
  const int32_t window = c.Int("sliding_window", 1, kMaxContext, 4096), from = c.Int("max_window_layers", 0, kMaxLayers, 28);
  if (ReadHfLayerTypes(c, r, window)) return;
  for (size_t i = static_cast<size_t>(from); i < r.layers.size(); ++i) r.layers[i].window = window;
}

// Which layers are sparse in Qwen's mixtures: every decoder_sparse_step-th, without those in mlp_only_layers.
void ReadQwenSparseLayers(Config& c, Recipe& r) {
  const int32_t step = c.Int("decoder_sparse_step", 1, kMaxLayers, 1);
  const auto dense = c.inventory().metadata.GetInts("mlp_only_layers");
  if (!dense.ok()) return c.Fail("mlp_only_layers must be an array of integers");
  for (int32_t i = 0; i < static_cast<int32_t>(r.layers.size()); ++i) {
    const bool listed = dense->has_value() && std::find((*dense)->begin(), (*dense)->end(), i) != (*dense)->end();
    r.layers[i].sparse = !listed && (i + 1) % step == 0;
  }
  // The classes' windows differ from version to version; no published mixture has one.
  if (c.Bool("use_sliding_window", false)) c.Unsupported("use_sliding_window", "true");
}

void ReadQwen2(Config& c, Recipe& r) {
  ReadHfDecoder(c, r, {.norm_eps = 1e-6, .n_kv_heads = 32, .n_heads = 32, .context = 32768});
  r.d_ff = c.Int("intermediate_size", 1, kMaxWidth);
  SetLayers(c, r);
  ReadHfRope(c, r, 10000);
  ReadQwenWindows(c, r);
  SetBiases(r, true, false);
  ReadTying(c, false, r);
  ExpectSilu(c);
}

void ReadQwen2Moe(Config& c, Recipe& r) {
  ReadHfDecoder(c, r, {.norm_eps = 1e-6, .n_kv_heads = 16, .context = 32768});
  r.d_ff = c.Int("intermediate_size", 1, kMaxWidth);
  ReadExperts(c, r, "num_experts", "moe_intermediate_size");
  r.d_shared = c.Int("shared_expert_intermediate_size", 1, kMaxWidth);
  r.shared_gate = true;
  r.routing = SoftmaxRule(c, false);
  SetLayers(c, r);
  ReadHfRope(c, r, 10000);
  ReadQwenSparseLayers(c, r);
  SetBiases(r, c.Bool("qkv_bias", true), false);
  ReadTying(c, false, r);
  ExpectSilu(c);
}

void ReadQwen3(Config& c, Recipe& r) {
  ReadHfDecoder(c, r, {.norm_eps = 1e-6, .n_kv_heads = 32, .head_dim = 128, .context = 32768});
  r.d_ff = c.Int("intermediate_size", 1, kMaxWidth);
  r.qk_norm = QkNormKind::kHead;
  SetLayers(c, r);
  ReadHfRope(c, r, 10000);
  ReadQwenWindows(c, r);
  const bool bias = c.Bool("attention_bias", false);
  SetBiases(r, bias, bias);
  ReadTying(c, false, r);
  ExpectSilu(c);
}

void ReadQwen3Moe(Config& c, Recipe& r) {
  ReadHfDecoder(c, r, {.norm_eps = 1e-6, .n_kv_heads = 4, .context = 32768});
  r.d_ff = c.Int("intermediate_size", 1, kMaxWidth);
  ReadExperts(c, r, "num_experts|num_local_experts", "moe_intermediate_size");
  r.routing = SoftmaxRule(c, false);
  r.qk_norm = QkNormKind::kHead;
  SetLayers(c, r);
  ReadHfRope(c, r, 10000);
  ReadQwenSparseLayers(c, r);
  const bool bias = c.Bool("attention_bias", false);
  SetBiases(r, bias, bias);
  ReadTying(c, false, r);
  ExpectSilu(c);
}

void ReadMixtral(Config& c, Recipe& r) {
  ReadHfDecoder(c, r, {.norm_eps = 1e-5, .n_kv_heads = 8, .context = 131072});
  r.d_ff = c.Int("intermediate_size", 1, kMaxWidth);
  ReadExperts(c, r, "num_local_experts|num_experts", "intermediate_size");
  r.routing = RoutingRule::kTopKThenSoftmax;
  SetLayers(c, r);
  ReadHfRope(c, r, 1e6);
  const int32_t window = c.Int("sliding_window", 1, kMaxContext, 0);  // silent or null: none
  for (LayerRecipe& layer : r.layers) layer = {.window = window, .sparse = true, .attention_scale = layer.attention_scale};
  ReadTying(c, false, r);
  ExpectSilu(c);
}

void ReadOlmoe(Config& c, Recipe& r) {
  ReadHfDecoder(c, r, {.norm_eps = 1e-5, .context = 4096});
  r.d_ff = c.Int("intermediate_size", 1, kMaxWidth);
  ReadExperts(c, r, "num_experts", "intermediate_size");
  r.routing = SoftmaxRule(c, false);
  r.qk_norm = QkNormKind::kWhole;
  SetLayers(c, r);
  ReadHfRope(c, r, 10000);
  for (LayerRecipe& layer : r.layers) layer.sparse = true;
  const bool bias = c.Bool("attention_bias", false);
  SetBiases(r, bias, bias);
  if (c.Has("clip_qkv")) c.Unsupported("clip_qkv", "other than null");
  ReadTying(c, false, r);
  ExpectSilu(c);
}

// What DeepSeek's mixtures and GLM's have in common: shared experts, dense layers first, layers for multi-token prediction.
void ReadSharedExperts(Config& c, Recipe& r) {
  ReadExperts(c, r, "n_routed_experts|num_local_experts|num_experts", "moe_intermediate_size");
  const int64_t shared = int64_t{c.Int("n_shared_experts", 0, kMaxExperts)} * r.d_expert;
  if (shared > kMaxWidth) c.Fail("n_shared_experts make a width of " + std::to_string(shared));
  r.d_shared = c.ok() ? static_cast<int32_t>(shared) : 0;
  const int32_t dense = c.Int("first_k_dense_replace", 0, kMaxLayers), step = c.Int("moe_layer_freq", 1, kMaxLayers, 1);
  for (int32_t i = dense; i < static_cast<int32_t>(r.layers.size()); ++i) r.layers[i].sparse = i % step == 0;
  r.mtp_layers = c.Int("num_nextn_predict_layers", 0, kMaxLayers, 0);
}

void ReadDeepseekDecoder(Config& c, Recipe& r) {
  ReadHfDecoder(c, r, {.norm_eps = 1e-6});
  r.d_ff = c.Int("intermediate_size", 1, kMaxWidth);
}

void FinishDeepseek(Config& c, Recipe& r) {
  ReadSharedExperts(c, r);
  if (c.Bool("attention_bias", false)) c.Unsupported("attention_bias", "true");
  ReadTying(c, false, r);
  ExpectSilu(c);
}

void ReadDeepseek(Config& c, Recipe& r) {  // the first: plain attention
  ReadDeepseekDecoder(c, r);
  SetLayers(c, r);
  ReadHfRope(c, r, 10000);
  r.routing = SoftmaxRule(c, false);
  FinishDeepseek(c, r);
}

void ReadLatent(Config& c, Recipe& r) {
  ReadDeepseekDecoder(c, r);
  LatentAttention& l = r.latent;
  l.kv_rank = c.Int("kv_lora_rank", 1, kMaxWidth);
  l.q_rank = c.Int("q_lora_rank", 1, kMaxWidth, c.IsNull("q_lora_rank") ? 0 : 1536);
  l.nope_dim = c.Int("qk_nope_head_dim", 1, kMaxHeads, 128);
  l.rope_dim = c.Int("qk_rope_head_dim", 1, kMaxHeads, 64);
  l.v_dim = c.Int("v_head_dim", 1, kMaxHeads, 128);
  r.n_kv_heads = r.n_heads;  // the latent is shared by all, whatever num_key_value_heads says
  r.head_dim = l.nope_dim + l.rope_dim;
  r.rope.dim = l.rope_dim;
  SetLayers(c, r);
  r.rope.style = RopeStyle::kAdjacentPair;
  ReadHfRope(c, r, 10000);
  const double all_dim = c.Has("rope_scaling.mscale_all_dim|rope_parameters.mscale_all_dim")
                             ? c.Positive("rope_scaling.mscale_all_dim|rope_parameters.mscale_all_dim")
                             : 0;
  if (all_dim > 0 && r.rope.scaling.kind == RopeScalingKind::kYarn) {
    const double magnitude = YarnMagnitude(r.rope.scaling.factor, all_dim);
    r.attention_scale = static_cast<float>(magnitude * magnitude / std::sqrt(static_cast<double>(r.head_dim)));
    for (LayerRecipe& layer : r.layers) layer.attention_scale = r.attention_scale;
  }
  FinishDeepseek(c, r);
}

void ReadDeepseekV2(Config& c, Recipe& r) {
  ReadLatent(c, r);
  r.routing = SoftmaxRule(c, false);
}

void ReadDeepseekV3(Config& c, Recipe& r) {
  ReadLatent(c, r);
  r.routing = RoutingRule::kSigmoidThenTopKRenormed;
  r.router_bias = c.String("topk_method", "noaux_tc") == "noaux_tc";  // e_score_correction_bias
  if (const std::string f = c.String("scoring_func", "sigmoid"); f != "sigmoid") c.Unsupported("scoring_func", Quote(f));
  if (!c.Bool("norm_topk_prob", true)) c.Unsupported("norm_topk_prob", "false");
}

void ReadGlm4Moe(Config& c, Recipe& r) {
  ReadHfDecoder(c, r, {.norm_eps = 1e-5, .n_kv_heads = 8, .context = 131072});
  r.d_ff = c.Int("intermediate_size", 1, kMaxWidth);
  const double part = c.Positive("partial_rotary_factor|rope_parameters.partial_rotary_factor", 0.5);
  if (part > 1) c.Fail("partial_rotary_factor is above 1");
  if (c.ok()) r.rope.dim = std::max(1, static_cast<int32_t>(r.head_dim * part));
  SetLayers(c, r);
  ReadHfRope(c, r, 10000);
  ReadSharedExperts(c, r);
  r.routing = RoutingRule::kSigmoidThenTopKRenormed;
  r.router_bias = true;  // e_score_correction_bias
  if (!c.Bool("norm_topk_prob", true)) c.Unsupported("norm_topk_prob", "false");
  if (c.Bool("use_qk_norm", false)) r.qk_norm = QkNormKind::kHead;
  SetBiases(r, c.Bool("attention_bias", false), false);
  ReadTying(c, false, r);
  ExpectSilu(c);
}

void ReadGemma3(Config& c, Recipe& r) {
  ReadHfDecoder(c, r, {.norm_eps = 1e-6, .n_kv_heads = 4, .head_dim = 256, .n_heads = 8, .context = 131072, .vocab = 262208});
  r.d_ff = c.Int("intermediate_size", 1, kMaxWidth);
  r.qk_norm = QkNormKind::kHead;
  r.post_norms = true;
  r.activation = ActivationKind::kGeluTanh;
  SetLayers(c, r);
  ReadHfRope(c, r, 1e6);
  r.attention_scale = static_cast<float>(1 / std::sqrt(c.Positive("query_pre_attn_scalar", 256)));
  for (LayerRecipe& layer : r.layers) layer.attention_scale = r.attention_scale;
  const int32_t window = c.Int("sliding_window", 1, kMaxContext, 4096);
  const int32_t period = c.Int("sliding_window_pattern|_sliding_window_pattern", 1, kMaxLayers, 6);
  if (!ReadHfLayerTypes(c, r, window)) {
    for (size_t i = 0; i < r.layers.size(); ++i) r.layers[i].window = (i + 1) % static_cast<size_t>(period) != 0 ? window : 0;
  }
  const bool bias = c.Bool("attention_bias", false);
  SetBiases(r, bias, bias);
  const std::string act = c.String("hidden_activation|hidden_act", "gelu_pytorch_tanh");
  if (act != "gelu_pytorch_tanh") c.Unsupported("hidden_activation", Quote(act));
  for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping"}) {
    if (c.Has(key)) c.Unsupported(key, "other than null");
  }
  Config whole(c.inventory(), "");  // a configuration of several parts may say it outside of the text's
  ReadTying(c, whole.Bool("tie_word_embeddings", true), r);
  if (!whole.ok()) c.Fail("tie_word_embeddings must be a boolean");
}

struct Counted {
  std::string_view family, architecture;
  std::string_view model_type;  // where there are no architectures
  void (*read)(Config&, Recipe&);
  std::string_view prefix = {};
};

constexpr Counted kCounted[] = {
    {"qwen2", "Qwen2ForCausalLM", "qwen2", ReadQwen2},
    {"qwen2-moe", "Qwen2MoeForCausalLM", "qwen2_moe", ReadQwen2Moe},
    {"qwen3", "Qwen3ForCausalLM", "qwen3", ReadQwen3},
    {"qwen3-moe", "Qwen3MoeForCausalLM", "qwen3_moe", ReadQwen3Moe},
    {"mixtral", "MixtralForCausalLM", "mixtral", ReadMixtral},
    {"olmoe", "OlmoeForCausalLM", "olmoe", ReadOlmoe},
    {"deepseek", "DeepseekForCausalLM", "deepseek", ReadDeepseek},
    {"deepseek-v2", "DeepseekV2ForCausalLM", "deepseek_v2", ReadDeepseekV2},
    {"deepseek-v3", "DeepseekV3ForCausalLM", "deepseek_v3", ReadDeepseekV3},  // Kimi-K2 too
    {"glm4-moe", "Glm4MoeForCausalLM", "glm4_moe", ReadGlm4Moe},
    {"gemma3", "Gemma3ForCausalLM", "gemma3_text", ReadGemma3},
    {"gemma3", "Gemma3ForConditionalGeneration", "gemma3", ReadGemma3, "text_config."},
};

std::string KnownArchitectures() {
  std::string known;
  for (const Family* family : Families()) {
    for (const std::string_view name : family->hf_architectures) known += std::string(name) + ", ";
  }
  return known + CountedArchitectures();
}

Result<Recipe> ReadCounted(const Counted& counted, const Inventory& inventory) {
  Config c(inventory, std::string(counted.prefix));
  Recipe r;
  r.family = counted.family;
  counted.read(c, r);
  TALLY_RETURN_IF_ERROR(c.status());
  return r;
}

Result<Recipe> ReadHf(const Inventory& inventory) {
  const Metadata& m = inventory.metadata;
  TALLY_ASSIGN_OR_RETURN(const auto architectures, m.GetStrings("architectures"));
  TALLY_ASSIGN_OR_RETURN(const auto model_type, m.GetString("model_type"));
  const bool listed = architectures.has_value() && !architectures->empty();
  if (!listed && !model_type.has_value()) {
    return BadInput(m.source + ": neither architectures nor model_type says what model this is");
  }
  const std::string name = listed ? architectures->front() : *model_type;
  for (const Family* family : Families()) {
    const auto names = listed ? family->hf_architectures : family->hf_model_types;
    if (std::find(names.begin(), names.end(), name) == names.end()) continue;
    TALLY_ASSIGN_OR_RETURN(ModelSpec spec, family->read(inventory));
    return std::move(spec.recipe);
  }
  for (const Counted& counted : kCounted) {
    if ((listed ? counted.architecture : counted.model_type) == name) return ReadCounted(counted, inventory);
  }
  return BadInput(m.source + ": " + (listed ? "architecture " : "model_type ") + Quote(name) +
                  " cannot be counted; known: " + KnownArchitectures());
}

}  // namespace

std::string CountedArchitectures() {
  std::string names;
  for (const Counted& counted : kCounted) names += (names.empty() ? "" : ", ") + std::string(counted.architecture);
  return names;
}

bool IsOnlyCounted(const Inventory& inventory) {
  if (inventory.format == FileFormat::kGguf) return false;
  const auto architectures = inventory.metadata.GetStrings("architectures");
  const auto type = inventory.metadata.GetString("model_type");
  const bool listed = architectures.ok() && architectures->has_value() && !(*architectures)->empty();
  const std::string name = listed ? (*architectures)->front() : type.ok() ? type->value_or("") : "";
  return std::any_of(std::begin(kCounted), std::end(kCounted),
                     [&](const Counted& c) { return (listed ? c.architecture : c.model_type) == name; });
}

Result<Recipe> ReadCountRecipe(const Inventory& inventory) {
  if (inventory.format == FileFormat::kGguf) {
    TALLY_ASSIGN_OR_RETURN(ModelSpec spec, ReadModelSpec(inventory));
    return std::move(spec.recipe);
  }
  TALLY_ASSIGN_OR_RETURN(Recipe recipe, ReadHf(inventory));
  const Status status = CheckRecipe(recipe);
  if (!status.ok()) return Status(status.code(), inventory.metadata.source + ": " + status.message());
  return recipe;
}

Result<CountTypes> ReadCountTypes(const Inventory& inventory) {
  Config c(inventory, "");
  const bool mxfp4 = c.String("quantization_config.quant_method", "") == "mxfp4";  // gpt-oss, which does not name the rest's type
  const std::string name =
      c.String("torch_dtype|dtype|text_config.torch_dtype|text_config.dtype", mxfp4 ? "bfloat16" : "float32");
  CountTypes types;
  if (name == "bfloat16")
    types.type = DType::kBF16;
  else if (name == "float16")
    types.type = DType::kF16;
  else if (name != "float32" && c.ok())
    c.Unsupported("torch_dtype", Quote(name));
  types.expert_type = mxfp4 ? DType::kMXFP4 : types.type;
  TALLY_RETURN_IF_ERROR(c.status());
  return types;
}

}  // namespace tally
