// SPDX-License-Identifier: Apache-2.0
// Muse Glimmer (Meta 2026), text: RMSNorm of the embedding, norms before and after both blocks, the latter with an eps of their own, and
// gated attention. A sliding window and rope on three layers of four, then a layer that sees all of the past and has no rope. RMSNorm of
// each head's query and key has no weights, and a factor for the queries: GGUF stores it as weights. Norms around the blocks multiply by
// 1 + w: Hugging Face stores w, GGUF 1 + w. GGUF permutes q and k as it does Llama's.
#include "models/family.h"

namespace tally {
namespace {

constexpr std::string_view kGguf[] = {"muse-glimmer"};
constexpr std::string_view kHf[] = {"MuseGlimmerForConditionalGeneration"};
constexpr std::string_view kHfTypes[] = {"muse_glimmer"};

#define TALLY_LAYER "~model.layers.#."
constexpr RoleName kHfNames[] = {{Role::kAttnNorm, TALLY_LAYER "input_layernorm.weight", Storage::kPlusOne},
                                 {Role::kAttnPostNorm, TALLY_LAYER "post_attention_layernorm.weight", Storage::kPlusOne},
                                 {Role::kFfnNorm, TALLY_LAYER "pre_feedforward_layernorm.weight", Storage::kPlusOne},
                                 {Role::kFfnPostNorm, TALLY_LAYER "post_feedforward_layernorm.weight", Storage::kPlusOne},
                                 {Role::kAttnGate, TALLY_LAYER "self_attn.gate_proj.weight"}};
#undef TALLY_LAYER
constexpr RoleName kGgufNames[] = {{Role::kAttnGate, "blk.#.attn_gate.weight"}};

// The last layer has no window, nor has every fourth before it.
void ReadWindows(Config& c, Recipe& r) {
  const int32_t window =
      c.gguf() ? c.Int("attention.sliding_window", 1, kMaxContext) : c.Int("sliding_window", 1, kMaxContext, 2048);
  if (c.gguf()) {
    ReadWindowPattern(c, r, "attention.sliding_window_pattern", window, 4);
  } else if (!ReadHfLayerTypes(c, r, window)) {
    for (size_t i = 0; i < r.layers.size(); ++i) r.layers[i].attention.window = (r.layers.size() - 1 - i) % 4 == 0 ? 0 : window;
  }
  // A theta of 0 is no rope; the others are not read (transformers, modeling_muse_glimmer.py).
  const std::vector<double> thetas = c.gguf() ? std::vector<double>() : c.Doubles("layer_rope_theta");
  if (!thetas.empty() && thetas.size() != r.layers.size()) return c.Fail("layer_rope_theta has not one number for each layer");
  for (size_t i = 0; i < r.layers.size(); ++i) {
    const bool turns = c.gguf()         ? r.layers[i].attention.window > 0
                       : thetas.empty() ? (r.layers.size() - 1 - i) % 4 != 0
                                        : thetas[i] != 0;
    r.layers[i].attention.rope = turns ? LayerRope::kGlobal : LayerRope::kNone;
  }
}

void Read(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  if (c.gguf()) r.rope.style = RopeStyle::kAdjacentPair;
  if (!c.gguf() && c.inventory().tensors.empty()) {
    spec.parts_not_run.push_back({"vision_tower, adapter and projection", std::nullopt});
  }
  EnterTextModel(c, spec, {"vision_tower.", "vision_adapter.", "vision_projection."});
  ReadDecoder(c, spec, {.norm_eps = 1e-5, .n_kv_heads = 2, .head_dim = 128, .n_heads = 32, .context = 131072, .vocab = 202048});
  if (c.gguf()) c.ExpectNumber("rope.freq_base_swa", r.rope.theta);
  ReadFeedForwardWidth(c, r);
  if (!c.gguf()) c.ExpectText("hidden_activation", "silu");
  r.embedding_rms = r.all.attention.gate = r.all.residual.post_norms = true;
  r.all.residual.post_norm_eps = static_cast<float>(c.gguf() ? 1e-8 : c.Positive("post_norm_eps", 1e-8));
  r.all.attention.qk_norm = c.gguf() ? QkNormKind::kHead : QkNormKind::kUnweighted;
  r.all.attention.qk_norm_everywhere = !c.gguf();
  if (!c.gguf()) SetAttentionScale(r, UsualAttentionScale(r) * c.Positive("qk_scale_factor", 3.87));
  r.logit_scale = static_cast<float>(c.gguf() ? c.Positive("logit_scale") : c.Positive("output_multiplier", 0.19611613513818404));
  r.logit_softcap =
      static_cast<float>(c.gguf() ? c.Double("final_logit_softcapping", 0) : c.Positive("final_logit_softcapping", 20));
  c.ExpectBool("attention_bias", false);
  ReadWindows(c, r);
}

}  // namespace

extern constinit const Family kMuseGlimmerFamily = {"muse-glimmer", kGguf, kHf, kHfTypes, Read, kHfNames, kGgufNames};

}  // namespace tally
