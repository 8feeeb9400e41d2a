// SPDX-License-Identifier: Apache-2.0
// Kimi Linear (Kimi Team 2025): three layers of Kimi Delta Attention for each layer of latent attention, without positions; a mixture of
// experts as DeepSeek-V3's. The decays and the output's gate are made through a space of a head's dimension. Lists of layers count from 1.
// The latent norm's eps is the published code's, whatever rms_norm_eps says.
#include <algorithm>

#include "engine/base/format.h"
#include "models/kda.h"

namespace tally {
namespace {

constexpr std::string_view kGguf[] = {"kimi-linear"};
constexpr std::string_view kHf[] = {"KimiLinearForCausalLM"};
constexpr std::string_view kHfTypes[] = {"kimi_linear"};

constexpr RoleName kGgufNames[] = {TALLY_KDA_GGUF};
#define TALLY_MIXER "model.layers.#.self_attn."
#define TALLY_MOE "model.layers.#.block_sparse_moe."
constexpr RoleName kHfNames[] = {TALLY_KDA_HF(TALLY_MIXER, TALLY_MOE),
                                 {Role::kSsmA, TALLY_MIXER "A_log", Storage::kMinusExp},
                                 {Role::kDeltaAlphaA, TALLY_MIXER "f_a_proj.weight"},
                                 {Role::kDeltaAlphaB, TALLY_MIXER "f_b_proj.weight"},
                                 {Role::kDeltaGateA, TALLY_MIXER "g_a_proj.weight"},
                                 {Role::kDeltaGateB, TALLY_MIXER "g_b_proj.weight"},
                                 {Role::kRouterBias, TALLY_MOE "gate.e_score_correction_bias"},
                                 {Role::kExpertGate, TALLY_MOE "experts.*.w1.weight"},
                                 {Role::kExpertUp, TALLY_MOE "experts.*.w3.weight"},
                                 {Role::kExpertDown, TALLY_MOE "experts.*.w2.weight"}};
#undef TALLY_MIXER
#undef TALLY_MOE

void Read(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  ReadKdaLatent(c, r);
  ReadDecoder(c, spec, {.norm_eps = 1e-6, .gguf_absent_heads = true, .rope = false, .hf_context = "model_max_length"});
  r.rope.dim = 0;
  const std::vector<int64_t> kda = c.gguf() ? std::vector<int64_t>() : c.Ints("linear_attn_config.kda_layers"),
                             full = c.gguf() ? std::vector<int64_t>() : c.Ints("linear_attn_config.full_attn_layers");
  ReadKda(c, r, "linear_attn_config.num_heads", "linear_attn_config.head_dim", "linear_attn_config.short_conv_kernel_size",
          [&](int32_t layer) {
            const bool has = std::ranges::find(kda, layer + 1) != kda.end();
            if (has == (std::ranges::find(full, layer + 1) != full.end())) {
              c.Fail("layer " + std::to_string(layer + 1) + " must be in one of kda_layers and full_attn_layers");
            }
            return has;
          });
  r.all.delta.gate_rank = r.all.delta.key_dim;
  ReadFeedForwardWidth(c, r);
  ReadSharedExperts(c, spec);
  // llama.cpp runs a file without them, as networks without matrices.
  const auto stored = [&](Role role) { return AnyLayerHas(c.inventory(), r, role); };
  if (c.gguf() && r.all.experts.shared_width > 0 && stored(Role::kExpertUp) && !stored(Role::kSharedExpertGate) &&
      !stored(Role::kSharedExpertUp) && !stored(Role::kSharedExpertDown)) {
    r.all.experts.shared_width = 0;
    r.all.experts.shared_activation = true;
  }
  ReadSigmoidRouting(c, r, /*normed=*/true);
  if (c.gguf()) r.all.experts.routing = RoutingRule::kSigmoidThenTopKRenormed;  // without a key
  ExpectSilu(c);
  // A bound of the decays, gates of one matrix, and residual attention are Kimi K3's.
  c.ExpectBool(c.Pick("kda.safe_gate", "linear_attn_config.use_full_rank_gate"), false);
  for (const char* key : {"linear_attn_config.gate_lower_bound", "attn_res_block_size", "routed_expert_hidden_size"}) {
    if (!c.gguf() && c.Has(key)) c.Unsupported(key, "(of Kimi K3)");
  }
  if (c.gguf()) return;
  c.ExpectText("moe_router_activation_func", "sigmoid");
  c.ExpectBool("mla_use_output_gate", false);
  if (!c.Bool("mla_use_nope", false)) c.Unsupported("mla_use_nope", "false");
}

}  // namespace

extern constinit const Family kKimiLinearFamily = {"kimi-linear", kGguf, kHf, kHfTypes, Read, kHfNames, kGgufNames};

}  // namespace tally
