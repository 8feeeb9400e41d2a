// SPDX-License-Identifier: Apache-2.0
#include "models/mamba.h"

#include <variant>

#include "models/readings.h"

namespace tally {
namespace {

// The limits of the steps, the upper one often infinite.
void ReadLimits(Config& c, Mamba2& m) {
  constexpr std::string_view kKeys = "time_step_limit|mamba_dt_limit";
  const MetaValue* const value = c.gguf() || c.IsNull(kKeys) ? nullptr : c.Find(kKeys);
  if (value == nullptr) return;
  std::vector<double> limits;
  if (const auto* whole = std::get_if<std::vector<int64_t>>(value)) limits.assign(whole->begin(), whole->end());
  if (const auto* given = std::get_if<std::vector<double>>(value)) limits = *given;
  if (limits.size() != 2) return c.Fail("time_step_limit is no pair of numbers");
  m.dt_min = static_cast<float>(limits[0]);
  m.dt_max = static_cast<float>(limits[1]);
}

}  // namespace

void ReadMamba2(Config& c, Recipe& r, const Mamba2Keys& k) {
  Mamba2& m = r.all.mamba;
  const auto number = [&](std::string_view key, int64_t most, int32_t otherwise) {
    return otherwise > 0 ? c.Int(key, 1, most, otherwise) : c.Int(key, 1, most);
  };
  if (c.gguf()) {
    m.heads = c.Int("ssm.time_step_rank", 1, kMaxHeads);
    const int32_t inner = c.Int("ssm.inner_size", 1, kMaxWidth);
    if (c.ok() && inner % m.heads != 0) c.Fail("ssm.inner_size cannot be divided among ssm.time_step_rank heads");
    m.head_dim = inner / m.heads;
    m.groups = m.norm_groups = c.Int("ssm.group_count", 1, kMaxHeads);
    m.state_dim = c.Int("ssm.state_size", 1, kMaxWidth);
    m.taps = c.Int("ssm.conv_kernel", 1, kMaxTaps);
    m.conv_bias = AnyLayerHas(c.inventory(), r, "blk.#.ssm_conv1d.bias") || c.inventory().tensors.empty();
    return;
  }
  m.heads = number(k.heads, kMaxHeads, k.n_heads);
  const MetaValue* const dim = c.Find(k.head_dim);
  if (k.dim == 0 && (dim == nullptr || std::holds_alternative<std::string>(*dim))) {
    const int64_t inner = k.inner > 0 ? k.inner : int64_t{c.Int("mamba_expand", 1, 1 << 10, 2)} * r.d_model;
    if (c.ok() && inner % m.heads != 0) c.Fail(std::to_string(inner) + " cannot be divided among the heads of Mamba-2");
    m.head_dim = static_cast<int32_t>(std::min<int64_t>(inner / m.heads, kMaxWidth));
  } else {
    m.head_dim = number(k.head_dim, kMaxWidth, k.dim);
  }
  m.groups = number(k.groups, kMaxHeads, k.n_groups);
  m.state_dim = number(k.state_dim, kMaxWidth, k.n_state);
  m.taps = c.Int(k.taps, 1, kMaxTaps, 4);
  m.conv_bias = c.Bool(k.conv_bias, true);
  c.ExpectBool(k.proj_bias, false);
  c.ExpectText("mamba_hidden_act", "silu");
  ReadLimits(c, m);
}

}  // namespace tally
