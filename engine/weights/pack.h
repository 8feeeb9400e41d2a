// Rows as a file holds them -> the packed layouts of engine/kernels/weight_view.h. Everything here moves
// bits; only kVector converts (F16 and BF16 to f32, exact).
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/base/dtype.h"
#include "engine/kernels/weight_view.h"

namespace tally {

// Consecutive rows of a matrix in a staging buffer. Hugging Face MXFP4 keeps its scales in a tensor of their
// own and its nibbles in another order (byte j of a block: elements 2j and 2j + 1): `scales` is set for it,
// and only for it.
struct StagedRows {
  const uint8_t* data = nullptr;
  size_t stride = 0;                // bytes from a row to the next; twice a row where rows of two matrices alternate
  const uint8_t* scales = nullptr;  // E8M0, one per 32 elements
  size_t scale_stride = 0;
};

// Rows [row_begin, row_begin + n) of a matrix [rows, cols] into kPanel16 (row_begin a multiple of 16) or
// kRowMajor; `dst` is the slice's first byte. A panel that these rows leave unfinished is filled up with
// zeros (Q8_0: 128, Q4_0: nibbles 8).
void PackStaged(DType dtype, WeightLayout layout, int64_t cols, int64_t row_begin, int64_t n, const StagedRows& src,
                uint8_t* dst);

// Input rows [k_begin, k_begin + n) of a matrix stored [cols, rows] (the input dimension outermost) into the
// panels of its transpose [rows, cols]. F32, F16, BF16; `src` holds those input rows, contiguous; k_begin is
// even, and so is n unless k_begin + n == cols.
void PackTransposed(DType dtype, int64_t rows, int64_t cols, int64_t k_begin, int64_t n, const uint8_t* src, uint8_t* dst);

// n elements, `stride` elements apart, as f32. F32, F16, BF16.
void WidenToF32(DType dtype, int64_t n, int64_t stride, const uint8_t* src, float* dst);

}  // namespace tally
