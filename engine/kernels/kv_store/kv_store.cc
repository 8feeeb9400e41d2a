// SPDX-License-Identifier: Apache-2.0
// KvStoreOp: checks, costs and kernels. A task is one row with all its KV heads.
#include <cstdint>

#ifndef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/kv_store/kv_store.cc"
#endif
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
// after foreach_target.h: not per target
#include "engine/kernels/describe.h"
#include "engine/kernels/kv_store/kv_formats-inl.h"
#include "engine/kernels/kv_store/kv_rows.h"
#include "engine/kernels/kv_store/kv_store.h"
#include "engine/kernels/validate.h"

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
      const float* v = l.shared ? nullptr : op.v.Row(row) + head * l.v_dim;
      store(l, share, at.position % kKvBlock, op.k.Row(row) + head * l.k_dim, v);
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
  WithKvFormat(op.layout, [&](auto format) {
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

Status KvStoreOp::Validate() const {
  if (layout.kv_heads < 1 || layout.k_dim < 1 || layout.v_dim < 1) {
    return InternalError("kv_heads, k_dim and v_dim must be at least 1");
  }
  const int64_t n = static_cast<int64_t>(rows.size());
  TALLY_RETURN_IF_ERROR(CheckShape("k", k, n, layout.kv_heads * layout.k_dim));
  if (layout.shared) {
    if (layout.v_dim > layout.k_dim || !v.empty()) return InternalError("a shared value is the beginning of its key");
  } else {
    TALLY_RETURN_IF_ERROR(CheckShape("v", v, n, layout.kv_heads * layout.v_dim));
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    TALLY_RETURN_IF_ERROR(CheckRow(rows[i], i, tables));
    const int64_t block = rows[i].position / kKvBlock;
    if (tables[rows[i].table].blocks[block] == nullptr) return MissingBlock(i, block);
  }
  return {};
}

Cost KvStoreOp::Useful(const CostAmounts& n) const {
  Cost cost;
  const int64_t of_head = layout.k_dim + (layout.shared ? 0 : layout.v_dim);
  const uint64_t elements = n[Amount::kRows] * static_cast<uint64_t>(layout.kv_heads * of_head);
  cost.AddBytes(ByteKind::kActivationsRead, elements * sizeof(float));
  cost.AddBytes(ByteKind::kKvWritten, n[Amount::kRows] * layout.PositionBytes());
  return cost;
}

void KvStoreOp::Describe(OpDescription& d) const {
  d.Add("k", kIn, "f32", Shape(k));
  if (!layout.shared) d.Add("v", kIn, "f32", Shape(v));
  d.Add("cache", OperandRole::kCache, NameOf(kKvTypeNames, layout.type),
        {layout.kv_heads, layout.k_dim, layout.v_dim});  // of one position
  DescribeRows(rows, d);
}

namespace {

const char* AlwaysSupported(const KvStoreOp&) { return nullptr; }
TaskPlan Plan(const KvStoreOp& op, int) { return {static_cast<int64_t>(op.rows.size()), 0, 0}; }
void RunHwy(const KvStoreOp& op, int64_t begin, int64_t end, std::span<uint8_t>) {
  HWY_DYNAMIC_DISPATCH(StoreRowsHwy)(op, begin, end);
}
void RunRef(const KvStoreOp& op, int64_t begin, int64_t end, std::span<uint8_t>) {
  WithKvFormat(op.layout, [&](auto format) {
    using Format = decltype(format);
    StoreRows<Format>(op, begin, end, Format::Store);
  });
}

// q8_0 rounds: a compare for the maximum and a multiply for each element, two divides for each block.
Cost Executed(const KvStoreOp& op, const CostAmounts& n) {
  Cost cost = op.Useful(n);
  if (op.layout.type != KvType::kQ8_0) return cost;
  const int64_t v_dim = op.layout.shared ? 0 : op.layout.v_dim;
  const uint64_t heads = n[Amount::kRows] * static_cast<uint64_t>(op.layout.kv_heads);
  cost.AddFlops(WorkClass::kQuantize, heads * 2 * static_cast<uint64_t>(op.layout.k_dim + v_dim));
  cost.AddSpecial(WorkClass::kQuantize, heads * 2 * static_cast<uint64_t>(KvQ8Blocks(op.layout.k_dim) + KvQ8Blocks(v_dim)));
  return cost;
}

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
