// SPDX-License-Identifier: Apache-2.0
// Granite 3 (IBM 2024): Llama's decoder with four published factors: of the embedding, of q.k, of what a block adds to the
// residual stream, and a divisor of the logits. Its mixtures have experts in every layer, and some of them a shared expert.
// Hugging Face stores gate and up as one tensor, gate first. GGUF permutes q and k as it does Llama's.
#include "models/family.h"
#include "models/gate_up_rows.h"

namespace tally {
namespace {

constexpr std::string_view kGguf[] = {"granite", "granitemoe"};
constexpr std::string_view kHf[] = {"GraniteForCausalLM", "GraniteMoeForCausalLM", "GraniteMoeSharedForCausalLM"};
constexpr std::string_view kHfTypes[] = {"granite", "granitemoe", "granitemoeshared"};

#define TALLY_MOE "model.layers.#.block_sparse_moe."
#define TALLY_SHARED "model.layers.#.shared_mlp."
constexpr RoleName kHfNames[] = {
    {Role::kRouter, TALLY_MOE "router.layer.weight"},
    {Role::kExpertGate, TALLY_MOE "input_linear.weight", Storage::kPlain, GateRows<&Recipe::d_expert>},
    {Role::kExpertUp, TALLY_MOE "input_linear.weight", Storage::kPlain, UpRows<&Recipe::d_expert>},
    {Role::kExpertDown, TALLY_MOE "output_linear.weight"},
    {Role::kSharedExpertGate, TALLY_SHARED "input_linear.weight", Storage::kPlain, GateRows<&Recipe::d_shared>},
    {Role::kSharedExpertUp, TALLY_SHARED "input_linear.weight", Storage::kPlain, UpRows<&Recipe::d_shared>},
    {Role::kSharedExpertDown, TALLY_SHARED "output_linear.weight"},
};
#undef TALLY_SHARED
#undef TALLY_MOE

void ReadMixture(Config& c, Recipe& r) {
  r.family = "granite-moe";
  ReadExperts(c, r, "num_local_experts", "intermediate_size");
  r.routing = RoutingRule::kTopKThenSoftmax;
  const bool shared = c.gguf() || c.Is({"GraniteMoeSharedForCausalLM", "granitemoeshared"});
  const std::string_view key = c.Pick("expert_shared_feed_forward_length", "shared_intermediate_size");
  r.d_shared = shared ? c.Int(key, 0, kMaxWidth, 0) : 0;
  for (LayerRecipe& layer : r.layers) layer.feed_forward = FeedForward::kSparse;
}

void Read(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  if (c.gguf()) r.rope.style = RopeStyle::kAdjacentPair;
  ReadDecoder(c, spec, {.norm_eps = 1e-6, .n_heads = 32, .context = 2048, .vocab = 32000, .gguf_attention_scale = true});
  ReadFeedForwardWidth(c, r);
  ExpectSilu(c);
  r.embedding_scale = static_cast<float>(c.gguf() ? ReadGgufFactor(c, "embedding_scale") : c.Positive("embedding_multiplier", 1));
  r.residual_scale = static_cast<float>(c.gguf() ? ReadGgufFactor(c, "residual_scale") : c.Positive("residual_multiplier", 1));
  r.logit_scale = static_cast<float>(1 / (c.gguf() ? c.Positive("logit_scale") : c.Positive("logits_scaling", 1)));
  if (!c.gguf()) SetAttentionScale(r, c.Positive("attention_multiplier", 1));
  const bool mixture = !c.Is({"granite", "GraniteForCausalLM"});
  if (mixture) ReadMixture(c, r);
  const bool bias = c.gguf() ? AnyLayerHas(c.inventory(), r, Role::kQBias) : c.Bool("attention_bias", false);
  SetBiases(r, bias, c.gguf() ? AnyLayerHas(c.inventory(), r, Role::kOBias) : bias);
  if (!mixture) r.ffn_bias = c.gguf() ? AnyLayerHas(c.inventory(), r, Role::kUpBias) : c.Bool("mlp_bias", false);
  if (!c.gguf()) return;
  r.rope.freq_factors = IsStored(c.inventory(), GgufName(Role::kRopeFactors, -1));
  if (c.Bool("rope.scaling.finetuned", true)) return;  // false: llama.cpp runs the file without rope
  for (LayerRecipe& layer : r.layers) layer.rope = LayerRope::kNone;
}

}  // namespace

extern constinit const Family kGraniteFamily = {"granite", kGguf, kHf, kHfTypes, Read, kHfNames};

}  // namespace tally
