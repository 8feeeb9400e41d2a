// SPDX-License-Identifier: Apache-2.0
// The scalar reference of attention. It is a template over four scalar types, so that types that count their operations (scalar.h)
// can tell the kinds of work apart:
//   A  the products q.k and p.v                      class attention, useful
//   S  scale, softmax and sink                       class softmax, useful
//   J  merging blocks and ranges                     class softmax, executed only
//   Z  rounding q to int8, scaling the integer sums  class quantise, executed only
// Conversions between them go through float and cost nothing, as does rounding to bf16.
//
// Tolerance of the Highway kernels, beside the roundings of f32 sums: p rounded to bf16 may fall to the other side, a relative 2^-7 of
// any p v; and what a bf16 dot product flushes (matmul_ref.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "engine/base/float16.h"
#include "engine/kernels/attention/attention_internal.h"
#include "engine/kernels/attention/query_int8.h"
#include "engine/kernels/kv_store/kv_formats-inl.h"
#include "engine/kernels/scalar.h"

namespace tally {

inline float AsBF16(float x) { return BF16ToF32(F32ToBF16(x)); }

// q.k for position `lane` of a block.
template <class Format, class A, class Z>
float Score(const KvLayout& layout, const uint8_t* share, int64_t lane, const float* q) {
  A dot(0.0f);
  if constexpr (requires { Format::KeyInteger; }) {
    for (int64_t d = 0; d < layout.k_dim; d += kKvQ8Block) {
      const int64_t n = std::min(kKvQ8Block, layout.k_dim - d);
      int8_t rounded[kKvQ8Block];
      const float scale = QuantiseQuery<float>(q + d, n, rounded);
      A sum(0.0f);  // integers below 2^24: exact
      for (int64_t i = 0; i < n; ++i) {
        sum = Fma(A(static_cast<float>(Format::KeyInteger(layout, share, lane, d + i))), A(static_cast<float>(rounded[i])), sum);
      }
      dot = A(ToF32(Fma(Z(ToF32(sum)), Z(Format::KeyScale(layout, share, lane, d)) * Z(scale), Z(ToF32(dot)))));
    }
  } else {
    const bool round = layout.KeyArith() == Arith::kBF16;
    for (int64_t d = 0; d < layout.k_dim; ++d) {
      dot = Fma(A(Format::Key(layout, share, lane, d)), A(round ? AsBF16(q[d]) : q[d]), dot);
    }
  }
  return ToF32(dot);
}

// (max, sum, o) of a range or of a row, into which others are merged in order.
template <class J>
struct Running {
  J max = J(0.0f), sum = J(0.0f);
  J* o;  // [v_dim]
  bool empty = true;

  template <class T>
  void Merge(float other_max, float other_sum, const T* other, int64_t v_dim) {
    const J m(other_max), l(other_sum);
    if (empty) {
      empty = false;
      max = m, sum = l;
      for (int64_t d = 0; d < v_dim; ++d) o[d] = J(ToF32(other[d]));
      return;
    }
    J a(1.0f), b(1.0f);
    if (m > max) {
      a = Exp(max - m);
      max = m;
    } else {
      b = Exp(m - max);
    }
    sum = Fma(sum, a, l * b);
    for (int64_t d = 0; d < v_dim; ++d) o[d] = Fma(o[d], a, J(ToF32(other[d])) * b);
  }
};

// One row and query head. `o` is a work array [v_dim], `total` [2 v_dim].
template <class Format, class A, class S, class J, class Z>
void AttendFormat(const AttentionOp& op, int64_t row, int64_t head, A* o, J* total) {
  const KvLayout& layout = op.layout;
  const int64_t v_dim = layout.v_dim;
  const int64_t kv_head = head / (op.heads / layout.kv_heads);
  const size_t share_bytes = Format::HeadBytes(layout);
  const KvRow at = op.rows[row];
  const PositionRange visible = VisiblePositions(op, at);
  const float* q = op.q.Row(row) + head * layout.k_dim;
  const bool round = layout.ValueArith() == Arith::kBF16;
  if (layout.KeyArith() == Arith::kInt8) {  // once a row; each score repeats it, uncounted
    int8_t rounded[kKvQ8Block];
    for (int64_t d = 0; d < layout.k_dim; d += kKvQ8Block)
      QuantiseQuery<Z>(q + d, std::min(kKvQ8Block, layout.k_dim - d), rounded);
  }

  Running<J> all{.o = total}, range{.o = total + v_dim};
  for (int64_t d = 0; d < v_dim; ++d) total[d] = J(0.0f);
  if (!op.sinks.empty()) {
    const S sink(op.sinks.Vector()[head]);
    const S m = Max(S(-std::numeric_limits<float>::infinity()), sink);
    all.max = J(ToF32(m));
    all.sum = J(ToF32(S(0.0f) + Exp(sink - m)));
    all.empty = false;
  }

  for (int64_t block = visible.begin / kKvBlock; block * kKvBlock < visible.end; ++block) {
    const PositionRange lanes = Within(visible, block * kKvBlock, kKvBlock);
    const uint8_t* share = op.tables[at.table].blocks[block] + kv_head * share_bytes;
    S p[kKvBlock];
    S m(-std::numeric_limits<float>::infinity());
    for (int64_t lane = lanes.begin; lane < lanes.end; ++lane) {
      p[lane] = S(Score<Format, A, Z>(layout, share, lane, q)) * S(op.scale);
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
      const A weight(round ? AsBF16(ToF32(p[lane])) : ToF32(p[lane]));
      for (int64_t d = 0; d < v_dim; ++d) {
        const float v = Format::Value(layout, share, lane, d);
        o[d] = Fma(A(round ? AsBF16(v) : v), weight, o[d]);
      }
    }
    range.Merge(ToF32(m), ToF32(l), o, v_dim);
    if ((block + 1) % kRangeBlocks == 0 || (block + 1) * kKvBlock >= visible.end) {
      all.Merge(ToF32(range.max), ToF32(range.sum), range.o, v_dim);
      range.empty = true;
    }
  }

  const S sum(ToF32(all.sum));
  float* out = op.out.Row(row) + head * v_dim;
  for (int64_t d = 0; d < v_dim; ++d) out[d] = ToF32(S(ToF32(all.o[d])) / sum);
}

template <class A, class S, class J, class Z>
void AttendReference(const AttentionOp& op, int64_t row, int64_t head, A* o, J* total) {
  WithKvFormat(op.layout, [&](auto format) { AttendFormat<decltype(format), A, S, J, Z>(op, row, head, o, total); });
}

}  // namespace tally
