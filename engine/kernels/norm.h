// Normalisation of rows.
//   RMSNorm (Zhang & Sennrich 2019): y = x / sqrt(mean(x^2) + eps) * w
//   LayerNorm (Ba et al. 2016):      y = (x - mean) / sqrt(var + eps) * w + b, var the biased variance
#pragma once

#include "engine/base/kinds.h"
#include "engine/kernels/op.h"

namespace tally {

struct NormOp {
  static constexpr std::string_view kName = "norm";
  NormKind kind = NormKind::kRms;
  Mat<const float> x;  // [n, groups * cols(w)]: each row holds `groups` vectors to normalise (heads, for QK-norm)
  int64_t groups = 1;
  WeightView weight;  // [cols]
  WeightView bias;    // [cols] or empty (kLayer only)
  float eps = 1e-5f;
  Mat<float> out;  // as x; may be x itself
  Status Validate() const;
  // Per vector of K (class norm): RMS 4 K + 1 FLOPs and 2 special; Layer 6 K + 1 (with a bias 7 K + 1) and 3
  // special. The weights' bytes count once an op.
  Cost Useful() const;
  void Touches(WeightTouches&) const;
  Mat<const float> Output() const { return out; }
  void Describe(OpDescription& d) const;
  bool CostKey(OpKey& key) const;
};

template <>
std::span<const Kernel<NormOp>> Kernels<NormOp>();

}  // namespace tally
