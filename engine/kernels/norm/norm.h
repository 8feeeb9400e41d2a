// SPDX-License-Identifier: Apache-2.0
// Normalisation of rows.
//   RMSNorm (Zhang & Sennrich 2019): y = x / sqrt(mean(x^2) + eps) * w
//   LayerNorm (Ba et al. 2016):      y = (x - mean) / sqrt(var + eps) * w + b, var the biased variance
//   L2 (gated delta nets):           y = x / sqrt(sum(x^2) + eps)
#pragma once

#include "engine/base/kinds.h"
#include "engine/kernels/op.h"

namespace tally {

struct NormOp {
  static constexpr std::string_view kName = "norm";
  NormKind kind = NormKind::kRms;
  Mat<const float> x;  // [n, groups * K]: each row holds `groups` vectors to normalise (heads, for QK-norm)
  int64_t groups = 1;
  WeightView weight;  // [K]; [groups * K]: each group has its own (Cohere); empty: none (kRms; kL2 has none)
  WeightView bias;    // [K] or empty (kLayer only)
  float eps = 1e-5f;
  bool add_to_out = false;  // out += y instead of out = y (kRms only); out must then not be x
  Mat<float> out;           // shape of x; may be x itself
  Status Validate() const;
  int64_t vector_size() const { return x.cols / groups; }  // K
  // Weights of the vector at column `at`; null: none.
  const float* WeightsAt(int64_t at) const {
    if (weight.empty()) return nullptr;
    return weight.Vector() + (weight.cols == vector_size() ? 0 : at);
  }
  // Per vector of K elements, class norm: RMS 4 K + 1 FLOPs (3 K + 1 without weights) and 2 special; L2 3 K + 1 FLOPs and 1
  // special; Layer 6 K + 1 FLOPs (with a bias 7 K + 1) and 3 special. With add_to_out, K adds of class residual/bias. The bytes of the
  // weights count once per run.
  CostAmounts Amounts() const { return RowAmounts(x.rows); }
  Cost Useful(const CostAmounts& n) const;
  void Touches(WeightTouches&) const;
  Mat<const float> Output() const { return out; }
  void Describe(OpDescription& d) const;
};

template <>
std::span<const Kernel<NormOp>> Kernels<NormOp>();

void RunNormHwy(const NormOp& op, int64_t begin, int64_t end, std::span<uint8_t> scratch);

}  // namespace tally
