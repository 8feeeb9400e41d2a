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
#include "engine/kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void RunCausalConv(const CausalConvOp& op, int64_t begin, int64_t end) {
  const hn::ScalableTag<float> d;
  const int64_t taps = op.taps.slices;
  std::array<const float*, CausalConvOp::kMostTaps> rows{}, weights{};
  for (int64_t k = 0; k < taps; ++k) weights[static_cast<size_t>(k)] = op.taps.Vector(k);
  for (int64_t t = begin; t < end; ++t) {
    for (int64_t k = 0; k < taps; ++k) rows[static_cast<size_t>(k)] = CachedRow(op, t, taps - 1 - k);
    const float* gate = op.gate.Row(t);
    float* out = op.out.Row(t);
    ForLanes(d, op.out.cols, [&](auto tail, int64_t i, size_t count) HWY_ATTR {
      auto sum = hn::Zero(d);
      for (size_t k = 0; k < static_cast<size_t>(taps); ++k) {
        const auto x = rows[k] != nullptr ? LoadLanes(tail, d, rows[k] + i, count) : hn::Zero(d);
        sum = hn::MulAdd(LoadLanes(tail, d, weights[k] + i, count), x, sum);
      }
      StoreLanes(tail, hn::Mul(LoadLanes(tail, d, gate + i, count), sum), d, out + i, count);
    });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tally {

HWY_EXPORT(RunCausalConv);
void RunCausalConvHwy(const CausalConvOp& op, int64_t begin, int64_t end, std::span<uint8_t>) {
  HWY_DYNAMIC_DISPATCH(RunCausalConv)(op, begin, end);
}

}  // namespace tally
#endif
