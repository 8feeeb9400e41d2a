// SPDX-License-Identifier: Apache-2.0
// The interface of a KV format to the Highway kernels: the arithmetic of its products, and a specialisation of KvVectors.
#ifndef TALLY_KERNELS_KV_STORE_KV_VECTORS_INL_H_ONCE
#define TALLY_KERNELS_KV_STORE_KV_VECTORS_INL_H_ONCE

#include <bit>
#include <cstdint>

#include "engine/base/float16.h"

namespace tally {

// Two bf16 of a u32: the first is in the low half.
inline uint32_t KvPairOf(uint16_t first, uint16_t second) { return first | static_cast<uint32_t>(second) << 16; }

}  // namespace tally

#endif  // TALLY_KERNELS_KV_STORE_KV_VECTORS_INL_H_ONCE

#if defined(TALLY_KERNELS_KV_STORE_KV_VECTORS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TALLY_KERNELS_KV_STORE_KV_VECTORS_INL_H
#undef TALLY_KERNELS_KV_STORE_KV_VECTORS_INL_H
#else
#define TALLY_KERNELS_KV_STORE_KV_VECTORS_INL_H
#endif

#include "engine/kernels/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using KvFloats = hn::CappedTag<float, 16>;
using KvVec = hn::Vec<KvFloats>;
constexpr KvFloats kKvFloats;
constexpr int kKvLanes = static_cast<int>(hn::MaxLanes(KvFloats()));
using KvWords = hn::RebindToUnsigned<KvFloats>;
constexpr KvWords kKvWords;

HWY_INLINE KvVec Widen(const float* x) { return hn::LoadU(kKvFloats, x); }
HWY_INLINE KvVec Widen(const hwy::float16_t* x) {
  const hn::Rebind<uint16_t, KvFloats> d16;
  return WidenF16(kKvFloats, hn::LoadU(d16, reinterpret_cast<const uint16_t*>(x)));
}
HWY_INLINE KvVec Widen(const hwy::bfloat16_t* x) {
  const hn::Rebind<uint16_t, KvFloats> d16;
  return hn::BitCast(kKvFloats, hn::ShiftLeft<16>(hn::PromoteTo(kKvWords, hn::LoadU(d16, reinterpret_cast<const uint16_t*>(x)))));
}
HWY_INLINE hn::Vec<hn::Rebind<hwy::bfloat16_t, KvFloats>> NarrowToBF16(KvVec x) {
  return hn::DemoteTo(hn::Rebind<hwy::bfloat16_t, KvFloats>(), x);
}

// Arithmetic of products. A step is what one multiply-add takes of each of 16 lanes: an element, or two neighbours. Lanes are
// positions (of keys, whose steps go over d) or dimensions (of values, whose steps go over positions).
//   Stored        a lane's part of a step, stored or unpacked
//   Factor        what all lanes are multiplied by: a step of a query, or of probabilities
//   kElements     of a step
//   Load          a step of kKvLanes lanes
//   Add           sum + step * factor
//   Make          the factor of two elements, or of the first of them
//   StoreFactors  kKvLanes elements as factors; `out`: the factor of the first one

// f32: sum = fma(step, factor, sum)
template <class T>
struct KvSingles {
  using Stored = T;  // float, hwy::float16_t
  using Factor = float;
  static constexpr int kElements = 1;
  static HWY_INLINE KvVec Load(const T* x) { return Widen(x); }
  static HWY_INLINE KvVec Add(KvVec x, const float* factor, KvVec sum) { return hn::MulAdd(x, hn::Set(kKvFloats, *factor), sum); }
  static HWY_INLINE float Make(float x, float) { return x; }
  static HWY_INLINE void StoreFactors(KvVec x, float* out) { hn::StoreU(x, kKvFloats, out); }
};

// bf16 in pairs: the target's dot product, or else sum = fma(second, factor.second, fma(first, factor.first, sum)), widened.
struct KvPairs {
  using Stored = uint32_t;
  static constexpr int kElements = 2;
#if HWY_NATIVE_DOT_BF16
  using Factor = uint32_t;
  static HWY_INLINE hn::Vec<KvWords> Load(const uint32_t* x) { return hn::LoadU(kKvWords, x); }
  static HWY_INLINE KvVec Add(hn::Vec<KvWords> x, const uint32_t* factor, KvVec sum) {
    const hn::Repartition<hwy::bfloat16_t, KvFloats> d16;
    KvVec unused = hn::Zero(kKvFloats);
    return hn::ReorderWidenMulAccumulate(kKvFloats, hn::BitCast(d16, x), hn::BitCast(d16, hn::Set(kKvWords, *factor)), sum,
                                         unused);
  }
  static HWY_INLINE uint32_t Make(float first, float second) { return KvPairOf(F32ToBF16(first), F32ToBF16(second)); }
  static HWY_INLINE void StoreFactors(KvVec x, uint32_t* out) {
    hn::StoreU(NarrowToBF16(x), hn::Rebind<hwy::bfloat16_t, KvFloats>(), reinterpret_cast<hwy::bfloat16_t*>(out));
  }
#else
  struct Factor {
    float first, second;
  };
  struct Step {
    KvVec first, second;
  };
  static HWY_INLINE Step Load(const uint32_t* x) {
    const hn::Vec<KvWords> pairs = hn::LoadU(kKvWords, x);
    return {hn::BitCast(kKvFloats, hn::ShiftLeft<16>(pairs)),
            hn::BitCast(kKvFloats, hn::And(pairs, hn::Set(kKvWords, 0xffff0000u)))};
  }
  static HWY_INLINE KvVec Add(const Step& x, const Factor* factor, KvVec sum) {
    sum = hn::MulAdd(x.first, hn::Set(kKvFloats, factor->first), sum);
    return hn::MulAdd(x.second, hn::Set(kKvFloats, factor->second), sum);
  }
  static HWY_INLINE Factor Make(float first, float second) { return {BF16ToF32(F32ToBF16(first)), BF16ToF32(F32ToBF16(second))}; }
  static HWY_INLINE void StoreFactors(KvVec x, Factor* out) {
    hn::StoreU(hn::PromoteTo(kKvFloats, NarrowToBF16(x)), kKvFloats, &out->first);
  }
#endif
};

// Members. They take a head's share and the first position `lane`; where groups are of 16 positions, a multiple of 16.
//   KeyProducts, ValueProducts   the arithmetic
//   kDirectKeys, kDirectValues   register tiles read them as stored; else they are unpacked first
//   Keys                         kDirectKeys: groups [steps of d][16]
//   Values                       kDirectValues: rows [Vp], one for each step of positions
//   UnpackKeys, UnpackValues     not kDirect: the same, of a number of groups
//   KeyAt, ValueAt               byte offset in the share of a position's key or value, for prefetching
//   Store                        as in the format's scalar struct
template <class Format>
struct KvVectors;

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#endif  // TALLY_KERNELS_KV_STORE_KV_VECTORS_INL_H
