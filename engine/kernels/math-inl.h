// SPDX-License-Identifier: Apache-2.0
// Vector exp, tanh, erf and the activation functions, for every Highway target. A lane's result depends on its argument and the
// target only. Include it in a file that foreach_target.h re-includes, and call Exp(d, x) etc. within HWY_BEFORE_NAMESPACE; d:
// any f32 tag.
//
// The polynomials are minimax fits (Remez exchange, rounded to f32). Largest errors, measured and asserted against double
// precision by tests/kernels/math_test:
//   Exp                1.1 ulp over all floats, subnormal results included; inf on overflow, 0 at -104 and below
//   Tanh               2.5 ulp
//   Erf                1.3 ulp
//   Sigmoid, Silu      2e-7 of the result; 0 below 3e-39, where exp(-x) overflows
//   GeluTanh, GeluErf  1.3e-7 of |x|: 1 + tanh and 1 + erf cancel for negative x, as in published code
// NaN arguments give NaN.
#if defined(TALLY_KERNELS_MATH_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TALLY_KERNELS_MATH_INL_H
#undef TALLY_KERNELS_MATH_INL_H
#else
#define TALLY_KERNELS_MATH_INL_H
#endif

#include <cstdint>

#include "engine/base/kinds.h"
#include "engine/kernels/math_scalar.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Like the scalar Min and Max: a NaN in the first argument is kept on every target (hn::Min differs between x86 and Arm).
template <class V>
HWY_INLINE V MinKeepNaN(V a, V b) {
  return hn::IfThenElse(hn::Lt(b, a), b, a);
}
template <class V>
HWY_INLINE V MaxKeepNaN(V a, V b) {
  return hn::IfThenElse(hn::Lt(a, b), b, a);
}

// f16 bits as f32. Targets without an instruction for it shift exponent and mantissa into place and multiply by 2^112, the
// difference of the exponent biases; the product is exact, subnormals included. (hn::PromoteTo turns infinity into 65536 there.)
template <class D, class V16 = hn::Vec<hn::Rebind<uint16_t, D>>>
HWY_INLINE hn::Vec<D> WidenF16(D d, V16 half) {
#if HWY_ARCH_X86 && HWY_TARGET > HWY_AVX2
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::PromoteTo(du, half);
  const auto magnitude = hn::ShiftLeft<13>(hn::And(bits, hn::Set(du, 0x7fff)));
  const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(du, 0x8000)));
  const auto finite = hn::BitCast(du, hn::Mul(hn::BitCast(d, magnitude), hn::Set(d, 0x1p112f)));
  const auto odd = hn::Or(magnitude, hn::Set(du, 0x7f800000));  // infinite, NaN
  return hn::BitCast(d, hn::Or(sign, hn::IfThenElse(hn::Lt(magnitude, hn::Set(du, 0x7c00 << 13)), finite, odd)));
#else
  return hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::float16_t, D>(), half));
#endif
}

// x = k ln 2 + r, |r| <= ln(2)/2: returns e^r - 1, and k as integers. For |x| <= 2^21.
template <class D, class V = hn::Vec<D>, class DI = hn::RebindToSigned<D>>
HWY_INLINE V ReducedExpM1(D d, V x, hn::Vec<DI>& k) {
  const DI di;
  // Adding 1.5 * 2^23 leaves round(x / ln 2) in the low mantissa bits.
  const V magic = hn::Set(d, 12582912.0f);
  const V shifted = hn::MulAdd(x, hn::Set(d, 1.44269504f), magic);
  const V kf = hn::Sub(shifted, magic);
  k = hn::Sub(hn::BitCast(di, shifted), hn::BitCast(di, magic));
  // ln 2 in two parts. The first has 15 bits, so that its product with kf is exact even without FMA.
  V r = hn::NegMulAdd(kf, hn::Set(d, 0.693145751953125f), x);
  r = hn::NegMulAdd(kf, hn::Set(d, 1.42860682e-6f), r);
  V p = hn::Set(d, 0.00138636678f);
  p = hn::MulAdd(p, r, hn::Set(d, 0.00836760923f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.0416672416f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.166665331f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.5f));
  return hn::MulAdd(hn::Mul(r, r), p, r);
}

// 2^k for k in [-126, 127]
template <class D, class DI = hn::RebindToSigned<D>>
HWY_INLINE hn::Vec<D> PowerOf2(D d, hn::Vec<DI> k) {
  const DI di;
  return hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(k, hn::Set(di, 127))));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V Exp(D d, V x) {
  const hn::RebindToSigned<D> di;
  // e^89 overflows and e^-104 rounds to 0 in the arithmetic below.
  const V clamped = hn::Max(hn::Min(x, hn::Set(d, 89.0f)), hn::Set(d, -104.0f));
  hn::Vec<decltype(di)> k;
  const V p = hn::Add(ReducedExpM1(d, clamped, k), hn::Set(d, 1.0f));
  // k is in [-150, 128], so 2^k takes two factors.
  const auto half = hn::ShiftRight<1>(k);
  const V e = hn::Mul(hn::Mul(p, PowerOf2(d, half)), PowerOf2(d, hn::Sub(k, half)));
  return hn::IfThenElse(hn::IsNaN(x), x, e);
}

// e^x - 1 for x <= 0, accurate near 0 too.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Expm1(D d, V x) {
  const hn::RebindToSigned<D> di;
  hn::Vec<decltype(di)> k;
  const V p = ReducedExpM1(d, hn::Max(x, hn::Set(d, -80.0f)), k);
  const V scale = PowerOf2(d, k);
  return hn::IfThenElse(hn::IsNaN(x), x, hn::MulAdd(p, scale, hn::Sub(scale, hn::Set(d, 1.0f))));
}

// tanh |x| = m / (m + 2) with m = e^(2|x|) - 1, which is accurate near 0 too.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Tanh(D d, V x) {
  const hn::RebindToSigned<D> di;
  const V y = hn::Abs(hn::Add(x, x));
  hn::Vec<decltype(di)> k;
  const V p = ReducedExpM1(d, hn::Min(y, hn::Set(d, 20.0f)), k);  // tanh(10) rounds to 1
  const V scale = PowerOf2(d, k);
  const V m = hn::MulAdd(p, scale, hn::Sub(scale, hn::Set(d, 1.0f)));
  const V t = hn::CopySignToAbs(hn::Div(m, hn::Add(m, hn::Set(d, 2.0f))), x);
  return hn::IfThenElse(hn::IsNaN(x), x, t);
}

// Below 0.92: x + x P(x^2). Above: 1 - exp(-Q(|x|)), Q approximating -ln(erfc).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Erf(D d, V x) {
  const V a = hn::Min(hn::Abs(x), hn::Set(d, 4.0f));  // erf(4) rounds to 1
  const V z = hn::Mul(a, a);
  V s = hn::Set(d, 8.34685779e-05f);
  s = hn::MulAdd(s, z, hn::Set(d, -0.000813720049f));
  s = hn::MulAdd(s, z, hn::Set(d, 0.0052005467f));
  s = hn::MulAdd(s, z, hn::Set(d, -0.0268592015f));
  s = hn::MulAdd(s, z, hn::Set(d, 0.11283692f));
  s = hn::MulAdd(s, z, hn::Set(d, -0.376126349f));
  s = hn::MulAdd(s, z, hn::Set(d, 0.128379166f));
  s = hn::MulAdd(s, a, a);
  V q = hn::Set(d, -0.000197081128f);
  q = hn::MulAdd(q, a, hn::Set(d, 0.00305440952f));
  q = hn::MulAdd(q, a, hn::Set(d, -0.0222714115f));
  q = hn::MulAdd(q, a, hn::Set(d, 0.104023628f));
  q = hn::MulAdd(q, a, hn::Set(d, 0.637077689f));
  q = hn::MulAdd(q, a, hn::Set(d, 1.12773752f));
  q = hn::MulAdd(q, a, hn::Set(d, 0.000180755087f));
  const V large = hn::Sub(hn::Set(d, 1.0f), Exp(d, hn::Neg(q)));
  const V e = hn::CopySignToAbs(hn::IfThenElse(hn::Lt(a, hn::Set(d, 0.92f)), s, large), x);
  return hn::IfThenElse(hn::IsNaN(x), x, e);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V Sigmoid(D d, V x) {
  const V one = hn::Set(d, 1.0f);
  return hn::Div(one, hn::Add(one, Exp(d, hn::Neg(x))));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V Silu(D d, V x) {
  return hn::Div(x, hn::Add(hn::Set(d, 1.0f), Exp(d, hn::Neg(x))));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V Relu2(D d, V x) {
  const V positive = MaxKeepNaN(x, hn::Zero(d));
  return hn::Mul(positive, positive);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V GeluTanh(D d, V x) {
  const V cubic = hn::Mul(hn::Mul(hn::Set(d, kGeluCubic), x), x);
  const V inner = hn::Mul(hn::Set(d, kSqrt2OverPi), hn::MulAdd(cubic, x, x));
  return hn::Mul(hn::Mul(hn::Set(d, 0.5f), x), hn::Add(hn::Set(d, 1.0f), Tanh(d, inner)));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V GeluErf(D d, V x) {
  const V erf = Erf(d, hn::Mul(hn::Set(d, kSqrtHalf), x));
  return hn::Mul(hn::Mul(hn::Set(d, 0.5f), x), hn::Add(hn::Set(d, 1.0f), erf));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V SwigluOai(D d, V g, V u, V alpha, V limit) {
  const V one = hn::Set(d, 1.0f);
  g = MinKeepNaN(g, limit);
  u = MaxKeepNaN(MinKeepNaN(u, limit), hn::Neg(limit));
  const V glu = hn::Div(g, hn::Add(one, Exp(d, hn::Neg(hn::Mul(alpha, g)))));
  return hn::Mul(glu, hn::Add(u, one));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V SwigluLimited(D d, V g, V u, V limit) {
  return hn::Mul(MinKeepNaN(Silu(d, g), limit), MaxKeepNaN(MinKeepNaN(u, limit), hn::Neg(limit)));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V XieluOf(D d, V x, const Xielu& n) {
  const V above = hn::Mul(hn::Mul(hn::Set(d, n.alpha_p), x), x);
  const V below = hn::Mul(hn::Set(d, n.alpha_n), hn::Sub(Expm1(d, MinKeepNaN(x, hn::Set(d, n.eps))), x));
  return hn::Add(hn::Mul(hn::Set(d, n.beta), x), hn::IfThenElse(hn::Gt(x, hn::Zero(d)), above, below));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V Activate(D d, ActivationKind kind, V x) {
  switch (kind) {
    case ActivationKind::kGeluTanh: return GeluTanh(d, x);
    case ActivationKind::kGeluErf: return GeluErf(d, x);
    case ActivationKind::kSilu: return Silu(d, x);
    case ActivationKind::kRelu: return MaxKeepNaN(x, hn::Zero(d));
    case ActivationKind::kRelu2: return Relu2(d, x);
    case ActivationKind::kSigmoid: return Sigmoid(d, x);
    case ActivationKind::kNone:
    case ActivationKind::kXielu:
    case ActivationKind::kSwigluLimited:
    case ActivationKind::kSwigluOai: break;
  }
  return x;
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V ActivateGated(D d, ActivationKind kind, V g, V u, float alpha, float limit) {
  if (kind == ActivationKind::kSwigluOai) return SwigluOai(d, g, u, hn::Set(d, alpha), hn::Set(d, limit));
  if (kind == ActivationKind::kSwigluLimited) return SwigluLimited(d, g, u, hn::Set(d, limit));
  return hn::Mul(Activate(d, kind, g), u);
}

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#endif  // TALLY_KERNELS_MATH_INL_H
