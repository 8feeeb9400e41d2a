// SPDX-License-Identifier: Apache-2.0
// Rotary embedding and its table; sines and cosines are computed in f64.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>

#ifndef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/rope/rope_hwy.cc"
#endif
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

// after foreach_target.h, which decides the first target
#include "engine/kernels/lanes-inl.h"
#include "engine/kernels/rope/rope.h"

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// The vector code takes angles up to this. Larger, infinite and NaN angles go to libm, as do all angles on targets without f64
// vectors.
inline constexpr float kGreatestAngle = HWY_HAVE_FLOAT64 ? 0x1p31f : -1.0f;

#if HWY_HAVE_FLOAT64
// Cosine and sine to 0.501 ulp of f32, for f32 values |x| <= 2^31. The polynomials are minimax fits (Remez exchange; relative
// errors 2^-33.8 and 2^-37.4).
template <class DD, class VD = hn::Vec<DD>>
HWY_INLINE void CosSinF64(DD dd, VD x, VD& cos, VD& sin) {
  const hn::RebindToUnsigned<DD> du;
  const auto one = hn::Set(du, 1), two = hn::Set(du, 2);
  // Adding 1.5 * 2^52 leaves the quadrant round(x * 2 / pi) in the low mantissa bits.
  const VD magic = hn::Set(dd, 6755399441055744.0);
  const VD shifted = hn::MulAdd(x, hn::Set(dd, 0.6366197723675814), magic);
  const VD n = hn::Sub(shifted, magic);
  const auto quadrant = hn::BitCast(du, shifted);
  // pi / 2 in three parts. The first two have 22 bits, so that their products with n (31 bits) and both differences are exact even
  // without FMA. The error of the third is 2^-66; the remainder of an f32 value is at least 2^-28.
  VD r = hn::Sub(x, hn::Mul(n, hn::Set(dd, 0x1.921fb00000000p+0)));
  r = hn::Sub(r, hn::Mul(n, hn::Set(dd, 0x1.5110b00000000p-22)));
  r = hn::Sub(r, hn::Mul(n, hn::Set(dd, 0x1.18469898cc517p-44)));
  const VD z = hn::Mul(r, r);
  VD s = hn::Set(dd, 2.718121541055503e-06);
  s = hn::MulAdd(s, z, hn::Set(dd, -0.00019839312260142678));
  s = hn::MulAdd(s, z, hn::Set(dd, 0.008333329304812325));
  s = hn::MulAdd(s, z, hn::Set(dd, -0.16666666640796765));
  s = hn::MulAdd(hn::Mul(s, z), r, r);
  VD c = hn::Set(dd, 2.4383566395873745e-05);
  c = hn::MulAdd(c, z, hn::Set(dd, -0.0013886681638270602));
  c = hn::MulAdd(c, z, hn::Set(dd, 0.041666620356828825));
  c = hn::MulAdd(c, z, hn::Set(dd, -0.4999999969447349));
  c = hn::MulAdd(c, z, hn::Set(dd, 1.0));
  // Odd quadrants swap the two; the sine is negative in 2 and 3, the cosine in 1 and 2.
  const auto odd = hn::RebindMask(dd, hn::TestBit(quadrant, one));
  const auto sin_sign = hn::ShiftLeft<62>(hn::And(quadrant, two));
  const auto cos_sign = hn::ShiftLeft<62>(hn::And(hn::Add(quadrant, one), two));
  sin = hn::Xor(hn::IfThenElse(odd, c, s), hn::BitCast(dd, sin_sign));
  cos = hn::Xor(hn::IfThenElse(odd, s, c), hn::BitCast(dd, cos_sign));
}
#endif

HWY_INLINE void CosSin(V angle, V& cos, V& sin) {
  const D d;
#if HWY_HAVE_FLOAT64
  const hn::Repartition<double, D> dd;
  const hn::Rebind<float, decltype(dd)> half;
  hn::Vec<decltype(dd)> cos_low, sin_low, cos_high, sin_high;
  CosSinF64(dd, hn::PromoteLowerTo(dd, angle), cos_low, sin_low);
  CosSinF64(dd, hn::PromoteUpperTo(dd, angle), cos_high, sin_high);
  cos = hn::Combine(d, hn::DemoteTo(half, cos_high), hn::DemoteTo(half, cos_low));
  sin = hn::Combine(d, hn::DemoteTo(half, sin_high), hn::DemoteTo(half, sin_low));
#else
  cos = sin = hn::Zero(d);
#endif
  if (HWY_LIKELY(hn::AllTrue(d, hn::Le(hn::Abs(angle), hn::Set(d, kGreatestAngle))))) return;
  HWY_ALIGN float a[hn::MaxLanes(D())], c[hn::MaxLanes(D())], s[hn::MaxLanes(D())];
  hn::Store(angle, d, a);
  hn::Store(cos, d, c);
  hn::Store(sin, d, s);
  for (size_t i = 0; i < hn::Lanes(d); ++i) {
    if (std::fabs(a[i]) <= kGreatestAngle) continue;
    c[i] = std::cos(a[i]);
    s[i] = std::sin(a[i]);
  }
  cos = hn::Load(d, c);
  sin = hn::Load(d, s);
}

void RunRopeTable(const RopeTableOp& op, int64_t begin, int64_t end) {
  const D d;
  const V magnitude = hn::Set(d, op.magnitude);
  HWY_ALIGN float lanes[hn::MaxLanes(D())] = {};
  for (int64_t t = begin; t < end; ++t) {
    const size_t row = static_cast<size_t>(t);
    const V all = hn::Set(d, static_cast<float>(op.positions[row]));
    float* cos_out = op.cos.Row(t);
    float* sin_out = op.sin.Row(t);
    ForLanes(d, op.cos.cols, [&](auto tail, int64_t i, size_t count) HWY_ATTR {
      V cos, sin, position = all;
      if (!op.axes.empty()) {
        for (size_t lane = 0; lane < count; ++lane) {
          lanes[lane] = static_cast<float>(op.Position(row, op.axes[static_cast<size_t>(i) + lane]));
        }
        position = hn::Load(d, lanes);
      }
      CosSin(hn::Mul(position, LoadLanes(tail, d, op.inv_freq.data() + i, count)), cos, sin);
      StoreLanes(tail, hn::Mul(cos, magnitude), d, cos_out + i, count);
      StoreLanes(tail, hn::Mul(sin, magnitude), d, sin_out + i, count);
    });
  }
}

HWY_INLINE void Turn(V& a, V& b, V c, V s) {
  const V first = hn::MulSub(a, c, hn::Mul(b, s));
  b = hn::MulAdd(b, c, hn::Mul(a, s));
  a = first;
}

void TurnHalves(const float* x, float* out, const float* cos, const float* sin, int64_t half) {
  const D d;
  ForLanes(d, half, [&](auto tail, int64_t i, size_t count) HWY_ATTR {
    V a = LoadLanes(tail, d, x + i, count), b = LoadLanes(tail, d, x + half + i, count);
    Turn(a, b, LoadLanes(tail, d, cos + i, count), LoadLanes(tail, d, sin + i, count));
    StoreLanes(tail, a, d, out + i, count);
    StoreLanes(tail, b, d, out + half + i, count);
  });
}

void TurnAdjacent(const float* x, float* out, const float* cos, const float* sin, int64_t half) {
  const D d;
  ForLanes(d, half, [&](auto tail, int64_t i, size_t count) HWY_ATTR {
    V a, b;
    if constexpr (tail) {  // through a buffer, as there is no masked interleaved load
      HWY_ALIGN float pairs[2 * hn::MaxLanes(D())] = {};
      std::memcpy(pairs, x + 2 * i, 2 * count * sizeof(float));
      hn::LoadInterleaved2(d, pairs, a, b);
      Turn(a, b, hn::LoadN(d, cos + i, count), hn::LoadN(d, sin + i, count));
      hn::StoreInterleaved2(a, b, d, pairs);
      std::memcpy(out + 2 * i, pairs, 2 * count * sizeof(float));
    } else {
      hn::LoadInterleaved2(d, x + 2 * i, a, b);
      Turn(a, b, hn::LoadU(d, cos + i), hn::LoadU(d, sin + i));
      hn::StoreInterleaved2(a, b, d, out + 2 * i);
    }
  });
}

void RunRope(const RopeOp& op, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    const int64_t row = t / op.heads;
    const float* x = op.x.Row(row) + t % op.heads * op.head_dim;
    float* out = op.to().Row(row) + t % op.heads * op.to_head_dim();
    if (op.style == RopeStyle::kNone) {
      std::copy_n(x, op.dim, out);
    } else if (op.style == RopeStyle::kAdjacentPair) {
      TurnAdjacent(x, out, op.cos.Row(row), op.sin.Row(row), op.dim / 2);
    } else {
      TurnHalves(x, out, op.cos.Row(row), op.sin.Row(row), op.dim / 2);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tally {

HWY_EXPORT(RunRopeTable);
void RunRopeTableHwy(const RopeTableOp& op, int64_t begin, int64_t end, std::span<uint8_t>) {
  HWY_DYNAMIC_DISPATCH(RunRopeTable)(op, begin, end);
}

HWY_EXPORT(RunRope);
void RunRopeHwy(const RopeOp& op, int64_t begin, int64_t end, std::span<uint8_t>) {
  HWY_DYNAMIC_DISPATCH(RunRope)(op, begin, end);
}

}  // namespace tally
#endif
