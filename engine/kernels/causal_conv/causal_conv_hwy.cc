// SPDX-License-Identifier: Apache-2.0
// CausalConvOp with channels as lanes.
#include <array>
#include <cstdint>
#include <span>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/causal_conv/causal_conv_hwy.cc"
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

using Window = std::array<const float*, CausalConvOp::kMostTaps>;

// One row of `channels` channels. kTaps: 0 for any number. bias, gate: null where there is none.
template <int kTaps>
void ConvRow(const CausalConvOp& op, const Window& inputs, const Window& weights, const float* bias, const float* gate,
             int64_t channels, float* out) {
  const hn::ScalableTag<float> d;
  const size_t taps = kTaps != 0 ? kTaps : static_cast<size_t>(op.layout.taps);
  ForLanes(d, channels, [&](auto tail, int64_t i, size_t count) HWY_ATTR {
    auto y = hn::Zero(d);
    for (size_t k = 0; k < taps; ++k) {
      y = hn::MulAdd(LoadLanes(tail, d, weights[k] + i, count), LoadLanes(tail, d, inputs[k] + i, count), y);
    }
    if (bias != nullptr) y = hn::Add(y, LoadLanes(tail, d, bias + i, count));
    y = Activate(d, op.activation, y);
    if (gate != nullptr) y = hn::Mul(y, LoadLanes(tail, d, gate + i, count));
    StoreLanes(tail, y, d, out + i, count);
  });
}

void RunCausalConv(const CausalConvOp& op, int64_t begin, int64_t end, float* scratch) {
  const auto row = op.layout.taps == 4 ? ConvRow<4> : op.layout.taps == 3 ? ConvRow<3> : ConvRow<0>;
  ForConvPieces(op, begin, end, scratch, [&](const ConvInputs& inputs, int64_t c, int64_t channels, const StateRun& run) {
    Window weights{};
    for (int64_t k = 0; k < op.layout.taps; ++k) weights[static_cast<size_t>(k)] = op.taps.Vector(k) + c;
    const float* const bias = op.bias.empty() ? nullptr : op.bias.Vector() + c;
    for (int64_t t = 0; t < run.rows; ++t) {
      const int64_t r = inputs.Row(t);
      const float* const gate = op.gate.empty() ? nullptr : op.gate.Row(r) + c;
      row(op, inputs.Window(t), weights, bias, gate, channels, op.out.Row(r) + c);
      inputs.KeepRow(t);
    }
    inputs.KeepTails();
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
