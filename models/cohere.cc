// SPDX-License-Identifier: Apache-2.0
// Command-R and Aya (Cohere 2024): LayerNorm without bias, both blocks on the same normed input (parallel residual),
// adjacent-pair rope, tied head, scaled logits; in the largest a LayerNorm of each head's query and key. Command-R7B and Command
// A (Cohere 2024 and 2025, "cohere2"): a sliding window and rope on three layers of four, then a layer that sees all of the past
// and has no rope. Cohere 2 with experts (North Mini Code, Cohere 2026, "cohere2moe"): RMSNorm or LayerNorm, dense layers first, which have
// rope, then experts by sigmoids of the best logits, or by the softmax of these. Its shared experts, whose sum with the others is halved,
// are not supported.
#include "engine/base/format.h"
#include "models/family.h"

namespace tally {
namespace {

constexpr std::string_view kGguf[] = {"command-r", "cohere2", "cohere2moe"};
constexpr std::string_view kHf[] = {"CohereForCausalLM", "Cohere2ForCausalLM", "Cohere2MoeForCausalLM"};
constexpr std::string_view kHfTypes[] = {"cohere", "cohere2", "cohere2_moe"};

void ReadWindows(Config& c, Recipe& r) {
  const int32_t window = c.gguf()                     ? c.Int("attention.sliding_window", 1, kMaxContext)
                         : c.IsNull("sliding_window") ? 0
                                                      : c.Int("sliding_window", 1, kMaxContext, 4096);
  ReadWindowPattern(c, r, c.Pick("attention.sliding_window_pattern", "sliding_window_pattern|_sliding_window_pattern"), window,
                    4);
  if (!c.gguf()) ReadHfLayerTypes(c, r, window);
  for (LayerRecipe& layer : r.layers) layer.attention.rope = layer.attention.window > 0 ? LayerRope::kGlobal : LayerRope::kNone;
}

void ReadExpertRouting(Config& c, Recipe& r) {
  ReadExperts(c, r, "num_experts", "intermediate_size");
  const bool normed = c.Bool(c.Pick("expert_weights_norm", "norm_topk_prob"), !c.gguf());
  const std::string rule =
      c.gguf() ? c.Int("expert_gating_func", 0, 2, 2) == 1 ? "softmax" : "sigmoid" : c.String("expert_selection_fn", "softmax");
  if (rule == "softmax") {  // of the chosen logits; GGUF: of all, which is the same once they are divided by their sum
    r.all.experts.routing = c.gguf() && !normed ? RoutingRule::kSoftmaxThenTopK : RoutingRule::kTopKThenSoftmax;
  } else if (rule == "sigmoid") {
    r.all.experts.routing = normed ? RoutingRule::kSigmoidThenTopKRenormed : RoutingRule::kTopKThenSigmoid;
  } else {
    c.Unsupported("expert_selection_fn", Quote(rule));
  }
  if (c.gguf()) r.all.experts.route_scale = static_cast<float>(ReadGgufFactor(c, "expert_weights_scale"));
  const std::string_view shared = c.Pick("expert_shared_count", "num_shared_experts");
  if (c.Int(shared, 0, kMaxExperts, 0) > 0) c.Unsupported(shared, "above 0");
}

// The first dense layers have a pattern of windows of their own, and rope where all of them see all of the past.
void ReadCohere2Moe(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  const int32_t dense = c.Int(c.Pick("leading_dense_block_count", "first_k_dense_replace"), 0, kMaxLayers, 0);
  const int32_t period = c.gguf() ? 1 : c.Int("prefix_dense_sliding_window_pattern", 1, kMaxLayers, 1);
  c.gguf() ? ReadGgufPredictionLayers(c, spec) : ReadHfPredictionLayers(c, spec);
  for (int32_t i = dense; i < r.n_layers; ++i) SetSparse(r.layers[static_cast<size_t>(i)], true);
  if (!c.gguf()) ReadMlpLayerTypes(c, r);
  constexpr std::string_view kPattern = "attention.sliding_window_pattern";
  const bool none = !c.gguf() && c.IsNull("sliding_window");
  const int32_t window = c.gguf() ? c.Int("attention.sliding_window", 1, kMaxContext)
                         : none   ? 0
                                  : c.Int("sliding_window", 1, kMaxContext, 4096);
  if (c.gguf() && c.Has(kPattern)) {
    ReadWindowPattern(c, r, kPattern, window, 4);
  } else if (c.gguf() || !ReadHfLayerTypes(c, r, window)) {
    const int32_t rest = c.gguf() ? 4 : c.Int("sliding_window_pattern", 1, kMaxLayers, 4);
    for (int32_t i = 0; i < r.n_layers; ++i) {  // GGUF: each period begins with the layer that sees all
      const bool full = c.gguf() ? i % rest == 0 : i < dense ? (i + 1) % period == 0 : (i - dense + 1) % rest == 0;
      r.layers[static_cast<size_t>(i)].attention.window = full ? 0 : window;
    }
  }
  for (LayerRecipe& layer : r.layers) {
    const bool turns = layer.attention.window > 0 || (!layer.sparse() && period == 1);
    layer.attention.rope = turns ? LayerRope::kGlobal : LayerRope::kNone;
  }
  ReadExpertRouting(c, r);
  for (const char* key : {"use_parallel_block", "use_gated_activation"}) c.ExpectBool(key, true);
}

void Read(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  const bool experts = c.Is({"cohere2moe", "Cohere2MoeForCausalLM", "cohere2_moe"});
  const bool second = experts || c.Is({"cohere2", "Cohere2ForCausalLM"});
  constexpr std::string_view kRms = "attention.layer_norm_rms_epsilon";
  const bool rms = experts && (c.gguf() ? c.Double(kRms, 0) != 0 : c.Has("rms_norm_eps"));
  r.rope.style = RopeStyle::kAdjacentPair;
  ReadDecoder(c, spec,
              {.norm_eps = 1e-5,
               .n_heads = 64,
               .context = 8192,
               .vocab = 256000,
               .rope_theta = second ? 10000.0 : 500000.0,
               .tied = true,
               .hf_eps = rms ? "rms_norm_eps" : "layer_norm_eps",
               .gguf_eps = rms ? kRms : "attention.layer_norm_epsilon"});
  if (experts && !c.gguf()) {
    r.all.ffn.width = c.Int("prefix_dense_intermediate_size|intermediate_size", 1, kMaxWidth);
  } else {
    ReadFeedForwardWidth(c, r);
  }
  ExpectSilu(c);
  r.norm = rms ? NormKind::kRms : NormKind::kLayer;
  r.norm_bias = rms;
  r.all.residual.kind = Residual::kParallelOneNorm;
  r.logit_scale = static_cast<float>(c.gguf() ? c.Positive("logit_scale") : c.Positive("logit_scale", 0.0625));
  const bool bias = c.gguf() ? AnyLayerHas(c.inventory(), r, Role::kQBias) : c.Bool("attention_bias", false);
  SetBiases(r, bias, c.gguf() ? AnyLayerHas(c.inventory(), r, Role::kOBias) : bias);
  const bool qk_norm = c.gguf() ? AnyLayerHas(c.inventory(), r, Role::kQNorm) : c.Bool("use_qk_norm", false);
  if (qk_norm) r.all.attention.qk_norm = QkNormKind::kEachHead;
  if (!second) return;
  r.family = experts ? "cohere2-moe" : "cohere2";
  if (qk_norm) c.Unsupported("use_qk_norm", "true");
  if (experts) return ReadCohere2Moe(c, spec);
  ReadWindows(c, r);
}

}  // namespace

extern constinit const Family kCohereFamily = {"cohere", kGguf, kHf, kHfTypes, Read};

}  // namespace tally
