// SPDX-License-Identifier: Apache-2.0
#include "engine/kernels/unpack.h"

#include <cstring>

#include "engine/kernels/formats/weight_format.h"

namespace tally {

void UnpackRow(const WeightView& w, int64_t slice, int64_t row, float* out) {
  const WeightFormat& format = FormatOf(w.dtype);
  switch (w.layout) {
    case WeightLayout::kVector: std::memcpy(out, w.Vector(slice), static_cast<size_t>(w.cols) * sizeof(float)); return;
    case WeightLayout::kRowMajor: {
      const uint8_t* stored = w.Slice(slice) + static_cast<size_t>(row) * w.panel_stride;
      format.decode(stored, w.cols / GetDTypeInfo(w.dtype).block_size, out);
      return;
    }
    case WeightLayout::kPanel16:
      format.unpack(w.Panel(slice, row / kPanelRows), static_cast<int>(row % kPanelRows), w.cols, out);
      return;
  }
}

}  // namespace tally
