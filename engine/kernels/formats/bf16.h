// SPDX-License-Identifier: Apache-2.0
// BF16 weights. Panel: [ceil(K/2)][16][2] bf16, an odd K zero-padded.
#ifndef TALLY_FORMATS_BF16_H_
#define TALLY_FORMATS_BF16_H_

#include "engine/base/float16.h"
#include "engine/kernels/formats/plain.h"

namespace tally {

struct FormatBF16 {
  using Bits = uint16_t;
  static constexpr DType kType = DType::kBF16;
  static constexpr ActKind kAct = ActKind::kBF16;
  static float ToF32(uint16_t bits) { return BF16ToF32(bits); }
  static uint16_t FromF32(float x) { return F32ToBF16(x); }
};

}  // namespace tally

#endif  // TALLY_FORMATS_BF16_H_

#ifdef HWY_TARGET_INCLUDE
#include "engine/kernels/formats/vectors-inl.h"

#if defined(TALLY_FORMATS_BF16_VECTORS) == defined(HWY_TARGET_TOGGLE)
#ifdef TALLY_FORMATS_BF16_VECTORS
#undef TALLY_FORMATS_BF16_VECTORS
#else
#define TALLY_FORMATS_BF16_VECTORS
#endif

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {

HWY_INLINE VF LowBF16(VU pairs) { return hn::BitCast(DF(), hn::ShiftLeft<16>(pairs)); }
HWY_INLINE VF HighBF16(VU pairs) { return hn::BitCast(DF(), hn::And(pairs, hn::Set(DU(), 0xffff0000u))); }

// acc + w0 x0 + w1 x1 for a pair of k, by the target's dot product (vdpbf16ps: flushes subnormals, rounds twice, has its own
// order in the pair), else by two fused multiply-adds of the widened values.
HWY_INLINE VF DotPair(VU w, VU x, VF acc) {
#if HWY_NATIVE_DOT_BF16
  const hn::Repartition<hwy::bfloat16_t, DF> dbf;
  VF unused = hn::Zero(DF());
  return hn::ReorderWidenMulAccumulate(DF(), hn::BitCast(dbf, w), hn::BitCast(dbf, x), acc, unused);
#else
  acc = hn::MulAdd(LowBF16(w), LowBF16(x), acc);
  return hn::MulAdd(HighBF16(w), HighBF16(x), acc);
#endif
}

struct VectorBF16 : FormatBF16 {
  static constexpr int kStepK = 2;
  static HWY_INLINE void Widen(const uint8_t* step, int v, VF (&w)[kStepK]) {
    const VU pairs = hn::LoadU(DU(), reinterpret_cast<const uint32_t*>(step) + kLanes * v);
    w[0] = LowBF16(pairs);
    w[1] = HighBF16(pairs);
  }
  template <class D, class V>
  static HWY_INLINE hn::Vec<D> WidenColumns(D d, V bits) {
    const hn::RebindToUnsigned<D> du;
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, bits)));
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#endif  // toggle
#endif  // HWY_TARGET_INCLUDE
