// SPDX-License-Identifier: Apache-2.0
// Mamba (Gu & Dao 2023), Falcon-Mamba and Jamba (2024): selective state spaces with decays of their own for each channel and state. In
// Jamba every eighth layer is attention without rope, and every second has experts. Counted, not run. Tensors are those of transformers'
// classes.
#include <variant>

#include "models/counted.h"
#include "models/family.h"
#include "models/readings.h"

namespace tally {
namespace {

constexpr std::string_view kMambaHf[] = {"FalconMambaForCausalLM", "MambaForCausalLM"};
constexpr std::string_view kMambaTypes[] = {"falcon_mamba", "mamba"};
constexpr std::string_view kJambaHf[] = {"JambaForCausalLM"};
constexpr std::string_view kJambaTypes[] = {"jamba"};

struct Sizes {
  uint64_t E, inner, state, rank, taps;
  bool conv_bias, bias;
};

void Mix(CountedParts& parts, const Sizes& s) {
  const auto biased = [&](const char* name, Component component, uint64_t size, bool there) {
    if (there) parts.Vector(name, component, size);
  };
  parts.Vector("attn_norm", Component::kAttnNorm, s.E);
  parts.Matrix("ssm_in", Component::kRecurrentIn, 2 * s.inner, s.E);
  biased("ssm_in.bias", Component::kRecurrentIn, 2 * s.inner, s.bias);
  parts.Vector("ssm_conv1d", Component::kRecurrentConv, s.taps * s.inner);
  biased("ssm_conv1d.bias", Component::kRecurrentConv, s.inner, s.conv_bias);
  parts.Matrix("ssm_x", Component::kRecurrentIn, s.rank + 2 * s.state, s.inner);
  parts.Matrix("ssm_dt", Component::kRecurrentRates, s.inner, s.rank);
  parts.Vector("ssm_dt.bias", Component::kRecurrentRates, s.inner);
  parts.Vector("ssm_a", Component::kRecurrentRates, s.inner * s.state);
  parts.Vector("ssm_d", Component::kRecurrence, s.inner);
  parts.Matrix("ssm_out", Component::kRecurrentOut, s.E, s.inner);
  biased("ssm_out.bias", Component::kRecurrentOut, s.E, s.bias);
  parts.only().state_elements += s.inner * s.state + (s.taps - 1) * s.inner;
  parts.Recurrence(s.inner * s.state, 2, s.taps, s.inner);
}

// "auto": a 16th of the width.
uint64_t RankOf(Config& c, std::string_view key, uint64_t width) {
  const MetaValue* const value = c.Find(key);
  if (value != nullptr && std::holds_alternative<std::string>(*value))
    c.ExpectText(key, "auto");
  else if (value != nullptr)
    return static_cast<uint64_t>(c.Int(key, 1, kMaxWidth));
  return (width + 15) / 16;
}

void ReadMamba(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  const bool falcon = c.Is({"FalconMambaForCausalLM", "falcon_mamba"});
  ReadDecoder(c, spec,
              {.norm_eps = 1e-5,
               .context = 2048,
               .vocab = 50280,
               .tied = !falcon,
               .hf_eps = "layer_norm_epsilon",
               .attention = false,
               .rope = false,
               .hf_context = {}});
  Sizes s = {
      .E = static_cast<uint64_t>(r.d_model), .inner = 0, .state = 0, .rank = 0, .taps = 0, .conv_bias = true, .bias = false};
  const auto expand = static_cast<uint64_t>(c.Int("expand", 1, 64, 2));
  s.inner = static_cast<uint64_t>(c.Int("intermediate_size", 1, kMaxWidth, static_cast<int64_t>(expand * s.E)));
  s.state = static_cast<uint64_t>(c.Int("state_size", 1, kMaxWidth, 16));
  s.taps = static_cast<uint64_t>(c.Int("conv_kernel", 1, kMaxTaps, 4));
  s.rank = RankOf(c, "time_step_rank", s.E);
  s.conv_bias = c.Bool("use_conv_bias", true);
  s.bias = c.Bool("use_bias", false);
  if (!c.ok()) return;
  CountedParts parts(r);
  for (int32_t i = 0; i < r.n_layers; ++i) {
    r.layers[static_cast<size_t>(i)].mixers = {};
    r.layers[static_cast<size_t>(i)].feed_forward = {};
    parts.At(i);
    Mix(parts, s);
  }
}

void ReadJamba(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  ReadDecoder(c, spec, {.norm_eps = 1e-6, .n_kv_heads = 8, .n_heads = 32, .context = 262144, .vocab = 65536, .rope = false});
  ReadFeedForwardWidth(c, r);
  r.all.experts.n_experts = c.Int("num_experts", 1, kMaxExperts, 16);
  r.all.experts.top_k = c.Int("num_experts_per_tok", 1, r.all.experts.n_experts, std::min(2, r.all.experts.n_experts));
  r.all.experts.width = r.all.ffn.width;
  const auto every = [&](std::string_view period_key, std::string_view offset_key, int64_t period, int64_t offset) {
    const int32_t p = c.Int(period_key, 1, kMaxLayers, period), o = c.Int(offset_key, 0, kMaxLayers, offset);
    return [p, o](int32_t i) { return i % p == o; };
  };
  const auto attends = every("attn_layer_period", "attn_layer_offset", 8, 4),
             mixes = every("expert_layer_period", "expert_layer_offset", 2, 1);
  const auto number = [&](std::string_view key, int64_t most, int64_t otherwise) {
    return static_cast<uint64_t>(c.Int(key, 1, most, otherwise));
  };
  const auto E = static_cast<uint64_t>(r.d_model);
  const Sizes s = {E,
                   number("mamba_expand", 64, 2) * E,
                   number("mamba_d_state", kMaxWidth, 16),
                   RankOf(c, "mamba_dt_rank", E),
                   number("mamba_d_conv", kMaxTaps, 4),
                   c.Bool("mamba_conv_bias", true),
                   c.Bool("mamba_proj_bias", false)};
  if (!c.ok()) return;
  const bool experts = r.all.experts.n_experts > 1;
  if (!experts) r.all.experts.n_experts = r.all.experts.top_k = r.all.experts.width = 0;
  CountedParts parts(r);
  for (int32_t i = 0; i < r.n_layers; ++i) {
    LayerRecipe& layer = r.layers[static_cast<size_t>(i)];
    SetSparse(layer, experts && mixes(i));
    if (attends(i)) continue;
    layer.mixers = {};
    parts.At(i);
    Mix(parts, s);
    parts.Vector("ssm_dt_norm", Component::kRecurrentNorm, s.rank);
    for (const char* name : {"ssm_b_norm", "ssm_c_norm"}) parts.Vector(name, Component::kRecurrentNorm, s.state);
  }
}

}  // namespace

extern constinit const Family kMambaFamily = {
    "mamba", {}, kMambaHf, kMambaTypes, ReadMamba, {}, {}, {}, "Mamba's layers, with a decay for each channel and state"};
extern constinit const Family kJambaFamily = {
    "jamba", {}, kJambaHf, kJambaTypes, ReadJamba, {}, {}, {}, "Mamba's layers, with a decay for each channel and state"};

}  // namespace tally
