// SPDX-License-Identifier: Apache-2.0
// The blocks of attention: what they see, and how queries, keys and values are made.
#pragma once

#include <cstdint>

#include "engine/base/kinds.h"
#include "engine/base/rows.h"

namespace tally {

// Which rotary embedding a layer uses: Recipe::rope, Recipe::local_rope, or none.
enum class LayerRope : uint8_t { kGlobal, kLocal, kNone };

// Queries at position p are multiplied by 1 + s ln(1 + floor((p + o) / f)) with s = scale, o = offset, f = floor (Llama 4). s = 0: not.
struct Temperature {
  float scale = 0, offset = 1, floor = 8192;
  bool everywhere = false;  // in layers with rope, too (Ministral 3)
  bool operator==(const Temperature&) const = default;
};

// Attention whose queries, keys and values are each made by a matrix. Latent attention has of it the heads and what comes after queries
// and keys: what they see, scores, gate, and the bias of the last matrix.
struct Attention {
  int32_t n_heads = 0;     // H
  int32_t n_kv_heads = 0;  // K
  int32_t head_dim = 0;    // D
  int32_t window = 0;      // key j is visible to query i iff 0 <= i - j < window; 0: all of the past
  int32_t chunk = 0;       // key j is visible to query i iff j <= i and i / chunk = j / chunk (Llama 4); 0: no chunks
  float scale = 0;         // multiplies q.k; every family sets it
  LayerRope rope = LayerRope::kGlobal;
  BothWays both_ways = BothWays::kWhole;  // what is shown of a span whose rows see one another
  // The keys and values of this earlier layer are read, and there are none of its own; -1: there are.
  int32_t cache_of = -1;
  bool v_is_k = false;  // the values are the keys as their matrix gives them (Gemma 4)

  bool fused_qkv = false;  // one matrix [q; k; v]
  bool q_bias = false, k_bias = false, v_bias = false, o_bias = false;
  QkNormKind qk_norm = QkNormKind::kNone;
  bool qk_norm_after_rope = false;  // kHead (Hunyuan)
  bool qk_norm_everywhere = false;  // kUnweighted: in layers without rope, too (Muse Glimmer)
  bool v_norm = false;              // RMSNorm of each head's value, without weights (Gemma 4)
  float qkv_limit = 0;              // q, k (after their norms) and v are limited to [-qkv_limit, qkv_limit] (OLMoE, MPT); 0: not

  float softcap = 0;   // c: scores become c tanh(score / c) (Gemma 2); 0: none
  bool sinks = false;  // one learned logit per query head inside the softmax
  Temperature temperature = {};

  bool gate = false;            // the output is multiplied by sigmoid(W x), element by element (Qwen3-Next)
  bool gate_each_head = false;  // W x has one number for each head (Laguna; Ling 3, of latent attention)
  bool gate_softplus = false;   // softplus instead of the sigmoid (Laguna)
  float out_scale = 1;          // multiplies the input of the last matrix (Falcon-H1)

  bool operator==(const Attention&) const = default;
};

// Multi-head latent attention (DeepSeek-V2 2024): a matrix to a low rank, a norm and a second matrix make the queries; another such
// chain makes keys and values. All heads share one rotated key. A query or key has nope_dim + rope_dim elements, a value v_dim.
struct LatentAttention {
  int32_t kv_rank = 0;
  int32_t q_rank = 0;  // 0: one matrix makes the queries
  int32_t nope_dim = 0, rope_dim = 0, v_dim = 0;
  float norm_eps = 1e-6f;  // of the norms between the matrices of a chain
  bool operator==(const LatentAttention&) const = default;
};

}  // namespace tally
