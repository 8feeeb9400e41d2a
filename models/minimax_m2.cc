// SPDX-License-Identifier: Apache-2.0
// MiniMax-M2 (MiniMax 2025): RMSNorm of all heads' queries, and keys, together; rope of half a head; experts in all layers, by sigmoids
// with a bias that only the choice sees, divided by their sum whatever the file says.
#include "models/family.h"

namespace tally {
namespace {

constexpr std::string_view kGguf[] = {"minimax-m2"};
constexpr std::string_view kHf[] = {"MiniMaxM2ForCausalLM"};
constexpr std::string_view kHfTypes[] = {"minimax_m2"};

#define TALLY_MOE "model.layers.#.block_sparse_moe."
constexpr RoleName kHfNames[] = {{Role::kRouter, TALLY_MOE "gate.weight"},
                                 {Role::kRouterBias, TALLY_MOE "e_score_correction_bias"},
                                 {Role::kExpertGate, TALLY_MOE "experts.*.w1.weight"},
                                 {Role::kExpertUp, TALLY_MOE "experts.*.w3.weight"},
                                 {Role::kExpertDown, TALLY_MOE "experts.*.w2.weight"}};
#undef TALLY_MOE
constexpr RoleName kGgufNames[] = {{Role::kRouterBias, "blk.#.exp_probs_b.bias"}};

void Read(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  ReadDecoder(c, spec,
              {.norm_eps = 1e-6,
               .n_kv_heads = 8,
               .head_dim = 128,
               .n_heads = 48,
               .context = 196608,
               .vocab = 200064,
               .rope_theta = 5000000,
               .rotated = 1});
  if (!c.gguf()) r.rope.dim = c.Int("rotary_dim", 1, r.all.attention.head_dim, r.rope.dim);
  ReadExperts(c, r, "num_local_experts", "intermediate_size");
  for (LayerRecipe& layer : r.layers) SetSparse(layer, true);
  ReadSigmoidRouting(c, r, /*normed=*/true);
  r.all.experts.routing = RoutingRule::kSigmoidThenTopKRenormed;
  r.all.attention.qk_norm = QkNormKind::kWhole;
  c.ExpectText("scoring_func", "sigmoid");
  c.ExpectText("qk_norm_type", "per_layer");
  for (const char* key : {"use_qk_norm", "use_routing_bias"}) c.ExpectBool(key, true);
  c.ExpectNumber("shared_intermediate_size", 0);
  ExpectSilu(c);
}

}  // namespace

extern constinit const Family kMiniMaxM2Family = {"minimax-m2", kGguf, kHf, kHfTypes, Read, kHfNames, kGgufNames};

}  // namespace tally
