// SPDX-License-Identifier: Apache-2.0
// Per-target building blocks of formats: vectors of output rows, and members shared by formats with one scale per block.
//
// A quantised format's Vector<NAME> is the interface to the kernels (int8-inl.h, float-inl.h, embed-inl.h). `p` (a Cursor) is a
// block of a panel, `v` a vector of its rows:
//   Word(p, i, v)              scale word i of kScaleWords as f32 bits. 0: the f32 scale. 1, 2: the i32 scales of the two halves if
//                              kInt8.sums is 2. Last, if kInt8.minima: the f32 minima of the `sums` parts
//   Steps(p, c, v, lo, hi)     pair c of the block's eight steps of 4 k (StepOf), as unsigned integers
//   Widen(bytes, panel, out)   a block as stored, or a panel row, to f32
//   kWide                      true: the integers have 8 bits, too wide for sums in 16 bits
//   kByteSteps                 true: pairs are neighbouring steps (StepOf)
//   kPieces                    parts of a block whose products are summed in 16 bits: kInt8.sums, or 2 if 16 products do not fit
// and Cursor, At and kScaleBits as in OneScale.
#include "hwy/highway.h"

#if defined(TALLY_FORMATS_VECTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TALLY_FORMATS_VECTORS_INL_H_
#undef TALLY_FORMATS_VECTORS_INL_H_
#else
#define TALLY_FORMATS_VECTORS_INL_H_
#endif

#include <cstring>

#include "engine/kernels/formats/panel_row.h"
#include "engine/kernels/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Lanes are output rows: a panel of 16 rows is kPanelVecs vectors.
using DF = hn::CappedTag<float, kPanelRows>;
using DI = hn::RebindToSigned<DF>;
using DU = hn::RebindToUnsigned<DF>;
using DU8 = hn::Repartition<uint8_t, DF>;
using DI8 = hn::Repartition<int8_t, DF>;
using DI16 = hn::Repartition<int16_t, DF>;
using VF = hn::Vec<DF>;
using VI = hn::Vec<DI>;
using VU = hn::Vec<DU>;
using VU8 = hn::Vec<DU8>;

inline constexpr int kLanes = static_cast<int>(HWY_MAX_LANES_D(DF));
inline constexpr int kPanelVecs = kPanelRows / kLanes;
inline constexpr int kVecBytes = 4 * kLanes;

HWY_INLINE VI Broadcast4(const uint8_t* p) {
  int32_t v;
  std::memcpy(&v, p, sizeof(v));
  return hn::Set(DI(), v);
}

// Vector v of the 16 f16 scales at p.
HWY_INLINE VF F16Scales(const uint8_t* p, int v) {
  const hn::Rebind<uint16_t, DF> d16;
  return WidenF16(DF(), hn::LoadU(d16, reinterpret_cast<const uint16_t*>(p + 2 * kLanes * v)));
}

// out[i] = scale * (half * q[i]), or scale * q[i] without `half`, for 32 int8 q in `quants`.
template <class... Half>
HWY_INLINE void ScaleColumns(float scale, const uint8_t* quants, float* HWY_RESTRICT out, Half... half) {
  const hn::CappedTag<float, 32> d;
  const hn::Rebind<int8_t, decltype(d)> di8;
  const hn::RebindToSigned<decltype(d)> di32;
  for (size_t i = 0; i < 32; i += hn::Lanes(d)) {
    auto v = hn::ConvertTo(d, hn::PromoteTo(di32, hn::LoadU(di8, reinterpret_cast<const int8_t*>(quants) + i)));
    ((v = hn::Mul(hn::Set(d, half), v)), ...);
    hn::StoreU(hn::Mul(hn::Set(d, scale), v), d, out + i);
  }
}

template <class F>
struct OneScale {
  static constexpr int kBlockBytes = static_cast<int>(kPanelBlockBytes<F>), kPieces = F::kInt8.sums;

  // A block of 32 k of a panel. `p`: its first byte. Begin is called before a block is read, Next after it.
  struct Cursor {
    const uint8_t* p;
    HWY_INLINE void Begin() {}
    HWY_INLINE void Next() { p += kBlockBytes; }
    HWY_INLINE operator const uint8_t*() const { return p; }
  };
  static HWY_INLINE Cursor At(const uint8_t* panel, int64_t block) { return {panel + block * kBlockBytes}; }

  // A scale has at most so many significant bits, and the product of a finite one with 2^16 is finite.
  static constexpr int kScaleBits = 11;
};

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#endif  // include guard
