// SPDX-License-Identifier: Apache-2.0
// OpenBLAS, loaded on first use. If it were linked, it would start its threads in every process.
#pragma once

#include <cstdint>

#include "engine/base/status.h"

namespace tally {

// The first call loads the library for the life of the process and sets it to one thread. kBadInput: it is missing, or lacks the
// expected functions. Callable from any thread.
Status LoadOpenBlas();

// y[m][n] = x[m][k] w[n][k]^T. Rows of x and w are contiguous, rows of y are y_stride apart. Serial; callable from any thread after
// LoadOpenBlas has succeeded.
void OpenBlasGemmNT(int64_t m, int64_t n, int64_t k, const float* x, const float* w, float* y, int64_t y_stride);

}  // namespace tally
