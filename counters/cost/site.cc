// SPDX-License-Identifier: Apache-2.0
#include "counters/cost/site.h"

#include <array>

namespace tally {

std::string_view ComponentName(Component c) {
  static constexpr std::array<std::string_view, kComponents> kNames = {"embedding",
                                                                       "position embedding",
                                                                       "attn.norm",
                                                                       "attn.qkv",
                                                                       "attn.q",
                                                                       "attn.k",
                                                                       "attn.v",
                                                                       "attn.q_norm",
                                                                       "attn.k_norm",
                                                                       "rope",
                                                                       "kv store",
                                                                       "attention",
                                                                       "attn.output",
                                                                       "attn.post_norm",
                                                                       "ffn.norm",
                                                                       "router",
                                                                       "ffn.gate_up",
                                                                       "ffn.down",
                                                                       "moe.combine",
                                                                       "ffn.post_norm",
                                                                       "output.norm",
                                                                       "head",
                                                                       "logits",
                                                                       "attn.kv",
                                                                       "shared.gate_up",
                                                                       "shared.down",
                                                                       "shared.gate",
                                                                       "mtp",
                                                                       "embedding.norm",
                                                                       "conv.in",
                                                                       "conv",
                                                                       "conv.out",
                                                                       "recurrent.in",
                                                                       "recurrent.gate",
                                                                       "recurrent.rates",
                                                                       "recurrent.conv",
                                                                       "recurrence",
                                                                       "recurrent.norm",
                                                                       "recurrent.out",
                                                                       "attn.gate",
                                                                       "experts.in",
                                                                       "experts.out",
                                                                       "layer embedding",
                                                                       "layer embedding.proj",
                                                                       "layer embedding.norm",
                                                                       "layer.gate",
                                                                       "layer.out",
                                                                       "layer.post_norm",
                                                                       "layer.scale",
                                                                       "router.norm",
                                                                       "ffn.dense_norm",
                                                                       "experts.norm",
                                                                       "experts.post_norm",
                                                                       "n-gram table",
                                                                       "indexer",
                                                                       "compressor",
                                                                       "streams"};
  return kNames[static_cast<int>(c)];
}

}  // namespace tally
