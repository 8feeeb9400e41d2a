// SPDX-License-Identifier: Apache-2.0
// KV formats of latent attention: a value is the first v_dim elements of its key, and is not stored again. f32, f16 and bf16.
//
// A head's share of a block: keys [C][Kp] (C = kKvBlock; Kp is k_dim rounded up to 16). The padding is never written and does not
// affect results.
#ifndef TALLY_KERNELS_KV_STORE_KV_SHARED_INL_H_ONCE
#define TALLY_KERNELS_KV_STORE_KV_SHARED_INL_H_ONCE

#include "engine/kernels/kv_store/kv_plain-inl.h"

namespace tally {

// `Plain`: the format of which it has the elements.
template <class Plain>
struct KvShared {
  static constexpr size_t kBytes = Plain::kBytes;

  static size_t HeadBytes(const KvLayout& l) { return kKvBlock * KvPadded(l.k_dim) * kBytes; }
  static size_t KeyBytes(const KvLayout& l) { return l.k_dim * kBytes; }
  static size_t ValueBytes(const KvLayout&) { return 0; }
  static size_t PaddedValueBytes(const KvLayout&) { return 0; }
  static size_t KeyAt(const KvLayout& l, int64_t lane, int64_t d) {
    return static_cast<size_t>(lane * KvPadded(l.k_dim) + d) * kBytes;
  }

  static float Key(const KvLayout& l, const uint8_t* share, int64_t lane, int64_t d) {
    return Plain::Load(share + KeyAt(l, lane, d));
  }
  static float Value(const KvLayout& l, const uint8_t* share, int64_t lane, int64_t d) { return Key(l, share, lane, d); }
  static void Store(const KvLayout& l, uint8_t* share, int64_t lane, const float* k, const float*) {
    for (int64_t d = 0; d < l.k_dim; ++d) Plain::Put(share + KeyAt(l, lane, d), Plain::Narrow(k[d]));
  }
};
using KvSharedF32 = KvShared<KvF32>;
using KvSharedF16 = KvShared<KvF16>;
using KvSharedBF16 = KvShared<KvPlain<KvNumberBF16>>;

}  // namespace tally

#endif  // TALLY_KERNELS_KV_STORE_KV_SHARED_INL_H_ONCE

#if defined(HWY_TARGET_INCLUDE)
#if defined(TALLY_KERNELS_KV_STORE_KV_SHARED_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TALLY_KERNELS_KV_STORE_KV_SHARED_INL_H
#undef TALLY_KERNELS_KV_STORE_KV_SHARED_INL_H
#else
#define TALLY_KERNELS_KV_STORE_KV_SHARED_INL_H
#endif

#include "engine/kernels/kv_store/kv_plain-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Four elements of rows `row`, `row` + 4, .. of [16][16], a row for each 128-bit block of a vector.
template <class D>
HWY_INLINE hn::Vec<D> LoadRows(D d, const float* row) {
  if constexpr (hn::MaxLanes(d) <= 4) {
    return hn::LoadU(d, row);
  } else {
    const hn::Half<D> dh;
    return hn::Combine(d, LoadRows(dh, row + hn::MaxLanes(dh) * 16), LoadRows(dh, row));
  }
}

// out[j][i] = in[i][j] of [16][16].
HWY_INLINE void Transpose16(const float* in, float* out) {
  for (int j = 0; j < 16; j += 4) {
    HWY_UNROLL(4) for (int i = 0; i < 16; i += kKvLanes) {
      const float* at = in + i * 16 + j;
      const KvVec a = LoadRows(kKvFloats, at), b = LoadRows(kKvFloats, at + 16), c = LoadRows(kKvFloats, at + 32),
                  e = LoadRows(kKvFloats, at + 48);
      const KvVec ac0 = hn::InterleaveLower(kKvFloats, a, c), ac1 = hn::InterleaveUpper(kKvFloats, a, c);
      const KvVec be0 = hn::InterleaveLower(kKvFloats, b, e), be1 = hn::InterleaveUpper(kKvFloats, b, e);
      hn::StoreU(hn::InterleaveLower(kKvFloats, ac0, be0), kKvFloats, out + (j + 0) * 16 + i);
      hn::StoreU(hn::InterleaveUpper(kKvFloats, ac0, be0), kKvFloats, out + (j + 1) * 16 + i);
      hn::StoreU(hn::InterleaveLower(kKvFloats, ac1, be1), kKvFloats, out + (j + 2) * 16 + i);
      hn::StoreU(hn::InterleaveUpper(kKvFloats, ac1, be1), kKvFloats, out + (j + 3) * 16 + i);
    }
  }
}

// Stores a row of T.
template <class Format, class T>
HWY_INLINE void StoreSharedRow(const KvLayout& l, uint8_t* share, int64_t lane, const float* k) {
  uint8_t* key = share + Format::KeyAt(l, lane, 0);
  if constexpr (std::is_same_v<T, float>) {
    std::memcpy(key, k, static_cast<size_t>(l.k_dim) * sizeof(T));
  } else {
    uint16_t narrow[16];
    for (int64_t d = 0; d < l.k_dim; d += 16) {
      const int64_t n = std::min<int64_t>(16, l.k_dim - d);
      NarrowUpTo16<T>(k + d, n, narrow);
      std::memcpy(key + d * sizeof(T), narrow, static_cast<size_t>(n) * sizeof(T));
    }
  }
}

// Format: KvSharedF32 or KvSharedF16; T: the element as Highway knows it.
template <class Format, class T>
struct KvSharedVectors {
  using KeyProducts = KvSingles<float>;
  using ValueProducts = KvSingles<float>;
  static constexpr bool kDirectKeys = false, kDirectValues = false;

  static size_t KeyAt(const KvLayout& l, int64_t lane) { return Format::KeyAt(l, lane, 0); }
  static size_t ValueAt(const KvLayout& l, int64_t lane) { return KeyAt(l, lane); }
  static HWY_INLINE void UnpackKeys(const KvLayout& l, const uint8_t* share, int64_t lane, int64_t groups, float* out) {
    const int64_t padded = KvPadded(l.k_dim);
    float rows[16 * 16];
    for (int64_t g = 0; g < groups; ++g) {
      const T* x = Row(l, share, lane + 16 * g);
      for (int64_t d = 0; d < padded; d += 16) {
        WidenRuns(x + d, 16, padded, 16, rows, 16);
        Transpose16(rows, out + (g * padded + d) * 16);
      }
    }
  }
  static HWY_INLINE void UnpackValues(const KvLayout& l, const uint8_t* share, int64_t lane, int64_t groups, float* out) {
    const int64_t padded = KvPadded(l.v_dim);
    WidenRuns(Row(l, share, lane), 16 * groups, KvPadded(l.k_dim), padded, out, padded);
  }
  static HWY_INLINE void Store(const KvLayout& l, uint8_t* share, int64_t lane, const float* k, const float*) {
    StoreSharedRow<Format, T>(l, share, lane, k);
  }

 private:
  static const T* Row(const KvLayout& l, const uint8_t* share, int64_t lane) {
    return reinterpret_cast<const T*>(share + KeyAt(l, lane));
  }
};

template <>
struct KvVectors<KvSharedF32> : KvSharedVectors<KvSharedF32, float> {};
template <>
struct KvVectors<KvSharedF16> : KvSharedVectors<KvSharedF16, hwy::float16_t> {};

template <>
struct KvVectors<KvSharedBF16> {
  using KeyProducts = KvPairs;
  using ValueProducts = KvPairs;
  static constexpr bool kDirectKeys = false, kDirectValues = false;

  static size_t KeyAt(const KvLayout& l, int64_t lane) { return KvSharedBF16::KeyAt(l, lane, 0); }
  static size_t ValueAt(const KvLayout& l, int64_t lane) { return KeyAt(l, lane); }
  // A row is already pairs of d: they are transposed as if they were floats. The padding's columns are not used, but for the other
  // half of an odd k_dim's last pair, which is made zero.
  static HWY_INLINE void UnpackKeys(const KvLayout& l, const uint8_t* share, int64_t lane, int64_t groups, uint32_t* out) {
    const int64_t pairs = KvPadded(l.k_dim) / 2;
    float rows[16 * 16] = {}, columns[16 * 16];
    for (int64_t g = 0; g < groups; ++g, out += pairs * 16) {
      for (int64_t p = 0; p < pairs; p += 16) {
        const size_t n = static_cast<size_t>(std::min<int64_t>(16, pairs - p)) * sizeof(float);
        for (int64_t i = 0; i < 16; ++i) std::memcpy(rows + 16 * i, share + KeyAt(l, lane + 16 * g + i) + p * sizeof(float), n);
        Transpose16(rows, columns);
        std::memcpy(out + p * 16, columns, n * 16);
      }
      if (l.k_dim % 2 != 0) {
        for (int64_t i = 0; i < 16; ++i) out[l.k_dim / 2 * 16 + i] &= 0xffffu;
      }
    }
  }
  static HWY_INLINE void UnpackValues(const KvLayout& l, const uint8_t* share, int64_t lane, int64_t groups, uint32_t* out) {
    const hn::Rebind<uint16_t, KvFloats> d16;
    const int64_t padded = KvPadded(l.v_dim);
    for (int64_t n = 0; n < 16 * groups; n += 2, out += padded) {
      const uint16_t* a = reinterpret_cast<const uint16_t*>(share + KeyAt(l, lane + n));
      const uint16_t* b = reinterpret_cast<const uint16_t*>(share + KeyAt(l, lane + n + 1));
      for (int64_t d = 0; d < padded; d += kKvLanes) {
        const auto first = hn::PromoteTo(kKvWords, hn::LoadU(d16, a + d)),
                   second = hn::PromoteTo(kKvWords, hn::LoadU(d16, b + d));
        hn::StoreU(hn::Or(first, hn::ShiftLeft<16>(second)), kKvWords, out + d);
      }
    }
  }
  static HWY_INLINE void Store(const KvLayout& l, uint8_t* share, int64_t lane, const float* k, const float*) {
    StoreSharedRow<KvSharedBF16, hwy::bfloat16_t>(l, share, lane, k);
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#endif  // toggle
#endif  // HWY_TARGET_INCLUDE
