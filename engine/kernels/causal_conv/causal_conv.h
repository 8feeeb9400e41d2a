// SPDX-License-Identifier: Apache-2.0
// A gated causal convolution whose channels do not mix (depthwise), over rows that a cache holds: the short convolution of LFM2 (Liquid
// AI 2025; Lfm2ShortConv of transformers).
#pragma once

#include "engine/kernels/kv_store/kv_store.h"
#include "engine/kernels/op.h"

namespace tally {

// out[t] = gate[t] * (w[0] x(p - n + 1) + ... + w[n - 1] x(p)), element by element; p is the position of row t, n the number of taps, x(i)
// the row of position i in the cache, the row's own included, and 0 for i < 0. The sum starts at 0; acc = fma(w, x, acc) from the
// oldest row on. A row's result depends neither on other rows nor on how the prompt was cut.
struct CausalConvOp {
  static constexpr std::string_view kName = "causal_conv";
  static constexpr int64_t kMostTaps = 16;
  Mat<const float> gate;        // [n, d]
  WeightView taps;              // vectors: a slice [d] for each tap, the oldest position's first
  KvLayout layout;              // of f32, with one head of d elements; shared
  std::span<const KvRow> rows;  // [n]
  std::span<const KvTable> tables;
  Mat<float> out;  // [n, d]
  Status Validate() const;
  CostAmounts Amounts() const;  // kVisible: the cached rows that a row reads
  void AddRowAmounts(std::span<const uint32_t> groups, std::span<CostAmounts> amounts) const;
  // Per row: class linear, a multiply-add for each tap and element, those of positions before the first included, as the published code
  // pads with zeros; class activation, the gate's product. Bytes: visible rows of KV read; the taps read once.
  Cost Useful(const CostAmounts& n) const;
  void Touches(WeightTouches&) const;
  Mat<const float> Output() const { return out; }
  void Describe(OpDescription& d) const;
};

template <>
std::span<const Kernel<CausalConvOp>> Kernels<CausalConvOp>();

// The cached row of `back` positions before row t's; null before the first position.
const float* CachedRow(const CausalConvOp& op, int64_t t, int64_t back);

// causal_conv_hwy.cc
void RunCausalConvHwy(const CausalConvOp& op, int64_t begin, int64_t end, std::span<uint8_t> scratch);

}  // namespace tally
