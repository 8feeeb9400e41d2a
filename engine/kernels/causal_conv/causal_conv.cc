// SPDX-License-Identifier: Apache-2.0
#include "engine/kernels/causal_conv/causal_conv.h"

#include <algorithm>
#include <string>

#include "engine/kernels/causal_conv/causal_conv_ref.h"
#include "engine/kernels/describe.h"
#include "engine/kernels/kv_store/kv_rows.h"
#include "engine/kernels/kv_store/kv_shared-inl.h"
#include "engine/kernels/target.h"
#include "engine/kernels/validate.h"

namespace tally {
namespace {

// Positions from `p - taps + 1`, or from the first, to p.
int64_t FirstSeen(const CausalConvOp& op, int64_t position) { return std::max<int64_t>(0, position - op.taps.slices + 1); }

// `d`: columns the kernel processes, padding included.
Cost CausalConvCost(const CausalConvOp& op, const CostAmounts& n, uint64_t d) {
  Cost cost;
  const uint64_t rows = n[Amount::kRows], taps = static_cast<uint64_t>(op.taps.slices), row_bytes = 4 * op.out.cols;
  cost.AddFlops(WorkClass::kLinear, 2 * rows * taps * d);
  cost.AddFlops(WorkClass::kActivation, rows * d);
  cost.AddBytes(ByteKind::kWeightsStored, n[Amount::kCalls] * taps * op.taps.stored_row_bytes);
  cost.AddBytes(ByteKind::kWeightsPacked, n[Amount::kCalls] * taps * row_bytes);
  cost.AddBytes(ByteKind::kKvRead, n[Amount::kVisible] * op.layout.PositionBytes());
  cost.AddBytes(ByteKind::kActivationsRead, rows * row_bytes);
  cost.AddBytes(ByteKind::kActivationsWritten, rows * row_bytes);
  return cost;
}

const char* Always(const CausalConvOp&) { return nullptr; }
TaskPlan Plan(const CausalConvOp& op, int) { return {op.out.rows, 0, 0}; }

void AddRow(const CausalConvOp& op, const KvRow& row, CostAmounts& n) {
  ++n[Amount::kRows];
  n[Amount::kVisible] += static_cast<uint64_t>(row.position + 1 - FirstSeen(op, row.position));
}

}  // namespace

const float* CachedRow(const CausalConvOp& op, int64_t t, int64_t back) {
  const KvRow& row = op.rows[static_cast<size_t>(t)];
  const int64_t position = row.position - back;
  if (position < 0) return nullptr;
  const uint8_t* block = op.tables[static_cast<size_t>(row.table)].blocks[position / kKvBlock];
  return reinterpret_cast<const float*>(block + KvSharedF32::KeyAt(op.layout, position % kKvBlock, 0));
}

Status CausalConvOp::Validate() const {
  if (layout.type != KvType::kF32 || !layout.shared || layout.kv_heads != 1 || layout.k_dim != out.cols) {
    return InternalError("a convolution reads rows of f32, of one head as wide as its output");
  }
  if (taps.layout != WeightLayout::kVector || taps.dtype != DType::kF32 || taps.cols != out.cols || taps.slices < 1 ||
      taps.slices > kMostTaps) {
    return InternalError("a convolution needs 1 to " + std::to_string(kMostTaps) + " taps of " + std::to_string(out.cols) +
                         " F32");
  }
  const int64_t n = static_cast<int64_t>(rows.size());
  TALLY_RETURN_IF_ERROR(CheckShape("convolution's gate", gate, n, out.cols));
  TALLY_RETURN_IF_ERROR(CheckShape("convolution's output", out, n, out.cols));
  for (size_t i = 0; i < rows.size(); ++i) {
    TALLY_RETURN_IF_ERROR(CheckRow(rows[i], i, tables));
    for (int64_t b = FirstSeen(*this, rows[i].position) / kKvBlock; b <= rows[i].position / kKvBlock; ++b) {
      if (tables[static_cast<size_t>(rows[i].table)].blocks[b] == nullptr) return MissingBlock(i, b);
    }
  }
  return {};
}

CostAmounts CausalConvOp::Amounts() const {
  CostAmounts n;
  n[Amount::kCalls] = rows.empty() ? 0 : 1;
  for (const KvRow& row : rows) AddRow(*this, row, n);
  return n;
}

void CausalConvOp::AddRowAmounts(std::span<const uint32_t> groups, std::span<CostAmounts> amounts) const {
  for (size_t i = 0; i < rows.size(); ++i) AddRow(*this, rows[i], amounts[groups[i]]);
}

Cost CausalConvOp::Useful(const CostAmounts& n) const { return CausalConvCost(*this, n, static_cast<uint64_t>(out.cols)); }

void CausalConvOp::Touches(WeightTouches& touches) const {
  if (rows.empty()) return;
  for (uint32_t k = 0; k < static_cast<uint32_t>(taps.slices); ++k) touches.push_back({taps.id, k, 0, 1});
}

void CausalConvOp::Describe(OpDescription& d) const {
  d.Add("gate", kIn, "f32", Shape(gate));
  DescribeWeight("taps", taps, d);
  d.Add("cache", OperandRole::kCache, NameOf(kKvTypeNames, layout.type), {layout.kv_heads, layout.k_dim, layout.v_dim});
  d.Add("out", kOut, "f32", Shape(out));
  DescribeRows(rows, d);
}

template <>
std::span<const Kernel<CausalConvOp>> Kernels<CausalConvOp>() {
  static constexpr Kernel<CausalConvOp> kKernels[] = {
      {"hwy", Always, Plan, RunCausalConvHwy,
       [](const CausalConvOp& op, const CostAmounts& n) { return CausalConvCost(op, n, HwyPadded(op.out.cols)); }},
      {"ref", Always, Plan,
       [](const CausalConvOp& op, int64_t begin, int64_t end, std::span<uint8_t>) {
         CausalConvRef<float, float>(op, begin, end);
       },
       [](const CausalConvOp& op, const CostAmounts& n) { return op.Useful(n); }}};
  return kKernels;
}

}  // namespace tally
