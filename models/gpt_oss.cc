// SPDX-License-Identifier: Apache-2.0
// gpt-oss (OpenAI 2025): grouped key-value heads with biases and attention sinks, YaRN, a sliding window on
// every other layer, and in every layer a mixture of experts in MXFP4 with a clamped SwiGLU. Hugging Face
// interleaves gate and up row by row (biases too); GGUF splits them. The published model does not round
// YaRN's bounds; GGUF has no key for that, so a GGUF of gpt-oss implies it. Experts that are not quantised, as save_pretrained
// writes them, are [in, out], gate and up in alternating columns.
#include "models/family.h"

namespace tally {
namespace {

constexpr std::string_view kGguf[] = {"gpt-oss"};
constexpr std::string_view kHf[] = {"GptOssForCausalLM"};
constexpr std::string_view kHfTypes[] = {"gpt_oss"};

RowMap Even(const Recipe&) { return {0, 1, 2}; }
RowMap Odd(const Recipe&) { return {1, 1, 2}; }

constexpr RoleName kGgufNames[] = {{Role::kFfnNorm, "blk.#.post_attention_norm.weight"}};
constexpr DType kSplit = DType::kMXFP4;  // of the experts' matrices
#define TALLY_EXPERTS "model.layers.#.mlp.experts."
constexpr RoleName kHfNames[] = {
    {Role::kSinks, "model.layers.#.self_attn.sinks"},
    {Role::kRouter, "model.layers.#.mlp.router.weight"},
    {Role::kRouterBias, "model.layers.#.mlp.router.bias"},
    {Role::kExpertGate, TALLY_EXPERTS "gate_up_proj", Storage::kPlain, Even, kSplit},
    {Role::kExpertUp, TALLY_EXPERTS "gate_up_proj", Storage::kPlain, Odd, kSplit},
    {Role::kExpertGateBias, TALLY_EXPERTS "gate_up_proj_bias", Storage::kPlain, Even},
    {Role::kExpertUpBias, TALLY_EXPERTS "gate_up_proj_bias", Storage::kPlain, Odd},
    {Role::kExpertDown, TALLY_EXPERTS "down_proj", Storage::kPlain, nullptr, kSplit},
    {Role::kExpertGate, TALLY_EXPERTS "gate_up_proj", Storage::kTransposed, Even},
    {Role::kExpertUp, TALLY_EXPERTS "gate_up_proj", Storage::kTransposed, Odd},
    {Role::kExpertDown, TALLY_EXPERTS "down_proj", Storage::kTransposed},
    {Role::kExpertDownBias, TALLY_EXPERTS "down_proj_bias"},
};
#undef TALLY_EXPERTS

void CheckHf(Config& c, const Recipe& r) {
  if (c.ok() && !c.Has("rope_scaling.rope_type|rope_scaling.type|rope_parameters.rope_type"))
    c.Fail("required key rope_scaling.rope_type is missing");
  if (AnyLayerHas(c.inventory(), r, "~model.layers.#.mlp.experts.gate_up_proj", c.tensor_prefix)) return;
  for (const int32_t width : {r.d_model, r.all.experts.width}) {
    if (c.ok() && width % 32 != 0) c.Fail("MXFP4 experts need widths in whole blocks of 32, not " + std::to_string(width));
  }
}

void Read(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  ReadDecoder(c, spec,
              {.norm_eps = 1e-5,
               .n_kv_heads = 8,
               .head_dim = 64,
               .context = 131072,
               .vocab = 201088,
               .rope_theta = 150000,
               .gguf_yarn_truncates = false});
  if (c.gguf()) r.tied_head = false;  // a file without its head is not whole
  ReadExperts(c, r, "num_local_experts|num_experts", "intermediate_size");
  r.all.attention.sinks = r.all.experts.router_bias = r.all.experts.bias = true;
  r.all.network.activation = ActivationKind::kSwigluOai;
  r.all.experts.routing = RoutingRule::kTopKThenSoftmax;
  const bool bias = c.gguf() || c.Bool("attention_bias", true);
  SetBiases(r, bias, bias);
  // Without layer_types, even layers have the window.
  const int32_t window =
      c.gguf() ? c.Int("attention.sliding_window", 1, kMaxContext) : c.Int("sliding_window", 1, kMaxContext, 128);
  for (LayerRecipe& layer : r.layers) layer.feed_forward = FeedForward::kSparse;
  if (c.gguf()) return ReadWindowPattern(c, r, "attention.sliding_window_pattern", window, 2);
  SetWindows(r, window, 2);
  ReadHfLayerTypes(c, r, window);
  r.all.network.swiglu_limit = static_cast<float>(c.Positive("swiglu_limit", 7));
  CheckHf(c, r);
}

}  // namespace

extern constinit const Family kGptOssFamily = {"gpt-oss", kGguf, kHf, kHfTypes, Read, kHfNames, kGgufNames, {"mxfp4", kSplit}};

}  // namespace tally
