// SPDX-License-Identifier: Apache-2.0
// Packs rows of a file into the layouts of engine/kernels/weight_view.h. Values do not change; kVector converts F16 and BF16 to
// f32, exactly.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/base/dtype.h"
#include "engine/kernels/formats/weight_format.h"

namespace tally {

// Packs n rows, the first being row `row_begin`, into kPanel16 (row_begin a multiple of 16) or kRowMajor. `dst` is the slice's
// first byte. The last panel is filled up with rows of zeros.
void PackStaged(DType dtype, WeightLayout layout, int64_t cols, int64_t row_begin, int64_t n, const StagedRows& src,
                uint8_t* dst);

// Packs rows [row_begin, row_begin + n) of one matrix or expert slice in the engine's layout. `src` holds those rows; row_begin
// is a multiple of 16 for kPanel16; `dst` is the slice's first byte. Rows beyond `rows` in the last panel become zeros. UnpackRow
// (engine/kernels/unpack.h) is the reverse.
void PackRows(DType dtype, WeightLayout layout, int64_t rows, int64_t cols, int64_t row_begin, int64_t n, const uint8_t* src,
              uint8_t* dst);

// Packs input rows [k_begin, k_begin + n) of a matrix stored as [cols, rows] (the input dimension outermost) into the panels of its
// transpose [rows, cols]. Only types that are not quantised. `src` holds those input rows, contiguous. k_begin is even, and n is
// even unless k_begin + n == cols.
void PackTransposed(DType dtype, int64_t rows, int64_t cols, int64_t k_begin, int64_t n, const uint8_t* src, uint8_t* dst);

// Converts n elements, `stride` elements apart, to f32. Quantised types: whole blocks, stride 1.
void WidenToF32(DType dtype, int64_t n, int64_t stride, const uint8_t* src, float* dst);

}  // namespace tally
