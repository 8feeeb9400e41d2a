// SPDX-License-Identifier: Apache-2.0
// Llama's decoder under other names and with small differences:
//   Seed-OSS (ByteDance 2025)      biases of q, k and v; the second norm has another name in GGUF
//   AFM (Arcee 2025)               a feed-forward of two matrices with relu(x)^2 between them
//   ERNIE 4.5 (Baidu 2025), dense  adjacent pairs turn in both formats
//   Hunyuan (Tencent 2025), dense  RMSNorm of each head's query and key after rope, whose theta grows with a factor alpha
//   XVERSE (2023)                  another name
// GGUF permutes q and k of AFM and XVERSE as it does Llama's.
#include "models/family.h"

namespace tally {
namespace {

constexpr std::string_view kSeedGguf[] = {"seed_oss"}, kSeedHf[] = {"SeedOssForCausalLM"}, kSeedTypes[] = {"seed_oss"};
constexpr std::string_view kArceeGguf[] = {"arcee"}, kArceeHf[] = {"ArceeForCausalLM"}, kArceeTypes[] = {"arcee"};
constexpr std::string_view kErnieGguf[] = {"ernie4_5"}, kErnieHf[] = {"Ernie4_5ForCausalLM", "Ernie4_5_ForCausalLM"},
                           kErnieTypes[] = {"ernie4_5"};
constexpr std::string_view kHunyuanGguf[] = {"hunyuan-dense"}, kHunyuanHf[] = {"HunYuanDenseV1ForCausalLM"},
                           kHunyuanTypes[] = {"hunyuan_v1_dense"};
constexpr std::string_view kXverseGguf[] = {"xverse"}, kXverseHf[] = {"XverseForCausalLM"}, kXverseTypes[] = {"xverse"};

constexpr RoleName kSeedNames[] = {{Role::kFfnNorm, "blk.#.post_attention_norm.weight"}};
constexpr RoleName kHunyuanNames[] = {{Role::kQNorm, "model.layers.#.self_attn.query_layernorm.weight"},
                                      {Role::kKNorm, "model.layers.#.self_attn.key_layernorm.weight"}};

// Hugging Face: keys of biases, of q, k and v, of o, and of the feed-forward, and the published default of the first. GGUF: what is stored.
struct BiasKeys {
  std::string_view qkv, o, ffn;
  bool qkv_default = false;
};
void ReadBiases(Config& c, Recipe& r, const BiasKeys& keys) {
  const auto has = [&](Role role) { return AnyLayerHas(c.inventory(), r, role); };
  const bool qkv = c.gguf() ? has(Role::kQBias) : c.Bool(keys.qkv, keys.qkv_default);
  SetBiases(r, qkv, c.gguf() ? has(Role::kOBias) : keys.o == keys.qkv ? qkv : c.Bool(keys.o, false));
  r.all.ffn.bias = c.gguf() ? has(Role::kUpBias) : !keys.ffn.empty() && c.Bool(keys.ffn, false);
}

void ReadLlama(Config& c, ModelSpec& spec, const DecoderDefaults& defaults, bool gguf_permutes) {
  if (c.gguf() && gguf_permutes) spec.recipe.rope.style = RopeStyle::kAdjacentPair;
  ReadDecoder(c, spec, defaults);
  ReadFeedForwardWidth(c, spec.recipe);
}

void ReadSeed(Config& c, ModelSpec& spec) {
  ReadLlama(c, spec, {.norm_eps = 1e-6, .n_kv_heads = 8, .head_dim = 128, .n_heads = 80, .context = 524288, .vocab = 155136},
            false);
  ExpectSilu(c);
  ReadBiases(c, spec.recipe, {"attention_bias", "attention_out_bias", "mlp_bias", true});
}

void ReadArcee(Config& c, ModelSpec& spec) {
  ReadLlama(c, spec, {.norm_eps = 1e-5, .n_heads = 32, .context = 4096, .vocab = 32000, .lone_mscale = true}, true);
  if (!c.gguf()) c.ExpectText("hidden_act", "relu2");
  spec.recipe.rope.freq_factors = c.gguf() && IsStored(c.inventory(), GgufName(Role::kRopeFactors, -1));
  spec.recipe.all.network.gated = false;
  spec.recipe.all.network.activation = ActivationKind::kRelu2;
  ReadBiases(c, spec.recipe, {"attention_bias", "attention_bias", "mlp_bias"});
}

void ReadErnie(Config& c, ModelSpec& spec) {
  spec.recipe.rope.style = RopeStyle::kAdjacentPair;
  ReadLlama(c, spec,
            {.norm_eps = 1e-5,
             .n_kv_heads = 2,
             .head_dim = 128,
             .n_heads = 16,
             .context = 131072,
             .vocab = 103424,
             .rope_theta = 500000,
             .tied = true},
            true);
  ExpectSilu(c);
  ReadBiases(c, spec.recipe, {"use_bias", "use_bias", "use_bias"});
}

void ReadHunyuan(Config& c, ModelSpec& spec) {
  ReadLlama(c, spec, {.norm_eps = 1e-5, .n_heads = 32, .context = 2048, .vocab = 290943, .dynamic_alpha = true}, false);
  ExpectSilu(c);
  spec.recipe.all.attention.qk_norm = QkNormKind::kHead;
  spec.recipe.all.attention.qk_norm_after_rope = true;
  for (const char* key : {"use_qk_norm", "use_cla"}) {
    if (!c.gguf()) c.ExpectBool(key, std::string_view(key) == "use_qk_norm");
  }
  ReadBiases(c, spec.recipe, {"attention_bias", "attention_bias", "mlp_bias"});
}

void ReadXverse(Config& c, ModelSpec& spec) {
  ReadLlama(c, spec, {.norm_eps = 1e-6, .n_heads = 40, .context = 8192, .vocab = 100278}, true);
  ExpectSilu(c);
}

}  // namespace

extern constinit const Family kSeedOssFamily = {"seed-oss", kSeedGguf, kSeedHf, kSeedTypes, ReadSeed, {}, kSeedNames};
extern constinit const Family kArceeFamily = {"arcee", kArceeGguf, kArceeHf, kArceeTypes, ReadArcee};
extern constinit const Family kErnie45Family = {"ernie4.5", kErnieGguf, kErnieHf, kErnieTypes, ReadErnie};
extern constinit const Family kHunyuanFamily = {"hunyuan", kHunyuanGguf, kHunyuanHf, kHunyuanTypes, ReadHunyuan, kHunyuanNames};
extern constinit const Family kXverseFamily = {"xverse", kXverseGguf, kXverseHf, kXverseTypes, ReadXverse};

}  // namespace tally
