// SPDX-License-Identifier: Apache-2.0
// RWKV-7 (Peng et al. 2025): a generalised delta rule, whose decays, rates and gates are matrices of low rank of what each position and
// the one before it have. Counted, not run. Tensors are those of flash-linear-attention's class, which the published files have.
#include "models/counted.h"
#include "models/family.h"
#include "models/readings.h"

namespace tally {
namespace {

constexpr std::string_view kHf[] = {"RWKV7ForCausalLM", "Rwkv7ForCausalLM"};
constexpr std::string_view kHfTypes[] = {"rwkv7"};

void Read(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  r.norm = NormKind::kLayer;
  r.all.network.gated = false;
  r.embedding_norm = true;
  ReadDecoder(c, spec, {.norm_eps = 1e-5, .context = 2048, .hf_eps = "norm_eps", .attention = false, .rope = false});
  ReadFeedForwardWidth(c, r);
  const auto number = [&](std::string_view key) { return static_cast<uint64_t>(c.Int(key, 1, kMaxWidth)); };
  const uint64_t E = static_cast<uint64_t>(r.d_model), decay = number("decay_low_rank_dim"), rate = number("a_low_rank_dim"),
                 value = number("v_low_rank_dim"), gate = number("gate_low_rank_dim");
  const auto dim = static_cast<uint64_t>(c.Int("head_dim|head_size", 1, kMaxHeads, 64));
  if (!c.ok()) return;
  CountedParts parts(r);
  const auto low_rank = [&](const std::string& name, Component component, uint64_t rank, bool bias) {
    parts.Matrix(name + ".0", component, rank, E);
    parts.Matrix(name + ".1", component, E, rank);
    if (bias) parts.Vector(name + ".bias", component, E);
  };
  for (int32_t i = 0; i < r.n_layers; ++i) {
    r.layers[static_cast<size_t>(i)].mixers = {};
    parts.At(i);
    for (const char* name : {"attn_norm", "attn_norm.bias"}) parts.Vector(name, Component::kAttnNorm, E);
    for (const char* name : {"x_r", "x_w", "x_k", "x_v", "x_a", "x_g", "k_k", "k_a", "r_k"}) {
      parts.Vector(name, Component::kRecurrence, E);
    }
    for (const char* name : {"r_proj", "k_proj", "v_proj"}) parts.Matrix(name, Component::kRecurrentIn, E, E);
    parts.Matrix("o_proj", Component::kRecurrentOut, E, E);
    low_rank("w_lora", Component::kRecurrentRates, decay, true);
    low_rank("a_lora", Component::kRecurrentRates, rate, true);
    if (i > 0) low_rank("v_lora", Component::kRecurrentRates, value, true);
    low_rank("g_lora", Component::kRecurrentGate, gate, false);
    for (const char* name : {"g_norm", "g_norm.bias"}) parts.Vector(name, Component::kRecurrentNorm, E);
    parts.Vector("ffn_x_k", Component::kFfnGateUp, E);
    parts.only().state_elements += E * dim + 2 * E;
    parts.Recurrence(E * dim, 4, 0, 0);
  }
}

}  // namespace

extern constinit const Family kRwkv7Family = {"rwkv7", {}, kHf, kHfTypes, Read, {}, {}, {}, "RWKV-7's layers"};

}  // namespace tally
