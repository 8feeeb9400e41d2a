// SPDX-License-Identifier: Apache-2.0
// Gemma 3 (Gemma team 2025), text: embeddings scaled by the root of the width, norms before and after both blocks, RMSNorm of each
// head's query and key, GeGLU; five layers with a sliding window and a rope of their own, unscaled, then one that sees all of the
// past; head tied. Norms multiply by 1 + w: Hugging Face stores w, GGUF 1 + w. A checkpoint with a vision tower has its text
// model below text_config and language_model.
#include <cmath>

#include "engine/base/format.h"
#include "models/family.h"
#include "models/gemma_names.h"
#include "models/vision.h"

namespace tally {
namespace {

constexpr std::string_view kGguf[] = {"gemma3"};
constexpr std::string_view kHf[] = {"Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"};
constexpr std::string_view kHfTypes[] = {"gemma3_text", "gemma3"};

// q.k is divided by the square root of this. GGUF has no key for it; of the published models only the one of 62 layers (27B) uses
// another value than head_dim.
double QueryScalar(Config& c, const Recipe& r) {
  if (c.gguf()) return r.n_layers == 62 ? EvenHeadDim(c, r) : r.all.attention.head_dim;
  return c.Positive("query_pre_attn_scalar", 256);
}

// "gemma3" is also GGUF's architecture, with or without a tower.
bool OfSeveralParts(const Config& c) { return c.Is({"Gemma3ForConditionalGeneration", "gemma3"}); }

// The vision tower (SigLIP with a bias of its patches' matrix, learned positions and a last LayerNorm) and the projector (a matrix
// and a norm) that a configuration describes.
void AddVision(const Config& c, ModelSpec& spec) {
  const std::optional<VisionEncoder> v = ReadVisionEncoder(c);
  if (!v) return spec.parts_not_run.push_back({"vision_tower and projector", std::nullopt});
  const uint64_t embedding = (v->patch + 1 + v->patches) * v->width, text = static_cast<uint64_t>(spec.recipe.d_model);
  spec.parts_not_run.push_back({"vision_tower", embedding + v->LayerParameters() + 2 * v->width});
  spec.parts_not_run.push_back({"multi_modal_projector", v->width * text + v->width});
}

void Read(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  const bool tied = c.gguf() || c.Bool("tie_word_embeddings", true);  // of the whole checkpoint
  EnterTextModel(c, spec, {"vision_tower.", "multi_modal_projector."});
  ReadDecoder(c, spec,
              {.norm_eps = 1e-6,
               .n_kv_heads = 4,
               .head_dim = 256,
               .n_heads = 8,
               .context = 131072,
               .vocab = 262208,
               .rope_theta = 1e6,
               .tied = tied});
  if (OfSeveralParts(c) && c.inventory().tensors.empty()) AddVision(c, spec);
  ReadFeedForwardWidth(c, r);
  r.embedding_scale = std::sqrt(static_cast<float>(r.d_model));
  r.all.attention.qk_norm = QkNormKind::kHead;
  r.all.residual.post_norms = true;
  r.all.network.activation = ReadGelu(c, "hidden_activation|hidden_act", "gelu_pytorch_tanh");
  SetAttentionScale(r, 1 / std::sqrt(QueryScalar(c, r)));
  r.local_rope = {.style = r.rope.style, .dim = r.rope.dim, .scaling = {}};
  r.local_rope.theta =
      c.Positive(c.Pick("rope.freq_base_swa", "rope_parameters.sliding_attention.rope_theta|rope_local_base_freq"), 10000);
  c.ExpectText("rope_parameters.sliding_attention.rope_type", "default");
  const int32_t window =
      c.gguf() ? c.Int("attention.sliding_window", 1, kMaxContext) : c.Int("sliding_window", 1, kMaxContext, 4096);
  ReadWindowPattern(c, r, c.Pick("attention.sliding_window_pattern", "sliding_window_pattern|_sliding_window_pattern"), window,
                    6);
  if (!c.gguf()) ReadHfLayerTypes(c, r, window);
  for (LayerRecipe& layer : r.layers) layer.attention.rope = layer.attention.window > 0 ? LayerRope::kLocal : LayerRope::kGlobal;
  const bool bias = !c.gguf() && c.Bool("attention_bias", false);
  SetBiases(r, bias, bias);
  for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping"}) {
    if (c.Double(key, 0) != 0) c.Unsupported(key, "other than null");
  }
  c.ExpectBool("use_bidirectional_attention", false);
}

}  // namespace

extern constinit const Family kGemma3Family = {"gemma3", kGguf, kHf, kHfTypes, Read, kGemmaNames};

}  // namespace tally
