// SPDX-License-Identifier: Apache-2.0
// F32 weights. Panel: [K][16] f32.
#ifndef TALLY_FORMATS_F32_H_
#define TALLY_FORMATS_F32_H_

#include "engine/base/float16.h"
#include "engine/kernels/formats/plain.h"

namespace tally {

struct FormatF32 {
  using Bits = float;
  static constexpr DType kType = DType::kF32;
  static constexpr ActKind kAct = ActKind::kF32;
  static float ToF32(float x) { return x; }
  static float FromF32(float x) { return x; }
};

}  // namespace tally

#endif  // TALLY_FORMATS_F32_H_

#ifdef HWY_TARGET_INCLUDE
#include "engine/kernels/formats/vectors-inl.h"

#if defined(TALLY_FORMATS_F32_VECTORS) == defined(HWY_TARGET_TOGGLE)
#ifdef TALLY_FORMATS_F32_VECTORS
#undef TALLY_FORMATS_F32_VECTORS
#else
#define TALLY_FORMATS_F32_VECTORS
#endif

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {

struct VectorF32 : FormatF32 {
  static constexpr int kStepK = 1;
  static HWY_INLINE void Widen(const uint8_t* step, int v, VF (&w)[kStepK]) {
    w[0] = hn::LoadU(DF(), reinterpret_cast<const float*>(step) + kLanes * v);
  }
  template <class D, class V>
  static HWY_INLINE V WidenColumns(D, V x) {
    return x;
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#endif  // toggle
#endif  // HWY_TARGET_INCLUDE
