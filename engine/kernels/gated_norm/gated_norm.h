// SPDX-License-Identifier: Apache-2.0
// RMSNorm with a gate, of the outputs of recurrences: norm(x) act(z) (gated delta nets), or norm(x act(z)) (Mamba-2, norm_before_gate
// false).
#pragma once

#include "engine/base/kinds.h"
#include "engine/kernels/op.h"

namespace tally {

struct GatedNormOp {
  static constexpr std::string_view kName = "gated_norm";
  Mat<const float> x;     // [n, groups * K]: each row holds `groups` vectors to normalise
  Mat<const float> gate;  // z: [n, groups * K]
  int64_t groups = 1;
  WeightView weight;  // [K], or [groups * K]: each group has its own
  bool gate_first = false;
  ActivationKind activation = ActivationKind::kSilu;  // of the gate: kSilu or kSigmoid
  float eps = 1e-5f;
  Mat<float> out;  // [n, groups * K]; may be x
  Status Validate() const;
  int64_t vector_size() const { return x.cols / groups; }  // K
  CostAmounts Amounts() const { return RowAmounts(x.rows); }
  // Per vector of K elements: class norm, as NormOp's RMS with weights; class activation, K products with the activated gate and the
  // activation's own cost (math_scalar.h). The bytes of the weights once.
  Cost Useful(const CostAmounts& n) const;
  void Touches(WeightTouches&) const;
  Mat<const float> Output() const { return out; }
  void Describe(OpDescription& d) const;
};

template <>
std::span<const Kernel<GatedNormOp>> Kernels<GatedNormOp>();

void RunGatedNormHwy(const GatedNormOp& op, int64_t begin, int64_t end, std::span<uint8_t> scratch);

}  // namespace tally
