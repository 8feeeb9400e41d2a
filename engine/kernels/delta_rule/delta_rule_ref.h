// SPDX-License-Identifier: Apache-2.0
// The scalar reference of DeltaRuleOp. A task is a tile of a head.
//
// Targets with FMA do the same operations; only k . q' has another order of its K terms. Others round each product once more. Errors of a
// state are carried on by later rows, in proportion to its size: |out - out'| <= DeltaRuleTolerance(K, rows) max |out|, the largest of the
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
        const int64_t w = replay.WAt(h) + (op.channel_decay ? e / task.columns : 0);
        to[e] = ToF32(Fma(k, u, R(row[w]) * R(from[e])));
      }
    }
    for (int64_t t = 0; t < task.run.rows; ++t, from = to) {
      const int64_t r = op.runs.order[static_cast<size_t>(task.run.begin + t)];
      const float *const k = op.k.Row(r) + kh * K, *const q = op.q.Row(r) + kh * K;
      const float* const w = op.decay.Row(r) + h * op.decay_dim();
      float* const row = ReplayRow(op.layout, task.table, task.run.position + t);
      S score(0.0f);
      // The products with q', and those with the decays, are counted once a head.
      if (task.first) {
        for (int64_t d = 0; d < K; ++d) {
          const S scaled = S(op.q_scale) * S(q[d]);
          score = Fma(S(k[d]), scaled, score);
          if (op.channel_decay) static_cast<void>(S(w[d]) * S(k[d])), static_cast<void>(S(w[d]) * scaled);
        }
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
          const float scaled = op.q_scale * q[d];
          a = Fma(s, S(op.channel_decay ? w[d] * k[d] : k[d]), a);
          b = Fma(s, S(op.channel_decay ? w[d] * scaled : scaled), b);
        }
        const S beta(op.beta.Row(r)[h]), v(op.v.Row(r)[at]);
        const S u = beta * (op.channel_decay ? v - a : Fma(-S(*w), a, v));
        op.out.Row(r)[at] = ToF32(Fma(score, u, op.channel_decay ? b : S(*w) * b));
        if (row != nullptr) row[replay.UAt(h) + task.column + c] = ToF32(u);
        for (int64_t d = 0; d < K; ++d) {
          const int64_t e = d * task.columns + c;
          to[e] = ToF32(Fma(S(k[d]), u, S(w[op.channel_decay ? d : 0]) * S(from[e])));
        }
      }
      replay.Keep(task, kh, FirstOfKeyHead(op, h), k, w, row);
      task.KeepMid(t);
    }
    task.Finish();
  }
}

}  // namespace tally
