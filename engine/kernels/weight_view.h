// A packed weight as kernels see it.
//
// Layouts:
//   kVector    f32[slices][cols]: norms, biases, sinks; rows = 1.
//   kRowMajor  rows as stored: tables that are only gathered from.
//   kPanel16   panels of 16 output rows (the last one zero-padded); panel p holds rows 16p .. 16p+15. Within a panel the
//              input dimension runs in steps that put 4 consecutive K bytes of each of the 16 rows side by side (64 bytes):
//                F32          step = 1 k:  [K][16] f32
//                F16, BF16    step = 2 k:  [ceil(K/2)][16][2] (an odd K is zero-padded)
//                Q8_0         per 32 k:    16 f16 scales (32 bytes), then 8 steps of [16][4] u8 = q + 128
//                Q4_0         per 32 k:    16 f16 scales (32 bytes), then 4 x 64 bytes: byte i of [16][4] of chunk j holds
//                             step j's value in its low and step j + 4's in its high nibble, u4 = q + 8
//                MXFP4        per 32 k:    16 E8M0 scales (16 bytes), then 4 x 64 bytes of E2M1 codes, nibbles as in Q4_0
// Every tensor and every slice starts on a 4096-byte page or, loaded with guards for an audit, ends at one. Kernels may prefetch past
// the end of a slice, never load.
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
  size_t slice_stride = 0;        // bytes from a slice to the next
  size_t panel_stride = 0;        // kPanel16: bytes of a panel; kRowMajor: bytes of a row
  uint64_t stored_row_bytes = 0;  // bytes of one row in the file, scales included
  int64_t row_offset = 0;         // this view's first row within the tensor (a shard of it)
  const uint8_t* data = nullptr;

  bool empty() const { return data == nullptr; }
  int64_t panels() const { return (rows + kPanelRows - 1) / kPanelRows; }
  const uint8_t* Slice(int64_t s) const { return data + s * slice_stride; }
  const uint8_t* Panel(int64_t s, int64_t p) const { return data + s * slice_stride + p * panel_stride; }
  const float* Vector(int64_t s = 0) const { return reinterpret_cast<const float*>(data + s * slice_stride); }
};

// Bytes of one panel of 16 rows by `cols`.
constexpr size_t PanelBytes(DType t, int64_t cols) {
  switch (t) {
    case DType::kF32: return static_cast<size_t>(cols) * 64;
    case DType::kF16:
    case DType::kBF16: return static_cast<size_t>((cols + 1) / 2) * 64;
    case DType::kQ8_0: return static_cast<size_t>(cols / 32) * 544;
    case DType::kQ4_0: return static_cast<size_t>(cols / 32) * 288;
    case DType::kMXFP4: return static_cast<size_t>(cols / 32) * 272;
    default: return 0;
  }
}
constexpr bool CanMultiply(DType t) { return PanelBytes(t, 32) != 0; }

}  // namespace tally
