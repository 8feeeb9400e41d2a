// Rows as a file holds them -> the packed layouts of engine/kernels/weight_view.h. Everything here moves
// bits; only kVector converts (F16 and BF16 to f32, exact).
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/base/dtype.h"
#include "engine/kernels/formats/weight_format.h"

namespace tally {

// Rows [row_begin, row_begin + n) of a matrix [rows, cols] into kPanel16 (row_begin a multiple of 16) or
// kRowMajor; `dst` is the slice's first byte. A panel that these rows leave unfinished is filled up with
// rows of zeros.
void PackStaged(DType dtype, WeightLayout layout, int64_t cols, int64_t row_begin, int64_t n, const StagedRows& src,
                uint8_t* dst);

// Packs rows [row_begin, row_begin + n) of one matrix (or expert slice) that is stored as the engine wants it: `src`
// holds those rows, row_begin is a multiple of 16 for kPanel16, and `dst` is the slice's first byte. What rows beyond
// `rows` would fill of the last panel has the value zero. UnpackRow (engine/kernels/unpack.h) is the reverse.
void PackRows(DType dtype, WeightLayout layout, int64_t rows, int64_t cols, int64_t row_begin, int64_t n, const uint8_t* src,
              uint8_t* dst);

// Input rows [k_begin, k_begin + n) of a matrix stored [cols, rows] (the input dimension outermost) into the
// panels of its transpose [rows, cols]. Types that are not quantised; `src` holds those input rows, contiguous; k_begin is
// even, and so is n unless k_begin + n == cols.
void PackTransposed(DType dtype, int64_t rows, int64_t cols, int64_t k_begin, int64_t n, const uint8_t* src, uint8_t* dst);

// n elements, `stride` elements apart, as f32. Types that are not quantised.
void WidenToF32(DType dtype, int64_t n, int64_t stride, const uint8_t* src, float* dst);

}  // namespace tally
