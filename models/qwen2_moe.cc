// SPDX-License-Identifier: Apache-2.0
// Qwen1.5-MoE and Qwen2-MoE (Qwen team 2024): Qwen2's attention; a mixture of experts beside a shared expert, which a gate of its own
// weighs. GGUF implies that the chosen experts' weights are not divided by their sum.
#include "models/family.h"

namespace tally {
namespace {

constexpr std::string_view kGguf[] = {"qwen2moe"};
constexpr std::string_view kHf[] = {"Qwen2MoeForCausalLM"};
constexpr std::string_view kHfTypes[] = {"qwen2_moe"};

constexpr RoleName kHfNames[] = {{Role::kSharedExpertGate, "model.layers.#.mlp.shared_expert.gate_proj.weight"},
                                 {Role::kSharedExpertUp, "model.layers.#.mlp.shared_expert.up_proj.weight"},
                                 {Role::kSharedExpertDown, "model.layers.#.mlp.shared_expert.down_proj.weight"},
                                 {Role::kSharedExpertSigmoid, "model.layers.#.mlp.shared_expert_gate.weight"}};

void Read(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  ReadDecoder(c, spec, {.norm_eps = 1e-6, .n_kv_heads = 16, .context = 32768});
  ReadFeedForwardWidth(c, r);
  ReadExperts(c, r, "num_experts", "moe_intermediate_size");
  r.all.experts.shared_width =
      c.Int(c.Pick("expert_shared_feed_forward_length", "shared_expert_intermediate_size"), 1, kMaxWidth);
  r.all.experts.shared_gate = true;
  r.all.experts.routing = SoftmaxRule(c, /*normed_by_default=*/false);
  ReadQwenSparseLayers(c, r);
  // Versions of the class differ in which layers have a window, and no published model has one.
  if (!c.gguf()) c.ExpectBool("use_sliding_window", false);
  SetBiases(r, c.gguf() || c.Bool("qkv_bias", true), false);
  ExpectSilu(c);
}

}  // namespace

extern constinit const Family kQwen2MoeFamily = {"qwen2-moe", kGguf, kHf, kHfTypes, Read, kHfNames};

}  // namespace tally
