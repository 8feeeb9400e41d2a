// SPDX-License-Identifier: Apache-2.0
// Command-R and Aya (Cohere 2024): LayerNorm without bias, both blocks on the same normed input (parallel residual),
// adjacent-pair rope, tied head, scaled logits; in the largest a LayerNorm of each head's query and key. Command-R7B and Command
// A (Cohere 2024 and 2025, "cohere2"): a sliding window and rope on three layers of four, then a layer that sees all of the past
// and has no rope.
#include "models/family.h"

namespace tally {
namespace {

constexpr std::string_view kGguf[] = {"command-r", "cohere2"};
constexpr std::string_view kHf[] = {"CohereForCausalLM", "Cohere2ForCausalLM"};
constexpr std::string_view kHfTypes[] = {"cohere", "cohere2"};

void ReadWindows(Config& c, Recipe& r) {
  const int32_t window = c.gguf()                     ? c.Int("attention.sliding_window", 1, kMaxContext)
                         : c.IsNull("sliding_window") ? 0
                                                      : c.Int("sliding_window", 1, kMaxContext, 4096);
  ReadWindowPattern(c, r, c.Pick("attention.sliding_window_pattern", "sliding_window_pattern|_sliding_window_pattern"), window,
                    4);
  if (!c.gguf()) ReadHfLayerTypes(c, r, window);
  for (LayerRecipe& layer : r.layers) layer.rope = layer.window > 0 ? LayerRope::kGlobal : LayerRope::kNone;
}

void Read(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  const bool second = c.Is({"cohere2", "Cohere2ForCausalLM"});
  r.rope.style = RopeStyle::kAdjacentPair;
  ReadDecoder(c, spec,
              {.norm_eps = 1e-5,
               .n_heads = 64,
               .context = 8192,
               .vocab = 256000,
               .rope_theta = second ? 10000.0 : 500000.0,
               .tied = true,
               .hf_eps = "layer_norm_eps",
               .gguf_eps = "attention.layer_norm_epsilon"});
  ReadFeedForwardWidth(c, r);
  ExpectSilu(c);
  r.norm = NormKind::kLayer;
  r.norm_bias = false;
  r.residual = Residual::kParallelOneNorm;
  r.logit_scale = static_cast<float>(c.gguf() ? c.Positive("logit_scale") : c.Positive("logit_scale", 0.0625));
  const bool bias = c.gguf() ? AnyLayerHas(c.inventory(), r, Role::kQBias) : c.Bool("attention_bias", false);
  SetBiases(r, bias, c.gguf() ? AnyLayerHas(c.inventory(), r, Role::kOBias) : bias);
  const bool qk_norm = c.gguf() ? AnyLayerHas(c.inventory(), r, Role::kQNorm) : c.Bool("use_qk_norm", false);
  if (qk_norm) r.qk_norm = QkNormKind::kEachHead;
  if (!second) return;
  r.family = "cohere2";
  if (qk_norm) c.Unsupported("use_qk_norm", "true");
  ReadWindows(c, r);
}

}  // namespace

extern constinit const Family kCohereFamily = {"cohere", kGguf, kHf, kHfTypes, Read};

}  // namespace tally
