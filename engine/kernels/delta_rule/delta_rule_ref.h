// SPDX-License-Identifier: Apache-2.0
// The scalar reference of DeltaRuleOp. A task is a tile of a head.
//
// Targets with FMA do the same operations; only k . q' has another order of its K terms. Others round each product once more. Errors of a state
// are carried on by later rows, in proportion to its size: |out - out'| <= DeltaRuleTolerance(K, rows) max |out|, the largest of the
// sequence's outputs, for vectors k of length 1 and beta up to 1.
#pragma once

#include <cmath>
#include <cstdint>

#include "engine/kernels/delta_rule/delta_rule.h"
#include "engine/kernels/delta_rule/delta_rule_tiles.h"
#include "engine/kernels/scalar.h"

namespace tally {

inline double DeltaRuleTolerance(int64_t k_dim, int64_t rows) {
  return 4 * std::sqrt(static_cast<double>(k_dim * rows)) * 0x1p-24;
}

// S, R: the scalars of the rows, and of positions that are done again.
template <class S, class R>
void DeltaRuleRef(const DeltaRuleOp& op, int64_t begin, int64_t end) {
  const StateTiles shape = TilesOf(op);
  const ReplayRows replay = RowsOf(op);
  const int64_t K = op.k_dim();
  for (int64_t index = begin; index < end; ++index) {
    const StateTask task(op.layout, shape, op.runs, op.states, index);
    const int64_t h = task.head, kh = op.KeyHead(h), V = op.v_dim();
    const float* from = task.From();
    float* const to = task.To();
    for (int64_t i = task.table.at; i < task.run.position; ++i, from = to) {
      const float* const row = ReplayRow(op.layout, task.table, i);
      for (int64_t e = 0; e < task.floats(); ++e) {
        const R k(row[replay.KAt(kh) + e / task.columns]), u(row[replay.UAt(h) + task.column + e % task.columns]);
        to[e] = ToF32(Fma(k, u, R(row[replay.WAt(h)]) * R(from[e])));
      }
    }
    for (int64_t t = 0; t < task.run.rows; ++t, from = to) {
      const int64_t r = op.runs.order[static_cast<size_t>(task.run.begin + t)];
      const float *const k = op.k.Row(r) + kh * K, *const q = op.q.Row(r) + kh * K;
      const float w = op.decay.Row(r)[h];
      float* const row = ReplayRow(op.layout, task.table, task.run.position + t);
      S score(0.0f);
      // The products with q' are counted once a head.
      if (task.first) {
        for (int64_t d = 0; d < K; ++d) score = Fma(S(k[d]), S(op.q_scale) * S(q[d]), score);
      } else {
        float sum = 0;
        for (int64_t d = 0; d < K; ++d) sum = Fma(k[d], op.q_scale * q[d], sum);
        score = S(sum);
      }
      for (int64_t c = 0; c < task.columns; ++c) {
        const int64_t at = h * V + task.column + c;
        S a(0.0f), b(0.0f);
        for (int64_t d = 0; d < K; ++d) {
          const S s(from[d * task.columns + c]);
          a = Fma(s, S(k[d]), a);
          b = Fma(s, S(op.q_scale * q[d]), b);
        }
        const S u = S(op.beta.Row(r)[h]) * Fma(-S(w), a, S(op.v.Row(r)[at]));
        op.out.Row(r)[at] = ToF32(Fma(score, u, S(w) * b));
        if (row != nullptr) row[replay.UAt(h) + task.column + c] = ToF32(u);
        for (int64_t d = 0; d < K; ++d) {
          const int64_t e = d * task.columns + c;
          to[e] = ToF32(Fma(S(k[d]), u, S(w) * S(from[e])));
        }
      }
      replay.Keep(task, kh, FirstOfKeyHead(op, h), k, w, row);
      task.KeepMid(t);
    }
    task.Finish();
  }
}

}  // namespace tally
