// SPDX-License-Identifier: Apache-2.0
// The recurrence of a gated delta net (Yang et al. 2024, "Gated Delta Networks"; torch_recurrent_gated_delta_rule of transformers), and the
// same with a decay for each element of the keys (Kimi Team 2025, "Kimi Linear"; naive_recurrent_kda of flash-linear-attention).
#pragma once

#include "engine/kernels/op.h"
#include "engine/kernels/state/state.h"

namespace tally {

// For each value head, with S [K, V] its state, q' = q_scale q, w its decay:
//   a = S^T k, b = S^T q'         sums over K start at 0, in ascending order, by fma
//   u = beta (v - w a)
//   out = w b + (k . q') u
//   S = w S + k u^T
// With channel decays w is a vector [K], and w S multiplies the rows of S:
//   a = S^T (w k), b = S^T (w q')
//   u = beta (v - a)
//   out = b + (k . q') u
//   S = w S + k u^T
// Value head h has key head h / (value_heads / key_heads), or h mod key_heads where heads are tiled. Rows of a sequence are done in the
// order of their positions. A row's result depends neither on other sequences nor on how the prompt was cut.
//
// The floats of a state: value head by value head, tiles of 64 columns of S, [V / 64][K][64], a last narrower one [K][V mod 64]; then 0 up
// to a multiple of 16. A row for replay: k [key_heads K], u [value_heads V], w [value_heads], or [value_heads K].
struct DeltaRuleOp {
  static constexpr std::string_view kName = "delta_rule";
  static constexpr int64_t kTile = 64;
  Mat<const float> q, k;   // [n, key_heads * K], normalised
  Mat<const float> v;      // [n, value_heads * V]
  Mat<const float> decay;  // [n, value_heads], or [n, value_heads * K]
  Mat<const float> beta;   // [n, value_heads]
  int64_t key_heads = 0, value_heads = 0;
  bool tiled = false;
  bool channel_decay = false;
  float q_scale = 1;
  StateLayout layout;  // as StateOf and ReplayOf say
  StateRuns runs;
  std::span<const StateTable> states;
  Mat<float> out;  // [n, value_heads * V]

  int64_t k_dim() const { return k.cols / key_heads; }
  int64_t v_dim() const { return v.cols / value_heads; }
  int64_t decay_dim() const { return channel_decay ? k_dim() : 1; }
  int64_t KeyHead(int64_t value_head) const { return tiled ? value_head % key_heads : value_head / (value_heads / key_heads); }
  // Floats of a state and of a row, for StateLayout.
  static int64_t StateOf(int64_t value_heads, int64_t k_dim, int64_t v_dim);
  static int64_t ReplayOf(int64_t key_heads, int64_t value_heads, int64_t k_dim, int64_t v_dim, int64_t decay_dim = 1);

  Status Validate() const;
  CostAmounts Amounts() const;  // kRows, kRuns, kReplayed
  void AddRowAmounts(std::span<const uint32_t> groups, std::span<CostAmounts> amounts) const;
  // Per row and value head, class recurrence: 7 K V + 6 V + 3 K FLOPs, as written above (q' is made for each value head);
  // with channel decays 7 K V + 4 V + 5 K. Bytes: per run, the recurrence's floats of a state read and written. Replayed positions,
  // `mid` and rows are executed work only.
  Cost Useful(const CostAmounts& n) const;
  void Touches(WeightTouches&) const {}
  Mat<const float> Output() const { return out; }
  void Describe(OpDescription& d) const;
};

template <>
std::span<const Kernel<DeltaRuleOp>> Kernels<DeltaRuleOp>();

void RunDeltaRuleHwy(const DeltaRuleOp& op, int64_t begin, int64_t end, std::span<uint8_t> scratch);

}  // namespace tally
