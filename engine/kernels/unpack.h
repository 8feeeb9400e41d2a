// SPDX-License-Identifier: Apache-2.0
// One row of a packed matrix, widened to f32.
#pragma once

#include <cstdint>

#include "engine/kernels/weight_view.h"

namespace tally {

// Row `row` of slice `slice` as f32 [w.cols]; any layout, any weight type (kVector: row 0).
void UnpackRow(const WeightView& w, int64_t slice, int64_t row, float* out);

}  // namespace tally
