// SPDX-License-Identifier: Apache-2.0
// The recipe: a model as data for the graph, the memory plan and the closed forms.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "counters/cost/site.h"
#include "engine/base/dtype.h"
#include "engine/base/enum_set.h"
#include "engine/base/kinds.h"
#include "engine/base/rows.h"

namespace tally {

struct RopeScaling {
  RopeScalingKind kind = RopeScalingKind::kNone;
  double factor = 1;
  double original_context = 0;
  double low_freq_factor = 1, high_freq_factor = 4;  // llama3
  double beta_fast = 32, beta_slow = 1;              // yarn
  bool truncate = true;                              // yarn: floor and ceil the correction bounds
  double attention_factor = 1;  // yarn, longrope: cos and sin are multiplied by it (yarn: 0.1 ln(factor) + 1)
  // longrope: divisors of the frequencies, [dim / 2], up to original_context positions, and beyond. Empty: stored in the checkpoint.
  std::vector<double> short_factors = {}, long_factors = {};
  bool operator==(const RopeScaling&) const = default;
};

struct Rope {
  RopeStyle style = RopeStyle::kNone;
  int32_t dim = 0;     // dimensions of a head that rotate
  int32_t turned = 0;  // so many of the dim / 2 pairs, the first ones, rotate (Gemma 4's proportional rope); 0: all
  double theta = 10000;
  RopeScaling scaling = {};
  // M-RoPE (Qwen2-VL): so many of the dim / 2 pairs turn by time, height and width, one section after another; with
  // `sections_interleaved` (Qwen3-VL) pair i turns by the height if i % 3 = 1 and i < 3 sections[1], by the width if i % 3 = 2 and
  // i < 3 sections[2], else by the time. All 0: by the one position that text has.
  std::array<int32_t, 3> sections = {};
  bool sections_interleaved = false;
  bool freq_factors = false;  // the checkpoint stores divisors of the frequencies (GGUF rope_freqs.weight)
  bool stored_long_factors =
      false;  // the checkpoint stores longrope's (GGUF rope_factors_short.weight, rope_factors_long.weight)
  bool operator==(const Rope&) const = default;
};

// Multi-head latent attention (DeepSeek-V2 2024): a matrix to a low rank, a norm and a second matrix make the queries; another such
// chain makes keys and values. All heads share one rotated key. A query or key has nope_dim + rope_dim elements, a value v_dim.
struct LatentAttention {
  int32_t kv_rank = 0;  // 0: ordinary attention
  int32_t q_rank = 0;   // 0: one matrix makes the queries
  int32_t nope_dim = 0, rope_dim = 0, v_dim = 0;
  float norm_eps = 1e-6f;  // of the norms between the matrices of a chain
  bool operator==(const LatentAttention&) const = default;
};

// Which rotary embedding a layer uses: Recipe::rope, Recipe::local_rope, or none.
enum class LayerRope : uint8_t { kGlobal, kLocal, kNone };

// What mixes the positions of a sequence. Latent attention has the dimensions of Recipe::latent.
// kShortConv: a gated convolution over the last positions (LFM2). kDeltaRule: a gated delta net (Qwen3-Next). kMamba2: Mamba-2. The
// last three are recurrent: they keep a state of a sequence, not its positions.
enum class Mixer : uint8_t { kAttention, kLatentAttention, kShortConv, kDeltaRule, kMamba2 };
inline constexpr Mixer kMixers[] = {Mixer::kAttention, Mixer::kLatentAttention, Mixer::kShortConv, Mixer::kDeltaRule,
                                    Mixer::kMamba2};

// Gated delta rule (Yang et al. 2024). Queries, keys and values go through a convolution and SiLU; queries and keys are normalised; the
// output is normalised and gated by SiLU.
struct DeltaRule {
  int32_t key_heads = 0, value_heads = 0;  // 0: no layer has it
  int32_t key_dim = 0, value_dim = 0;      // of a head
  bool tiled = false;                      // value head h has key head h mod key_heads, else h / (value_heads / key_heads)
  float l2_norm_eps = 1e-6f;               // joins the sum of squares that queries and keys are normalised with
  // A decay for each element of a head's keys (Kimi Delta Attention, Kimi Team 2025); the convolutions of queries, keys and values are
  // three weights, and the output's gate is a sigmoid.
  bool channel_decay = false;
  int32_t gate_rank = 0;  // two matrices over so many elements make the decays, and two the output's gate; 0: one each
  float decay_bound = 0;  // not 0: the logarithm of a decay is decay_bound sigmoid(A x), else A softplus(x)
  bool operator==(const DeltaRule&) const = default;
};

// Mamba-2 (Dao & Gu 2024). The input, B and C go through a convolution and SiLU.
struct Mamba2 {
  int32_t heads = 0, head_dim = 0;  // 0: no layer has it
  int32_t groups = 1, state_dim = 0;
  bool conv_bias = true;
  float dt_min = 0, dt_max = std::numeric_limits<float>::infinity();
  bool norm = true;         // false: the output is only gated (Falcon-H1)
  int32_t norm_groups = 1;  // vectors that the output is normalised as
  bool norm_first = false;  // norm(y) silu(z), else norm(y silu(z))
  // Falcon-H1 scales parts of the input matrix's output: z, x, B, C and the steps.
  std::array<float, 5> multipliers = {1, 1, 1, 1, 1};
  bool operator==(const Mamba2&) const = default;
};

// Factors within a layer (Falcon-H1): on the inputs of the last matrices of attention, of Mamba-2 and of the feed-forward, and on the gate
// before its activation.
struct PartScales {
  float attention = 1, mamba = 1, gate = 1, down = 1;
  bool operator==(const PartScales&) const = default;
};

// The part of a layer that works on each position alone. kSparse: a mixture of experts.
enum class FeedForward : uint8_t { kDense, kSparse };

// A layer is a mixer and a feed-forward, either of which may be absent.
struct LayerRecipe {
  int32_t window = 0;         // key j is visible to query i iff 0 <= i - j < window; 0: all of the past
  int32_t chunk = 0;          // key j is visible to query i iff j <= i and i / chunk = j / chunk (Llama 4); 0: no chunks
  float attention_scale = 0;  // multiplies q.k in this layer; every family sets it
  LayerRope rope = LayerRope::kGlobal;
  BothWays both_ways = BothWays::kWhole;      // what attention shows of a span whose rows see one another
  EnumSet<Mixer> mixers = Mixer::kAttention;  // several read the same input, and their outputs are added up
  EnumSet<FeedForward> feed_forward = FeedForward::kDense;
  // Sizes of the layer's own; 0: the recipe's.
  int32_t n_heads = 0, n_kv_heads = 0, head_dim = 0, d_ff = 0;
  // Attention reads the keys and values of this earlier layer, and has none of its own; -1: it has its own.
  int32_t cache_of = -1;
  bool v_is_k = false;  // the values are the keys as their matrix gives them (Gemma 4)
  // Limits of the SwiGLU of experts, and of shared experts: kSwigluLimited (Ling 3); 0: none.
  float expert_limit = 0, shared_limit = 0;
  // With the activation kXielu. What the checkpoint stores as tensors has its default here: loading sets beta and eps.
  Xielu xielu = {};
  bool prediction =
      false;  // a layer for multi-token prediction, which reads the output of the layers before it and the next token

  bool recurrent() const { return mixers.has(Mixer::kShortConv) || mixers.has(Mixer::kDeltaRule) || mixers.has(Mixer::kMamba2); }
  bool attends() const { return mixers.has(Mixer::kAttention) || mixers.has(Mixer::kLatentAttention); }
  bool dense() const { return feed_forward.has(FeedForward::kDense); }
  bool sparse() const { return feed_forward.has(FeedForward::kSparse); }
  // A dense feed-forward and experts side by side, each with norms of its own before and after it (Gemma 4).
  bool both() const { return dense() && sparse(); }
  bool operator==(const LayerRecipe&) const = default;
};

// How a layer's two blocks meet the residual stream x.
//   kSequential       x += attention(norm(x)); x += feed_forward(norm(x))
//   kParallel         x += attention(attn_norm(x)) + feed_forward(ffn_norm(x)), both norms of the layer's input (GPT-NeoX)
//   kParallelOneNorm  the same with y = attn_norm(x) for both (GPT-J, Phi, Cohere)
enum class Residual : uint8_t { kSequential, kParallel, kParallelOneNorm };

// A tensor that is counted and that nothing runs.
struct CountedTensor {
  std::string name = {};  // "indexer.attn_k"
  int32_t layer = -1;     // -1: outside the layers; n_layers and on: of layers for multi-token prediction
  Component component{};
  uint64_t slices = 1, used = 1;  // experts, and those that a token uses
  uint64_t rows = 1, cols = 0;    // of a slice
  bool vector = false;
  uint64_t looked_up = 0;  // not 0: a table, of which a token reads so many rows
  bool operator==(const CountedTensor&) const = default;
};

// Caches of a sequence in a model that is only counted.
struct CountedCache {
  std::string name = {};              // "index keys"
  uint64_t layers = 0, elements = 0;  // layers that keep it; elements of an entry
  uint64_t every = 1;                 // positions that share an entry
  uint64_t window = 0;                // positions whose entries are kept; 0: all
  uint64_t most = 0;                  // entries that a token reads at most; 0: all that are kept
  bool operator==(const CountedCache&) const = default;
};

// Products besides those with matrices, in a model that is only counted: with a state, of queries with keys. Those of
// Component::kAttention replace the products of the layer's attention.
struct CountedWork {
  int32_t layer = -1;
  Component component{};
  uint64_t flops = 0;  // of a row, or of each entry that it sees
  bool by_entry = false;
  uint64_t every = 1;   // positions that share an entry, which is seen once all of them are there
  uint64_t window = 0;  // positions that are seen; 0: all
  uint64_t most = 0;    // entries that are seen; 0: all
  bool operator==(const CountedWork&) const = default;
};

// The parts of a model that no other field of its recipe describes. Such a model is counted and not run.
struct CountedOnly {
  std::string why = {};         // "sparse attention with an indexer"
  bool output_norm = true;      // false: the last norm is among the tensors
  bool own_prediction = false;  // the layers for multi-token prediction are among the tensors alone
  std::vector<CountedTensor> tensors = {};
  std::vector<CountedCache> caches = {};
  std::vector<CountedWork> work = {};
  std::vector<std::string> lacks_products = {};  // matrix products that no form counts, by name
  std::vector<std::string> lacks_reads = {};     // caches of which it is not known how much a token reads
  uint64_t state_elements = 0;                   // f32, of a sequence, whatever its length
  bool operator==(const CountedOnly&) const = default;
};

struct Recipe {
  std::string family = {};  // "gpt2", "llama", "gpt-oss"
  int32_t n_layers = 0;     // L
  int32_t d_model = 0;      // E
  int32_t n_heads = 0;      // H
  int32_t n_kv_heads = 0;   // K
  int32_t head_dim = 0;     // D
  int32_t d_ff = 0;         // F: dense feed-forward width
  int32_t vocab = 0;        // V: rows of the embedding
  int32_t context = 0;      // trained length

  NormKind norm = NormKind::kRms;
  float norm_eps = 1e-5f;
  bool norm_bias = true;      // of LayerNorms
  float embedding_scale = 1;  // multiplies the embedding of a token before the first layer (Gemma: sqrt(d_model))
  // Width of the rows of embedding and head, if a matrix leads from it to d_model and another one back (OPT-350M); 0: d_model.
  int32_t embedding_width = 0;
  bool embedding_norm = false;  // a norm of the embedding (BLOOM)
  bool embedding_rms = false;   // RMSNorm of the embedding, without weights (Muse Glimmer)
  bool learned_positions = false;
  int32_t first_position = 0;  // row of the learned positions that position 0 has (OPT: 2)
  Rope rope = {};
  Rope local_rope = {};  // of layers with LayerRope::kLocal (Gemma 3)
  float alibi_bias = 0;  // ALiBi: the largest of a head's slopes is 2^(-alibi_bias / heads) (BLOOM, MPT: 8); 0: none
  Residual residual = Residual::kSequential;
  float residual_scale = 1;  // multiplies what a block adds to x (Granite, MiniCPM)

  bool fused_qkv = false;  // one matrix [q; k; v]
  bool q_bias = false, k_bias = false, v_bias = false, o_bias = false;
  QkNormKind qk_norm = QkNormKind::kNone;
  bool qk_norm_after_rope = false;  // kHead (Hunyuan)
  bool qk_norm_everywhere = false;  // kUnweighted: in layers without rope, too (Muse Glimmer)
  bool v_norm = false;              // RMSNorm of each head's value, without weights (Gemma 4)
  float qkv_limit = 0;              // q, k (after their norms) and v are limited to [-qkv_limit, qkv_limit] (OLMoE, MPT); 0: not
  LatentAttention latent = {};
  bool pre_norms = true;        // false: the blocks' inputs are not normalised (OLMo 2)
  bool stream_norms = false;    // the norms are of x after a block is added to it, not of the blocks' inputs (OPT-350M)
  bool output_norm = true;      // a norm of x before the head
  bool post_norms = false;      // norms of the outputs of attention and feed-forward, before they are added to x (Gemma 2 and 3)
  float post_norm_eps = 0;      // of those norms; 0: norm_eps
  float attention_softcap = 0;  // c: scores become c tanh(score / c) (Gemma 2); 0: none
  // In layers without rope, queries at position p are multiplied by 1 + s ln(1 + floor((p + o) / f)) with s = temperature_scale,
  // o = temperature_offset, f = temperature_floor (Llama 4). s = 0: not.
  float temperature_scale = 0, temperature_offset = 1, temperature_floor = 8192;
  bool temperature_everywhere = false;  // in every layer (Ministral 3)
  bool sinks = false;                   // one learned logit per query head inside the softmax
  float attention_scale = 0;            // the default; a layer uses LayerRecipe::attention_scale

  bool attention_gate = false;  // attention's output is multiplied by sigmoid(W x), element by element (Qwen3-Next)
  bool gate_each_head = false;  // W x has one number for each head (Laguna; Ling 3, of latent attention)
  bool gate_softplus = false;   // softplus instead of the sigmoid (Laguna)

  int32_t conv_taps = 0;  // positions that the convolution of a recurrent mixer sees, its own included
  DeltaRule delta = {};
  Mamba2 mamba = {};

  PartScales scales = {};

  // A second embedding of the token gives each layer a vector of so many elements, which gates what the layer adds last (Gemma 4); 0: none.
  int32_t layer_embedding = 0;
  bool layer_scale = false;  // a learned number multiplies what a layer leaves in the residual stream

  bool gated_ffn = true;         // down(act(gate x) * up x) instead of down(act(up x))
  bool ungated_experts = false;  // experts, but for shared ones, have no gate, whatever gated_ffn says
  ActivationKind activation = ActivationKind::kSilu;
  float swiglu_alpha = 1.702f, swiglu_limit = 7.0f;          // kSwigluOai: g = min(g, limit), u clamped, g*sigmoid(alpha g)*(u+1)
  bool stored_xielu = false;                                 // kXielu: the checkpoint stores the alphas (Hugging Face)
  bool stored_xielu_beta = false, stored_xielu_eps = false;  // and these, which loading sets in LayerRecipe::xielu
  bool ffn_bias = false;                                     // of the dense feed-forward

  int32_t n_experts = 0;  // X
  int32_t top_k = 0;      // k
  int32_t d_expert = 0;   // width of an expert
  RoutingRule routing = RoutingRule::kTopKThenSoftmax;
  float route_scale = 1;                // multiplies the experts' weights
  float route_sum_eps = 0;              // joins the sum that the weights are divided by (LFM2)
  bool weighted_expert_inputs = false;  // the weights multiply the experts' inputs, not their outputs (Llama 4)
  // Experts are chosen from the `kept_groups` best of `expert_groups` equal groups; a group is as good as the sum of its
  // `group_best` best experts (DeepSeek-V2 and -V3).
  int32_t expert_groups = 1, kept_groups = 1, group_best = 1;
  bool router_bias = false;  // with probabilities or sigmoids of all experts: only the choice sees it
  bool expert_bias = false;
  bool router_norm = false;   // the router reads the residual stream through a norm of its own (Gemma 4)
  bool expert_scale = false;  // a learned number of each expert multiplies its weight
  int32_t expert_latent =
      0;  // experts work on a projection of so many elements, and their sum is projected back (Nemotron 3 Super); 0: not
  int32_t d_shared = 0;      // width of the shared experts together, which every token uses; 0: none
  bool shared_gate = false;  // the shared experts' output is multiplied by sigmoid(w x)
  // Without shared experts: act(x) of the experts' input x is added to their output (llama.cpp, if a file names shared experts but has no
  // tensors for them).
  bool shared_activation = false;
  int32_t mtp_layers = 0;  // multi-token-prediction layers that are none of `layers`; counted apart, not run

  bool tied_head = false;  // the head is the embedding matrix
  bool head_bias = false;
  float logit_scale = 1;                 // multiplies the logits (Cohere, Granite, MiniCPM)
  float logit_softcap = 0;               // c: logits become c tanh(logit / c) (Gemma 2); 0: none
  std::vector<LayerRecipe> layers = {};  // [n_layers]

  std::optional<CountedOnly> counted_only = {};

  // Generation defaults of the checkpoint.
  std::vector<int32_t> eos_tokens = {};

  bool operator==(const Recipe&) const = default;
};

// The sizes of a layer: its own, or the recipe's.
struct LayerSizes {
  int32_t n_heads = 0, n_kv_heads = 0, head_dim = 0, d_ff = 0;
};
inline LayerSizes SizesOf(const Recipe& r, const LayerRecipe& l) {
  const auto either = [](int32_t own, int32_t common) { return own > 0 ? own : common; };
  return {either(l.n_heads, r.n_heads), either(l.n_kv_heads, r.n_kv_heads), either(l.head_dim, r.head_dim),
          either(l.d_ff, r.d_ff)};
}

// True if some layer has the property, a predicate or a member of LayerRecipe.
template <class Property>
bool AnyLayer(const Recipe& r, Property property) {
  for (const LayerRecipe& l : r.layers) {
    if (std::invoke(property, l)) return true;
  }
  return false;
}

// A part of a model that a recipe leaves out, as nothing runs it: a vision tower, layers for multi-token prediction, a stored copy of
// a tied head.
struct PartNotRun {
  std::string name = {};                                // "vision_tower"
  std::optional<uint64_t> parameters = {}, bytes = {};  // nullopt: unknown. A copy has bytes and no parameters of its own.
};

}  // namespace tally
