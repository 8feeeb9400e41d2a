// SPDX-License-Identifier: Apache-2.0
// Qwen (Qwen team 2023), the first: Llama's decoder with biases of q, k and v, which are one tensor in both formats. intermediate_size is
// twice the width. Beyond the trained length its queries are scaled (logn) and its rope is dynamic; GGUF has no keys for that, and it is
// not applied here. Baichuan (Baichuan 2023): q, k and v are one tensor in Hugging Face files; the model of 40 layers has ALiBi instead
// of rope. Baichuan 2 normalises the rows of the head, which is not read from a directory. GGUF splits Baichuan's q, k and v, and permutes
// q and k as it does Llama's.
#include "models/family.h"
#include "models/qkv_rows.h"

namespace tally {
namespace {

constexpr std::string_view kQwenGguf[] = {"qwen"}, kQwenHf[] = {"QWenLMHeadModel"}, kQwenTypes[] = {"qwen"};
constexpr std::string_view kBaichuanGguf[] = {"baichuan"}, kBaichuanHf[] = {"BaiChuanForCausalLM", "BaichuanForCausalLM"},
                           kBaichuanTypes[] = {"baichuan"};

#define TALLY_LAYER "transformer.h.#."
#define TALLY_QKV TALLY_LAYER "attn.c_attn."
#define TALLY_PACK "model.layers.#.self_attn.W_pack.weight"
// clang-format off
constexpr RoleName kQwenNames[] = {
    {Role::kTokenEmbedding, "transformer.wte.weight"},      {Role::kOutputNorm, "transformer.ln_f.weight"},
    {Role::kAttnNorm, TALLY_LAYER "ln_1.weight"},           {Role::kFfnNorm, TALLY_LAYER "ln_2.weight"},
    {Role::kQ, TALLY_QKV "weight", Storage::kPlain, QInTurn}, {Role::kQBias, TALLY_QKV "bias", Storage::kPlain, QInTurn},
    {Role::kK, TALLY_QKV "weight", Storage::kPlain, KInTurn}, {Role::kKBias, TALLY_QKV "bias", Storage::kPlain, KInTurn},
    {Role::kV, TALLY_QKV "weight", Storage::kPlain, VInTurn}, {Role::kVBias, TALLY_QKV "bias", Storage::kPlain, VInTurn},
    {Role::kO, TALLY_LAYER "attn.c_proj.weight"},           {Role::kUp, TALLY_LAYER "mlp.w1.weight"},
    {Role::kGate, TALLY_LAYER "mlp.w2.weight"},             {Role::kDown, TALLY_LAYER "mlp.c_proj.weight"},
};
constexpr RoleName kBaichuanNames[] = {{Role::kQ, TALLY_PACK, Storage::kPlain, QInTurn},
                                       {Role::kK, TALLY_PACK, Storage::kPlain, KInTurn},
                                       {Role::kV, TALLY_PACK, Storage::kPlain, VInTurn}};
// clang-format on
#undef TALLY_PACK
#undef TALLY_QKV
#undef TALLY_LAYER

void ReadQwen(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  ReadDecoder(c, spec,
              {.norm_eps = 1e-6,
               .n_heads = 32,
               .context = 8192,
               .vocab = 151936,
               .hf_eps = "layer_norm_epsilon",
               .hf_context = "seq_length"});
  ReadFeedForwardWidth(c, r);
  if (c.ok() && r.all.ffn.width % 2 != 0)
    c.Fail("the feed-forward's width is " + std::to_string(r.all.ffn.width) + "; expected an even number");
  r.all.ffn.width /= 2;
  SetBiases(r, true, false);
  if (c.gguf()) return;
  c.ExpectBool("no_bias", true);
  c.ExpectBool("scale_attn_weights", true);
  c.ExpectNumber("kv_channels", r.all.attention.head_dim);
  for (const char* key : {"use_dynamic_ntk", "use_logn_attn"}) {
    if (c.Bool(key, false)) c.Note("its " + std::string(key) + ", which acts beyond seq_length, is not applied");
  }
}

void ReadBaichuan(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  const bool alibi = c.Int(c.Pick("block_count", "num_hidden_layers"), 1, kMaxLayers) == 40;
  if (c.gguf()) r.rope.style = RopeStyle::kAdjacentPair;
  if (alibi) r.rope.style = RopeStyle::kNone;
  ReadDecoder(c, spec,
              {.norm_eps = 1e-6,
               .n_heads = 32,
               .context = 4096,
               .vocab = 64000,
               .rope = !alibi,
               .hf_context = "max_position_embeddings|model_max_length"});
  ReadFeedForwardWidth(c, r);
  ExpectSilu(c);
  if (alibi) r.alibi_bias = static_cast<float>(c.gguf() ? c.Positive("attention.max_alibi_bias", 8) : 8);
  if (c.gguf() && r.vocab == 125696)
    c.Note("its head is that of Baichuan 2, which its converter is to have normalised: the file does not say");
  if (!c.gguf() && c.Has("z_loss_weight") && r.vocab != 125696)
    c.Unsupported("z_loss_weight", "(of Baichuan 2, whose head is normalised)");
  if (!c.gguf() && r.vocab == 125696) c.Unsupported("vocab_size", "125696 (Baichuan 2, whose head is normalised)");
}

}  // namespace

extern constinit const Family kQwenFamily = {"qwen", kQwenGguf, kQwenHf, kQwenTypes, ReadQwen, kQwenNames, kGgufFusedQkv};
extern constinit const Family kBaichuanFamily = {"baichuan",     kBaichuanGguf, kBaichuanHf,
                                                 kBaichuanTypes, ReadBaichuan,  kBaichuanNames};

}  // namespace tally
