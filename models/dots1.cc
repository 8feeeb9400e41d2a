// SPDX-License-Identifier: Apache-2.0
// dots.llm1 (rednote 2025): Qwen3's attention; DeepSeek-V3's experts, routed by sigmoids with a bias that only the choice sees, beside
// shared ones, dense layers first.
#include "models/family.h"

namespace tally {
namespace {

constexpr std::string_view kGguf[] = {"dots1"};
constexpr std::string_view kHf[] = {"Dots1ForCausalLM"};
constexpr std::string_view kHfTypes[] = {"dots1"};

#define TALLY_MLP "model.layers.#.mlp."
constexpr RoleName kHfNames[] = {{Role::kRouterBias, TALLY_MLP "gate.e_score_correction_bias"},
                                 {Role::kSharedExpertGate, TALLY_MLP "shared_experts.gate_proj.weight"},
                                 {Role::kSharedExpertUp, TALLY_MLP "shared_experts.up_proj.weight"},
                                 {Role::kSharedExpertDown, TALLY_MLP "shared_experts.down_proj.weight"}};
#undef TALLY_MLP
constexpr RoleName kGgufNames[] = {{Role::kRouterBias, "blk.#.exp_probs_b.bias"}};

// The published class: from layer max_window_layers on, 62 by default.
void ReadWindows(Config& c, Recipe& r) {
  if (c.gguf() || c.IsNull("sliding_window")) return;
  const int32_t window = c.Int("sliding_window", 1, kMaxContext, 4096), from = c.Int("max_window_layers", 0, kMaxLayers, 62);
  if (ReadHfLayerTypes(c, r, window)) return;
  for (size_t i = static_cast<size_t>(from); i < r.layers.size(); ++i) r.layers[i].attention.window = window;
}

void Read(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  ReadDecoder(c, spec, {.norm_eps = 1e-6, .n_kv_heads = 32, .n_heads = 32, .context = 2048, .vocab = 152064});
  ReadFeedForwardWidth(c, r);
  ReadSharedExperts(c, spec);
  ReadSigmoidRouting(c, r, /*normed=*/false);
  r.all.attention.qk_norm = QkNormKind::kHead;
  const bool bias = !c.gguf() && c.Bool("attention_bias", false);
  SetBiases(r, bias, bias);
  ReadWindows(c, r);
  ExpectSilu(c);
}

}  // namespace

extern constinit const Family kDots1Family = {"dots1", kGguf, kHf, kHfTypes, Read, kHfNames, kGgufNames};

}  // namespace tally
