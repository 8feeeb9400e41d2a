// SPDX-License-Identifier: Apache-2.0
#include "engine/kernels/delta_rule/delta_rule.h"

#include <cmath>
#include <string>

#include "engine/kernels/delta_rule/delta_rule_ref.h"
#include "engine/kernels/delta_rule/delta_rule_tiles.h"
#include "engine/kernels/describe.h"
#include "engine/kernels/target.h"
#include "engine/kernels/validate.h"

namespace tally {
namespace {

static_assert(DeltaRuleOp::kTile == kStateTile);

// `v`: columns of S that the kernel processes, padding included.
Cost DeltaRuleCost(const DeltaRuleOp& op, const CostAmounts& n, uint64_t v) {
  Cost cost;
  const uint64_t rows = n[Amount::kRows], heads = static_cast<uint64_t>(op.value_heads), k = static_cast<uint64_t>(op.k_dim());
  const uint64_t state = n[Amount::kRuns] * static_cast<uint64_t>(op.layout.recurrence) * 4;
  // a and b 4 K V, S 3 K V; u 3 V, out 3 V; q' K, k . q' 2 K. Channel decays: u 2 V, out 2 V; w k and w q' 2 K.
  cost.AddFlops(WorkClass::kRecurrence, rows * heads * (7 * k * v + (op.channel_decay ? 4 * v + 5 * k : 6 * v + 3 * k)));
  cost.AddBytes(ByteKind::kStateRead, state);
  cost.AddBytes(ByteKind::kStateWritten, state);
  cost.AddBytes(ByteKind::kActivationsRead,
                rows * 4 * static_cast<uint64_t>(2 * op.k.cols + op.v.cols + op.decay.cols + op.beta.cols));
  cost.AddBytes(ByteKind::kActivationsWritten, rows * 4 * static_cast<uint64_t>(op.v.cols));
  return cost;
}

// Adds the replayed positions, and the rows that are kept.
Cost WithRows(const DeltaRuleOp& op, const CostAmounts& n, uint64_t v, Cost cost) {
  cost.AddFlops(WorkClass::kRecurrence, n[Amount::kReplayed] * static_cast<uint64_t>(op.value_heads * op.k_dim()) * 3 * v);
  AddReplayBytes(op.layout, n, cost);
  return cost;
}

// FLOPs per key element of the vectors that are made once per tile: q' and k . q', or w k and w q'.
uint64_t MadeForTiles(const DeltaRuleOp& op) { return op.channel_decay ? 5 : 3; }

// Vectors of K are reduced in 16 lanes.
Cost ExecutedHwy(const DeltaRuleOp& op, const CostAmounts& n) {
  const uint64_t v = HwyPadded(op.v_dim()), k = static_cast<uint64_t>(op.k_dim()),
                 lanes = static_cast<uint64_t>(RoundUp16(op.k_dim()));
  Cost cost = WithRows(op, n, v, DeltaRuleCost(op, n, v));
  const uint64_t tiles = static_cast<uint64_t>(TilesOf(op).tiles());
  cost.AddFlops(WorkClass::kRecurrence, n[Amount::kRows] * static_cast<uint64_t>(op.value_heads) *
                                            (tiles * (MadeForTiles(op) * lanes + 15) - MadeForTiles(op) * k));
  return cost;
}

Cost ExecutedRef(const DeltaRuleOp& op, const CostAmounts& n) {
  Cost cost = WithRows(op, n, static_cast<uint64_t>(op.v_dim()), op.Useful(n));
  const uint64_t again = static_cast<uint64_t>(TilesOf(op).tiles() - 1);
  cost.AddFlops(WorkClass::kRecurrence,
                n[Amount::kRows] * again * static_cast<uint64_t>(op.value_heads * op.k_dim()) * MadeForTiles(op));
  return cost;
}

const char* Always(const DeltaRuleOp&) { return nullptr; }
TaskPlan PlanHwy(const DeltaRuleOp& op, int threads) {
  return TilesOf(op).Plan(op.runs, threads,
                          static_cast<size_t>((op.channel_decay ? 4 : 2) * RoundUp16(op.k_dim())) * sizeof(float));
}
TaskPlan PlanRef(const DeltaRuleOp& op, int threads) { return TilesOf(op).Plan(op.runs, threads, 0); }

}  // namespace

int64_t DeltaRuleOp::StateOf(int64_t value_heads, int64_t k_dim, int64_t v_dim) { return RoundUp16(value_heads * k_dim * v_dim); }
int64_t DeltaRuleOp::ReplayOf(int64_t key_heads, int64_t value_heads, int64_t k_dim, int64_t v_dim, int64_t decay_dim) {
  return ReplayRows{key_heads, k_dim, value_heads, v_dim, decay_dim}.floats();
}

Status DeltaRuleOp::Validate() const {
  if (key_heads < 1 || value_heads < 1 || value_heads % key_heads != 0 || k.cols < 1 || k.cols % key_heads != 0 || v.cols < 1 ||
      v.cols % value_heads != 0) {
    return InternalError("a delta rule needs whole heads, as many value heads for each key head");
  }
  if (!std::isfinite(q_scale)) return InternalError("queries are scaled by a finite number");
  const int64_t n = q.rows;
  TALLY_RETURN_IF_ERROR(CheckShape("q", q, n, k.cols));
  TALLY_RETURN_IF_ERROR(CheckShape("k", k, n, k.cols));
  TALLY_RETURN_IF_ERROR(CheckShape("v", v, n, v.cols));
  TALLY_RETURN_IF_ERROR(CheckShape("decay", decay, n, value_heads * decay_dim()));
  TALLY_RETURN_IF_ERROR(CheckShape("beta", beta, n, value_heads));
  TALLY_RETURN_IF_ERROR(CheckShape("the delta rule's output", out, n, v.cols));
  if (layout.recurrence != StateOf(value_heads, k_dim(), v_dim()) ||
      layout.replay != ReplayOf(key_heads, value_heads, k_dim(), v_dim(), decay_dim())) {
    return InternalError("states are not those of this delta rule");
  }
  return CheckRuns(layout, runs, states, n, EarlierRows::kReplay);
}

CostAmounts DeltaRuleOp::Amounts() const { return StateAmounts(runs, states, true); }

void DeltaRuleOp::AddRowAmounts(std::span<const uint32_t> groups, std::span<CostAmounts> amounts) const {
  AddStateRowAmounts(runs, states, true, groups, amounts);
}

Cost DeltaRuleOp::Useful(const CostAmounts& n) const { return DeltaRuleCost(*this, n, static_cast<uint64_t>(v_dim())); }

void DeltaRuleOp::Describe(OpDescription& d) const {
  d.Add("q", kIn, "f32", Shape(q));
  d.Add("k", kIn, "f32", Shape(k));
  d.Add("v", kIn, "f32", Shape(v));
  d.Add("decay", kIn, "f32", Shape(decay));
  d.Add("beta", kIn, "f32", Shape(beta));
  d.Add("state", OperandRole::kCache, "f32", {value_heads, k_dim(), v_dim()});
  d.Add("out", kOut, "f32", Shape(out));
  d.Set("key_heads", key_heads);
  d.Set("value_heads", value_heads);
  d.Set("tiled", tiled ? "yes" : "no");
  d.Set("channel_decay", channel_decay ? "yes" : "no");
  d.Set("q_scale", static_cast<double>(q_scale));
  DescribeRuns(runs, states, d);
}

template <>
std::span<const Kernel<DeltaRuleOp>> Kernels<DeltaRuleOp>() {
  static constexpr Kernel<DeltaRuleOp> kKernels[] = {
      {"hwy", Always, PlanHwy, RunDeltaRuleHwy, ExecutedHwy},
      {"ref", Always, PlanRef,
       [](const DeltaRuleOp& op, int64_t begin, int64_t end, std::span<uint8_t>) { DeltaRuleRef<float, float>(op, begin, end); },
       ExecutedRef}};
  return kKernels;
}

}  // namespace tally
