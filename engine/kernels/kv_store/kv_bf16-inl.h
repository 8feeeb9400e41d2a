// SPDX-License-Identifier: Apache-2.0
// KV format bf16, whose products are of bf16 in pairs.
//
// A head's share of a block: keys [C / 16][Kp / 2][16][2] (C = kKvBlock): groups of 16 positions, in which the neighbours d and d + 1
// of a position stand side by side; then values [C / 2][Vp][2]: neighbouring positions side by side. Kp and Vp are k_dim and v_dim
// rounded up to 16. The other half of an odd k_dim's last pair is zero; other padding is never written and does not affect results.
#ifndef TALLY_KERNELS_KV_STORE_KV_BF16_INL_H_ONCE
#define TALLY_KERNELS_KV_STORE_KV_BF16_INL_H_ONCE

#include "engine/kernels/kv_store/kv_plain-inl.h"

namespace tally {

struct KvBF16 {
  using Element = KvPlain<KvNumberBF16>;  // conversions only
  static constexpr size_t kBytes = 2;

  static size_t HeadBytes(const KvLayout& l) { return kKvBlock * (KvPadded(l.k_dim) + KvPadded(l.v_dim)) * kBytes; }
  static size_t KeyBytes(const KvLayout& l) { return l.k_dim * kBytes; }
  static size_t ValueBytes(const KvLayout& l) { return l.v_dim * kBytes; }
  static size_t PaddedValueBytes(const KvLayout& l) { return KvPadded(l.v_dim) * kBytes; }

  static size_t KeyAt(const KvLayout& l, int64_t lane, int64_t d) {
    return static_cast<size_t>(((lane / 16 * KvPadded(l.k_dim) / 2 + d / 2) * 16 + lane % 16) * 2 + d % 2) * kBytes;
  }
  static size_t ValueAt(const KvLayout& l, int64_t lane, int64_t d) {
    return static_cast<size_t>(kKvBlock * KvPadded(l.k_dim) + (lane / 2 * KvPadded(l.v_dim) + d) * 2 + lane % 2) * kBytes;
  }

  static float Key(const KvLayout& l, const uint8_t* share, int64_t lane, int64_t d) {
    return Element::Load(share + KeyAt(l, lane, d));
  }
  static float Value(const KvLayout& l, const uint8_t* share, int64_t lane, int64_t d) {
    return Element::Load(share + ValueAt(l, lane, d));
  }
  static void Store(const KvLayout& l, uint8_t* share, int64_t lane, const float* k, const float* v) {
    uint8_t *key = share + KeyAt(l, lane, 0), *value = share + ValueAt(l, lane, 0);
    for (int64_t d = 0; d < l.k_dim; ++d) Element::Put(key + (d / 2 * 32 + d % 2) * kBytes, F32ToBF16(k[d]));
    if (l.k_dim % 2 != 0) Element::Put(key + (l.k_dim / 2 * 32 + 1) * kBytes, 0);
    for (int64_t d = 0; d < l.v_dim; ++d) Element::Put(value + d * 2 * kBytes, F32ToBF16(v[d]));
  }
};

}  // namespace tally

#endif  // TALLY_KERNELS_KV_STORE_KV_BF16_INL_H_ONCE

#if defined(HWY_TARGET_INCLUDE)
#if defined(TALLY_KERNELS_KV_STORE_KV_BF16_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TALLY_KERNELS_KV_STORE_KV_BF16_INL_H
#undef TALLY_KERNELS_KV_STORE_KV_BF16_INL_H
#else
#define TALLY_KERNELS_KV_STORE_KV_BF16_INL_H
#endif

#include "engine/kernels/kv_store/kv_vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {

template <>
struct KvVectors<KvBF16> {
  using KeyProducts = KvPairs;
  using ValueProducts = KvPairs;
  static constexpr bool kDirectKeys = true, kDirectValues = true;

  static size_t KeyAt(const KvLayout& l, int64_t lane) { return KvBF16::KeyAt(l, lane, 0); }
  static size_t ValueAt(const KvLayout& l, int64_t lane) { return KvBF16::ValueAt(l, lane, 0); }
  static const uint32_t* Keys(const KvLayout& l, const uint8_t* share, int64_t lane) {
    return reinterpret_cast<const uint32_t*>(share + KeyAt(l, lane));
  }
  static const uint32_t* Values(const KvLayout& l, const uint8_t* share, int64_t lane) {
    return reinterpret_cast<const uint32_t*>(share + ValueAt(l, lane));
  }
  static void Store(const KvLayout& l, uint8_t* share, int64_t lane, const float* k, const float* v) {
    KvBF16::Store(l, share, lane, k, v);
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#endif  // toggle
#endif  // HWY_TARGET_INCLUDE
