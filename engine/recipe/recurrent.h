// SPDX-License-Identifier: Apache-2.0
// The recurrent blocks: they keep a state of a sequence, not its positions. `taps`: positions that a convolution sees, its own included.
#pragma once

#include <array>
#include <cstdint>
#include <limits>

namespace tally {

// A gated convolution over the last positions (LFM2).
struct ShortConv {
  int32_t taps = 0;
  bool operator==(const ShortConv&) const = default;
};

// Gated delta rule (Yang et al. 2024). Queries, keys and values go through a convolution and SiLU; queries and keys are normalised; the
// output is normalised and gated by SiLU.
struct DeltaRule {
  int32_t key_heads = 0, value_heads = 0;
  int32_t key_dim = 0, value_dim = 0;  // of a head
  int32_t taps = 0;
  bool tiled = false;         // value head h has key head h mod key_heads, else h / (value_heads / key_heads)
  float l2_norm_eps = 1e-6f;  // joins the sum of squares that queries and keys are normalised with
  // A decay for each element of a head's keys (Kimi Delta Attention, Kimi Team 2025); the convolutions of queries, keys and values are
  // three weights, and the output's gate is a sigmoid.
  bool channel_decay = false;
  int32_t gate_rank = 0;  // two matrices over so many elements make the decays, and two the output's gate; 0: one each
  float decay_bound = 0;  // not 0: the logarithm of a decay is decay_bound sigmoid(A x), else A softplus(x)
  bool operator==(const DeltaRule&) const = default;
};

// Mamba-2 (Dao & Gu 2024). The input, B and C go through a convolution and SiLU.
struct Mamba2 {
  int32_t heads = 0, head_dim = 0;
  int32_t groups = 1, state_dim = 0;
  int32_t taps = 0;
  bool conv_bias = true;
  float dt_min = 0, dt_max = std::numeric_limits<float>::infinity();
  bool norm = true;         // false: the output is only gated (Falcon-H1)
  int32_t norm_groups = 1;  // vectors that the output is normalised as
  bool norm_first = false;  // norm(y) silu(z), else norm(y silu(z))
  // Falcon-H1 scales parts of the input matrix's output: z, x, B, C and the steps.
  std::array<float, 5> multipliers = {1, 1, 1, 1, 1};
  float out_scale = 1;  // multiplies the input of the last matrix (Falcon-H1)
  bool operator==(const Mamba2&) const = default;
};

}  // namespace tally
