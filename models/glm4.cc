// SPDX-License-Identifier: Apache-2.0
// GLM-4 (GLM team 2024; Hugging Face "glm", GGUF "chatglm"): Llama's decoder with adjacent-pair rope of half of each head and
// biases of q, k and v. GLM-4-0414 (Zhipu 2025, "glm4"): the same with norms after both blocks, too. Gate and up are one tensor,
// gate first; GGUF calls it up. GGUF files made from the makers' own format have q, k and v as one tensor: all of q, then k, then
// v.
//
// GLM-4V (2025; "glm4v"), text: GLM-4-0414. Its text has one position for all sections of M-RoPE; a GGUF file with sections has the rows of
// q and k in an order in which halves of a head turn. Its vision tower is not run.
#include "models/family.h"
#include "models/gate_up_rows.h"
#include "models/qkv_rows.h"

namespace tally {
namespace {

constexpr std::string_view kGguf[] = {"glm4", "chatglm"};
constexpr std::string_view kHf[] = {"Glm4ForCausalLM", "GlmForCausalLM", "Glm4vForConditionalGeneration"};
constexpr std::string_view kHfTypes[] = {"glm4", "glm", "glm4v"};

constexpr std::string_view kGateUp = "~model.layers.#.mlp.gate_up_proj.weight";
constexpr RoleName kHfNames[] = {{Role::kGate, kGateUp, Storage::kPlain, GateRows<DenseWidth>},
                                 {Role::kUp, kGateUp, Storage::kPlain, UpRows<DenseWidth>},
                                 {Role::kAttnPostNorm, "~model.layers.#.post_self_attn_layernorm.weight"},
                                 {Role::kFfnPostNorm, "~model.layers.#.post_mlp_layernorm.weight"}};
constexpr std::string_view kQkv = "blk.#.attn_qkv.weight", kQkvBias = "blk.#.attn_qkv.bias", kGgufUp = "blk.#.ffn_up.weight";
// clang-format off
constexpr RoleName kGgufNames[] = {
    {Role::kQ, "blk.#.attn_q.weight"},   {Role::kQ, kQkv, Storage::kPlain, QInTurn},
    {Role::kK, "blk.#.attn_k.weight"},   {Role::kK, kQkv, Storage::kPlain, KInTurn},
    {Role::kV, "blk.#.attn_v.weight"},   {Role::kV, kQkv, Storage::kPlain, VInTurn},
    {Role::kQBias, "blk.#.attn_q.bias"}, {Role::kQBias, kQkvBias, Storage::kPlain, QInTurn},
    {Role::kKBias, "blk.#.attn_k.bias"}, {Role::kKBias, kQkvBias, Storage::kPlain, KInTurn},
    {Role::kVBias, "blk.#.attn_v.bias"}, {Role::kVBias, kQkvBias, Storage::kPlain, VInTurn},
    {Role::kGate, kGgufUp, Storage::kPlain, GateRows<DenseWidth>},
    {Role::kUp, kGgufUp, Storage::kPlain, UpRows<DenseWidth>},
};
// clang-format on

void Read(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  const bool sees = c.Is({"Glm4vForConditionalGeneration", "glm4v"}), sections = c.gguf() && c.Has("rope.dimension_sections");
  if (sees && c.inventory().tensors.empty()) spec.parts_not_run.push_back({"visual", std::nullopt});
  if (sees || sections) EnterTextModel(c, spec, {"visual."});
  std::vector<int64_t> of_three;
  for (const char* key : {"rope_scaling.mrope_section", "rope_parameters.mrope_section"}) {
    if (sees && !c.gguf() && c.Has(key)) of_three = c.Ints(key);
  }
  if (sections) of_three = c.Ints("rope.dimension_sections");
  r.rope.style = sections ? RopeStyle::kRotateHalf : RopeStyle::kAdjacentPair;
  ReadDecoder(c, spec,
              {.norm_eps = sees ? 1e-5 : 1.5625e-7,
               .n_kv_heads = 2,
               .head_dim = 128,
               .n_heads = 32,
               .context = 131072,
               .vocab = 151552,
               .rotated = 0.5});
  SetSections(c, of_three, /*interleaved=*/false, r);
  ReadFeedForwardWidth(c, r);
  ExpectSilu(c);
  r.all.residual.post_norms = sees || c.Is({"glm4", "Glm4ForCausalLM"});
  if (!r.all.residual.post_norms) r.family = "glm";
  const bool stored = AnyLayerHas(c.inventory(), r, Role::kQBias) || AnyLayerHas(c.inventory(), r, kQkvBias);
  SetBiases(r, c.gguf() ? stored : c.Bool("attention_bias", true), false);
  if (!c.gguf()) return;
  ReadGgufPredictionLayers(c, spec);
}

}  // namespace

extern constinit const Family kGlm4Family = {"glm4", kGguf, kHf, kHfTypes, Read, kHfNames, kGgufNames};

}  // namespace tally
