// Matrix products by OpenBLAS, for comparison (--impl blas): f32 activations; weights are widened into scratch first. The
// library sums in an order of its own, so results are close to, not equal to, the other kernels'.
#pragma once

#include <cstdint>
#include <span>

#include "engine/kernels/matmul/matmul_job.h"

namespace tally {

// A task is a block of output rows of one group, so that the team splits outputs and each call into the library is serial.
TaskPlan BlasPlan(const MatJob& job, int threads);
void RunBlas(const MatJob& job, int64_t begin, int64_t end, std::span<uint8_t> scratch);

}  // namespace tally
