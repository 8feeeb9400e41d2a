// SPDX-License-Identifier: Apache-2.0
// Granite 3 (IBM 2024): Llama's decoder with four published factors: of the embedding, of q.k, of what a block adds to the
// residual stream, and a divisor of the logits. Its mixtures have experts in every layer, and some of them a shared expert.
// Hugging Face stores gate and up as one tensor, gate first. GGUF permutes q and k as it does Llama's. Granite SWA (2026), dense: the
// same with a sliding window on some layers, and a sink for each head in all.
#include "models/family.h"
#include "models/gate_up_rows.h"

namespace tally {
namespace {

constexpr std::string_view kGguf[] = {"granite", "granitemoe", "granite_swa"};
constexpr std::string_view kHf[] = {"GraniteForCausalLM", "GraniteMoeForCausalLM", "GraniteMoeSharedForCausalLM",
                                    "GraniteSWAForCausalLM"};
constexpr std::string_view kHfTypes[] = {"granite", "granitemoe", "granitemoeshared", "granite_swa"};

#define TALLY_MOE "model.layers.#.block_sparse_moe."
#define TALLY_SHARED "model.layers.#.shared_mlp."
constexpr RoleName kHfNames[] = {
    {Role::kSinks, "model.layers.#.self_attn.sinks"},
    {Role::kRouter, TALLY_MOE "router.layer.weight"},
    {Role::kExpertGate, TALLY_MOE "input_linear.weight", Storage::kPlain, GateRows<ExpertWidth>},
    {Role::kExpertUp, TALLY_MOE "input_linear.weight", Storage::kPlain, UpRows<ExpertWidth>},
    {Role::kExpertDown, TALLY_MOE "output_linear.weight"},
    {Role::kSharedExpertGate, TALLY_SHARED "input_linear.weight", Storage::kPlain, GateRows<SharedWidth>},
    {Role::kSharedExpertUp, TALLY_SHARED "input_linear.weight", Storage::kPlain, UpRows<SharedWidth>},
    {Role::kSharedExpertDown, TALLY_SHARED "output_linear.weight"},
};
#undef TALLY_SHARED
#undef TALLY_MOE

void ReadMixture(Config& c, Recipe& r) {
  r.family = "granite-moe";
  ReadExperts(c, r, "num_local_experts", "intermediate_size");
  ReadUngatedExperts(c, r);
  r.all.experts.routing = RoutingRule::kTopKThenSoftmax;
  const bool shared = c.gguf() || c.Is({"GraniteMoeSharedForCausalLM", "granitemoeshared"});
  const std::string_view key = c.Pick("expert_shared_feed_forward_length", "shared_intermediate_size");
  r.all.experts.shared_width = shared ? c.Int(key, 0, kMaxWidth, 0) : 0;
  for (LayerRecipe& layer : r.layers) layer.feed_forward = FeedForward::kSparse;
}

// GGUF: a list of which layers have the window, and one of those with rope. Hugging Face: every fourth layer from the first sees all of the
// past, unless the configuration says otherwise; a theta of 0 is a layer without rope.
void ReadSwa(Config& c, Recipe& r) {
  r.family = "granite-swa";
  r.all.attention.sinks = true;
  const int32_t window =
      c.gguf() ? c.Int("attention.sliding_window", 1, kMaxContext) : c.Int("sliding_window", 1, kMaxContext, 128);
  if (c.gguf()) {
    if (c.Bools("attention.sliding_window_pattern").empty()) c.Fail("required list attention.sliding_window_pattern is missing");
    ReadWindowPattern(c, r, "attention.sliding_window_pattern", window, 4);
  } else if (!ReadHfLayerTypes(c, r, window)) {
    for (size_t i = 0; i < r.layers.size(); ++i) r.layers[i].attention.window = i % 4 == 0 ? 0 : window;
  }
  const std::vector<double> thetas = c.gguf() ? std::vector<double>() : c.Doubles("layer_rope_theta");
  std::vector<bool> turns = c.gguf() ? c.Bools("attention.rope_pattern") : std::vector<bool>();
  for (const double theta : thetas) {
    if (theta != 0 && theta != r.rope.theta) c.Unsupported("layer_rope_theta", "other than 0 and rope_theta");
    turns.push_back(theta != 0);
  }
  if (!turns.empty() && turns.size() != r.layers.size())
    return c.Fail("rope is told for " + std::to_string(turns.size()) + " layers of " + std::to_string(r.layers.size()));
  for (size_t i = 0; i < turns.size(); ++i) r.layers[i].attention.rope = turns[i] ? LayerRope::kGlobal : LayerRope::kNone;
}

void Read(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  const bool swa = c.Is({"granite_swa", "GraniteSWAForCausalLM"});
  if (c.gguf()) r.rope.style = RopeStyle::kAdjacentPair;
  ReadDecoder(
      c, spec,
      swa ? DecoderDefaults{.norm_eps = 1e-5,
                            .n_kv_heads = 4,
                            .n_heads = 20,
                            .context = 8192,
                            .vocab = 100352,
                            .tied = true,
                            .gguf_attention_scale = true}
          : DecoderDefaults{.norm_eps = 1e-6, .n_heads = 32, .context = 2048, .vocab = 32000, .gguf_attention_scale = true});
  ReadFeedForwardWidth(c, r);
  ExpectSilu(c);
  r.embedding_scale = static_cast<float>(c.gguf() ? ReadGgufFactor(c, "embedding_scale") : c.Positive("embedding_multiplier", 1));
  r.all.residual.scale =
      static_cast<float>(c.gguf() ? ReadGgufFactor(c, "residual_scale") : c.Positive("residual_multiplier", 1));
  r.logit_scale = static_cast<float>(1 / (c.gguf() ? c.Positive("logit_scale") : c.Positive("logits_scaling", 1)));
  if (!c.gguf()) SetAttentionScale(r, c.Positive("attention_multiplier", 1));
  if (swa) ReadSwa(c, r);
  if (swa && c.gguf() && c.Int("expert_count", 0, kMaxExperts, 0) > 0)
    c.Unsupported("expert_count", "other than 0, with windows,");
  const bool mixture = !swa && !c.Is({"granite", "GraniteForCausalLM"});
  if (mixture) ReadMixture(c, r);
  const bool bias = c.gguf() ? AnyLayerHas(c.inventory(), r, Role::kQBias) : c.Bool("attention_bias", false);
  SetBiases(r, bias, c.gguf() ? AnyLayerHas(c.inventory(), r, Role::kOBias) : bias);
  if (!mixture) r.all.ffn.bias = c.gguf() ? AnyLayerHas(c.inventory(), r, Role::kUpBias) : c.Bool("mlp_bias", false);
  if (!c.gguf()) return;
  r.rope.freq_factors = IsStored(c.inventory(), GgufName(Role::kRopeFactors, -1));
  if (c.Bool("rope.scaling.finetuned", true)) return;  // false: llama.cpp runs the file without rope
  for (LayerRecipe& layer : r.layers) layer.attention.rope = LayerRope::kNone;
}

}  // namespace

extern constinit const Family kGraniteFamily = {"granite", kGguf, kHf, kHfTypes, Read, kHfNames};

}  // namespace tally
