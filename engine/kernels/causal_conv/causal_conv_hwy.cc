// SPDX-License-Identifier: Apache-2.0
// CausalConvOp with channels as lanes.
#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#ifndef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/causal_conv/causal_conv_hwy.cc"
#endif
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

// after foreach_target.h, which decides the first target
#include "engine/kernels/causal_conv/causal_conv.h"
#include "engine/kernels/causal_conv/causal_conv_inputs.h"
#include "engine/kernels/lanes-inl.h"
#include "engine/kernels/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int kConvRows = 4;           // rows computed together
constexpr int64_t kConvRowsAhead = 4;  // rows prefetched
constexpr int64_t kMostInputs = CausalConvOp::kMostTaps - 1 + kConvRows;

// Neighbouring rows of some channels. `inputs`: of the first row's oldest position and those after it. bias, gates: null if there is none.
struct ConvPiece {
  std::array<const float*, CausalConvOp::kMostTaps> weights{};
  const float* bias = nullptr;
  std::array<const float*, kMostInputs> inputs{};
  std::array<const float*, kConvRows> gates{};
  std::array<float*, kConvRows> out{};
};

// kTaps: 0 for any number. Weights stay in registers from row to row.
template <int kTaps, int kRows>
void RunRows(const CausalConvOp& op, const ConvPiece& p, int64_t channels) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  const ConvPiece piece = p;  // a local copy: stores to `out` do not change it
  const size_t taps = kTaps != 0 ? kTaps : static_cast<size_t>(op.layout.taps);
  const ActivationKind activation = op.activation;
  ForLanes(d, channels, [&](auto tail, int64_t i, size_t count) HWY_ATTR {
    V sums[kRows];
    for (size_t t = 0; t < kRows; ++t) sums[t] = hn::Zero(d);
    for (size_t k = 0; k < taps; ++k) {
      const V w = LoadLanes(tail, d, piece.weights[k] + i, count);
      for (size_t t = 0; t < kRows; ++t) sums[t] = hn::MulAdd(w, LoadLanes(tail, d, piece.inputs[t + k] + i, count), sums[t]);
    }
    for (size_t t = 0; t < kRows; ++t) {
      V y = sums[t];
      if (piece.bias != nullptr) y = hn::Add(y, LoadLanes(tail, d, piece.bias + i, count));
      y = Activate(d, activation, y);
      if (piece.gates[t] != nullptr) y = hn::Mul(y, LoadLanes(tail, d, piece.gates[t] + i, count));
      StoreLanes(tail, y, d, piece.out[t] + i, count);
    }
  });
}

template <int kTaps>
void RunPiece(const CausalConvOp& op, const ConvInputs& inputs, int64_t c, int64_t channels, const StateRun& run) {
  const int64_t tail = op.layout.tail();
  ConvPiece piece;
  for (int64_t k = 0; k < op.layout.taps; ++k) piece.weights[static_cast<size_t>(k)] = op.taps.Vector(k) + c;
  piece.bias = op.bias.empty() ? nullptr : op.bias.Vector() + c;
  // Prefetches what the next piece copies first.
  for (int64_t i = run.position - tail; i < run.position && c + channels < op.x.cols; ++i) {
    const float* const earlier = inputs.Earlier(i);
    if (earlier != nullptr)
      PrefetchFloats(earlier + op.first_channel + c + channels, std::min(channels, op.x.cols - c - channels));
  }
  for (int64_t t = 0; t < run.rows;) {
    const int64_t rows = run.rows - t >= kConvRows ? kConvRows : 1;
    for (int64_t i = 0; i < tail + rows; ++i) piece.inputs[static_cast<size_t>(i)] = inputs.At(run.position + t - tail + i);
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t r = inputs.Row(t + i);
      piece.gates[static_cast<size_t>(i)] = op.gate.empty() ? nullptr : op.gate.Row(r) + c;
      piece.out[static_cast<size_t>(i)] = op.out.Row(r) + c;
      if (t + i + kConvRowsAhead >= run.rows) continue;
      const int64_t ahead = inputs.Row(t + i + kConvRowsAhead);
      PrefetchFloats(op.x.Row(ahead) + c, channels);
      PrefetchFloats(op.out.Row(ahead) + c, channels);
    }
    if (rows == kConvRows) {
      RunRows<kTaps, kConvRows>(op, piece, channels);
    } else {
      RunRows<kTaps, 1>(op, piece, channels);
    }
    for (int64_t i = 0; i < rows; ++i) inputs.KeepRow(t + i);
    t += rows;
  }
  inputs.KeepTails();
}

void RunCausalConv(const CausalConvOp& op, int64_t begin, int64_t end, float* scratch) {
  const auto run_piece = op.layout.taps == 4 ? RunPiece<4> : op.layout.taps == 3 ? RunPiece<3> : RunPiece<0>;
  ForConvPieces(op, begin, end, scratch, [&](const ConvInputs& inputs, int64_t c, int64_t channels, const StateRun& run) {
    run_piece(op, inputs, c, channels, run);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tally {

HWY_EXPORT(RunCausalConv);
void RunCausalConvHwy(const CausalConvOp& op, int64_t begin, int64_t end, std::span<uint8_t> scratch) {
  HWY_DYNAMIC_DISPATCH(RunCausalConv)(op, begin, end, reinterpret_cast<float*>(scratch.data()));
}

}  // namespace tally
#endif
