// SPDX-License-Identifier: Apache-2.0
// Qwen3.8-Flash-Next (Qwen team 2026): Qwen3.5's mixture with several residual streams in place of its norms, attention to blocks of
// positions that an indexer chooses, and in one layer a table of embeddings of the last tokens together, of which each hash of two or
// three tokens gives a row. Counted, not run. Tensors are those of transformers' qwen4_exp and llama.cpp's qwen4exp.
#include "models/counted.h"
#include "models/delta_net.h"
#include "models/family.h"
#include "models/vision.h"

namespace tally {
namespace {

constexpr std::string_view kHf[] = {"Qwen4ExpForConditionalGeneration", "Qwen4ExpForCausalLM"};
constexpr std::string_view kHfTypes[] = {"qwen4_exp", "qwen4_exp_text"};

struct Sizes {
  uint64_t E, streams, rank, index_heads, index_dim;
};

// The tensors that mix the streams into one before a block (or the head), and those that add the block's output to each.
void Mix(CountedParts& parts, const Sizes& s, const std::string& name, bool inject) {
  const uint64_t wide = s.streams * s.E;
  parts.Vector(name + "_norm", Component::kStreams, wide);
  parts.Matrix(name + "_down", Component::kStreams, s.rank, wide);
  parts.Matrix(name + "_up", Component::kStreams, wide, s.rank);
  if (inject) parts.Matrix(name + "_inject", Component::kStreams, s.streams, wide);
}

void Index(CountedParts& parts, const Sizes& s) {
  parts.Matrix("indexer.q_proj", Component::kIndexer, s.index_heads * s.index_dim, s.E);
  parts.Matrix("indexer.k_proj", Component::kIndexer, s.index_dim, s.E);
  parts.Vector("indexer.q_norm", Component::kIndexer, s.index_dim);
  parts.Vector("indexer.k_norm", Component::kIndexer, s.index_dim);
}

// The vocabularies of the heads are the primes that follow one another from the base on; the rows of all are padded.
uint64_t NgramRows(uint64_t base, uint64_t heads, uint64_t multiple) {
  const auto prime = [](uint64_t n) {
    for (uint64_t d = 2; d * d <= n; ++d) {
      if (n % d == 0) return false;
    }
    return n > 1;
  };
  uint64_t rows = 0;
  for (uint64_t n = base; heads > 0; ++n) {
    if (prime(n)) rows += n, --heads;
  }
  return (rows + multiple - 1) / multiple * multiple;
}

void Predict(CountedParts& parts, const Recipe& r, const Sizes& s) {
  const auto u = [](int32_t n) { return static_cast<uint64_t>(n); };
  const uint64_t q = u(r.all.attention.n_heads) * u(r.all.attention.head_dim),
                 kv = u(r.all.attention.n_kv_heads) * u(r.all.attention.head_dim);
  Mix(parts, s, "hc_attn", true);
  Mix(parts, s, "hc_ffn", true);
  for (const char* name : {"attn_q", "attn_q_gate"}) parts.Matrix(name, Component::kAttnQ, q, s.E);
  for (const char* name : {"attn_k", "attn_v"}) parts.Matrix(name, Component::kAttnKv, kv, s.E);
  for (const char* name : {"attn_q_norm", "attn_k_norm"}) parts.Vector(name, Component::kAttnQNorm, u(r.all.attention.head_dim));
  parts.Matrix("attn_output", Component::kAttnOutput, s.E, q);
  Index(parts, s);
  parts.Mixture();
  parts.Vector("nextn.enorm", Component::kPrediction, s.E);
  parts.Vector("nextn.hnorm", Component::kPrediction, s.streams * s.E);
  parts.Matrix("nextn.eh_proj", Component::kPrediction, s.E, 2 * s.E);
  Mix(parts, s, "nextn.hc_head", false);
}

void ReadNgrams(Config& c, CountedParts& parts, const Sizes& s, uint64_t embedding) {
  const auto number = [&](std::string_view key, int64_t most, int64_t otherwise) {
    return static_cast<uint64_t>(c.Int(key, 1, most, otherwise));
  };
  const uint64_t size = number("ngram_size", 16, 3), heads = (size - 1) * number("heads_per_ngram", 64, 8),
                 rows = NgramRows(number("ngram_vocab_size_base", 1 << 26, 20'000'000), c.ok() ? heads : 1,
                                  number("make_ngram_vocab_size_divisible_by", 1 << 16, 128)),
                 taps = number("ple_conv_kernel_size", kMaxTaps, 4), wide = s.streams * s.E;
  const std::vector<int64_t> layers = c.Ints("ple_layer_ids");
  if (!c.ok()) return;
  if (heads == 0 || embedding % heads != 0) return c.Fail("ple_embed_dim cannot be divided among the hashes");
  for (const int64_t layer : layers) {
    parts.At(static_cast<int32_t>(layer) - 1);
    parts.Table("ngram_embd", Component::kNgramTable, rows, embedding / heads, heads);
    parts.Matrix("ple_key", Component::kStreams, wide, embedding);
    parts.Matrix("ple_value", Component::kStreams, s.E, embedding);
    for (const char* name : {"ple_norm_key", "ple_norm_query", "ple_norm_conv"}) parts.Vector(name, Component::kStreams, wide);
    parts.Vector("ple_conv1d", Component::kStreams, taps * wide);
    parts.only().state_elements += (taps - 1) * size * wide;  // dilated: a tap every `size` positions
    parts.Work(Component::kStreams, 2 * taps * wide);
  }
}

void Read(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  const bool whole = c.Is({"Qwen4ExpForConditionalGeneration", "qwen4_exp"});
  if (whole && c.inventory().tensors.empty()) AddQwenVision(c, spec);
  if (whole) EnterTextModel(c, spec, {"visual."});
  // Text has one position for all sections of M-RoPE.
  c.Bool("rope_parameters.mrope_interleaved", true);
  c.Ints("rope_parameters.mrope_section");
  ReadDecoder(
      c, spec,
      {.norm_eps = 1e-6, .n_kv_heads = 2, .head_dim = 256, .n_heads = 16, .context = 32768, .vocab = 248320, .rotated = 0.25});
  ReadDeltaNet(c, r);
  ReadDeltaNetExperts(c, r);
  r.all.residual.pre_norms = false;  // the streams have their own
  r.mtp_layers = c.Int("mtp_num_hidden_layers", 0, kMaxLayers, 0);
  const auto number = [&](std::string_view key, int64_t most, int64_t otherwise) {
    return static_cast<uint64_t>(c.Int(key, 1, most, otherwise));
  };
  const Sizes s = {static_cast<uint64_t>(r.d_model), number("hc_count", 64, 4), number("hc_lowrank", kMaxWidth, 320),
                   number("indexer_n_heads", kMaxHeads, 4), number("indexer_head_dim", kMaxHeads, 128)};
  const uint64_t every = number("indexer_compress_ratio", 1 << 16, 4), embedding = number("ple_embed_dim", kMaxWidth, r.d_model),
                 chosen = number("indexer_budget", kMaxContext, 2048) + every - 1;  // and the block that is not complete
  if (!c.ok()) return;
  CountedParts parts(r);
  parts.only().output_norm = false;
  parts.only().own_prediction = true;
  Mix(parts, s, "hc_head", false);
  uint64_t attending = 0;
  for (int32_t i = 0; i < r.n_layers; ++i) {
    parts.At(i);
    Mix(parts, s, "hc_attn", true);
    Mix(parts, s, "hc_ffn", true);
    if (!r.layers[static_cast<size_t>(i)].attends()) continue;
    Index(parts, s);
    parts.See(Component::kIndexer, 2 * s.index_heads * s.index_dim, every);
    parts.See(Component::kAttention,
              4 * static_cast<uint64_t>(r.all.attention.n_heads) * static_cast<uint64_t>(r.all.attention.head_dim), 1, chosen);
    ++attending;
  }
  ReadNgrams(c, parts, s, embedding);
  for (int32_t i = 0; i < r.mtp_layers; ++i) {
    parts.At(r.n_layers + i);
    Predict(parts, r, s);
  }
  parts.only().caches = {{"index keys of " + std::to_string(every) + " positions", attending, s.index_dim, every}};
}

}  // namespace

extern constinit const Family kQwen4ExpFamily = {
    "qwen4-exp", {},   kHf,
    kHfTypes,    Read, {},
    {},          {},   "several residual streams, attention to blocks that an indexer chooses, and n-gram embeddings"};

}  // namespace tally
