// SPDX-License-Identifier: Apache-2.0
#include "engine/kernels/ssm_scan/ssm_scan.h"

#include <string>

#include "engine/kernels/describe.h"
#include "engine/kernels/ssm_scan/ssm_scan_ref.h"
#include "engine/kernels/ssm_scan/ssm_scan_tiles.h"
#include "engine/kernels/target.h"
#include "engine/kernels/validate.h"

namespace tally {
namespace {

static_assert(SsmScanOp::kTile == kStateTile);

// `p`: columns of S that the kernel processes, padding included.
Cost SsmScanCost(const SsmScanOp& op, const CostAmounts& n, uint64_t p) {
  Cost cost;
  const uint64_t rows = n[Amount::kRows], heads = static_cast<uint64_t>(op.heads),
                 state_dim = static_cast<uint64_t>(op.state_dim());
  const uint64_t state = n[Amount::kRuns] * static_cast<uint64_t>(op.layout.recurrence) * 4;
  // S 3 N P, S^T C 2 N P; s x P; D x 2 P
  cost.AddFlops(WorkClass::kRecurrence, rows * heads * (5 * state_dim * p + (op.skip.empty() ? 1 : 3) * p));
  cost.AddBytes(ByteKind::kStateRead, state);
  cost.AddBytes(ByteKind::kStateWritten, state);
  cost.AddBytes(ByteKind::kActivationsRead, rows * 4 * static_cast<uint64_t>(op.x.cols + 2 * op.b.cols + 2 * op.heads));
  cost.AddBytes(ByteKind::kActivationsWritten, rows * 4 * static_cast<uint64_t>(op.x.cols));
  if (!op.skip.empty()) {
    cost.AddBytes(ByteKind::kWeightsStored, n[Amount::kCalls] * op.skip.stored_row_bytes);
    cost.AddBytes(ByteKind::kWeightsPacked, n[Amount::kCalls] * heads * 4);
  }
  return cost;
}

// Adds the replayed positions, and the rows that are kept.
Cost WithRows(const SsmScanOp& op, const CostAmounts& n, uint64_t p) {
  Cost cost = SsmScanCost(op, n, p);
  cost.AddFlops(WorkClass::kRecurrence, n[Amount::kReplayed] * static_cast<uint64_t>(op.heads * op.state_dim()) * 3 * p);
  AddReplayBytes(op.layout, n, cost);
  return cost;
}

const char* Always(const SsmScanOp&) { return nullptr; }
TaskPlan Plan(const SsmScanOp& op, int threads) { return TilesOf(op).Plan(op.runs, threads, 0); }

}  // namespace

int64_t SsmScanOp::StateOf(int64_t heads, int64_t state_dim, int64_t head_dim) { return RoundUp16(heads * state_dim * head_dim); }
int64_t SsmScanOp::ReplayOf(int64_t heads, int64_t groups, int64_t state_dim, int64_t head_dim) {
  return ReplayRows{groups, state_dim, heads, head_dim}.floats();
}

Status SsmScanOp::Validate() const {
  if (heads < 1 || groups < 1 || heads % groups != 0 || x.cols < 1 || x.cols % heads != 0 || b.cols < 1 || b.cols % groups != 0) {
    return InternalError("a scan needs whole heads, as many for each group");
  }
  const int64_t n = x.rows;
  TALLY_RETURN_IF_ERROR(CheckShape("x", x, n, x.cols));
  TALLY_RETURN_IF_ERROR(CheckShape("B", b, n, b.cols));
  TALLY_RETURN_IF_ERROR(CheckShape("C", c, n, b.cols));
  TALLY_RETURN_IF_ERROR(CheckShape("step", step, n, heads));
  TALLY_RETURN_IF_ERROR(CheckShape("decay", decay, n, heads));
  TALLY_RETURN_IF_ERROR(CheckShape("the scan's output", out, n, x.cols));
  if (!skip.empty() &&
      (skip.layout != WeightLayout::kVector || skip.dtype != DType::kF32 || skip.slices != 1 || skip.cols != heads)) {
    return InternalError("D is not a vector of " + std::to_string(heads) + " F32");
  }
  if (layout.recurrence != StateOf(heads, state_dim(), head_dim()) ||
      layout.replay != ReplayOf(heads, groups, state_dim(), head_dim())) {
    return InternalError("states are not those of this scan");
  }
  return CheckRuns(layout, runs, states, n, EarlierRows::kReplay);
}

CostAmounts SsmScanOp::Amounts() const { return StateAmounts(runs, states, true); }

void SsmScanOp::AddRowAmounts(std::span<const uint32_t> row_groups, std::span<CostAmounts> amounts) const {
  AddStateRowAmounts(runs, states, true, row_groups, amounts);
}

Cost SsmScanOp::Useful(const CostAmounts& n) const { return SsmScanCost(*this, n, static_cast<uint64_t>(head_dim())); }

void SsmScanOp::Touches(WeightTouches& touches) const {
  if (!skip.empty() && x.rows > 0) touches.push_back({skip.id, 0, 0, 1});
}

void SsmScanOp::Describe(OpDescription& d) const {
  d.Add("x", kIn, "f32", Shape(x));
  d.Add("b", kIn, "f32", Shape(b));
  d.Add("c", kIn, "f32", Shape(c));
  d.Add("step", kIn, "f32", Shape(step));
  d.Add("decay", kIn, "f32", Shape(decay));
  DescribeWeight("skip", skip, d);
  d.Add("state", OperandRole::kCache, "f32", {heads, state_dim(), head_dim()});
  d.Add("out", kOut, "f32", Shape(out));
  d.Set("heads", heads);
  d.Set("groups", groups);
  DescribeRuns(runs, states, d);
}

template <>
std::span<const Kernel<SsmScanOp>> Kernels<SsmScanOp>() {
  static constexpr Kernel<SsmScanOp> kKernels[] = {
      {"hwy", Always, Plan, RunSsmScanHwy,
       [](const SsmScanOp& op, const CostAmounts& n) { return WithRows(op, n, HwyPadded(op.head_dim())); }},
      {"ref", Always, Plan,
       [](const SsmScanOp& op, int64_t begin, int64_t end, std::span<uint8_t>) { SsmScanRef<float, float>(op, begin, end); },
       [](const SsmScanOp& op, const CostAmounts& n) { return WithRows(op, n, static_cast<uint64_t>(op.head_dim())); }}};
  return kKernels;
}

}  // namespace tally
