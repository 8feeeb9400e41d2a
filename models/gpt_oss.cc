// gpt-oss (OpenAI 2025): grouped key-value heads with biases and attention sinks, YaRN, a sliding window on
// every other layer, and in every layer a mixture of experts in MXFP4 with a clamped SwiGLU. Hugging Face
// interleaves gate and up row by row (biases too); GGUF splits them. The published model does not round
// YaRN's bounds; GGUF has no key for that, so a GGUF of gpt-oss implies it.
#include "engine/base/format.h"
#include "models/binding.h"
#include "models/config.h"
#include "models/families.h"
#include "models/names.h"

namespace tally {
namespace {

constexpr std::string_view kGguf[] = {"gpt-oss"};
constexpr std::string_view kHf[] = {"GptOssForCausalLM"};
constexpr std::string_view kHfTypes[] = {"gpt_oss"};

constexpr RoleName kGgufNames[] = {{Role::kFfnNorm, "blk.#.post_attention_norm.weight"}};
#define TALLY_EXPERTS "model.layers.#.mlp.experts."
constexpr RoleName kHfNames[] = {
    {Role::kSinks, "model.layers.#.self_attn.sinks"},
    {Role::kRouter, "model.layers.#.mlp.router.weight"},
    {Role::kRouterBias, "model.layers.#.mlp.router.bias"},
    {Role::kExpertGate, TALLY_EXPERTS "gate_up_proj", Storage::kInterleavedEven, true},
    {Role::kExpertUp, TALLY_EXPERTS "gate_up_proj", Storage::kInterleavedOdd, true},
    {Role::kExpertGateBias, TALLY_EXPERTS "gate_up_proj_bias", Storage::kInterleavedEven},
    {Role::kExpertUpBias, TALLY_EXPERTS "gate_up_proj_bias", Storage::kInterleavedOdd},
    {Role::kExpertDown, TALLY_EXPERTS "down_proj", Storage::kPlain, true},
    {Role::kExpertDownBias, TALLY_EXPERTS "down_proj_bias"},
};
#undef TALLY_EXPERTS

void SetShape(Recipe& r) {  // what all gpt-oss have in common
  r.sinks = true;
  r.activation = ActivationKind::kSwigluOai;
  r.routing = RoutingRule::kTopKThenSoftmax;
  r.router_bias = r.expert_bias = true;
  r.layers.resize(r.n_layers);
  for (LayerRecipe& layer : r.layers) layer.sparse = true;
  UsualAttentionScale(r);
}

Result<ModelSpec> ReadGgufFile(const Inventory& inventory) {
  ModelSpec spec;
  Recipe& r = spec.recipe;
  r.family = "gpt-oss";
  Config c(inventory, "gpt-oss.");
  ReadGgufDecoder(c, r);
  r.rope.style = RopeStyle::kRotateHalf;
  ReadGgufRope(c, r, /*yarn_truncate=*/false);
  r.n_experts = c.Int("expert_count", 1, kMaxExperts);
  r.top_k = c.Int("expert_used_count", 1, r.n_experts);
  r.d_expert = c.Int("expert_feed_forward_length|feed_forward_length", 1, kMaxWidth);
  const int32_t window = c.Int("attention.sliding_window", 1, kMaxContext);
  CheckHeads(c, r);
  TALLY_RETURN_IF_ERROR(c.status());
  SetShape(r);
  for (int32_t i = 0; i < r.n_layers; i += 2) r.layers[i].window = window;
  r.q_bias = r.k_bias = r.v_bias = r.o_bias = true;
  return Finish(c, std::move(spec), {kGgufNames, GgufNames()});
}

// The window where layer_types says sliding_attention; where there are no layer_types, on even layers.
void ReadWindows(Config& c, Recipe& r) {
  const int32_t window = c.Int("sliding_window", 1, kMaxContext, 128);
  if (ReadHfLayerTypes(c, r, window)) return;
  for (int32_t i = 0; i < r.n_layers; i += 2) r.layers[i].window = window;
}

Result<ModelSpec> ReadHfDirectory(const Inventory& inventory) {
  ModelSpec spec;
  Recipe& r = spec.recipe;
  r.family = "gpt-oss";
  Config c(inventory, "");
  ReadHfDecoder(c, r, {.norm_eps = 1e-5, .n_kv_heads = 8, .head_dim = 64});
  r.rope.style = RopeStyle::kRotateHalf;
  r.rope.dim = r.head_dim;
  ReadHfRope(c, r, 150000);
  if (c.ok() && !c.Has("rope_scaling.rope_type|rope_scaling.type|rope_parameters.rope_type"))
    c.Fail("required key rope_scaling.rope_type is missing");
  r.n_experts = c.Int("num_local_experts|num_experts", 1, kMaxExperts);
  r.top_k = c.Int("num_experts_per_tok|experts_per_token", 1, r.n_experts);
  r.d_expert = c.Int("intermediate_size", 1, kMaxWidth);
  r.swiglu_limit = static_cast<float>(c.Positive("swiglu_limit", 7));
  for (const int32_t width : {r.d_model, r.d_expert}) {
    if (c.ok() && width % 32 != 0) c.Fail("MXFP4 experts need widths in whole blocks of 32, not " + std::to_string(width));
  }
  if (AnyLayerHas(inventory, r, "model.layers.#.mlp.experts.gate_up_proj")) {
    c.Fail(
        "experts that are not quantised (mlp.experts.gate_up_proj) are not supported; expected MXFP4 "
        "(gate_up_proj_blocks, _scales)");
  }
  CheckHeads(c, r);
  TALLY_RETURN_IF_ERROR(c.status());
  SetShape(r);
  ReadWindows(c, r);
  r.q_bias = r.k_bias = r.v_bias = r.o_bias = c.Bool("attention_bias", true);
  ReadHfTying(c, false, spec);
  return Finish(c, std::move(spec), {kHfNames, HfDecoderNames()});
}

Result<ModelSpec> Read(const Inventory& inventory) {
  return inventory.format == FileFormat::kGguf ? ReadGgufFile(inventory) : ReadHfDirectory(inventory);
}

}  // namespace

constinit const Family kGptOssFamily = {"gpt-oss", kGguf, kHf, kHfTypes, Read};

}  // namespace tally
