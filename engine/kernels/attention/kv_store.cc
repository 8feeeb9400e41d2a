// KvStoreOp's kernels. One task a row: all its KV heads, K scattered over the lanes of its group of 16 positions.
#include <algorithm>
#include <cstdint>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/attention/kv_store.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
// after foreach_target.h: not per target
#include "engine/base/float16.h"
#include "engine/kernels/attention/attention.h"

#ifndef TALLY_KV_STORE_ONCE
#define TALLY_KV_STORE_ONCE
namespace tally {
namespace {

// Where a row goes within its block: its K lane of group 0 of head 0, and its V row of head 0, in elements.
struct KvPlace {
  uint8_t* block;
  int64_t k, v;
};
KvPlace PlaceOf(const KvStoreOp& op, int64_t row) {
  const KvRow at = op.rows[row];
  const int64_t lane = at.position % kKvBlock, padded = KvHeadDim(op.head_dim);
  return {op.tables[at.table].blocks[at.position / kKvBlock], lane / 16 * padded * 16 + lane % 16, (kKvBlock + lane) * padded};
}

template <class T>
void StoreElement(uint8_t* share, int64_t index, T value) {
  std::memcpy(share + static_cast<size_t>(index) * sizeof(T), &value, sizeof(T));
}

}  // namespace
}  // namespace tally
#endif

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// f32 [n] to f16, n <= 16; the result's words beyond n are undefined.
HWY_INLINE void NarrowUpTo16(const float* x, int64_t n, uint16_t* out) {
  const hn::CappedTag<float, 16> df;
  const hn::Rebind<hwy::float16_t, decltype(df)> d16;
  const hn::RebindToUnsigned<decltype(d16)> du16;
  float padded[16] = {};
  if (n < 16) {
    std::memcpy(padded, x, static_cast<size_t>(n) * sizeof(float));
    x = padded;
  }
  for (size_t i = 0; i < 16; i += hn::Lanes(df)) {
    hn::StoreU(hn::BitCast(du16, hn::DemoteTo(d16, hn::LoadU(df, x + i))), du16, out + i);
  }
}

void StoreRows(const KvStoreOp& op, int64_t begin, int64_t end) {
  const size_t share_bytes = KvHeadBytes(op.type, op.head_dim);
  for (int64_t row = begin; row < end; ++row) {
    const KvPlace place = PlaceOf(op, row);
    for (int64_t head = 0; head < op.kv_heads; ++head) {
      uint8_t* share = place.block + head * share_bytes;
      const float* k = op.k.Row(row) + head * op.head_dim;
      const float* v = op.v.Row(row) + head * op.head_dim;
      if (op.type == KvType::kF32) {
        for (int64_t d = 0; d < op.head_dim; ++d) StoreElement(share, place.k + d * 16, k[d]);
        std::memcpy(share + place.v * sizeof(float), v, static_cast<size_t>(op.head_dim) * sizeof(float));
        continue;
      }
      for (int64_t d = 0; d < op.head_dim; d += 16) {
        const int64_t n = std::min<int64_t>(16, op.head_dim - d);
        uint16_t narrow[16];
        NarrowUpTo16(k + d, n, narrow);
        for (int64_t i = 0; i < n; ++i) StoreElement(share, place.k + (d + i) * 16, narrow[i]);
        NarrowUpTo16(v + d, n, narrow);
        std::memcpy(share + (place.v + d) * 2, narrow, static_cast<size_t>(n) * 2);
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tally {
HWY_EXPORT(StoreRows);

namespace {

const char* AlwaysSupported(const KvStoreOp&) { return nullptr; }
TaskPlan Plan(const KvStoreOp& op, int) { return {static_cast<int64_t>(op.rows.size()), 0, 0}; }
void RunHwy(const KvStoreOp& op, int64_t begin, int64_t end, std::span<uint8_t>) {
  HWY_DYNAMIC_DISPATCH(StoreRows)(op, begin, end);
}
void RunRef(const KvStoreOp& op, int64_t begin, int64_t end, std::span<uint8_t>) {
  const size_t share_bytes = KvHeadBytes(op.type, op.head_dim);
  for (int64_t row = begin; row < end; ++row) {
    const KvPlace place = PlaceOf(op, row);
    for (int64_t i = 0; i < op.kv_heads * op.head_dim; ++i) {
      uint8_t* share = place.block + i / op.head_dim * share_bytes;
      const int64_t d = i % op.head_dim;
      const float k = op.k.Row(row)[i], v = op.v.Row(row)[i];
      if (op.type == KvType::kF32) {
        StoreElement(share, place.k + d * 16, k);
        StoreElement(share, place.v + d, v);
      } else {
        StoreElement(share, place.k + d * 16, F32ToF16(k));
        StoreElement(share, place.v + d, F32ToF16(v));
      }
    }
  }
}
Cost Executed(const KvStoreOp& op, const CostAmounts& n) { return op.Useful(n); }

constexpr Kernel<KvStoreOp> kKernels[] = {
    {"hwy", AlwaysSupported, Plan, RunHwy, Executed},
    {"ref", AlwaysSupported, Plan, RunRef, Executed},
};

}  // namespace

template <>
std::span<const Kernel<KvStoreOp>> Kernels<KvStoreOp>() {
  return kKernels;
}

}  // namespace tally
#endif
