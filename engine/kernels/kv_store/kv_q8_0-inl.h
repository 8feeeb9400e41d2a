// KV formats of ggml's Q8_0: every 32 elements of a key or value are int8 integers with an f16 scale.
//
// KvQ8_0, a head's share of a block: for each group of 16 positions and each 32 elements of the keys, 16 f16 scales and then
// [32][16] int8 (the last index is the position); then the values as rows [C][Bv] of blocks (C = kKvBlock). A block of a row is an f16
// scale and 32 int8. KvSharedQ8_0 (latent attention: a value is the first v_dim elements of its key): keys as rows [C][Bk] of blocks.
// Bk and Bv are k_dim / 32 and v_dim / 32, rounded up. The padding is never written and does not affect results.
#ifndef TALLY_KERNELS_KV_STORE_KV_Q8_0_INL_H_ONCE
#define TALLY_KERNELS_KV_STORE_KV_Q8_0_INL_H_ONCE

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/base/float16.h"
#include "engine/kernels/kv_store/kv_layout.h"

namespace tally {

inline constexpr int64_t kKvQ8Block = 32, kKvQ8Bytes = 2 + kKvQ8Block;  // elements; bytes with the scale
constexpr int64_t KvQ8Blocks(int64_t dim) { return (dim + kKvQ8Block - 1) / kKvQ8Block; }

// Quantises n <= 32 elements: q = round_half_even(x * (127 / amax)), scale = amax / 127 as f16. An infinity or NaN makes the block NaN.
inline uint16_t KvQuantise(const float* x, int64_t n, int8_t* q) {
  float amax = 0, bad = 0;
  for (int64_t i = 0; i < n; ++i) amax = std::max(amax, std::fabs(x[i])), bad += x[i] - x[i];
  const bool finite = bad == 0;
  const float inverse = finite && amax > 0x1p-120f ? 127.0f / amax : 0.0f;
  for (int64_t i = 0; i < n; ++i) {
    const float scaled = finite ? x[i] * inverse : 0.0f;
    q[i] = static_cast<int8_t>(static_cast<int32_t>(scaled + 12582912.0f - 12582912.0f));  // |scaled| < 2^22
  }
  return finite ? F32ToF16(amax / 127.0f) : uint16_t{0x7e00};
}
inline float KvQ8Number(const uint8_t* scale, const uint8_t* q) {
  uint16_t bits;
  std::memcpy(&bits, scale, 2);
  return F16ToF32(bits) * static_cast<float>(static_cast<int8_t>(*q));
}

// Element d of a row of blocks; and a row of n elements stored.
inline float KvQ8RowNumber(const uint8_t* row, int64_t d) {
  const uint8_t* block = row + d / kKvQ8Block * kKvQ8Bytes;
  return KvQ8Number(block, block + 2 + d % kKvQ8Block);
}
inline void KvQ8StoreRow(const float* x, int64_t n, uint8_t* row) {
  for (int64_t d = 0; d < n; d += kKvQ8Block, row += kKvQ8Bytes) {
    const uint16_t scale = KvQuantise(x + d, std::min(kKvQ8Block, n - d), reinterpret_cast<int8_t*>(row + 2));
    std::memcpy(row, &scale, 2);
  }
}

struct KvQ8_0 {
  static constexpr int64_t kGroupBytes = 16 * kKvQ8Bytes;  // 16 positions x 32 elements

  static size_t HeadBytes(const KvLayout& l) {
    return static_cast<size_t>(kKvBlock * kKvQ8Bytes * (KvQ8Blocks(l.k_dim) + KvQ8Blocks(l.v_dim)));
  }
  static size_t KeyBytes(const KvLayout& l) { return static_cast<size_t>(l.k_dim + 2 * KvQ8Blocks(l.k_dim)); }
  static size_t ValueBytes(const KvLayout& l) { return static_cast<size_t>(l.v_dim + 2 * KvQ8Blocks(l.v_dim)); }
  static size_t PaddedValueBytes(const KvLayout& l) { return static_cast<size_t>(kKvQ8Bytes * KvQ8Blocks(l.v_dim)); }

  // Byte offset of the group of keys with position `lane` and element d, and of a value.
  static size_t GroupAt(const KvLayout& l, int64_t lane, int64_t d) {
    return static_cast<size_t>((lane / 16 * KvQ8Blocks(l.k_dim) + d / kKvQ8Block) * kGroupBytes);
  }
  static size_t ValueAt(const KvLayout& l, int64_t lane) {
    return static_cast<size_t>(kKvQ8Bytes * (kKvBlock * KvQ8Blocks(l.k_dim) + lane * KvQ8Blocks(l.v_dim)));
  }

  static float Key(const KvLayout& l, const uint8_t* share, int64_t lane, int64_t d) {
    const uint8_t* group = share + GroupAt(l, lane, d);
    return KvQ8Number(group + 2 * (lane % 16), group + 32 + d % kKvQ8Block * 16 + lane % 16);
  }
  static float Value(const KvLayout& l, const uint8_t* share, int64_t lane, int64_t d) {
    return KvQ8RowNumber(share + ValueAt(l, lane), d);
  }
  static void Store(const KvLayout& l, uint8_t* share, int64_t lane, const float* k, const float* v) {
    for (int64_t d = 0; d < l.k_dim; d += kKvQ8Block) {
      int8_t q[kKvQ8Block];
      const int64_t n = std::min(kKvQ8Block, l.k_dim - d);
      const uint16_t scale = KvQuantise(k + d, n, q);
      uint8_t* group = share + GroupAt(l, lane, d);
      std::memcpy(group + 2 * (lane % 16), &scale, 2);
      for (int64_t i = 0; i < n; ++i) group[32 + i * 16 + lane % 16] = static_cast<uint8_t>(q[i]);
    }
    KvQ8StoreRow(v, l.v_dim, share + ValueAt(l, lane));
  }
};

struct KvSharedQ8_0 {
  static size_t HeadBytes(const KvLayout& l) { return static_cast<size_t>(kKvBlock * kKvQ8Bytes * KvQ8Blocks(l.k_dim)); }
  static size_t KeyBytes(const KvLayout& l) { return KvQ8_0::KeyBytes(l); }
  static size_t ValueBytes(const KvLayout&) { return 0; }
  static size_t PaddedValueBytes(const KvLayout&) { return 0; }
  static size_t KeyAt(const KvLayout& l, int64_t lane) { return static_cast<size_t>(lane * kKvQ8Bytes * KvQ8Blocks(l.k_dim)); }

  static float Key(const KvLayout& l, const uint8_t* share, int64_t lane, int64_t d) {
    return KvQ8RowNumber(share + KeyAt(l, lane), d);
  }
  static float Value(const KvLayout& l, const uint8_t* share, int64_t lane, int64_t d) { return Key(l, share, lane, d); }
  static void Store(const KvLayout& l, uint8_t* share, int64_t lane, const float* k, const float*) {
    KvQ8StoreRow(k, l.k_dim, share + KeyAt(l, lane));
  }
};

}  // namespace tally

#endif  // TALLY_KERNELS_KV_STORE_KV_Q8_0_INL_H_ONCE

#if defined(HWY_TARGET_INCLUDE)
#if defined(TALLY_KERNELS_KV_STORE_KV_Q8_0_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TALLY_KERNELS_KV_STORE_KV_Q8_0_INL_H
#undef TALLY_KERNELS_KV_STORE_KV_Q8_0_INL_H
#else
#define TALLY_KERNELS_KV_STORE_KV_Q8_0_INL_H
#endif

#include "engine/kernels/kv_store/kv_shared-inl.h"
#include "engine/kernels/kv_store/kv_vectors-inl.h"
#include "engine/kernels/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// A vector of int8 times a scale.
HWY_INLINE KvVec WidenQ8(const uint8_t* q, KvVec scale) {
  const hn::Rebind<int8_t, KvFloats> di8;
  const hn::RebindToSigned<KvFloats> di32;
  return hn::Mul(scale, hn::ConvertTo(kKvFloats, hn::PromoteTo(di32, hn::LoadU(di8, reinterpret_cast<const int8_t*>(q)))));
}

// n elements of a row of blocks, n a multiple of 16.
HWY_INLINE void WidenQ8Row(const uint8_t* row, int64_t n, float* out) {
  const hn::Rebind<uint16_t, KvFloats> d16;
  for (int64_t d = 0; d < n; d += kKvQ8Block, row += kKvQ8Bytes) {
    uint16_t bits;
    std::memcpy(&bits, row, 2);
    const KvVec scale = WidenF16(kKvFloats, hn::Set(d16, bits));
    const int64_t last = std::min(kKvQ8Block, n - d);
    for (int64_t i = 0; i < last; i += kKvLanes) hn::StoreU(WidenQ8(row + 2 + i, scale), kKvFloats, out + d + i);
  }
}

template <>
struct KvVectors<KvQ8_0> {
  using Stored = int8_t;
  static constexpr bool kDirect = false;
  static constexpr bool kWidens = true;

  static const int8_t* Keys(const KvLayout& l, const uint8_t* share, int64_t lane) {
    return reinterpret_cast<const int8_t*>(share + KvQ8_0::GroupAt(l, lane, 0));
  }
  static const int8_t* Values(const KvLayout& l, const uint8_t* share, int64_t lane) {
    return reinterpret_cast<const int8_t*>(share + KvQ8_0::ValueAt(l, lane));
  }
  static HWY_INLINE void WidenKeys(const KvLayout& l, const uint8_t* share, int64_t lane, int64_t groups, float* out) {
    const hn::Rebind<uint16_t, KvFloats> d16;
    const int64_t padded = KvPadded(l.k_dim);
    for (int64_t g = 0; g < groups; ++g) {
      for (int64_t d = 0; d < l.k_dim; d += kKvQ8Block) {
        const uint8_t* group = share + KvQ8_0::GroupAt(l, lane + 16 * g, d);
        const int64_t n = std::min(kKvQ8Block, l.k_dim - d);
        HWY_UNROLL(16) for (int j = 0; j < 16; j += kKvLanes) {
          const KvVec scale = WidenF16(kKvFloats, hn::LoadU(d16, reinterpret_cast<const uint16_t*>(group) + j));
          float* to = out + (g * padded + d) * 16 + j;
          for (int64_t i = 0; i < n; ++i) hn::StoreU(WidenQ8(group + 32 + 16 * i + j, scale), kKvFloats, to + 16 * i);
        }
      }
    }
  }
  static HWY_INLINE void WidenValues(const KvLayout& l, const uint8_t* share, int64_t lane, int64_t lanes, float* out) {
    const int64_t padded = KvPadded(l.v_dim);
    for (int64_t n = 0; n < lanes; ++n) WidenQ8Row(share + KvQ8_0::ValueAt(l, lane + n), padded, out + n * padded);
  }
  static HWY_INLINE void Store(const KvLayout& l, uint8_t* share, int64_t lane, const float* k, const float* v) {
    KvQ8_0::Store(l, share, lane, k, v);
  }
};

template <>
struct KvVectors<KvSharedQ8_0> {
  using Stored = int8_t;
  static constexpr bool kDirect = false;
  static constexpr bool kWidens = true;

  static const int8_t* Keys(const KvLayout& l, const uint8_t* share, int64_t lane) {
    return reinterpret_cast<const int8_t*>(share + KvSharedQ8_0::KeyAt(l, lane));
  }
  static const int8_t* Values(const KvLayout& l, const uint8_t* share, int64_t lane) { return Keys(l, share, lane); }
  static HWY_INLINE void WidenKeys(const KvLayout& l, const uint8_t* share, int64_t lane, int64_t groups, float* out) {
    const int64_t padded = KvPadded(l.k_dim);
    const hn::Rebind<uint16_t, KvFloats> d16;
    float rows[16 * 16];
    for (int64_t g = 0; g < groups; ++g) {
      for (int64_t d = 0; d < padded; d += 16) {
        for (int64_t n = 0; n < 16; ++n) {
          const uint8_t* block = share + KvSharedQ8_0::KeyAt(l, lane + 16 * g + n) + d / kKvQ8Block * kKvQ8Bytes;
          uint16_t bits;
          std::memcpy(&bits, block, 2);
          const KvVec scale = WidenF16(kKvFloats, hn::Set(d16, bits));
          HWY_UNROLL(16) for (int j = 0; j < 16; j += kKvLanes) {
            hn::StoreU(WidenQ8(block + 2 + d % kKvQ8Block + j, scale), kKvFloats, rows + n * 16 + j);
          }
        }
        Transpose16(rows, out + (g * padded + d) * 16);
      }
    }
  }
  static HWY_INLINE void WidenValues(const KvLayout& l, const uint8_t* share, int64_t lane, int64_t lanes, float* out) {
    const int64_t padded = KvPadded(l.v_dim);
    for (int64_t n = 0; n < lanes; ++n) WidenQ8Row(share + KvSharedQ8_0::KeyAt(l, lane + n), padded, out + n * padded);
  }
  static HWY_INLINE void Store(const KvLayout& l, uint8_t* share, int64_t lane, const float* k, const float* v) {
    KvSharedQ8_0::Store(l, share, lane, k, v);
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#endif  // toggle
#endif  // HWY_TARGET_INCLUDE
