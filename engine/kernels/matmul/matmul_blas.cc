// SPDX-License-Identifier: Apache-2.0
#include "engine/kernels/matmul/matmul_blas.h"

#include <algorithm>

#include "engine/kernels/math_scalar.h"
#include "engine/kernels/matmul/openblas.h"
#include "engine/kernels/pack_act/act_rows.h"
#include "engine/kernels/unpack.h"

namespace tally {
namespace {

constexpr int64_t kBlockRows = 256;  // output rows of a task

int64_t Blocks(const MatJob& job) { return (job.w.rows + kBlockRows - 1) / kBlockRows; }

// y[rows][n] = x[rows][cols] w[n][cols]^T for output rows [first, first + n) of a weight.
void Product(const WeightView& w, int64_t slice, int64_t first, int64_t n, int64_t rows, const float* x, float* w_rows,
             float* y) {
  for (int64_t i = 0; i < n; ++i) UnpackRow(w, slice, first + i, w_rows + i * w.cols);
  OpenBlasGemmNT(rows, n, w.cols, x, w_rows, y, kBlockRows);
}

}  // namespace

TaskPlan BlasPlan(const MatJob& job, int threads) {
  TaskPlan plan;
  plan.tasks = Blocks(job) * static_cast<int64_t>(job.x.groups.size());
  plan.chunk = 1;
  const size_t rows = static_cast<size_t>(job.max_group_rows()), cols = static_cast<size_t>(job.w.cols);
  plan.scratch_bytes = sizeof(float) * (rows * cols + kBlockRows * cols + 2 * rows * kBlockRows);
  return plan;
}

void RunBlas(const MatJob& job, int64_t begin, int64_t end, std::span<uint8_t> scratch) {
  const int64_t cols = job.w.cols, max_rows = job.max_group_rows();
  float* x = reinterpret_cast<float*>(scratch.data());
  float* w_rows = x + max_rows * cols;
  float* y = w_rows + kBlockRows * cols;
  float* u = y + max_rows * kBlockRows;
  const int64_t blocks = Blocks(job);
  for (int64_t t = begin; t < end; ++t) {
    const RowGroup& group = job.x.groups[static_cast<size_t>(t / blocks)];
    if (group.rows == 0) continue;
    for (int64_t r = 0; r < group.rows; ++r) {
      const PackedRow row(job.x, group, r);
      for (int64_t k = 0; k < cols; ++k) x[r * cols + k] = row.F32(k);
    }
    const int64_t first = t % blocks * kBlockRows, n = std::min(kBlockRows, job.w.rows - first);
    Product(job.w, group.slice, first, n, group.rows, x, w_rows, y);
    if (job.gated) Product(job.up, group.slice, first, n, group.rows, x, w_rows, u);
    for (int64_t r = 0; r < group.rows; ++r) {
      const int64_t pack_row = group.row_begin + r;
      float* out = job.out.Row(job.out_row.empty() ? pack_row : job.out_row[static_cast<size_t>(pack_row)]) + first;
      for (int64_t i = 0; i < n; ++i) {
        float v = y[r * kBlockRows + i];
        if (!job.bias.empty()) v += job.bias.Vector(group.slice)[first + i];
        if (job.gated) {
          float g = u[r * kBlockRows + i];
          if (!job.up_bias.empty()) g += job.up_bias.Vector(group.slice)[first + i];
          v = ActivateGated(job.activation, v, g, job.swiglu_alpha, job.swiglu_limit);
        } else {
          v = Activate(job.activation, v);
        }
        out[i] = job.add_to_out ? out[i] + v : v;
      }
    }
  }
}

}  // namespace tally
