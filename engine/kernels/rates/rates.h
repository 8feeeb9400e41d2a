// SPDX-License-Identifier: Apache-2.0
// The rates of a recurrence: how far a position steps and how much of the state stays (Mamba-2, Dao & Gu 2024; gated delta nets, Yang et
// al. 2024).
#pragma once

#include <limits>

#include "engine/kernels/op.h"

namespace tally {

// For each element of a head: s = min(max(softplus(x + bias), least), most), softplus(y) = log(1 + exp(y)), and y itself above 20, as in
// torch;
// decay = exp(A s), exactly 0 below e^-60: smaller decays would leave subnormal numbers in the state, which cost a hundred times as much.
// With a bound, s = 1 / (1 + exp(-A (x + bias))) and decay = exp(bound s).
// If beta is given, beta = 1 / (1 + exp(-beta)).
struct RatesOp {
  static constexpr std::string_view kName = "rates";
  Mat<float> x;     // [n, heads * K]; becomes s
  WeightView bias;  // [heads * K]
  WeightView a;     // A: [heads], negative; with a bound positive
  float least = 0, most = std::numeric_limits<float>::infinity();
  float bound = 0;       // 0: none; else negative, and s is not limited
  Mat<float> beta = {};  // [n, heads] in place, or empty
  Mat<float> decay;      // [n, heads * K]
  int64_t heads() const { return a.cols; }
  int64_t dim() const { return x.cols / a.cols; }  // K
  Status Validate() const;
  CostAmounts Amounts() const { return RowAmounts(x.rows); }
  // Per element: class residual/bias, an add; class activation, 2 FLOPs (1 + exp, A s) and 3 special (exp, log, exp), a compare each for a
  // least above 0 and a finite most; with a bound 3 FLOPs (A y, 1 + exp, bound s) and 3 special (exp, divide, exp). Beta: 1 FLOP and 2
  // special. Bytes of the weights once.
  Cost Useful(const CostAmounts& n) const;
  void Touches(WeightTouches&) const;
  Mat<const float> Output() const { return decay; }
  void Describe(OpDescription& d) const;
};

template <>
std::span<const Kernel<RatesOp>> Kernels<RatesOp>();

void RunRatesHwy(const RatesOp& op, int64_t begin, int64_t end, std::span<uint8_t> scratch);

}  // namespace tally
