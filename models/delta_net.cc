// SPDX-License-Identifier: Apache-2.0
#include "models/delta_net.h"

#include <variant>

#include "engine/base/format.h"
#include "models/readings.h"

namespace tally {
namespace {

// Whether each layer has the delta rule. GGUF: the list, which some files have as numbers, or every full_attention_interval-th attends.
std::vector<bool> ReadRecurrent(Config& c, const Recipe& r) {
  constexpr std::string_view kList = "attention.recurrent_layers";
  const size_t n = r.layers.size();
  std::vector<bool> recurrent;
  if (c.gguf()) {
    const MetaValue* const value = c.Find(kList);
    if (value != nullptr && std::holds_alternative<std::vector<int64_t>>(*value)) {
      for (const int64_t flag : c.Ints(kList)) recurrent.push_back(flag != 0);
    } else {
      recurrent = c.Bools(kList);
    }
  } else {
    for (const std::string& type : c.Strings("layer_types")) {
      recurrent.push_back(type == "linear_attention");
      if (type != "linear_attention" && type != "full_attention") c.Unsupported("layer_types", Quote(type));
    }
  }
  if (recurrent.empty()) {
    const int32_t interval = c.Int("full_attention_interval", 1, kMaxLayers, 4);
    for (size_t i = 0; i < n; ++i) recurrent.push_back((i + 1) % static_cast<size_t>(interval) != 0);
  }
  if (recurrent.size() != n) {
    c.Fail(std::string(c.Pick(kList, "layer_types")) + " lists " + std::to_string(recurrent.size()) + " layers of " +
           std::to_string(n));
  }
  recurrent.resize(n);
  return recurrent;
}

}  // namespace

void ReadDeltaNet(Config& c, Recipe& r) {
  const std::vector<bool> recurrent = ReadRecurrent(c, r);
  for (size_t i = 0; i < r.layers.size(); ++i) r.layers[i].mixers = recurrent[i] ? Mixer::kDeltaRule : Mixer::kAttention;
  DeltaRule& d = r.all.delta;
  if (c.gguf()) {
    d.key_heads = c.Int("ssm.group_count", 1, kMaxHeads);
    d.value_heads = c.Int("ssm.time_step_rank", 1, kMaxHeads);
    d.key_dim = c.Int("ssm.state_size", 1, kMaxWidth);
    const int32_t inner = c.Int("ssm.inner_size", 1, kMaxWidth);
    d.value_dim = inner / d.value_heads;
    if (c.ok() && inner % d.value_heads != 0) c.Fail("ssm.inner_size cannot be divided among ssm.time_step_rank heads");
    d.l2_norm_eps = r.norm_eps;
    r.all.delta.taps = c.Int("ssm.conv_kernel", 1, kMaxTaps);
  } else {
    d.key_heads = c.Int("linear_num_key_heads", 1, kMaxHeads, 16);
    d.value_heads = c.Int("linear_num_value_heads", 1, kMaxHeads, 32);
    d.key_dim = c.Int("linear_key_head_dim", 1, kMaxWidth, 128);
    d.value_dim = c.Int("linear_value_head_dim", 1, kMaxWidth, 128);
    r.all.delta.taps = c.Int("linear_conv_kernel_dim", 1, kMaxTaps, 4);
    c.ExpectBool("attn_output_gate", true);
    c.ExpectBool("attention_bias", false);
  }
  r.all.attention.gate = true;
  r.all.attention.qk_norm = QkNormKind::kHead;
  ExpectSilu(c);
}

void ReadDeltaNetExperts(Config& c, Recipe& r) {
  ReadExperts(c, r, "num_experts", "moe_intermediate_size");
  r.all.experts.shared_width = c.gguf() ? c.Int("expert_shared_feed_forward_length", 1, kMaxWidth, r.all.experts.width)
                                        : c.Int("shared_expert_intermediate_size", 1, kMaxWidth, 512);
  r.all.experts.shared_gate = true;
  r.all.experts.routing = SoftmaxRule(c, /*normed_by_default=*/true);
  ReadQwenSparseLayers(c, r);
}

}  // namespace tally
