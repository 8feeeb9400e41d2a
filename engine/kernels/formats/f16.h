// SPDX-License-Identifier: Apache-2.0
// F16 weights. Panel: [ceil(K/2)][16][2] f16, an odd K zero-padded.
#ifndef TALLY_FORMATS_F16_H_
#define TALLY_FORMATS_F16_H_

#include "engine/base/float16.h"
#include "engine/kernels/formats/plain.h"

namespace tally {

struct FormatF16 {
  using Bits = uint16_t;
  static constexpr DType kType = DType::kF16;
  static constexpr ActKind kAct = ActKind::kF32;
  static float ToF32(uint16_t bits) { return F16ToF32(bits); }
  static uint16_t FromF32(float x) { return F32ToF16(x); }
};

}  // namespace tally

#endif  // TALLY_FORMATS_F16_H_

#ifdef HWY_TARGET_INCLUDE
#include "engine/kernels/formats/vectors-inl.h"

#if defined(TALLY_FORMATS_F16_VECTORS) == defined(HWY_TARGET_TOGGLE)
#ifdef TALLY_FORMATS_F16_VECTORS
#undef TALLY_FORMATS_F16_VECTORS
#else
#define TALLY_FORMATS_F16_VECTORS
#endif

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {

struct VectorF16 : FormatF16 {
  static constexpr int kStepK = 2;
  static HWY_INLINE void Widen(const uint8_t* step, int v, VF (&w)[kStepK]) {
    const hn::Rebind<uint16_t, DF> du16;
    const VU pairs = hn::LoadU(DU(), reinterpret_cast<const uint32_t*>(step) + kLanes * v);
    w[0] = WidenF16(DF(), hn::TruncateTo(du16, pairs));
    w[1] = WidenF16(DF(), hn::TruncateTo(du16, hn::ShiftRight<16>(pairs)));
  }
  template <class D, class V>
  static HWY_INLINE hn::Vec<D> WidenColumns(D d, V bits) {
    return WidenF16(d, bits);
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#endif  // toggle
#endif  // HWY_TARGET_INCLUDE
