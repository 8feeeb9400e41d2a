// SPDX-License-Identifier: Apache-2.0
// MPT (MosaicML 2023): LayerNorm without biases, linear biases of the scores in place of positions (ALiBi), exact GELU, no biases
// anywhere, head tied to the embedding. q, k and v are one matrix: all of q, then k, then v. GGUF does not name the activation:
// the published models' is the exact GELU.
#include "engine/base/format.h"
#include "models/family.h"

namespace tally {
namespace {

constexpr std::string_view kGguf[] = {"mpt"};
constexpr std::string_view kHf[] = {"MptForCausalLM", "MPTForCausalLM"};
constexpr std::string_view kHfTypes[] = {"mpt"};

#define TALLY_LAYER "transformer.blocks.#."
constexpr RoleName kHfNames[] = {
    {Role::kTokenEmbedding, "transformer.wte.weight"}, {Role::kOutputNorm, "transformer.norm_f.weight"},
    {Role::kAttnNorm, TALLY_LAYER "norm_1.weight"},    {Role::kFfnNorm, TALLY_LAYER "norm_2.weight"},
    {Role::kQkv, TALLY_LAYER "attn.Wqkv.weight"},      {Role::kO, TALLY_LAYER "attn.out_proj.weight"},
    {Role::kUp, TALLY_LAYER "ffn.up_proj.weight"},     {Role::kDown, TALLY_LAYER "ffn.down_proj.weight"},
};
#undef TALLY_LAYER

// Options of MosaicML's own code; transformers has only what is run here.
void Refuse(Config& c, const Recipe& r) {
  for (const char* key : {"logit_scale", "final_logit_softcapping", "attn_config.attn_logit_softcapping", "ffn_config.ffn_act_fn",
                          "block_overrides"}) {
    if (c.Has(key)) c.Unsupported(key, "other than null");
  }
  for (const char* key : {"attn_config.qk_ln", "attn_config.qk_gn", "attn_config.prefix_lm", "attn_config.attn_uses_sequence_id",
                          "attn_config.rope"}) {
    c.ExpectBool(key, false);
  }
  for (const char* key : {"no_bias", "attn_config.alibi"}) c.ExpectBool(key, true);
  c.ExpectNumber("attn_config.kv_n_heads", r.all.attention.n_heads);
  c.ExpectNumber("attn_config.sliding_window_size", -1);
  c.ExpectText("attn_config.attn_type", "multihead_attention");
  c.ExpectText("ffn_config.ffn_type", "mptmlp");
  const std::string norm = c.Has("norm_type") ? c.String("norm_type", "") : "layernorm";
  if (norm != "low_precision_layernorm" && norm != "layernorm") c.Unsupported("norm_type", Quote(norm));
}

void Read(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  ReadDecoder(c, spec,
              {.norm_eps = 1e-5,
               .context = 2048,
               .vocab = 50368,
               .tied = true,
               .hf_eps = "layer_norm_epsilon",
               .gguf_eps = "attention.layer_norm_epsilon",
               .rope = false,
               .hf_layers = "n_layers|num_hidden_layers",
               .hf_width = "d_model|hidden_size",
               .hf_heads = "n_heads|num_attention_heads",
               .hf_context = "max_seq_len"});
  if (c.gguf()) {
    ReadFeedForwardWidth(c, r);
  } else {
    const int64_t width = int64_t{c.Int("expansion_ratio", 1, kMaxWidth, 4)} * r.d_model;
    if (width > kMaxWidth) c.Fail("expansion_ratio makes a width of " + std::to_string(width));
    r.all.ffn.width = c.ok() ? static_cast<int32_t>(width) : 1;
  }
  r.norm = NormKind::kLayer;
  r.norm_bias = false;
  r.all.attention.fused_qkv = true;
  r.alibi_bias =
      static_cast<float>(c.gguf() ? c.Positive("attention.max_alibi_bias") : c.Positive("attn_config.alibi_bias_max", 8));
  r.all.network.gated = false;
  r.all.network.activation = ActivationKind::kGeluErf;
  if (c.Has("attn_config.softmax_scale")) SetAttentionScale(r, c.Positive("attn_config.softmax_scale"));
  Refuse(c, r);
  constexpr std::string_view kClip = "attn_config.clip_qkv|attention.clamp_kqv";
  if (c.Has(kClip) && c.Double(kClip, 0) != 0) r.all.attention.qkv_limit = static_cast<float>(c.Positive(kClip));
}

}  // namespace

extern constinit const Family kMptFamily = {"mpt", kGguf, kHf, kHfTypes, Read, kHfNames};

}  // namespace tally
