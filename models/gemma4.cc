// SPDX-License-Identifier: Apache-2.0
// Gemma 4 (Google 2026), text. From Gemma 3: embeddings scaled by the root of the width, norms before and after both blocks, RMSNorm of
// each head's query and key, GeGLU, layers with a sliding window and a rope of their own. New: heads of another size in layers that see all
// of the past, whose rope turns a part of the pairs; RMSNorm of values, no scale of q.k; norms multiply by w. E2B and E4B: the last layers
// read the caches of earlier ones, and a second embedding of the token gates what each layer adds last. 12B, 26B, 31B: the keys of full
// layers are their values. 26B-A4B: experts beside the dense feed-forward. A checkpoint with towers has its text model below text_config
// and language_model.
#include <cmath>

#include "models/family.h"
#include "models/gate_up_rows.h"

namespace tally {
namespace {

constexpr std::string_view kGguf[] = {"gemma4"};
constexpr std::string_view kHf[] = {"Gemma4ForCausalLM", "Gemma4ForConditionalGeneration", "Gemma4UnifiedForCausalLM",
                                    "Gemma4UnifiedForConditionalGeneration"};
constexpr std::string_view kHfTypes[] = {"gemma4_text", "gemma4", "gemma4_unified_text", "gemma4_unified"};

#define TALLY_LAYER "~model.layers.#."
constexpr RoleName kHfNames[] = {{Role::kLayerEmbedding, "~model.embed_tokens_per_layer.weight"},
                                 {Role::kLayerEmbeddingProj, "~model.per_layer_model_projection.weight"},
                                 {Role::kLayerEmbeddingNorm, "~model.per_layer_projection_norm.weight"},
                                 {Role::kAttnPostNorm, TALLY_LAYER "post_attention_layernorm.weight"},
                                 {Role::kFfnNorm, TALLY_LAYER "pre_feedforward_layernorm.weight"},
                                 {Role::kFfnPostNorm, TALLY_LAYER "post_feedforward_layernorm.weight"},
                                 {Role::kDensePostNorm, TALLY_LAYER "post_feedforward_layernorm_1.weight"},
                                 {Role::kExpertNorm, TALLY_LAYER "pre_feedforward_layernorm_2.weight"},
                                 {Role::kExpertPostNorm, TALLY_LAYER "post_feedforward_layernorm_2.weight"},
                                 {Role::kRouter, TALLY_LAYER "router.proj.weight"},
                                 {Role::kRouterNorm, TALLY_LAYER "router.scale", Storage::kOverRoot},
                                 {Role::kExpertScale, TALLY_LAYER "router.per_expert_scale"},
                                 {Role::kExpertGate, TALLY_LAYER "experts.gate_up_proj", Storage::kPlain, GateRows<ExpertWidth>},
                                 {Role::kExpertUp, TALLY_LAYER "experts.gate_up_proj", Storage::kPlain, UpRows<ExpertWidth>},
                                 {Role::kExpertDown, TALLY_LAYER "experts.down_proj"},
                                 {Role::kLayerGate, TALLY_LAYER "per_layer_input_gate.weight"},
                                 {Role::kLayerOut, TALLY_LAYER "per_layer_projection.weight"},
                                 {Role::kLayerPostNorm, TALLY_LAYER "post_per_layer_input_norm.weight"},
                                 {Role::kLayerScale, TALLY_LAYER "layer_scalar"}};
#undef TALLY_LAYER
constexpr RoleName kGgufNames[] = {{Role::kRouterNorm, "blk.#.ffn_gate_inp.scale", Storage::kOverRoot},
                                   {Role::kExpertScale, "blk.#.ffn_down_exps.scale"}};

// The configuration class of 12B has other defaults, and no embeddings of layers.
bool Unified(const Config& c) {
  return c.Is({"Gemma4UnifiedForCausalLM", "Gemma4UnifiedForConditionalGeneration", "gemma4_unified_text", "gemma4_unified"});
}

// Which layers see all of the past. Hugging Face: by layer_types, or every sixth; the last one in any case.
void ReadWindows(Config& c, Recipe& r) {
  const int32_t window = c.gguf() ? c.Int("attention.sliding_window", 1, kMaxContext)
                                  : c.Int("sliding_window", 1, kMaxContext, Unified(c) ? 1024 : 512);
  if (c.gguf()) {
    ReadWindowPattern(c, r, "attention.sliding_window_pattern", window, 6);
  } else if (!ReadHfLayerTypes(c, r, window)) {
    SetWindows(r, window, 6);
  }
  if (!c.gguf()) r.layers.back().attention.window = 0;
  for (LayerRecipe& layer : r.layers) layer.attention.rope = layer.attention.window > 0 ? LayerRope::kLocal : LayerRope::kGlobal;
}

// The prefix of one layer's own keys in a configuration that transformers has saved again (layer "05" if there are ten or more); empty:
// none.
std::string OwnKeys(const Config& c, const Recipe& r, size_t layer) {
  const std::string number = std::to_string(layer), most = std::to_string(r.n_layers - 1);
  for (const std::string& padded : {std::string(most.size() - number.size(), '0') + number, number}) {
    std::string prefix = "per_layer_config." + padded + ".";
    if (!c.Below(prefix).empty()) return prefix;
  }
  return {};
}

// Sizes of layers that see all of the past. Hugging Face: keys for all of them, or per_layer_config, whose layers it lists.
void ReadHeads(Config& c, Recipe& r, bool k_is_v) {
  const int32_t full = c.gguf() ? r.all.attention.head_dim : c.Int("global_head_dim", 1, kMaxHeads, 512);
  const bool other_kv = !c.gguf() && k_is_v && !c.IsNull("num_global_key_value_heads");
  const int32_t full_kv =
      other_kv ? c.Int("num_global_key_value_heads", 1, kMaxHeads, r.all.attention.n_kv_heads) : r.all.attention.n_kv_heads;
  if (c.gguf()) {
    r.all.attention.head_dim = c.Int("attention.key_length_swa", 1, kMaxHeads, full);
    c.ExpectNumber("attention.value_length_swa", r.all.attention.head_dim);
  }
  bool listed = false;
  for (size_t i = 0; i < r.layers.size() && !c.gguf(); ++i) listed = listed || !OwnKeys(c, r, i).empty();
  for (size_t i = 0; i < r.layers.size(); ++i) {
    LayerRecipe& l = r.layers[i];
    const bool by_kind = l.attention.window == 0 && !listed;
    int32_t dim = by_kind ? full : r.all.attention.head_dim, kv = by_kind ? full_kv : r.all.attention.n_kv_heads;
    if (const std::string own = listed ? OwnKeys(c, r, i) : std::string(); !own.empty()) {
      dim = c.Int(own + "head_dim", 1, kMaxHeads, r.all.attention.head_dim);
      kv = c.Int(own + "num_key_value_heads", 1, kMaxHeads, r.all.attention.n_kv_heads);
      for (const std::string& key : c.Below(own)) {
        if (c.Unread(own + key)) c.Unsupported(own + key, "in this architecture");
      }
    }
    l.attention.head_dim = dim == r.all.attention.head_dim ? 0 : dim;
    if (!c.gguf()) l.attention.n_kv_heads = kv == r.all.attention.n_kv_heads ? 0 : kv;
  }
}

// The last layers have no keys and values: each reads those of the last layer with its own and of its kind. Files may have the matrices.
void ReadSharedCaches(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  const int32_t shared = c.Int(c.Pick("attention.shared_kv_layers", "num_kv_shared_layers"), 0, r.n_layers - 1, 0);
  const int32_t own = r.n_layers - shared;
  PartNotRun unused{"keys and values of layers that read other layers' caches", 0, 0};
  for (int32_t i = own; i < r.n_layers && c.ok(); ++i) {
    LayerRecipe& l = r.layers[static_cast<size_t>(i)];
    for (int32_t j = 0; j < own; ++j) {
      if ((r.layers[static_cast<size_t>(j)].attention.window > 0) == (l.attention.window > 0)) l.attention.cache_of = j;
    }
    if (l.attention.cache_of < 0) c.Fail("layer " + std::to_string(i) + " shares a cache, and no layer of its kind has one");
    constexpr std::string_view kHfUnused[] = {"~model.layers.#.self_attn.k_proj.weight",
                                              "~model.layers.#.self_attn.v_proj.weight",
                                              "~model.layers.#.self_attn.k_norm.weight"};
    constexpr std::string_view kGgufUnused[] = {"blk.#.attn_k.weight", "blk.#.attn_v.weight", "blk.#.attn_k_norm.weight"};
    for (const std::string_view name : c.gguf() ? kGgufUnused : kHfUnused) {
      const std::string stored = ExpandName(name, i, c.tensor_prefix);
      const StoredTensor* const t = c.inventory().Find(stored);
      if (t == nullptr) continue;
      spec.not_run.push_back(stored);
      *unused.parameters += t->elements();
      *unused.bytes += t->bytes;
    }
  }
  if (unused.bytes > 0) spec.parts_not_run.push_back(std::move(unused));
}

void ReadRopes(Config& c, Recipe& r, int32_t full_dim) {
  r.local_rope = {.style = RopeStyle::kRotateHalf, .dim = r.all.attention.head_dim, .scaling = {}};
  if (c.gguf()) {
    r.local_rope.theta = c.Positive("rope.freq_base_swa", 10000);
    r.local_rope.dim = c.Int("rope.dimension_count_swa", 1, kMaxHeads, r.all.attention.head_dim);
    r.rope.freq_factors = true;
    return;
  }
  const std::string full = "rope_parameters.full_attention.", local = "rope_parameters.sliding_attention.";
  const bool given = c.Has(full + "rope_type");
  r.rope = {.style = RopeStyle::kRotateHalf, .dim = full_dim, .theta = c.Positive(full + "rope_theta", 1e6), .scaling = {}};
  r.local_rope.theta = c.Positive(local + "rope_theta", 10000);
  if (!c.Below("rope_scaling.").empty()) c.Unsupported("rope_scaling", "in this architecture");
  c.ExpectText(full + "rope_type", "proportional");
  c.ExpectText(local + "rope_type", "default");
  c.ExpectNumber(full + "factor", 1);
  c.ExpectNumber(local + "partial_rotary_factor", 1);
  const double part = c.Positive(full + "partial_rotary_factor", given ? 1 : 0.25);
  const int32_t turned = part <= 1 ? static_cast<int32_t>(part * full_dim) / 2 : 0;
  if (turned < 1) c.Fail(full + "partial_rotary_factor turns no pair, or more than all");
  if (turned < full_dim / 2) r.rope.turned = turned;
}

void ReadMixture(Config& c, Recipe& r) {
  r.all.experts.n_experts = c.Int(c.Pick("expert_count", "num_experts"), 1, kMaxExperts);
  r.all.experts.top_k = c.Int(c.Pick("expert_used_count", "top_k_experts"), 1, r.all.experts.n_experts);
  r.all.experts.width = c.Int(c.Pick("expert_feed_forward_length", "moe_intermediate_size"), 1, kMaxWidth);
  r.all.experts.routing = RoutingRule::kSoftmaxThenTopKRenormed;
  r.all.experts.router_norm = r.all.experts.weight_scales = true;
  for (LayerRecipe& layer : r.layers) layer.feed_forward = {FeedForward::kDense, FeedForward::kSparse};
}

void Read(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  const bool tied = c.gguf() || c.Bool("tie_word_embeddings", true);  // of the whole checkpoint
  EnterTextModel(c, spec,
                 {"vision_tower.", "audio_tower.", "vision_embedder.", "audio_embedder.", "embed_vision.", "embed_audio."});
  if (c.inventory().tensors.empty() && c.inventory().metadata.IsOther("vision_config")) {
    spec.parts_not_run.push_back({"vision_config", std::nullopt});
  }
  ReadDecoder(c, spec,
              {.norm_eps = 1e-6,
               .n_kv_heads = 4,
               .head_dim = 256,
               .n_heads = 8,
               .context = Unified(c) ? 262144 : 131072,
               .vocab = 262144,
               .tied = tied,
               .rope = c.gguf()});
  ReadFeedForwardWidth(c, r);
  if (!c.ok()) return;
  r.embedding_scale = std::sqrt(static_cast<float>(r.d_model));
  r.all.attention.qk_norm = QkNormKind::kHead;
  r.all.attention.v_norm = r.all.residual.post_norms = true;
  r.all.network.activation = ReadGelu(c, "hidden_activation", "gelu_pytorch_tanh");
  SetAttentionScale(r, 1);
  constexpr std::string_view kSoftcap = "final_logit_softcapping";
  r.logit_softcap = c.IsNull(kSoftcap) ? 0 : static_cast<float>(c.Double(kSoftcap, 0));
  ReadWindows(c, r);
  const bool k_is_v = !c.gguf() && c.Bool("attention_k_eq_v", false);
  ReadHeads(c, r, k_is_v);
  ReadRopes(c, r, r.layers.back().attention.head_dim);
  ReadSharedCaches(c, spec);
  for (int32_t i = 0; i < r.n_layers; ++i) {
    LayerRecipe& l = r.layers[static_cast<size_t>(i)];
    if (l.attention.cache_of < 0)
      l.attention.v_is_k = c.gguf() ? !IsStored(c.inventory(), GgufName(Role::kV, i)) : k_is_v && l.attention.window == 0;
    if (!c.gguf() && l.attention.cache_of >= 0 && c.Bool("use_double_wide_mlp", false)) l.ffn.width = 2 * r.all.ffn.width;
  }
  r.layer_embedding = c.gguf() ? c.Int("embedding_length_per_layer_input", 0, kMaxWidth, 0)
                               : c.Int("hidden_size_per_layer_input", 0, kMaxWidth, Unified(c) ? 0 : 256);
  if (!c.gguf() && r.layer_embedding > 0) c.ExpectNumber("vocab_size_per_layer_input", r.vocab);
  r.all.residual.layer_scale = !c.gguf() || AnyLayerHas(c.inventory(), r, Role::kLayerScale);
  if (c.gguf() ? c.Has("expert_count") : c.Bool("enable_moe_block", false)) ReadMixture(c, r);
  const bool bias = !c.gguf() && c.Bool("attention_bias", false);
  SetBiases(r, bias, bias);
  const bool named = !c.gguf() && c.Has("use_bidirectional_attention") && !c.IsNull("use_bidirectional_attention");
  if (named) c.ExpectText("use_bidirectional_attention", "vision");
  // Pictures see themselves within windows, or not at all: in the models with embeddings of layers, by which GGUF tells.
  const bool sees = c.gguf() ? r.layer_embedding == 0 : named;
  for (LayerRecipe& l : r.layers)
    l.attention.both_ways = sees && l.attention.window > 0 ? BothWays::kWithinWindow : BothWays::kNot;
}

}  // namespace

extern constinit const Family kGemma4Family = {"gemma4", kGguf, kHf, kHfTypes, Read, kHfNames, kGgufNames};

}  // namespace tally
