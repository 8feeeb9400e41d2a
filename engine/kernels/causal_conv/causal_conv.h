// SPDX-License-Identifier: Apache-2.0
// A causal convolution whose channels do not mix (depthwise), with what may follow it: the short convolution of LFM2 (Liquid AI 2025;
// Lfm2ShortConv of transformers), and the convolutions before the recurrences of Mamba-2 (Dao & Gu 2024) and of gated delta nets (Yang
// et al. 2024).
#pragma once

#include "engine/base/kinds.h"
#include "engine/kernels/op.h"
#include "engine/kernels/state/state.h"

namespace tally {

// y[t] = w[0] x(p - n + 1) + ... + w[n - 1] x(p) (+ bias), element by element; p is the position of row t, n the number of taps, x(i) the
// input of position i, 0 for i < 0. The sum starts at 0; acc = fma(w, x, acc) from the oldest input on; then the bias is added. out[t] =
// act(y[t]) (* gate[t]). A row's result depends neither on other rows nor on how the prompt was cut.
//
// An input of an earlier step comes from the rows of the sequence, or from the tail of the state `from`. The op writes the inputs into
// the rows that are kept, and the tails of `mid` and `to`.
struct CausalConvOp {
  static constexpr std::string_view kName = "causal_conv";
  static constexpr int64_t kMostTaps = 16;
  Mat<const float> x;                                 // [n, d]
  WeightView taps;                                    // vectors: a slice [d] for each tap, the oldest position's first
  WeightView bias = {};                               // [d] or empty
  ActivationKind activation = ActivationKind::kNone;  // or kSilu
  Mat<const float> gate = {};                         // [n, d] or empty
  StateLayout layout;
  int64_t first_channel = 0;  // of the layout's channels, those from here on are x's
  StateRuns runs;
  std::span<const StateTable> states;
  Mat<float> out;  // [n, d]; not x
  Status Validate() const;
  CostAmounts Amounts() const;  // kRows, kRuns
  void AddRowAmounts(std::span<const uint32_t> groups, std::span<CostAmounts> amounts) const;
  // Per row: class linear, a multiply-add for each tap and element, those of positions before the first included, as the published code
  // pads with zeros; class residual/bias, the bias; class activation, the activation and the gate's product. Bytes: per run, the tail
  // of the state read and written; the taps and the bias read once. What is written into rows is executed work only.
  Cost Useful(const CostAmounts& n) const;
  void Touches(WeightTouches&) const;
  Mat<const float> Output() const { return out; }
  void Describe(OpDescription& d) const;
};

template <>
std::span<const Kernel<CausalConvOp>> Kernels<CausalConvOp>();

void RunCausalConvHwy(const CausalConvOp& op, int64_t begin, int64_t end, std::span<uint8_t> scratch);

}  // namespace tally
