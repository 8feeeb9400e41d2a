// SPDX-License-Identifier: Apache-2.0
// The recurrence of Mamba-2 (Dao & Gu 2024, "Transformers are SSMs"; Mamba2Mixer of transformers).
#pragma once

#include "engine/kernels/op.h"
#include "engine/kernels/state/state.h"

namespace tally {

// For each head, with S [N, P] its state, s its step, w its decay, D its skip:
//   S = w S + B (s x)^T
//   out = S^T C + D x             sums over N start at 0, in ascending order, by fma; then D x is added
// Head h has B and C of group h / (heads / groups). Rows of a sequence are done in the order of their positions. A row's result depends
// neither on other sequences nor on how the prompt was cut.
//
// The floats of a state: head by head, tiles of 64 columns of S, [P / 64][N][64], a last narrower one [N][P mod 64]; then 0 up to a
// multiple of 16. A row for replay: B [groups N], s x [heads P], w [heads].
struct SsmScanOp {
  static constexpr std::string_view kName = "ssm_scan";
  static constexpr int64_t kTile = 64;
  Mat<const float> x;            // [n, heads * P]
  Mat<const float> b, c;         // [n, groups * N]
  Mat<const float> step, decay;  // [n, heads]
  WeightView skip;               // D: [heads] or empty
  int64_t heads = 0, groups = 1;
  StateLayout layout;  // as StateOf and ReplayOf say
  StateRuns runs;
  std::span<const StateTable> states;
  Mat<float> out;  // [n, heads * P]

  int64_t head_dim() const { return x.cols / heads; }    // P
  int64_t state_dim() const { return b.cols / groups; }  // N
  static int64_t StateOf(int64_t heads, int64_t state_dim, int64_t head_dim);
  static int64_t ReplayOf(int64_t heads, int64_t groups, int64_t state_dim, int64_t head_dim);

  Status Validate() const;
  CostAmounts Amounts() const;  // kRows, kRuns, kReplayed
  void AddRowAmounts(std::span<const uint32_t> groups, std::span<CostAmounts> amounts) const;
  // Per row and head, class recurrence: 5 N P + P FLOPs, with a skip 2 P more. Bytes as DeltaRuleOp; the skips read once.
  Cost Useful(const CostAmounts& n) const;
  void Touches(WeightTouches&) const;
  Mat<const float> Output() const { return out; }
  void Describe(OpDescription& d) const;
};

template <>
std::span<const Kernel<SsmScanOp>> Kernels<SsmScanOp>();

void RunSsmScanHwy(const SsmScanOp& op, int64_t begin, int64_t end, std::span<uint8_t> scratch);

}  // namespace tally
