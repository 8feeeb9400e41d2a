// Llama 1 to 3 (Touvron et al. 2023, Dubey et al. 2024) and Mistral 7B (Jiang et al. 2023: the same with a sliding window on
// every layer): RMSNorm, rotary positions, grouped key-value heads, SiLU-gated feed-forward.
// GGUF stores the rows of q and k so that adjacent pairs turn; Hugging Face so that halves of a head do.
#include "models/binding.h"
#include "models/config.h"
#include "models/families.h"

namespace tally {
namespace {

constexpr std::string_view kGguf[] = {"llama"};
constexpr std::string_view kHf[] = {"LlamaForCausalLM", "MistralForCausalLM"};
constexpr std::string_view kHfTypes[] = {"llama", "mistral"};

constexpr RoleName kGgufNames[] = {
    {Role::kTokenEmbedding, "token_embd.weight"}, {Role::kOutputNorm, "output_norm.weight"},
    {Role::kHead, "output.weight"},               {Role::kRopeFactors, "rope_freqs.weight"},
    {Role::kAttnNorm, "blk.#.attn_norm.weight"},  {Role::kFfnNorm, "blk.#.ffn_norm.weight"},
    {Role::kQ, "blk.#.attn_q.weight"},            {Role::kQBias, "blk.#.attn_q.bias"},
    {Role::kK, "blk.#.attn_k.weight"},            {Role::kKBias, "blk.#.attn_k.bias"},
    {Role::kV, "blk.#.attn_v.weight"},            {Role::kVBias, "blk.#.attn_v.bias"},
    {Role::kO, "blk.#.attn_output.weight"},       {Role::kOBias, "blk.#.attn_output.bias"},
    {Role::kGate, "blk.#.ffn_gate.weight"},       {Role::kGateBias, "blk.#.ffn_gate.bias"},
    {Role::kUp, "blk.#.ffn_up.weight"},           {Role::kUpBias, "blk.#.ffn_up.bias"},
    {Role::kDown, "blk.#.ffn_down.weight"},       {Role::kDownBias, "blk.#.ffn_down.bias"},
};
#define TALLY_LAYER "model.layers.#."
constexpr RoleName kHfNames[] = {
    {Role::kTokenEmbedding, "model.embed_tokens.weight"},        {Role::kOutputNorm, "model.norm.weight"},
    {Role::kHead, "lm_head.weight"},
    {Role::kAttnNorm, TALLY_LAYER "input_layernorm.weight"},     {Role::kFfnNorm, TALLY_LAYER "post_attention_layernorm.weight"},
    {Role::kQ, TALLY_LAYER "self_attn.q_proj.weight"},           {Role::kQBias, TALLY_LAYER "self_attn.q_proj.bias"},
    {Role::kK, TALLY_LAYER "self_attn.k_proj.weight"},           {Role::kKBias, TALLY_LAYER "self_attn.k_proj.bias"},
    {Role::kV, TALLY_LAYER "self_attn.v_proj.weight"},           {Role::kVBias, TALLY_LAYER "self_attn.v_proj.bias"},
    {Role::kO, TALLY_LAYER "self_attn.o_proj.weight"},           {Role::kOBias, TALLY_LAYER "self_attn.o_proj.bias"},
    {Role::kGate, TALLY_LAYER "mlp.gate_proj.weight"},           {Role::kGateBias, TALLY_LAYER "mlp.gate_proj.bias"},
    {Role::kUp, TALLY_LAYER "mlp.up_proj.weight"},               {Role::kUpBias, TALLY_LAYER "mlp.up_proj.bias"},
    {Role::kDown, TALLY_LAYER "mlp.down_proj.weight"},           {Role::kDownBias, TALLY_LAYER "mlp.down_proj.bias"},
};
#undef TALLY_LAYER

Result<ModelSpec> ReadGgufFile(const Inventory& inventory) {
  ModelSpec spec;
  Recipe& r = spec.recipe;
  r.family = "llama";
  Config c(inventory, "llama.");
  if (c.Int("expert_count", 0, kMaxExperts, 0) > 0) c.Unsupported("expert_count", "above 0 (a Mixtral-style mixture of experts)");
  ReadGgufDecoder(c, r);
  r.rope.style = RopeStyle::kAdjacentPair;
  r.rope.freq_factors = IsStored(inventory, "rope_freqs.weight");
  ReadGgufRope(c, r, /*yarn_truncate=*/true);
  r.d_ff = c.Int("feed_forward_length", 1, kMaxWidth);
  const int32_t window = c.Int("attention.sliding_window", 0, kMaxContext, 0);
  CheckHeads(c, r);
  TALLY_RETURN_IF_ERROR(c.status());
  r.layers.assign(r.n_layers, {.window = window});
  UsualAttentionScale(r);
  r.tied_head = !IsStored(inventory, "output.weight");
  r.q_bias = AnyLayerHas(inventory, r, "blk.#.attn_q.bias");
  r.k_bias = AnyLayerHas(inventory, r, "blk.#.attn_k.bias");
  r.v_bias = AnyLayerHas(inventory, r, "blk.#.attn_v.bias");
  r.o_bias = AnyLayerHas(inventory, r, "blk.#.attn_output.bias");
  r.ffn_bias = AnyLayerHas(inventory, r, "blk.#.ffn_up.bias");
  ReadGeneration(c, r);
  TALLY_RETURN_IF_ERROR(c.status());
  TALLY_RETURN_IF_ERROR(BindRoles(kGgufNames, spec));
  return spec;
}

Result<ModelSpec> ReadHfDirectory(const Inventory& inventory) {
  ModelSpec spec;
  Recipe& r = spec.recipe;
  r.family = "llama";
  Config c(inventory, "");
  const std::vector<std::string> architectures = c.Strings("architectures");
  const bool mistral = architectures.empty() ? c.String("model_type", "") == "mistral" : architectures[0] == "MistralForCausalLM";
  ReadHfDecoder(c, r, {.norm_eps = 1e-6, .n_kv_heads = mistral ? 8 : 0});
  r.rope.style = RopeStyle::kRotateHalf;
  r.rope.dim = r.head_dim;
  ReadHfRope(c, r, 10000);
  r.d_ff = c.Int("intermediate_size", 1, kMaxWidth);
  if (const std::string act = c.String("hidden_act", "silu"); act != "silu" && act != "swish") c.Unsupported("hidden_act", "\"" + SafeText(act) + "\"");
  // Published Llama classes have no window, whatever the config says.
  const int32_t window = mistral ? c.Int("sliding_window", 0, kMaxContext, 0) : 0;
  CheckHeads(c, r);
  TALLY_RETURN_IF_ERROR(c.status());
  r.layers.assign(r.n_layers, {.window = window});
  UsualAttentionScale(r);
  r.q_bias = r.k_bias = r.v_bias = r.o_bias = !mistral && c.Bool("attention_bias", false);
  r.ffn_bias = !mistral && c.Bool("mlp_bias", false);
  ReadHfTying(c, false, spec);
  for (int32_t i = 0; i < r.n_layers; ++i) {  // old exports keep the frequencies
    const std::string name = "model.layers." + std::to_string(i) + ".self_attn.rotary_emb.inv_freq";
    if (IsStored(inventory, name)) spec.buffers.push_back(name);
  }
  ReadGeneration(c, r);
  TALLY_RETURN_IF_ERROR(c.status());
  TALLY_RETURN_IF_ERROR(BindRoles(kHfNames, spec));
  return spec;
}

Result<ModelSpec> Read(const Inventory& inventory) {
  return inventory.format == FileFormat::kGguf ? ReadGgufFile(inventory) : ReadHfDirectory(inventory);
}

}  // namespace

constinit const Family kLlamaFamily = {"llama", kGguf, kHf, kHfTypes, Read};

}  // namespace tally
