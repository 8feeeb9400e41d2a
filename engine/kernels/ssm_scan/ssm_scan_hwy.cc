// SPDX-License-Identifier: Apache-2.0
// SsmScanOp with columns of the state as lanes. No update depends on a sum, so kScanRows rows pass over a tile together, and an element
// stays in its register from row to row.
#include <algorithm>
#include <cstdint>
#include <span>

#ifndef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/ssm_scan/ssm_scan_hwy.cc"
#endif
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

// after foreach_target.h, which decides the first target
#include "engine/kernels/lanes-inl.h"
#include "engine/kernels/ssm_scan/ssm_scan.h"
#include "engine/kernels/ssm_scan/ssm_scan_tiles.h"
#include "engine/kernels/state/rank_one-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Rows and columns that are in registers together. One row alone takes more columns, so that memory is read in longer pieces.
inline constexpr int kScanRows = kManyRegisters ? 4 : 2, kScanVectors = 2, kAloneVectors = 4;

struct ScanRow {
  const float *b, *c, *x;  // x: of the tile's columns
  float step, decay;
  float *out, *u;  // of the tile's columns; u = step x: null: not kept
};

// Rows [0, kRows) of `rows`.
template <int kRows, class Columns>
HWY_INLINE void ScanRows(const Columns& columns, int64_t state_dim, int64_t stride, int64_t at, const float* from, float* to,
                         const ScanRow* rows, bool skips, float skip) {
  constexpr int kCount = Columns::kCount;
  const StateD d;
  StateV u[kRows][kCount], y[kRows][kCount], w[kRows];
  for (int t = 0; t < kRows; ++t) {
    w[t] = hn::Set(d, rows[t].decay);
    for (int i = 0; i < kCount; ++i) {
      u[t][i] = hn::Mul(hn::Set(d, rows[t].step), columns.Load(rows[t].x + at, i));
      if (rows[t].u != nullptr) columns.Store(u[t][i], rows[t].u + at, i);
      y[t][i] = hn::Zero(d);
    }
  }
  for (int64_t r = 0; r < state_dim; ++r) {
    for (int i = 0; i < kCount; ++i) {
      StateV s = columns.Load(from + r * stride + at, i);
      for (int t = 0; t < kRows; ++t) {
        s = hn::MulAdd(hn::Set(d, rows[t].b[r]), u[t][i], hn::Mul(w[t], s));
        y[t][i] = hn::MulAdd(s, hn::Set(d, rows[t].c[r]), y[t][i]);
      }
      columns.Store(s, to + r * stride + at, i);
    }
  }
  for (int t = 0; t < kRows; ++t) {
    for (int i = 0; i < kCount; ++i) {
      if (skips) y[t][i] = hn::MulAdd(hn::Set(d, skip), columns.Load(rows[t].x + at, i), y[t][i]);
      columns.Store(y[t][i], rows[t].out + at, i);
    }
  }
}

void ScanTile(const SsmScanOp& op, const StateTask& task) {
  const ReplayRows replay = RowsOf(op);
  const int64_t group = GroupOf(op, task.head), state_dim = op.state_dim();
  const int64_t at = task.head * op.head_dim() + task.column, n = task.run.rows;
  const bool first_of_group = FirstOfGroup(op, task.head), skips = !op.skip.empty();
  const float skip = SkipOf(op, task.head);
  const auto row_of = [&](int64_t t) { return op.runs.order[static_cast<size_t>(task.run.begin + t)]; };
  const float* from = ReplayTile(task, replay, group, task.From());
  float* const to = task.To();
  for (int64_t t = 0; t < n;) {
    // A state that is kept ends a pass.
    const int64_t mid = task.table.mid_at - task.run.position, end = task.table.mid != nullptr && t < mid ? mid : n;
    const int64_t count = end - t >= kScanRows ? kScanRows : 1;
    ScanRow rows[kScanRows];
    for (int64_t i = 0; i < count; ++i) {
      const int64_t r = row_of(t + i);
      float* const kept = ReplayRow(op.layout, task.table, task.run.position + t + i);
      rows[i] = {op.b.Row(r) + group * state_dim,
                 op.c.Row(r) + group * state_dim,
                 op.x.Row(r) + at,
                 op.step.Row(r)[task.head],
                 op.decay.Row(r)[task.head],
                 op.out.Row(r) + at,
                 kept == nullptr ? nullptr : kept + replay.UAt(task.head) + task.column};
      replay.Keep(task, group, first_of_group, rows[i].b, &rows[i].decay, kept);
    }
    for (int64_t i = t + count; i < std::min(n, t + count + kScanRows); ++i) {
      const int64_t r = row_of(i);
      PrefetchFloats(op.b.Row(r) + group * state_dim, state_dim);
      PrefetchFloats(op.c.Row(r) + group * state_dim, state_dim);
      PrefetchFloats(op.x.Row(r) + at, task.columns);
      PrefetchFloats(op.out.Row(r) + at, task.columns);
    }
    if (count == kScanRows) {
      ForStateColumns<kScanVectors>(task.columns, [&](const auto& columns, int64_t c) HWY_ATTR {
        ScanRows<kScanRows>(columns, state_dim, task.columns, c, from, to, rows, skips, skip);
      });
    } else {
      ForStateColumns<kAloneVectors>(task.columns, [&](const auto& columns, int64_t c) HWY_ATTR {
        ScanRows<1>(columns, state_dim, task.columns, c, from, to, rows, skips, skip);
      });
    }
    from = to;
    t += count;
    task.KeepMid(t - 1);
  }
  task.Finish();
}

void RunSsmScan(const SsmScanOp& op, int64_t begin, int64_t end) {
  const StateTiles shape = TilesOf(op);
  for (int64_t t = begin; t < end; ++t) ScanTile(op, StateTask(op.layout, shape, op.runs, op.states, t));
}

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tally {

HWY_EXPORT(RunSsmScan);
void RunSsmScanHwy(const SsmScanOp& op, int64_t begin, int64_t end, std::span<uint8_t>) {
  HWY_DYNAMIC_DISPATCH(RunSsmScan)(op, begin, end);
}

}  // namespace tally
#endif
