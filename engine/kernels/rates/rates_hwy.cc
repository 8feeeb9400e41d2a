// SPDX-License-Identifier: Apache-2.0
// RatesOp with heads, or elements of a head, as lanes.
#include <cmath>
#include <cstdint>
#include <span>

#ifndef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/rates/rates_hwy.cc"
#endif
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

// after foreach_target.h, which decides the first target
#include "engine/kernels/lanes-inl.h"
#include "engine/kernels/math-inl.h"
#include "engine/kernels/rates/rates.h"
#include "engine/kernels/rates/rates_ref.h"

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// log(1 + x) for x >= 0, within 2 ulp. With u = 1 + x rounded, log(1 + x) = log(u) + (x - (u - 1)) / u. The polynomial is that of Cephes'
// logf (Moshier 1992), for f = m - 1 with u = 2^e m and m within sqrt(1/2) and sqrt(2).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Log1p(D d, V x) {
  const hn::RebindToSigned<D> di;
  const V one = hn::Set(d, 1.0f), u = hn::Add(one, x);
  const V rest = hn::Div(hn::Sub(x, hn::Sub(u, one)), u);
  // The bits of sqrt(1/2) are taken off, so that the exponent changes at it.
  const auto low = hn::Set(di, 0x3f3504f3), bits = hn::Sub(hn::BitCast(di, u), low);
  const V e = hn::ConvertTo(d, hn::ShiftRight<23>(bits));
  const V f = hn::Sub(hn::BitCast(d, hn::Add(hn::And(bits, hn::Set(di, 0x7fffff)), low)), one);
  V p = hn::Set(d, 7.0376836292e-2f);
  p = hn::MulAdd(p, f, hn::Set(d, -1.1514610310e-1f));
  p = hn::MulAdd(p, f, hn::Set(d, 1.1676998740e-1f));
  p = hn::MulAdd(p, f, hn::Set(d, -1.2420140846e-1f));
  p = hn::MulAdd(p, f, hn::Set(d, 1.4249322787e-1f));
  p = hn::MulAdd(p, f, hn::Set(d, -1.6668057665e-1f));
  p = hn::MulAdd(p, f, hn::Set(d, 2.0000714765e-1f));
  p = hn::MulAdd(p, f, hn::Set(d, -2.4999993993e-1f));
  p = hn::MulAdd(p, f, hn::Set(d, 3.3333331174e-1f));
  const V z = hn::Mul(f, f);
  V y = hn::Mul(hn::Mul(p, f), z);
  y = hn::MulAdd(e, hn::Set(d, -2.12194440e-4f), y);  // ln 2 in two parts, of which the first has few bits
  y = hn::NegMulAdd(hn::Set(d, 0.5f), z, y);
  y = hn::Add(f, hn::Add(y, rest));
  return hn::MulAdd(e, hn::Set(d, 0.693359375f), y);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V Softplus(D d, V x) {
  return hn::IfThenElse(hn::Gt(x, hn::Set(d, kSoftplusLinear)), x, Log1p(d, Exp(d, x)));
}

void RunRates(const RatesOp& op, int64_t begin, int64_t end) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  const V least = hn::Set(d, op.least), most = hn::Set(d, op.most), bound = hn::Set(d, op.bound);
  const bool limited = std::isfinite(op.most);
  const float *const bias = op.bias.Vector(), *const a = op.a.Vector();
  for (int64_t t = begin; t < end; ++t) {
    float *const x = op.x.Row(t), *const decay = op.decay.Row(t);
    const auto elements = [&](auto tail, int64_t i, size_t count, V of_head) HWY_ATTR {
      const V y = hn::Add(LoadLanes(tail, d, x + i, count), LoadLanes(tail, d, bias + i, count));
      V s, exponent;
      if (op.bound != 0) {
        s = Sigmoid(d, hn::Mul(of_head, y));
        exponent = hn::Mul(bound, s);
      } else {
        s = Softplus(d, y);
        if (op.least > 0) s = MaxKeepNaN(s, least);
        if (limited) s = MinKeepNaN(s, most);
        exponent = hn::Mul(of_head, s);
      }
      StoreLanes(tail, s, d, x + i, count);
      const auto none = hn::Lt(exponent, hn::Set(d, kLeastDecay));
      StoreLanes(tail, hn::IfThenZeroElse(none, Exp(d, exponent)), d, decay + i, count);
    };
    if (op.dim() == 1) {
      ForLanes(d, op.x.cols,
               [&](auto tail, int64_t i, size_t count) HWY_ATTR { elements(tail, i, count, LoadLanes(tail, d, a + i, count)); });
    } else {
      for (int64_t h = 0; h < op.heads(); ++h) {
        const V of_head = hn::Set(d, a[h]);
        ForLanes(d, op.dim(),
                 [&](auto tail, int64_t i, size_t count) HWY_ATTR { elements(tail, h * op.dim() + i, count, of_head); });
      }
    }
    float* const beta = op.beta.empty() ? nullptr : op.beta.Row(t);
    ForLanes(d, op.beta.cols, [&](auto tail, int64_t i, size_t count) HWY_ATTR {
      StoreLanes(tail, Sigmoid(d, LoadLanes(tail, d, beta + i, count)), d, beta + i, count);
    });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tally {

HWY_EXPORT(RunRates);
void RunRatesHwy(const RatesOp& op, int64_t begin, int64_t end, std::span<uint8_t>) {
  HWY_DYNAMIC_DISPATCH(RunRates)(op, begin, end);
}

}  // namespace tally
#endif
