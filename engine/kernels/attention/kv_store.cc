// Kernels of KvStoreOp. A task is one row with all its KV heads.
#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/attention/kv_store.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
// after foreach_target.h: not per target
#include "engine/kernels/attention/attention.h"
#include "engine/kernels/attention/kv_formats-inl.h"

#ifndef TALLY_KV_STORE_ONCE
#define TALLY_KV_STORE_ONCE
namespace tally {
namespace {

// Rows [begin, end). `store`: the Store of the scalar struct or of KvVectors.
template <class Format, class StoreFn>
void StoreRows(const KvStoreOp& op, int64_t begin, int64_t end, StoreFn store) {
  const KvLayout& l = op.layout;
  const size_t share_bytes = Format::HeadBytes(l);
  for (int64_t row = begin; row < end; ++row) {
    const KvRow at = op.rows[row];
    uint8_t* share = op.tables[at.table].blocks[at.position / kKvBlock];
    for (int64_t head = 0; head < l.kv_heads; ++head, share += share_bytes) {
      store(l, share, at.position % kKvBlock, op.k.Row(row) + head * l.k_dim, op.v.Row(row) + head * l.v_dim);
    }
  }
}

}  // namespace
}  // namespace tally
#endif

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void StoreRowsHwy(const KvStoreOp& op, int64_t begin, int64_t end) {
  WithKvFormat(op.layout.type, [&](auto format) {
    using Format = decltype(format);
    StoreRows<Format>(op, begin, end, KvVectors<Format>::Store);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tally {
HWY_EXPORT(StoreRowsHwy);

namespace {

const char* AlwaysSupported(const KvStoreOp&) { return nullptr; }
TaskPlan Plan(const KvStoreOp& op, int) { return {static_cast<int64_t>(op.rows.size()), 0, 0}; }
void RunHwy(const KvStoreOp& op, int64_t begin, int64_t end, std::span<uint8_t>) {
  HWY_DYNAMIC_DISPATCH(StoreRowsHwy)(op, begin, end);
}
void RunRef(const KvStoreOp& op, int64_t begin, int64_t end, std::span<uint8_t>) {
  WithKvFormat(op.layout.type, [&](auto format) {
    using Format = decltype(format);
    StoreRows<Format>(op, begin, end, Format::Store);
  });
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
