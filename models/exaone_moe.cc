// SPDX-License-Identifier: Apache-2.0
// K-EXAONE (LG AI Research 2026): RMSNorm of each head's query and key; three layers with a sliding window and rope, then one that sees all
// of the past without rope; DeepSeek-V3's experts beside shared ones, dense layers first. Layers for multi-token prediction are not run.
#include "models/family.h"

namespace tally {
namespace {

constexpr std::string_view kGguf[] = {"exaone-moe"};
constexpr std::string_view kHf[] = {"ExaoneMoEForCausalLM", "ExaoneMoeForCausalLM"};
constexpr std::string_view kHfTypes[] = {"exaone_moe"};

#define TALLY_MLP "model.layers.#.mlp."
constexpr RoleName kHfNames[] = {{Role::kRouterBias, TALLY_MLP "e_score_correction_bias"},
                                 {Role::kRouterBias, TALLY_MLP "gate.e_score_correction_bias"},
                                 {Role::kSharedExpertGate, TALLY_MLP "shared_experts.gate_proj.weight"},
                                 {Role::kSharedExpertUp, TALLY_MLP "shared_experts.up_proj.weight"},
                                 {Role::kSharedExpertDown, TALLY_MLP "shared_experts.down_proj.weight"}};
#undef TALLY_MLP
constexpr RoleName kGgufNames[] = {{Role::kRouterBias, "blk.#.exp_probs_b.bias"}};

// A period, or letters of one: L has the window, but for the last layer.
void ReadPattern(Config& c, Recipe& r, int32_t window) {
  if (ReadHfLayerTypes(c, r, window)) return;
  const MetaValue* const value = c.Find("sliding_window_pattern");
  const std::string* const letters = value != nullptr ? std::get_if<std::string>(value) : nullptr;
  if (letters == nullptr) {
    SetWindows(r, window, c.Int("sliding_window_pattern", 1, kMaxLayers, 4));
  } else if (letters->empty() || letters->find_first_not_of("LG") != letters->npos) {
    c.Unsupported("sliding_window_pattern", "with letters other than L and G");
  } else {
    for (size_t i = 0; i < r.layers.size(); ++i)
      r.layers[i].attention.window = (*letters)[i % letters->size()] == 'L' ? window : 0;
    r.layers.back().attention.window = 0;
  }
}

void Read(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  ReadDecoder(c, spec, {.norm_eps = 1e-5, .n_heads = 32, .context = 2048, .vocab = 102400});
  ReadFeedForwardWidth(c, r);
  c.gguf() ? ReadGgufPredictionLayers(c, spec) : AddNotRun(c, spec, "mtp.");
  if (!c.gguf()) r.mtp_layers = c.Int("num_nextn_predict_layers", 0, kMaxLayers, 0);
  if (c.gguf()) {
    ReadWindowPattern(c, r, "attention.sliding_window_pattern", c.Int("attention.sliding_window", 1, kMaxContext), 4);
  } else if (!c.IsNull("sliding_window")) {
    ReadPattern(c, r, c.Int("sliding_window", 1, kMaxContext, 4096));
  }
  const bool windows = c.gguf() || !c.IsNull("sliding_window");
  r.rope.freq_factors = c.gguf() && IsStored(c.inventory(), GgufName(Role::kRopeFactors, -1));
  for (LayerRecipe& layer : r.layers)
    layer.attention.rope = windows && layer.attention.window == 0 ? LayerRope::kNone : LayerRope::kGlobal;
  ReadExperts(c, r, "num_experts", "moe_intermediate_size");
  SetSharedWidth(c, r,
                 int64_t{c.Int(c.Pick("expert_shared_count", "num_shared_experts"), 0, kMaxExperts, 1)} * r.all.experts.width,
                 "num_shared_experts");
  const std::string_view dense_keys = c.Pick("leading_dense_block_count", "first_k_dense_replace|first_last_k_dense_replace");
  SetSparseFrom(r, c.Int(dense_keys, 0, kMaxLayers, c.gguf() ? 0 : 1));
  if (!c.gguf()) ReadMlpLayerTypes(c, r);
  ReadSigmoidRouting(c, r, /*normed=*/true, 2.5);
  r.all.attention.qk_norm = QkNormKind::kHead;
  ExpectSilu(c);
}

}  // namespace

extern constinit const Family kExaoneMoeFamily = {"exaone-moe", kGguf, kHf, kHfTypes, Read, kHfNames, kGgufNames};

}  // namespace tally
