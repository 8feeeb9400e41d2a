// SPDX-License-Identifier: Apache-2.0
// KV formats whose products are of f32: f32 and f16.
//
// A head's share of a block: keys [C / 16][Kp][16] (C = kKvBlock; the last index is the position within its group of 16), then
// values [C][Vp]. Kp and Vp are k_dim and v_dim rounded up to 16. The padding is never written and does not affect results.
#ifndef TALLY_KERNELS_KV_STORE_KV_PLAIN_INL_H_ONCE
#define TALLY_KERNELS_KV_STORE_KV_PLAIN_INL_H_ONCE

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "engine/base/float16.h"
#include "engine/kernels/kv_store/kv_layout.h"

namespace tally {

// `Number`: the stored type of an element and its conversions from and to float.
template <class Number>
struct KvPlain {
  using Stored = typename Number::Stored;
  static constexpr size_t kBytes = sizeof(Stored);

  static size_t HeadBytes(const KvLayout& l) { return kKvBlock * (KvPadded(l.k_dim) + KvPadded(l.v_dim)) * kBytes; }
  static size_t KeyBytes(const KvLayout& l) { return l.k_dim * kBytes; }
  static size_t ValueBytes(const KvLayout& l) { return l.v_dim * kBytes; }
  static size_t PaddedValueBytes(const KvLayout& l) { return KvPadded(l.v_dim) * kBytes; }

  // Byte offset in the share of element d of the key or value at position `lane`.
  static size_t KeyAt(const KvLayout& l, int64_t lane, int64_t d) {
    return static_cast<size_t>((lane / 16 * KvPadded(l.k_dim) + d) * 16 + lane % 16) * kBytes;
  }
  static size_t ValueAt(const KvLayout& l, int64_t lane, int64_t d) {
    return static_cast<size_t>(kKvBlock * KvPadded(l.k_dim) + lane * KvPadded(l.v_dim) + d) * kBytes;
  }

  static float Key(const KvLayout& l, const uint8_t* share, int64_t lane, int64_t d) { return Load(share + KeyAt(l, lane, d)); }
  static float Value(const KvLayout& l, const uint8_t* share, int64_t lane, int64_t d) {
    return Load(share + ValueAt(l, lane, d));
  }
  static void Store(const KvLayout& l, uint8_t* share, int64_t lane, const float* k, const float* v) {
    for (int64_t d = 0; d < l.k_dim; ++d) Put(share + KeyAt(l, lane, d), Number::Narrow(k[d]));
    for (int64_t d = 0; d < l.v_dim; ++d) Put(share + ValueAt(l, lane, d), Number::Narrow(v[d]));
  }

  static Stored Narrow(float x) { return Number::Narrow(x); }
  static void Put(uint8_t* at, Stored x) { std::memcpy(at, &x, kBytes); }
  static float Load(const uint8_t* at) {
    Stored x;
    std::memcpy(&x, at, kBytes);
    return Number::Widen(x);
  }
};

struct KvNumberF32 {
  using Stored = float;
  static float Widen(float x) { return x; }
  static float Narrow(float x) { return x; }
};
struct KvNumberF16 {
  using Stored = uint16_t;
  static float Widen(uint16_t x) { return F16ToF32(x); }
  static uint16_t Narrow(float x) { return F32ToF16(x); }  // to nearest even
};
struct KvNumberBF16 {
  using Stored = uint16_t;
  static float Widen(uint16_t x) { return BF16ToF32(x); }
  static uint16_t Narrow(float x) { return F32ToBF16(x); }  // to nearest even
};
using KvF32 = KvPlain<KvNumberF32>;
using KvF16 = KvPlain<KvNumberF16>;

}  // namespace tally

#endif  // TALLY_KERNELS_KV_STORE_KV_PLAIN_INL_H_ONCE

#if defined(HWY_TARGET_INCLUDE)
#if defined(TALLY_KERNELS_KV_STORE_KV_PLAIN_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TALLY_KERNELS_KV_STORE_KV_PLAIN_INL_H
#undef TALLY_KERNELS_KV_STORE_KV_PLAIN_INL_H
#else
#define TALLY_KERNELS_KV_STORE_KV_PLAIN_INL_H
#endif

#include "engine/kernels/kv_store/kv_vectors-inl.h"
#include "engine/kernels/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// f32 [n] to T, n <= 16. `out` has room for 16; elements beyond n are unspecified.
template <class T>
HWY_INLINE void NarrowUpTo16(const float* x, int64_t n, uint16_t* out) {
  if constexpr (std::is_same_v<T, hwy::bfloat16_t>) {
    for (int64_t i = 0; i < n; ++i) out[i] = F32ToBF16(x[i]);
    return;
  }
  const hn::Rebind<hwy::float16_t, KvFloats> d16;
  const hn::RebindToUnsigned<decltype(d16)> du16;
  float padded[16] = {};
  if (n < 16) {
    std::memcpy(padded, x, static_cast<size_t>(n) * sizeof(float));
    x = padded;
  }
  for (size_t i = 0; i < 16; i += hn::Lanes(kKvFloats)) {
    hn::StoreU(hn::BitCast(du16, hn::DemoteTo(d16, hn::LoadU(kKvFloats, x + i))), du16, out + i);
  }
}

// `runs` runs of n elements, n a multiple of 16, each `from` elements after the last; as f32, each `to` elements after the last.
template <class T>
HWY_INLINE void WidenRuns(const T* x, int64_t runs, int64_t from, int64_t n, float* out, int64_t to) {
  for (int64_t r = 0; r < runs; ++r, x += from, out += to) {
    for (int64_t i = 0; i < n; i += 16) {
      HWY_UNROLL(16) for (int j = 0; j < 16; j += kKvLanes) hn::StoreU(Widen(x + i + j), kKvFloats, out + i + j);
    }
  }
}

// Whether a load can widen f16. Else they are widened once for all queries.
constexpr bool kLoadWidensF16 = !(HWY_ARCH_X86 && HWY_TARGET > HWY_AVX2);

// Format: KvF32 or KvF16; T: the element as Highway knows it.
template <class Format, class T>
struct KvPlainVectors {
  static constexpr bool kIsF32 = std::is_same_v<T, float>;
  static constexpr bool kDirectKeys = kIsF32 || kLoadWidensF16, kDirectValues = kDirectKeys;
  using KeyProducts = KvSingles<std::conditional_t<kDirectKeys, T, float>>;
  using ValueProducts = KeyProducts;

  static size_t KeyAt(const KvLayout& l, int64_t lane) { return Format::KeyAt(l, lane, 0); }
  static size_t ValueAt(const KvLayout& l, int64_t lane) { return Format::ValueAt(l, lane, 0); }
  static const T* Keys(const KvLayout& l, const uint8_t* share, int64_t lane) {
    return reinterpret_cast<const T*>(share + KeyAt(l, lane));
  }
  static const T* Values(const KvLayout& l, const uint8_t* share, int64_t lane) {
    return reinterpret_cast<const T*>(share + ValueAt(l, lane));
  }
  static HWY_INLINE void UnpackKeys(const KvLayout& l, const uint8_t* share, int64_t lane, int64_t groups, float* out) {
    const int64_t group = KvPadded(l.k_dim) * 16;
    WidenRuns(Keys(l, share, lane), groups, group, l.k_dim * 16, out, group);
  }
  static HWY_INLINE void UnpackValues(const KvLayout& l, const uint8_t* share, int64_t lane, int64_t groups, float* out) {
    const int64_t padded = KvPadded(l.v_dim);
    WidenRuns(Values(l, share, lane), 16 * groups, padded, padded, out, padded);
  }
  static HWY_INLINE void Store(const KvLayout& l, uint8_t* share, int64_t lane, const float* k, const float* v) {
    uint8_t *key = share + Format::KeyAt(l, lane, 0), *value = share + Format::ValueAt(l, lane, 0);
    if constexpr (kIsF32) {
      for (int64_t d = 0; d < l.k_dim; ++d) Format::Put(key + d * 16 * sizeof(T), k[d]);
      std::memcpy(value, v, static_cast<size_t>(l.v_dim) * sizeof(T));
    } else {
      uint16_t narrow[16];
      for (int64_t d = 0; d < l.k_dim; d += 16) {
        const int64_t n = std::min<int64_t>(16, l.k_dim - d);
        NarrowUpTo16<T>(k + d, n, narrow);
        for (int64_t i = 0; i < n; ++i) Format::Put(key + (d + i) * 16 * sizeof(T), narrow[i]);
      }
      for (int64_t d = 0; d < l.v_dim; d += 16) {
        const int64_t n = std::min<int64_t>(16, l.v_dim - d);
        NarrowUpTo16<T>(v + d, n, narrow);
        std::memcpy(value + d * sizeof(T), narrow, static_cast<size_t>(n) * sizeof(T));
      }
    }
  }
};

template <>
struct KvVectors<KvF32> : KvPlainVectors<KvF32, float> {};
template <>
struct KvVectors<KvF16> : KvPlainVectors<KvF16, hwy::float16_t> {};

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#endif  // toggle
#endif  // HWY_TARGET_INCLUDE
