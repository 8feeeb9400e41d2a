// SPDX-License-Identifier: Apache-2.0
// The scalar reference of SsmScanOp. A task is a tile of a head.
//
// Targets with FMA give the same bits. Others round each product once more, and later rows carry that on, in proportion to the size of the
// state: |out - out'| <= SsmScanTolerance(N, rows) max |out|, the largest of the sequence's outputs.
#pragma once

#include <cmath>
#include <cstdint>

#include "engine/kernels/scalar.h"
#include "engine/kernels/ssm_scan/ssm_scan.h"
#include "engine/kernels/ssm_scan/ssm_scan_tiles.h"

namespace tally {

inline double SsmScanTolerance(int64_t state_dim, int64_t rows) {
  return 4 * std::sqrt(static_cast<double>(state_dim * rows)) * 0x1p-24;
}

// S, R: the scalars of the rows, and of positions that are done again.
template <class S, class R>
void SsmScanRef(const SsmScanOp& op, int64_t begin, int64_t end) {
  const StateTiles shape = TilesOf(op);
  const ReplayRows replay = RowsOf(op);
  const int64_t N = op.state_dim();
  for (int64_t index = begin; index < end; ++index) {
    const StateTask task(op.layout, shape, op.runs, op.states, index);
    const int64_t h = task.head, g = GroupOf(op, h), P = op.head_dim();
    const float* from = task.From();
    float* const to = task.To();
    for (int64_t i = task.table.at; i < task.run.position; ++i, from = to) {
      const float* const row = ReplayRow(op.layout, task.table, i);
      for (int64_t e = 0; e < task.floats(); ++e) {
        const R b(row[replay.KAt(g) + e / task.columns]), u(row[replay.UAt(h) + task.column + e % task.columns]);
        to[e] = ToF32(Fma(b, u, R(row[replay.WAt(h)]) * R(from[e])));
      }
    }
    for (int64_t t = 0; t < task.run.rows; ++t, from = to) {
      const int64_t r = op.runs.order[static_cast<size_t>(task.run.begin + t)];
      const float *const b = op.b.Row(r) + g * N, *const c = op.c.Row(r) + g * N;
      const float w = op.decay.Row(r)[h];
      float* const row = ReplayRow(op.layout, task.table, task.run.position + t);
      for (int64_t i = 0; i < task.columns; ++i) {
        const int64_t at = h * P + task.column + i;
        const S x(op.x.Row(r)[at]), u = S(op.step.Row(r)[h]) * x;
        S sum(0.0f);
        for (int64_t d = 0; d < N; ++d) {
          const int64_t e = d * task.columns + i;
          const S s = Fma(S(b[d]), u, S(w) * S(from[e]));
          to[e] = ToF32(s);
          sum = Fma(s, S(c[d]), sum);
        }
        op.out.Row(r)[at] = ToF32(op.skip.empty() ? sum : Fma(S(SkipOf(op, h)), x, sum));
        if (row != nullptr) row[replay.UAt(h) + task.column + i] = ToF32(u);
      }
      replay.Keep(task, g, FirstOfGroup(op, h), b, &w, row);
      task.KeepMid(t);
    }
    task.Finish();
  }
}

}  // namespace tally
