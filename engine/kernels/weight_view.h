// SPDX-License-Identifier: Apache-2.0
// A packed weight as kernels see it.
//
// Layouts:
//   kVector    f32[slices][cols]: norms, biases, sinks; rows = 1.
//   kRowMajor  rows as stored: tables that are only gathered from.
//   kPanel16   panels of 16 output rows, the last one zero-padded; panel p holds rows 16p .. 16p+15. A panel is a run of blocks
//              along the input dimension. A block is a run of strips. A strip has 16 pieces of equal length, one for each row: 4
//              consecutive bytes along K (a step, 64 bytes), or scales. engine/kernels/formats/<format>.h lists the strips.
// Every slice starts on a 4096-byte page; loaded with guards for an audit, it ends with a page instead. Kernels may prefetch past
// the end of a slice but must not load there.
#pragma once

#include <cstddef>
#include <cstdint>

#include "counters/cost/cost.h"
#include "engine/base/dtype.h"

namespace tally {

enum class WeightLayout : uint8_t { kVector, kRowMajor, kPanel16 };
inline constexpr int kPanelRows = 16;

struct WeightView {
  WeightId id = kNoWeight;
  DType dtype = DType::kF32;
  WeightLayout layout = WeightLayout::kVector;
  int64_t slices = 1;             // experts
  int64_t rows = 0, cols = 0;     // per slice; cols is the input dimension K
  size_t slice_stride = 0;        // bytes between slices
  size_t panel_stride = 0;        // kPanel16: bytes of a panel; kRowMajor: bytes of a row
  uint64_t stored_row_bytes = 0;  // bytes of one row in the file, with the scales that are its own
  // Scales in the file that rows share: of a whole slice, and those that one row needs.
  uint64_t stored_scale_bytes = 0, row_scale_bytes = 0;
  const uint8_t* data = nullptr;
  // Of weights that are read from disk when they are used: where each slice is now, null if it is not in memory. `data` then is the memory
  // that they are read to.
  const uint8_t* const* slots = nullptr;

  bool empty() const { return data == nullptr; }
  int64_t panels() const { return (rows + kPanelRows - 1) / kPanelRows; }
  const uint8_t* Slice(int64_t s) const { return slots != nullptr ? slots[s] : data + s * slice_stride; }
  const uint8_t* Panel(int64_t s, int64_t p) const { return Slice(s) + p * panel_stride; }
  const float* Vector(int64_t s = 0) const { return reinterpret_cast<const float*>(Slice(s)); }
};

// Bytes of one panel of 16 rows by `cols`; 0 if `t` is no weight type.
size_t PanelBytes(DType t, int64_t cols);

}  // namespace tally
