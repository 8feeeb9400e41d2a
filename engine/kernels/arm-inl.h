// SPDX-License-Identifier: Apache-2.0
// Arm's products of bytes and of bf16, for functions compiled with the same target options, which run only where CurrentByteDot() has
// them. A lambda does not have its function's target: it holds none of these. Arm, Architecture Reference Manual for A-profile, C7.2.
#include "hwy/highway.h"

#if defined(TALLY_KERNELS_ARM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TALLY_KERNELS_ARM_INL_H_
#undef TALLY_KERNELS_ARM_INL_H_
#else
#define TALLY_KERNELS_ARM_INL_H_
#endif

// clang before 16 declares the intrinsics only where the whole file may use them.
#undef TALLY_ARM
#if HWY_ARCH_ARM_A64 && HWY_COMPILER_GCC_ACTUAL
#define TALLY_ARM 1
#else
#define TALLY_ARM 0
#endif

#if TALLY_ARM

#include <arm_neon.h>

namespace tally {
namespace HWY_NAMESPACE {

// With 4-lane vectors of Highway: I of int32, F of f32.

#pragma GCC push_options
#pragma GCC target("arch=armv8.2-a+dotprod")
// sum += in each lane the products of 4 bytes of w and of lane `lane` of x. `lane` is a constant after unrolling.
template <class I>
HWY_INLINE I SdotLane(I sum, I w, I x, int lane) {
  const int8x16_t wb = vreinterpretq_s8_s32(w.raw), xb = vreinterpretq_s8_s32(x.raw);
  switch (lane) {
    case 0: return I(vdotq_laneq_s32(sum.raw, wb, xb, 0));
    case 1: return I(vdotq_laneq_s32(sum.raw, wb, xb, 1));
    case 2: return I(vdotq_laneq_s32(sum.raw, wb, xb, 2));
    default: return I(vdotq_laneq_s32(sum.raw, wb, xb, 3));
  }
}
#pragma GCC pop_options

// Lane `lane` of v in all lanes; part of a multiply.
template <class F>
HWY_INLINE F Lane(F v, int lane) {
  switch (lane) {
    case 0: return F(vdupq_laneq_f32(v.raw, 0));
    case 1: return F(vdupq_laneq_f32(v.raw, 1));
    case 2: return F(vdupq_laneq_f32(v.raw, 2));
    default: return F(vdupq_laneq_f32(v.raw, 3));
  }
}

#pragma GCC push_options
#pragma GCC target("arch=armv8.2-a+dotprod+i8mm+bf16")
// Lane 2i + j of sum += the products of half i of x, 8 bytes, and half j of w.
template <class I>
HWY_INLINE I Smmla(I sum, I x, I w) {
  return I(vmmlaq_s32(sum.raw, vreinterpretq_s8_s32(x.raw), vreinterpretq_s8_s32(w.raw)));
}
template <class U>
HWY_INLINE bfloat16x8_t Bf16Bits(U pairs) {
  return vreinterpretq_bf16_u32(pairs.raw);
}
// sum += in each lane the products of a pair of bf16 of w and of lane `lane` of x. The pair's products are added first; every step rounds
// to odd and subnormals are zeros (BFDotAdd).
template <class F, class U>
HWY_INLINE F BfdotLane(F sum, U w, U x, int lane) {
  switch (lane) {
    case 0: return F(vbfdotq_laneq_f32(sum.raw, Bf16Bits(w), Bf16Bits(x), 0));
    case 1: return F(vbfdotq_laneq_f32(sum.raw, Bf16Bits(w), Bf16Bits(x), 1));
    case 2: return F(vbfdotq_laneq_f32(sum.raw, Bf16Bits(w), Bf16Bits(x), 2));
    default: return F(vbfdotq_laneq_f32(sum.raw, Bf16Bits(w), Bf16Bits(x), 3));
  }
}
template <class F, class U>
HWY_INLINE F Bfdot(F sum, U w, U x) {
  return F(vbfdotq_f32(sum.raw, Bf16Bits(w), Bf16Bits(x)));
}
// Lane 2i + j of sum += the products of half i of x, two pairs of bf16, and half j of w: those of one BFDOT after the other.
template <class F, class U>
HWY_INLINE F Bfmmla(F sum, U x, U w) {
  return F(vbfmmlaq_f32(sum.raw, Bf16Bits(x), Bf16Bits(w)));
}
#pragma GCC pop_options

}  // namespace HWY_NAMESPACE
}  // namespace tally

#endif  // TALLY_ARM

#endif  // include guard
