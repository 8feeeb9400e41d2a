// SPDX-License-Identifier: Apache-2.0
// The op that fills the KV cache, and how a batch's rows find their place in it.
#pragma once

#include "engine/kernels/kv_store/kv_layout.h"
#include "engine/kernels/op.h"

namespace tally {

// One sequence's blocks of one layer: blocks[p / kKvBlock] holds position p; entries below the window may be null.
struct KvTable {
  uint8_t* const* blocks = nullptr;
  int64_t count = 0;
};

// One row of a batch.
struct KvRow {
  int32_t table = 0;     // index into `tables`
  int32_t position = 0;  // the row's place in its sequence
  // Attention: positions [from, until), the row's own among them, see one another. By default none do.
  int32_t from = INT32_MAX, until = 0;
};

// Writes the rows' keys and values (after rope) into their blocks; f16 rounds to nearest even. No two rows may share a
// table and position.
struct KvStoreOp {
  static constexpr std::string_view kName = "kv_store";
  Mat<const float> k, v;  // [n, kv_heads * k_dim], [n, kv_heads * v_dim]; v is empty if the layout shares it with k
  KvLayout layout;
  std::span<const KvRow> rows;  // [n]
  std::span<const KvTable> tables;
  Status Validate() const;
  CostAmounts Amounts() const { return RowAmounts(static_cast<int64_t>(rows.size())); }
  Cost Useful(const CostAmounts& n) const;  // 0 FLOPs; bytes: KV written = n layout.PositionBytes()
  void Touches(WeightTouches&) const {}
  Mat<const float> Output() const { return {}; }
  void Describe(OpDescription& d) const;
};

template <>
std::span<const Kernel<KvStoreOp>> Kernels<KvStoreOp>();

}  // namespace tally
