// SPDX-License-Identifier: Apache-2.0
// Phi-3, Phi-3.5, Phi-4 (Abdin et al. 2024) and Phi-4-mini (Microsoft 2025): Llama's decoder with q, k and v as one matrix, gate
// and up as one; in some a sliding window on every layer, rope of a part of each head, and LongRoPE (Ding et al. 2024): divisors
// of the frequencies for contexts up to the original one, and others beyond. GGUF calls the matrix of gate and up ffn_up, and
// stores the divisors as tensors.
#include "models/family.h"
#include "models/gate_up_rows.h"

namespace tally {
namespace {

constexpr std::string_view kGguf[] = {"phi3"};
constexpr std::string_view kHf[] = {"Phi3ForCausalLM"};
constexpr std::string_view kHfTypes[] = {"phi3"};

constexpr RoleName kHfNames[] = {{Role::kQkv, "model.layers.#.self_attn.qkv_proj.weight"},
                                 {Role::kGate, "model.layers.#.mlp.gate_up_proj.weight", Storage::kPlain, GateRows<DenseWidth>},
                                 {Role::kUp, "model.layers.#.mlp.gate_up_proj.weight", Storage::kPlain, UpRows<DenseWidth>}};
constexpr RoleName kGgufNames[] = {{Role::kGate, "blk.#.ffn_up.weight", Storage::kPlain, GateRows<DenseWidth>},
                                   {Role::kUp, "blk.#.ffn_up.weight", Storage::kPlain, UpRows<DenseWidth>}};

void Read(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  ReadDecoder(c, spec, {.norm_eps = 1e-5, .context = 4096, .vocab = 32064, .rotated = 1, .original_context = 4096});
  // The published class has no other scaling.
  const RopeScalingKind scaling = r.rope.scaling.kind;
  if (scaling != RopeScalingKind::kNone && scaling != RopeScalingKind::kLongRope) {
    c.Unsupported(c.Pick("rope.scaling.type", "rope_scaling.rope_type"), "other than longrope");
  }
  ReadFeedForwardWidth(c, r);
  ExpectSilu(c);
  r.all.attention.fused_qkv = true;
  const int32_t window = c.gguf()                  ? c.Int("attention.sliding_window", 0, kMaxContext, 0)
                         : c.Has("sliding_window") ? c.Int("sliding_window", 1, kMaxContext)
                                                   : 0;
  for (LayerRecipe& layer : r.layers) layer.attention.window = window;
  for (const char* key : {"attention_bias", "mlp_bias", "lm_head_bias"}) c.ExpectBool(key, false);
  for (const char* key : {"full_attn_mod", "interpolate_factor"}) c.ExpectNumber(key, 1);
}

}  // namespace

extern constinit const Family kPhi3Family = {"phi3", kGguf, kHf, kHfTypes, Read, kHfNames, kGgufNames};

}  // namespace tally
