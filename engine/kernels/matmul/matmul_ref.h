// SPDX-License-Identifier: Apache-2.0
// The scalar reference of the matrix products, a template over the scalar type (engine/kernels/scalar.h).
//
// Tolerance of the Highway kernels, per output. f32 and int8 results are equal on targets with a fused multiply-add, as the
// operations and their order are the same. On other targets, and for native bf16 dot products (which round twice per pair, have
// their own order and flush subnormals), |error| <= 2 * terms * (2^-24 * sum |w x| + 2^-126), with terms = K (f32, bf16) or K/32
// (int8).
#pragma once

#include "engine/base/float16.h"
#include "engine/kernels/formats/weight_format.h"
#include "engine/kernels/math_scalar.h"
#include "engine/kernels/matmul/matmul_job.h"
#include "engine/kernels/pack_act/act_rows.h"
#include "engine/kernels/unpack.h"

namespace tally {

// Row `n` of a weight times a row of a group. `w_row`: the weight's row as f32 (f32 and bf16 activations).
template <class S>
S DotRow(const MatJob& job, const WeightView& w, int64_t slice, int64_t n, const float* w_row, const PackedRow& x) {
  S acc(0.0f);
  const int64_t cols = w.cols;
  switch (job.x.format.kind) {
    case ActKind::kF32:
      for (int64_t k = 0; k < cols; ++k) acc = Fma(S(w_row[k]), S(x.F32(k)), acc);
      break;
    case ActKind::kBF16:
      if (FormatOf(w.dtype).act == ActKind::kInt8) {  // the kernel rounds decoded weights
        for (int64_t k = 0; k < cols; ++k) acc = Fma(S(BF16ToF32(F32ToBF16(w_row[k]))), S(x.BF16(k)), acc);
        break;
      }
      for (int64_t k = 0; k < cols; ++k) acc = Fma(S(w_row[k]), S(x.BF16(k)), acc);
      break;
    case ActKind::kInt8: {
      const uint8_t* panel = w.Panel(slice, n / kPanelRows);
      Int8Terms terms;
      for (int64_t kb = 0; kb < cols / kInt8Block; ++kb) {
        FormatOf(w.dtype).int8_terms(panel, static_cast<int>(n % kPanelRows), kb, terms);
        S dot(0.0f);  // integers below 2^24: exact
        for (int i = 0; i < kInt8Block; ++i) {
          dot = dot + S(static_cast<float>(terms.w[i])) * S(static_cast<float>(x.Int8(kInt8Block * kb + i)));
        }
        acc = Fma(dot, S(terms.scale) * S(x.Scale(kb)), acc);
        for (int part = 0; part < job.x.format.minimum_sums(); ++part) {
          acc = Fma(S(terms.minimum[part]), S(x.ScaledSum(kb, part)), acc);
        }
      }
      break;
    }
  }
  return acc;
}

// Scratch: a row of each weight, widened.
inline size_t ReferenceScratchBytes(const MatJob& job) { return 2 * sizeof(float) * static_cast<size_t>(job.w.cols); }

template <class S>
void MatJobReference(const MatJob& job, int64_t begin, int64_t end, std::span<uint8_t> scratch) {
  const int64_t pairs = job.pairs(), per_pair = (job.gated ? 1 : 2) * kPanelRows;
  float* w_row = reinterpret_cast<float*>(scratch.data());
  float* up_row = w_row + job.w.cols;
  const bool widen = job.x.format.kind != ActKind::kInt8;
  for (int64_t t = begin; t < end; ++t) {
    const RowGroup& group = job.x.groups[static_cast<size_t>(t / pairs)];
    const int64_t first = t % pairs * per_pair, last = std::min(first + per_pair, job.w.rows);
    for (int64_t n = first; n < last && group.rows > 0; ++n) {
      if (widen) UnpackRow(job.w, group.slice, n, w_row);
      if (widen && job.gated) UnpackRow(job.up, group.slice, n, up_row);
      for (int64_t r = 0; r < group.rows; ++r) {
        const PackedRow x(job.x, group, r);
        S y = DotRow<S>(job, job.w, group.slice, n, w_row, x);
        if (!job.bias.empty()) y = y + S(job.bias.Vector(group.slice)[n]);
        if (job.gated) {
          S u = DotRow<S>(job, job.up, group.slice, n, up_row, x);
          if (!job.up_bias.empty()) u = u + S(job.up_bias.Vector(group.slice)[n]);
          y = ActivateGated(job.activation, y, u, S(job.swiglu_alpha), S(job.swiglu_limit));
        } else {
          y = Activate(job.activation, y);
        }
        const int64_t row = group.row_begin + r;
        float& out = job.out.Row(job.out_row.empty() ? row : job.out_row[static_cast<size_t>(row)])[n];
        out = ToF32(job.add_to_out ? S(out) + y : y);
      }
    }
  }
}

}  // namespace tally
