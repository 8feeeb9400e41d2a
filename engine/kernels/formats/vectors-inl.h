// Per-target pieces that formats are written in: vectors of output rows, and what formats with one scale a block have in common.
//
// A quantised format's Vector<NAME> gives the kernels (int8-inl.h, float-inl.h, embed-inl.h), for block `p` (a Cursor) of a panel and
// vector `v` of its rows:
//   Word(p, i, v)                     number i of kScaleWords as f32 bits: 0 the f32 scale; 1, 2 the i32 scales of each half where
//                                     kInt8.sums is 2; others as the format likes
//   Steps(p, c, v, lo, hi)            pair c of the block's eight steps of 4 k (StepOf), as unsigned integers
//   Widen(bytes, panel, out)          a block as stored, or a panel row, to f32
//   kWide                             its integers have 8 bits: too wide for sums in 16 bits
// and Cursor, At, Value, Start and Accumulate as OneScale has them.
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

// 16 f16 scales at p, vector v of them.
HWY_INLINE VF F16Scales(const uint8_t* p, int v) {
  const hn::Rebind<uint16_t, DF> d16;
  return WidenF16(DF(), hn::LoadU(d16, reinterpret_cast<const uint16_t*>(p + 2 * kLanes * v)));
}

// out[i] = scale * (half * q[i]), i < 32, of int8 bits; without `half` scale * q[i].
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
  static constexpr int kBlockBytes = static_cast<int>(kPanelBlockBytes<F>);

  // A block of 32 k of a panel. `p` is where its bytes begin.
  struct Cursor {
    const uint8_t* p;
    HWY_INLINE void Next() { p += kBlockBytes; }
    HWY_INLINE operator const uint8_t*() const { return p; }
  };
  static HWY_INLINE Cursor At(const uint8_t* panel, int64_t block) { return {panel + block * kBlockBytes}; }

  // The weights of integers q in half h of a block, `scale` being Word 0; and what that takes.
  static constexpr int kValueFlops = 1;
  template <class Src>
  static HWY_INLINE VF Value(const Src&, int, int, VF scale, VI q) {
    return hn::Mul(scale, hn::ConvertTo(DF(), q));
  }
  // What a sum of products starts at: the corrections. Of a format with minima zero.
  static HWY_INLINE VI Start(const uint8_t* corrections) { return Broadcast4(corrections); }
  // acc and a block's products, `sum`, times its scale and the activations'. A format with minima subtracts them times the sums that
  // stand at `corrections`, `step` bytes apart.
  template <class Src>
  static HWY_INLINE VF Accumulate(const Src&, int, VF scale, VI sum, VF x_scale, const uint8_t*, size_t, VF acc) {
    return hn::MulAdd(hn::ConvertTo(DF(), sum), hn::Mul(scale, x_scale), acc);
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#endif  // include guard
