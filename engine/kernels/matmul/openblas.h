// OpenBLAS, loaded when it is first asked for: linked, it would start its threads in every process.
#pragma once

#include <cstdint>

#include "engine/base/status.h"

namespace tally {

// The first call loads the library, for the life of the process, and switches its own threads off. kBadInput: it is not there, or
// not what it is named. Callable from any thread.
Status LoadOpenBlas();

// y[m][n] = x[m][k] w[n][k]^T, rows of x and w without gaps, those of y y_stride apart. Serial, callable from any thread, once
// LoadOpenBlas has succeeded.
void OpenBlasGemmNT(int64_t m, int64_t n, int64_t k, const float* x, const float* w, float* y, int64_t y_stride);

}  // namespace tally
