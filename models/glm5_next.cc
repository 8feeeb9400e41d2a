// SPDX-License-Identifier: Apache-2.0
// GLM-5.3-Flash (Z.ai 2026): Kimi delta attention, every fourth layer latent attention without rope to the positions that an indexer
// chooses by pools of keys, and several residual streams as DeepSeek-V4's, but for their mean at the end. Counted, not run. Tensors are
// those of transformers' glm5_next and llama.cpp's glm5next.
#include "models/counted.h"
#include "models/family.h"
#include "models/readings.h"

namespace tally {
namespace {

constexpr std::string_view kHf[] = {"Glm5NextForConditionalGeneration", "Glm5NextForCausalLM"};
constexpr std::string_view kHfTypes[] = {"glm5_next", "glm5_next_text"};

struct Sizes {
  uint64_t E, heads, q_rank, kv_rank, nope_dim, v_dim, index_heads, index_dim, pool;
};

void Attend(CountedParts& parts, const Sizes& s) {
  parts.Vector("attn_norm", Component::kAttnNorm, s.E);
  parts.Matrix("attn_q_a", Component::kAttnQ, s.q_rank, s.E);
  parts.Vector("attn_q_a_norm", Component::kAttnQNorm, s.q_rank);
  parts.Matrix("attn_q_b", Component::kAttnQ, s.heads * s.nope_dim, s.q_rank);
  parts.Matrix("attn_kv_a_mqa", Component::kAttnKv, s.kv_rank, s.E);
  parts.Vector("attn_kv_a_norm", Component::kAttnKNorm, s.kv_rank);
  parts.Matrix("attn_kv_b", Component::kAttnKv, s.heads * (s.nope_dim + s.v_dim), s.kv_rank);
  parts.Matrix("attn_output", Component::kAttnOutput, s.E, s.heads * s.v_dim);
  parts.Matrix("indexer.attn_q_b", Component::kIndexer, s.index_heads * s.index_dim, s.q_rank);
  parts.Matrix("indexer.attn_k", Component::kIndexer, s.index_dim, s.E);
  parts.Vector("indexer.k_norm", Component::kIndexer, s.index_dim);
  parts.Vector("indexer.k_norm.bias", Component::kIndexer, s.index_dim);
  parts.Matrix("indexer.proj", Component::kIndexer, s.index_heads, s.E);
  parts.Matrix("indexer.compressor_gate", Component::kIndexer, s.index_dim, s.E);
  parts.Vector("indexer.compressor_ape", Component::kIndexer, s.pool * s.index_dim);
}

void Read(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  if (c.Is({"Glm5NextForConditionalGeneration", "glm5_next"})) {
    if (c.inventory().tensors.empty()) spec.parts_not_run.push_back({"visual", std::nullopt});
    EnterTextModel(c, spec, {"visual."});
  }
  ReadDecoder(c, spec, {.norm_eps = 1e-5, .context = 4096, .vocab = 154880, .attention = false, .rope = false});
  ReadFeedForwardWidth(c, r);
  ReadSharedExperts(c, spec);
  r.all.experts.router_bias = true;
  const auto number = [&](std::string_view key, int64_t most, int64_t otherwise) {
    return static_cast<uint64_t>(c.Int(key, 1, most, otherwise));
  };
  const Sizes s = {static_cast<uint64_t>(r.d_model),           number("num_attention_heads", kMaxHeads, 64),
                   number("q_lora_rank", kMaxWidth, 1536),     number("kv_lora_rank", kMaxWidth, 512),
                   number("qk_nope_head_dim", kMaxHeads, 256), number("v_head_dim", kMaxHeads, 256),
                   number("index_n_heads", kMaxHeads, 32),     number("index_head_dim", kMaxHeads, 128),
                   number("index_kpool", 1 << 16, 16)};
  if (c.Int("qk_rope_head_dim", 0, kMaxHeads, 0) != 0) c.Unsupported("qk_rope_head_dim", "other than 0");
  const uint64_t streams = number("hc_mult", 64, 4),
                 heads = number("linear_attn_config.num_heads|linear_num_heads", kMaxHeads, 64),
                 dim = number("linear_attn_config.head_dim|linear_head_dim", kMaxHeads, 128),
                 taps = number("linear_attn_config.short_conv_kernel_size|linear_conv_kernel_dim", kMaxTaps, 4);
  const std::vector<std::string> types = c.Strings("layer_types");
  if (c.ok() && !types.empty() && types.size() != r.layers.size()) c.Fail("layer_types lists other than the layers there are");
  if (!c.ok()) return;
  CountedParts parts(r);
  parts.only().own_prediction = true;
  uint64_t attending = 0;
  for (int32_t i = 0; i < r.n_layers; ++i) {
    r.layers[static_cast<size_t>(i)].mixers = {};
    parts.At(i);
    parts.MixedStreams("attn", streams);
    parts.MixedStreams("ffn", streams);
    const bool linear = types.empty() ? i % 4 != 3 : types[static_cast<size_t>(i)] == "linear_attention";
    linear ? parts.DeltaAttention(heads, dim, taps, false) : Attend(parts, s);
    attending += linear ? 0 : 1;
  }
  for (int32_t i = 0; i < r.mtp_layers; ++i) {
    parts.At(r.n_layers + i);
    Attend(parts, s);
    parts.Vector("ffn_norm", Component::kFfnNorm, s.E);
    parts.Mixture();
    for (const char* name : {"nextn.enorm", "nextn.hnorm", "nextn.shared_head_norm"})
      parts.Vector(name, Component::kPrediction, s.E);
    parts.Matrix("nextn.eh_proj", Component::kPrediction, s.E, 2 * s.E);
  }
  parts.only().lacks_products = {"index scores", "attention"};
  parts.only().lacks_reads = {"compressed keys and values of the positions that the indexer chooses"};
  parts.only().caches = {{"compressed keys and values", attending, s.kv_rank},
                         {"index keys of " + std::to_string(s.pool) + " positions", attending, s.index_dim, s.pool}};
}

}  // namespace

extern constinit const Family kGlm5NextFamily = {
    "glm-5.3", {},   kHf,
    kHfTypes,  Read, {},
    {},        {},   "attention to the positions that an indexer chooses and several residual streams"};

}  // namespace tally
