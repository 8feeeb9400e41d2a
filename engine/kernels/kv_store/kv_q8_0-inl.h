// SPDX-License-Identifier: Apache-2.0
// KV formats of ggml's Q8_0: every 32 elements of a key or value are int8 integers with an f16 scale. Keys are multiplied as integers,
// values as bf16.
//
// KvQ8_0, a head's share of a block: for each group of 16 positions and each 32 elements of the keys, 16 f16 scales and then
// [8][16][4] bytes, integer + 128: four neighbours of a position side by side; then for each pair of positions and each 32 elements
// of the values, 2 f16 scales and then [32][2] int8. KvSharedQ8_0 (latent attention: a value is the first v_dim elements of its
// key): keys as rows [C][Bk] of blocks (C = kKvBlock): an f16 scale and 32 int8. The blocks of a row are k_dim / 32 and v_dim / 32,
// rounded up. The padding is never written and does not affect results.
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
inline float KvQ8Scale(const uint8_t* at) {
  uint16_t bits;
  std::memcpy(&bits, at, 2);
  return F16ToF32(bits);
}

struct KvQ8_0 {
  static constexpr int64_t kGroupBytes = 16 * kKvQ8Bytes;  // 16 positions x 32 elements
  static constexpr int64_t kPairBytes = 2 * kKvQ8Bytes;    // 2 positions x 32 elements

  static size_t HeadBytes(const KvLayout& l) {
    return static_cast<size_t>(kKvBlock * kKvQ8Bytes * (KvQ8Blocks(l.k_dim) + KvQ8Blocks(l.v_dim)));
  }
  static size_t KeyBytes(const KvLayout& l) { return static_cast<size_t>(l.k_dim + 2 * KvQ8Blocks(l.k_dim)); }
  static size_t ValueBytes(const KvLayout& l) { return static_cast<size_t>(l.v_dim + 2 * KvQ8Blocks(l.v_dim)); }
  static size_t PaddedValueBytes(const KvLayout& l) { return static_cast<size_t>(kKvQ8Bytes * KvQ8Blocks(l.v_dim)); }

  // Byte offset of the group of keys with position `lane` and element d, and of the pair of values.
  static size_t GroupAt(const KvLayout& l, int64_t lane, int64_t d) {
    return static_cast<size_t>((lane / 16 * KvQ8Blocks(l.k_dim) + d / kKvQ8Block) * kGroupBytes);
  }
  static size_t PairAt(const KvLayout& l, int64_t lane, int64_t d) {
    return static_cast<size_t>(kKvBlock * kKvQ8Bytes * KvQ8Blocks(l.k_dim) +
                               (lane / 2 * KvQ8Blocks(l.v_dim) + d / kKvQ8Block) * kPairBytes);
  }
  // Byte offset of an integer in its group or pair.
  static int64_t KeyIn(int64_t lane, int64_t d) { return 32 + (d % kKvQ8Block / 4 * 16 + lane % 16) * 4 + d % 4; }
  static int64_t ValueIn(int64_t lane, int64_t d) { return 4 + d % kKvQ8Block * 2 + lane % 2; }

  static int KeyInteger(const KvLayout& l, const uint8_t* share, int64_t lane, int64_t d) {
    return share[GroupAt(l, lane, d) + static_cast<size_t>(KeyIn(lane, d))] - 128;
  }
  static float KeyScale(const KvLayout& l, const uint8_t* share, int64_t lane, int64_t d) {
    return KvQ8Scale(share + GroupAt(l, lane, d) + 2 * (lane % 16));
  }
  static float Key(const KvLayout& l, const uint8_t* share, int64_t lane, int64_t d) {
    return KeyScale(l, share, lane, d) * static_cast<float>(KeyInteger(l, share, lane, d));
  }
  static float Value(const KvLayout& l, const uint8_t* share, int64_t lane, int64_t d) {
    const uint8_t* pair = share + PairAt(l, lane, d);
    return KvQ8Scale(pair + 2 * (lane % 2)) * static_cast<float>(static_cast<int8_t>(pair[ValueIn(lane, d)]));
  }
  static void Store(const KvLayout& l, uint8_t* share, int64_t lane, const float* k, const float* v) {
    int8_t q[kKvQ8Block];
    for (int64_t d = 0; d < l.k_dim; d += kKvQ8Block) {
      const int64_t n = std::min(kKvQ8Block, l.k_dim - d);
      const uint16_t scale = KvQuantise(k + d, n, q);
      uint8_t* group = share + GroupAt(l, lane, d);
      std::memcpy(group + 2 * (lane % 16), &scale, 2);
      for (int64_t i = 0; i < n; ++i) group[KeyIn(lane, i)] = static_cast<uint8_t>(q[i] + 128);
    }
    for (int64_t d = 0; d < l.v_dim; d += kKvQ8Block) {
      const int64_t n = std::min(kKvQ8Block, l.v_dim - d);
      const uint16_t scale = KvQuantise(v + d, n, q);
      uint8_t* pair = share + PairAt(l, lane, d);
      std::memcpy(pair + 2 * (lane % 2), &scale, 2);
      for (int64_t i = 0; i < n; ++i) pair[ValueIn(lane, i)] = static_cast<uint8_t>(q[i]);
    }
  }
};

struct KvSharedQ8_0 {
  static size_t HeadBytes(const KvLayout& l) { return static_cast<size_t>(kKvBlock * kKvQ8Bytes * KvQ8Blocks(l.k_dim)); }
  static size_t KeyBytes(const KvLayout& l) { return KvQ8_0::KeyBytes(l); }
  static size_t ValueBytes(const KvLayout&) { return 0; }
  static size_t PaddedValueBytes(const KvLayout&) { return 0; }
  static size_t KeyAt(const KvLayout& l, int64_t lane) { return static_cast<size_t>(lane * kKvQ8Bytes * KvQ8Blocks(l.k_dim)); }

  static int KeyInteger(const KvLayout& l, const uint8_t* share, int64_t lane, int64_t d) {
    return static_cast<int8_t>(share[KeyAt(l, lane) + static_cast<size_t>(d / kKvQ8Block * kKvQ8Bytes + 2 + d % kKvQ8Block)]);
  }
  static float KeyScale(const KvLayout& l, const uint8_t* share, int64_t lane, int64_t d) {
    return KvQ8Scale(share + KeyAt(l, lane) + d / kKvQ8Block * kKvQ8Bytes);
  }
  static float Key(const KvLayout& l, const uint8_t* share, int64_t lane, int64_t d) {
    return KeyScale(l, share, lane, d) * static_cast<float>(KeyInteger(l, share, lane, d));
  }
  static float Value(const KvLayout& l, const uint8_t* share, int64_t lane, int64_t d) { return Key(l, share, lane, d); }
  static void Store(const KvLayout& l, uint8_t* share, int64_t lane, const float* k, const float*) {
    uint8_t* row = share + KeyAt(l, lane);
    for (int64_t d = 0; d < l.k_dim; d += kKvQ8Block, row += kKvQ8Bytes) {
      const uint16_t scale = KvQuantise(k + d, std::min(kKvQ8Block, l.k_dim - d), reinterpret_cast<int8_t*>(row + 2));
      std::memcpy(row, &scale, 2);
    }
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

// Products of int8: integers are summed exactly over blocks of 32 elements; then, blocks in order,
// sum = fma(float(integers), key's scale * query's scale, sum).
struct KvInt8 {
  using Stored = uint8_t;
};

template <>
struct KvVectors<KvQ8_0> {
  using KeyProducts = KvInt8;
  using ValueProducts = KvPairs;
  static constexpr bool kDirectKeys = true, kDirectValues = false;

  static size_t KeyAt(const KvLayout& l, int64_t lane) { return KvQ8_0::GroupAt(l, lane, 0); }
  static size_t ValueAt(const KvLayout& l, int64_t lane) { return KvQ8_0::PairAt(l, lane, 0); }
  static const uint8_t* Keys(const KvLayout& l, const uint8_t* share, int64_t lane) { return share + KeyAt(l, lane); }
  static HWY_INLINE void UnpackValues(const KvLayout& l, const uint8_t* share, int64_t lane, int64_t groups, uint32_t* out) {
    const hn::Rebind<uint16_t, KvFloats> d16;
    const hn::Rebind<hwy::bfloat16_t, KvFloats> dbf;
    const hn::Repartition<uint32_t, decltype(d16)> pairs_of_16;
    const int64_t padded = KvPadded(l.v_dim);
    const uint8_t* pair = share + KvQ8_0::PairAt(l, lane, 0);
    for (int64_t n = 0; n < 8 * groups; ++n) {
      for (int64_t d = 0; d < padded; d += kKvQ8Block, pair += KvQ8_0::kPairBytes) {
        uint32_t scales;
        std::memcpy(&scales, pair, 4);
        const KvVec scale = WidenF16(kKvFloats, hn::BitCast(d16, hn::Set(pairs_of_16, scales)));  // of either position in turn
        const int64_t count = 2 * std::min(kKvQ8Block, padded - d);
        hwy::bfloat16_t* to = reinterpret_cast<hwy::bfloat16_t*>(out + d);
        for (int64_t i = 0; i < count; i += kKvLanes) hn::StoreU(NarrowToBF16(WidenQ8(pair + 4 + i, scale)), dbf, to + i);
      }
      out += padded;
    }
  }
  static void Store(const KvLayout& l, uint8_t* share, int64_t lane, const float* k, const float* v) {
    KvQ8_0::Store(l, share, lane, k, v);
  }
};

template <>
struct KvVectors<KvSharedQ8_0> {
  using KeyProducts = KvInt8;
  using ValueProducts = KvPairs;
  static constexpr bool kDirectKeys = false, kDirectValues = false;

  static size_t KeyAt(const KvLayout& l, int64_t lane) { return KvSharedQ8_0::KeyAt(l, lane); }
  static size_t ValueAt(const KvLayout& l, int64_t lane) { return KeyAt(l, lane); }
  // Groups as KvQ8_0 has them. Four bytes are moved as if they were a float.
  static HWY_INLINE void UnpackKeys(const KvLayout& l, const uint8_t* share, int64_t lane, int64_t groups, uint8_t* out) {
    float rows[16 * 16] = {}, columns[16 * 16];
    for (int64_t g = 0; g < groups; ++g) {
      for (int64_t d = 0; d < l.k_dim; d += kKvQ8Block, out += KvQ8_0::kGroupBytes) {
        for (int64_t i = 0; i < 16; ++i) {
          const uint8_t* block = share + KeyAt(l, lane + 16 * g + i) + d / kKvQ8Block * kKvQ8Bytes;
          std::memcpy(out + 2 * i, block, 2);
          std::memcpy(rows + 16 * i, block + 2, kKvQ8Block);
        }
        Transpose16(rows, columns);
        for (int i = 0; i < 8 * 16; i += kKvLanes) {
          const auto words = hn::BitCast(kKvWords, hn::LoadU(kKvFloats, columns + i));
          hn::StoreU(hn::Xor(words, hn::Set(kKvWords, 0x80808080u)), kKvWords, reinterpret_cast<uint32_t*>(out + 32) + i);
        }
      }
    }
  }
  static HWY_INLINE void UnpackValues(const KvLayout& l, const uint8_t* share, int64_t lane, int64_t groups, uint32_t* out) {
    const int64_t padded = KvPadded(l.v_dim);
    for (int64_t n = 0; n < 16 * groups; n += 2, out += padded) {
      for (int64_t d = 0; d < padded; d += kKvLanes) {
        const auto first = Row16(l, share, lane + n, d), second = Row16(l, share, lane + n + 1, d);
        hn::StoreU(hn::Or(first, hn::ShiftLeft<16>(second)), kKvWords, out + d);
      }
    }
  }
  static void Store(const KvLayout& l, uint8_t* share, int64_t lane, const float* k, const float* v) {
    KvSharedQ8_0::Store(l, share, lane, k, v);
  }

 private:
  // kKvLanes elements from d on as bf16, in words.
  static HWY_INLINE hn::Vec<KvWords> Row16(const KvLayout& l, const uint8_t* share, int64_t lane, int64_t d) {
    const hn::Rebind<uint16_t, KvFloats> d16;
    const uint8_t* block = share + KeyAt(l, lane) + d / kKvQ8Block * kKvQ8Bytes;
    uint16_t bits;
    std::memcpy(&bits, block, 2);
    const KvVec x = WidenQ8(block + 2 + d % kKvQ8Block, WidenF16(kKvFloats, hn::Set(d16, bits)));
    return hn::PromoteTo(kKvWords, hn::BitCast(d16, NarrowToBF16(x)));
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#endif  // toggle
#endif  // HWY_TARGET_INCLUDE
