// One row of a packed matrix, widened to f32: the scalar definition of every layout.
#pragma once

#include <cstdint>

#include "engine/kernels/weight_view.h"

namespace tally {

// Row `row` of slice `slice` as f32 [w.cols]; any layout, any dtype that PanelBytes knows (kVector: row 0).
void UnpackRow(const WeightView& w, int64_t slice, int64_t row, float* out);

// Element k of row `row` of a panel as the integer the int8 path multiplies by (Q8_0: q; Q4_0: q - 8; MXFP4: twice the E2M1
// value), and block kb's scale as f32 (MXFP4: 2^(e-127), to be halved).
int PanelQuant(DType t, const uint8_t* panel, int row, int64_t k);
float PanelScale(DType t, const uint8_t* panel, int row, int64_t kb);

}  // namespace tally
