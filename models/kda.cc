// SPDX-License-Identifier: Apache-2.0
#include "models/kda.h"

namespace tally {

void ReadKdaLatent(Config& c, Recipe& r) {
  LatentAttention& l = r.all.latent;
  if (!c.gguf()) {
    l.kv_rank = c.Int("kv_lora_rank", 1, kMaxWidth);
    l.q_rank = c.IsNull("q_lora_rank") ? 0 : c.Int("q_lora_rank", 1, kMaxWidth, 0);
    l.nope_dim = c.Int("qk_nope_head_dim", 1, kMaxHeads);
    l.rope_dim = c.Int("qk_rope_head_dim", 1, kMaxHeads);
    l.v_dim = c.Int("v_head_dim", 1, kMaxHeads);
    return;
  }
  l.kv_rank = c.Int("attention.kv_lora_rank", 1, kMaxWidth);
  l.q_rank = c.Int("attention.q_lora_rank", 1, kMaxWidth, 0);
  l.rope_dim = c.Int("rope.dimension_count", 1, kMaxHeads);
  l.nope_dim = c.Int("attention.key_length_mla", l.rope_dim + 1, kMaxHeads) - l.rope_dim;
  l.v_dim = c.Int("attention.value_length_mla", 1, kMaxHeads);
}

void ReadKda(Config& c, Recipe& r, std::string_view heads_key, std::string_view dim_key, std::string_view taps_key,
             const std::function<bool(int32_t)>& has_it) {
  DeltaRule& d = r.all.delta;
  d.channel_decay = true;
  d.key_heads = d.value_heads = c.gguf() ? r.all.attention.n_heads : c.Int(heads_key, 1, kMaxHeads);
  d.key_dim = d.value_dim = c.Int(c.Pick("kda.head_dim", dim_key), 1, kMaxWidth);
  r.all.delta.taps = c.Int(c.Pick("ssm.conv_kernel", taps_key), 1, kMaxTaps);
  const std::vector<int32_t> kv_heads =
      c.gguf() ? ReadOfLayers(c, r, "attention.head_count_kv", kMaxHeads) : std::vector<int32_t>();
  for (int32_t i = 0; c.ok() && i < r.n_layers; ++i) {
    const bool has = c.gguf() ? kv_heads[static_cast<size_t>(i)] == 0 : has_it(i);
    r.layers[static_cast<size_t>(i)].mixers = has ? Mixer::kDeltaRule : Mixer::kLatentAttention;
  }
}

}  // namespace tally
