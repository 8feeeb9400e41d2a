// The scalar reference of attention. It is a template over three scalar types, so that types that count their operations (scalar.h)
// can tell the kinds of work apart:
//   A  the products q.k and p.v                      class attention, useful
//   S  scale, softmax and sink                       class softmax, useful
//   J  merging a block into the running sums         class softmax, executed only
// Conversions between them go through float and cost nothing.
#pragma once

#include <cstdint>
#include <limits>

#include "engine/kernels/attention/attention_internal.h"
#include "engine/kernels/kv_store/kv_formats-inl.h"
#include "engine/kernels/scalar.h"

namespace tally {

// One row and query head. `o` and `total` are [v_dim] work arrays.
template <class Format, class A, class S, class J>
void AttendFormat(const AttentionOp& op, int64_t row, int64_t head, A* o, J* total) {
  const KvLayout& layout = op.layout;
  const int64_t k_dim = layout.k_dim, v_dim = layout.v_dim;
  const int64_t kv_head = head / (op.heads / layout.kv_heads);
  const size_t share_bytes = Format::HeadBytes(layout);
  const KvRow at = op.rows[row];
  const PositionRange visible = VisiblePositions(op, at.position);
  const float* q = op.q.Row(row) + head * k_dim;

  J running_max(0.0f), running_sum(0.0f);
  bool first = op.sinks.empty();
  for (int64_t d = 0; d < v_dim; ++d) total[d] = J(0.0f);
  if (!first) {
    const S sink(op.sinks.Vector()[head]);
    const S m = Max(S(-std::numeric_limits<float>::infinity()), sink);
    running_max = J(ToF32(m));
    running_sum = J(ToF32(S(0.0f) + Exp(sink - m)));
  }

  for (int64_t block = visible.begin / kKvBlock; block * kKvBlock < visible.end; ++block) {
    const PositionRange lanes = Within(visible, block * kKvBlock, kKvBlock);
    const uint8_t* share = op.tables[at.table].blocks[block] + kv_head * share_bytes;
    S p[kKvBlock];
    S m(-std::numeric_limits<float>::infinity());
    for (int64_t lane = lanes.begin; lane < lanes.end; ++lane) {
      A dot(0.0f);
      for (int64_t d = 0; d < k_dim; ++d) dot = Fma(A(Format::Key(layout, share, lane, d)), A(q[d]), dot);
      p[lane] = S(ToF32(dot)) * S(op.scale);
      if (op.softcap != 0) p[lane] = S(op.softcap) * Tanh(p[lane] * S(1 / op.softcap));
      if (!op.slopes.empty()) {
        p[lane] =
            Fma(S(op.slopes[static_cast<size_t>(head)]), S(static_cast<float>(block * kKvBlock + lane - at.position)), p[lane]);
      }
      m = Max(m, p[lane]);
    }
    S l(0.0f);
    for (int64_t d = 0; d < v_dim; ++d) o[d] = A(0.0f);
    for (int64_t lane = lanes.begin; lane < lanes.end; ++lane) {
      p[lane] = Exp(p[lane] - m);
      l = l + p[lane];
      const A weight(ToF32(p[lane]));
      for (int64_t d = 0; d < v_dim; ++d) o[d] = Fma(A(Format::Value(layout, share, lane, d)), weight, o[d]);
    }

    const J block_max(ToF32(m)), block_sum(ToF32(l));
    if (first) {
      first = false;
      running_max = block_max;
      running_sum = block_sum;
      for (int64_t d = 0; d < v_dim; ++d) total[d] = J(ToF32(o[d]));
      continue;
    }
    J a(1.0f), b(1.0f);
    if (block_max > running_max) {
      a = Exp(running_max - block_max);
      running_max = block_max;
    } else {
      b = Exp(block_max - running_max);
    }
    running_sum = Fma(running_sum, a, block_sum * b);
    for (int64_t d = 0; d < v_dim; ++d) total[d] = Fma(total[d], a, J(ToF32(o[d])) * b);
  }

  const S sum(ToF32(running_sum));
  float* out = op.out.Row(row) + head * v_dim;
  for (int64_t d = 0; d < v_dim; ++d) out[d] = ToF32(S(ToF32(total[d])) / sum);
}

template <class A, class S, class J>
void AttendReference(const AttentionOp& op, int64_t row, int64_t head, A* o, J* total) {
  WithKvFormat(op.layout, [&](auto format) { AttendFormat<decltype(format), A, S, J>(op, row, head, o, total); });
}

}  // namespace tally
