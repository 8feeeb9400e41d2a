// SPDX-License-Identifier: Apache-2.0
// RMSNorm, L2 norm and LayerNorm, with the elements of a vector as lanes.
#include <cmath>
#include <cstdint>
#include <span>

#ifndef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/norm/norm_hwy.cc"
#endif
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

// after foreach_target.h, which decides the first target
#include "engine/kernels/lanes-inl.h"
#include "engine/kernels/norm/norm.h"
#include "engine/kernels/norm/sum-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using NormD = hn::ScalableTag<float>;
using NormV = hn::Vec<NormD>;

// kRms, kL2
void RmsNormVector(NormKind kind, const float* x, const float* w, int64_t k, float eps, bool add, float* out) {
  const NormD d;
  const float squares = SumOver(k, [&](auto tail, NormV acc, int64_t i, size_t count) HWY_ATTR {
    const NormV v = LoadLanes(tail, d, x + i, count);
    return hn::MulAdd(v, v, acc);
  });
  const float mean = kind == NormKind::kRms ? squares / static_cast<float>(k) : squares;
  const NormV inverse = hn::Set(d, 1.0f / std::sqrt(mean + eps));
  ForLanes(d, k, [&](auto tail, int64_t i, size_t count) HWY_ATTR {
    const NormV scaled = hn::Mul(LoadLanes(tail, d, x + i, count), inverse);
    NormV y = w != nullptr ? hn::Mul(scaled, LoadLanes(tail, d, w + i, count)) : scaled;
    if (add) y = hn::Add(LoadLanes(tail, d, out + i, count), y);
    StoreLanes(tail, y, d, out + i, count);
  });
}

void LayerNormVector(const float* x, const float* w, const float* b, int64_t k, float eps, float* out) {
  const NormD d;
  const float sum = SumOver(
      k, [&](auto tail, NormV acc, int64_t i, size_t count) HWY_ATTR { return hn::Add(acc, LoadLanes(tail, d, x + i, count)); });
  const NormV mean = hn::Set(d, sum / static_cast<float>(k));
  // The centred values are stored in out, which may be x.
  const float squares = SumOver(k, [&](auto tail, NormV acc, int64_t i, size_t count) HWY_ATTR {
    const NormV centred = ZeroBeyond(tail, d, hn::Sub(LoadLanes(tail, d, x + i, count), mean), count);
    StoreLanes(tail, centred, d, out + i, count);
    return hn::MulAdd(centred, centred, acc);
  });
  const NormV inverse = hn::Set(d, 1.0f / std::sqrt(squares / static_cast<float>(k) + eps));
  ForLanes(d, k, [&](auto tail, int64_t i, size_t count) HWY_ATTR {
    const NormV scaled = hn::Mul(LoadLanes(tail, d, out + i, count), inverse), scale = LoadLanes(tail, d, w + i, count);
    const NormV y = b != nullptr ? hn::MulAdd(scaled, scale, LoadLanes(tail, d, b + i, count)) : hn::Mul(scaled, scale);
    StoreLanes(tail, y, d, out + i, count);
  });
}

void RunNorm(const NormOp& op, int64_t begin, int64_t end) {
  const int64_t k = op.vector_size();
  const float* b = op.bias.empty() ? nullptr : op.bias.Vector();
  for (int64_t t = begin; t < end; ++t) {
    const int64_t row = t / op.groups, at = t % op.groups * k;
    const float* w = op.WeightsAt(at);
    const float* x = op.x.Row(row) + at;
    float* out = op.out.Row(row) + at;
    if (op.kind != NormKind::kLayer) {
      RmsNormVector(op.kind, x, w, k, op.eps, op.add_to_out, out);
    } else {
      LayerNormVector(x, w, b, k, op.eps, out);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tally {

HWY_EXPORT(RunNorm);
void RunNormHwy(const NormOp& op, int64_t begin, int64_t end, std::span<uint8_t>) {
  HWY_DYNAMIC_DISPATCH(RunNorm)(op, begin, end);
}

}  // namespace tally
#endif
