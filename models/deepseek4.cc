// SPDX-License-Identifier: Apache-2.0
// DeepSeek-V4 (2026): one key and value of all heads, a window in every layer, and beyond it keys and values that each stand for 4
// positions, chosen by an indexer, or for 128; several residual streams; experts, which in the first layers a table of tokens chooses.
// Counted, not run. Tensors are those of the published checkpoint (deepseek-ai/DeepSeek-V4-Flash). The table holds numbers of experts,
// which are not learned.
#include "models/counted.h"
#include "models/family.h"
#include "models/readings.h"

namespace tally {
namespace {

constexpr std::string_view kHf[] = {"DeepseekV4ForCausalLM"};
constexpr std::string_view kHfTypes[] = {"deepseek_v4"};

struct Sizes {
  uint64_t E, heads, dim, q_rank, groups, o_rank, index_heads, index_dim, streams, window, chosen;
};

void Attend(CountedParts& parts, const Sizes& s) {
  parts.Vector("attn_norm", Component::kAttnNorm, s.E);
  parts.Vector("attn_sinks", Component::kAttention, s.heads);
  parts.Matrix("attn_q_a", Component::kAttnQ, s.q_rank, s.E);
  parts.Vector("attn_q_a_norm", Component::kAttnQNorm, s.q_rank);
  parts.Matrix("attn_q_b", Component::kAttnQ, s.heads * s.dim, s.q_rank);
  parts.Matrix("attn_kv", Component::kAttnKv, s.dim, s.E);
  parts.Vector("attn_kv_a_norm", Component::kAttnKNorm, s.dim);
  parts.Matrix("attn_output_a", Component::kAttnOutput, s.groups * s.o_rank, s.heads * s.dim / s.groups);
  parts.Matrix("attn_output_b", Component::kAttnOutput, s.E, s.groups * s.o_rank);
  parts.MixedStreams("attn", s.streams);
  parts.MixedStreams("ffn", s.streams);
}

// `ratio` positions become one entry of `dim` elements; entries of 4 overlap, and have two halves.
void Compress(CountedParts& parts, const std::string& name, Component component, uint64_t E, uint64_t dim, uint64_t ratio) {
  const uint64_t width = (ratio == 4 ? 2 : 1) * dim;
  parts.Matrix(name + "_kv", component, width, E);
  parts.Matrix(name + "_gate", component, width, E);
  parts.Vector(name + "_ape", component, ratio * width);
  parts.Vector(name + "_norm", component, dim);
}

// Keys and values that a row sees, and the keys of the indexer. The rows that are not yet an entry are a state: of 8 positions where
// entries of 4 overlap, each with what it is weighted by.
void See(CountedParts& parts, const Sizes& s, uint64_t ratio) {
  const uint64_t each = 4 * s.heads * s.dim;
  parts.See(Component::kAttention, each, 1, 0, s.window);
  if (ratio == 0) return;
  parts.See(Component::kAttention, each, ratio, ratio == 4 ? s.chosen : 0);
  const uint64_t rows = ratio == 4 ? 2 * (2 * ratio) : ratio;
  parts.only().state_elements += 2 * rows * s.dim;
  if (ratio != 4) return;
  parts.See(Component::kIndexer, 2 * s.index_heads * s.index_dim + 2 * s.index_heads, ratio);
  parts.only().state_elements += 2 * rows * s.index_dim;
}

void Head(CountedParts& parts, const Sizes& s) {
  parts.Matrix("hc_head_fn", Component::kStreams, s.streams, s.streams * s.E);
  parts.Vector("hc_head_base", Component::kStreams, s.streams);
  parts.Vector("hc_head_scale", Component::kStreams, 1);
}

void Predict(CountedParts& parts, const Sizes& s) {
  Attend(parts, s);
  parts.Vector("ffn_norm", Component::kFfnNorm, s.E);
  parts.Mixture();
  for (const char* name : {"nextn.e_proj", "nextn.h_proj"}) parts.Matrix(name, Component::kPrediction, s.E, s.E);
  for (const char* name : {"nextn.enorm", "nextn.hnorm", "nextn.norm"}) parts.Vector(name, Component::kPrediction, s.E);
  Head(parts, s);
}

void Read(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  ReadDecoder(c, spec, {.norm_eps = 1e-6, .context = 1048576, .vocab = 129280, .attention = false, .rope = false});
  const auto number = [&](std::string_view key, int64_t most, int64_t otherwise) {
    return static_cast<uint64_t>(c.Int(key, 1, most, otherwise));
  };
  const Sizes s = {static_cast<uint64_t>(r.d_model),
                   number("num_attention_heads", kMaxHeads, 64),
                   number("head_dim", kMaxHeads, 512),
                   number("q_lora_rank", kMaxWidth, 1024),
                   number("o_groups", kMaxHeads, 8),
                   number("o_lora_rank", kMaxWidth, 1024),
                   number("index_n_heads", kMaxHeads, 64),
                   number("index_head_dim", kMaxHeads, 128),
                   number("hc_mult", 64, 4),
                   number("sliding_window", kMaxContext, 128),
                   number("index_topk", kMaxContext, 512)};
  r.rope.style = RopeStyle::kAdjacentPair;
  r.rope.dim = c.Int("qk_rope_head_dim", 2, kMaxHeads, 64);
  ReadExperts(c, r, "n_routed_experts", "moe_intermediate_size");
  r.all.experts.shared_width = c.Int("n_shared_experts", 0, 64, 1) * r.all.experts.width;
  r.mtp_layers = c.Int("num_nextn_predict_layers", 0, kMaxLayers, 0);
  // In these layers a table, which is not learned, gives each token's experts.
  const int32_t hashed = c.Int("num_hash_layers", 0, r.n_layers, 3);
  const std::vector<int64_t> ratios = c.Ints("compress_ratios");
  if (c.ok() && ratios.size() < r.layers.size()) c.Fail("compress_ratios lists fewer layers than there are");
  for (const int64_t ratio : ratios) {
    if (ratio != 0 && ratio != 4 && ratio != 128) c.Unsupported("compress_ratios", "of " + std::to_string(ratio));
  }
  if (!c.ok()) return;
  CountedParts parts(r);
  parts.only().own_prediction = true;
  Head(parts, s);
  uint64_t of4 = 0, of128 = 0;
  for (int32_t i = 0; i < r.n_layers; ++i) {
    r.layers[static_cast<size_t>(i)].mixers = {};
    SetSparse(r.layers[static_cast<size_t>(i)], true);
    parts.At(i);
    Attend(parts, s);
    const auto ratio = static_cast<uint64_t>(ratios[static_cast<size_t>(i)]);
    See(parts, s, ratio);
    if (ratio > 0) Compress(parts, "attn_compressor", Component::kCompressor, s.E, s.dim, ratio);
    if (ratio == 4) {
      parts.Matrix("indexer.attn_q_b", Component::kIndexer, s.index_heads * s.index_dim, s.q_rank);
      parts.Matrix("indexer.proj", Component::kIndexer, s.index_heads, s.E);
      Compress(parts, "indexer.compressor", Component::kIndexer, s.E, s.index_dim, ratio);
    }
    of4 += ratio == 4, of128 += ratio == 128;
    if (i >= hashed) parts.Vector("exp_probs_b", Component::kRouter, static_cast<uint64_t>(r.all.experts.n_experts));
  }
  r.all.experts.router_bias = true;  // of the layers for multi-token prediction
  for (int32_t i = 0; i < r.mtp_layers; ++i) {
    parts.At(r.n_layers + i);
    Predict(parts, s);
  }
  r.all.experts.router_bias = false;  // of others it is among the parts
  parts.only().caches = {{"keys and values within the window", static_cast<uint64_t>(r.n_layers), s.dim, 1, s.window},
                         {"keys and values of 4 positions", of4, s.dim, 4, 0, s.chosen},
                         {"keys and values of 128 positions", of128, s.dim, 128},
                         {"index keys of 4 positions", of4, s.index_dim, 4}};
}

}  // namespace

extern constinit const Family kDeepseek4Family = {
    "deepseek-v4", {}, kHf, kHfTypes, Read, {}, {}, {}, "attention to compressed keys and values and several residual streams"};

}  // namespace tally
