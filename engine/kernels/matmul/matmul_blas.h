// SPDX-License-Identifier: Apache-2.0
// Matrix products by OpenBLAS, for comparison (--impl blas). Activations are f32; weights are widened into scratch first.
// OpenBLAS sums in its own order, so results differ slightly from the other kernels'.
#pragma once

#include <cstdint>
#include <span>

#include "engine/kernels/matmul/matmul_job.h"

namespace tally {

// A task is a block of output rows of one group. Each call of OpenBLAS is serial.
TaskPlan BlasPlan(const MatJob& job, int threads);
void RunBlas(const MatJob& job, int64_t begin, int64_t end, std::span<uint8_t> scratch);

}  // namespace tally
