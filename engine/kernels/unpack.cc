#include "engine/kernels/unpack.h"

#include <cstring>

#include "engine/base/float16.h"
#include "engine/base/quant_blocks.h"

namespace tally {
namespace {

template <class T>
T LoadAt(const uint8_t* p) {
  T v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}

size_t QuantBytes(DType t) { return t == DType::kQ8_0 ? 512 : 256; }
size_t ScaleBytes(DType t) { return t == DType::kMXFP4 ? 16 : 32; }

}  // namespace

int PanelQuant(DType t, const uint8_t* panel, int row, int64_t k) {
  const uint8_t* q = panel + (k / 32) * (QuantBytes(t) + ScaleBytes(t)) + ScaleBytes(t);
  const int step = static_cast<int>(k % 32) / 4, in_step = row * 4 + static_cast<int>(k % 4);
  if (t == DType::kQ8_0) return static_cast<int>(q[step * 64 + in_step]) - 128;
  const uint8_t byte = q[(step & 3) * 64 + in_step];
  const int nibble = step < 4 ? byte & 15 : byte >> 4;
  return t == DType::kQ4_0 ? nibble - 8 : kE2M1Doubled[nibble];
}

float PanelScale(DType t, const uint8_t* panel, int row, int64_t kb) {
  const uint8_t* s = panel + kb * (QuantBytes(t) + ScaleBytes(t));
  if (t == DType::kMXFP4) return E8M0ToF32(s[row]);
  return F16ToF32(LoadAt<uint16_t>(s + 2 * row));
}

void UnpackRow(const WeightView& w, int64_t slice, int64_t row, float* out) {
  const int64_t cols = w.cols;
  if (w.layout == WeightLayout::kVector) {
    std::memcpy(out, w.Vector(slice), static_cast<size_t>(cols) * sizeof(float));
    return;
  }
  if (w.layout == WeightLayout::kRowMajor) {
    const uint8_t* r = w.Slice(slice) + row * w.panel_stride;
    switch (w.dtype) {
      case DType::kF32: std::memcpy(out, r, static_cast<size_t>(cols) * 4); return;
      case DType::kF16:
        for (int64_t k = 0; k < cols; ++k) out[k] = F16ToF32(LoadAt<uint16_t>(r + 2 * k));
        return;
      case DType::kBF16:
        for (int64_t k = 0; k < cols; ++k) out[k] = BF16ToF32(LoadAt<uint16_t>(r + 2 * k));
        return;
      case DType::kQ8_0:
        for (int64_t b = 0; b < cols / 32; ++b) Decode(LoadAt<BlockQ8_0>(r + 34 * b), out + 32 * b);
        return;
      case DType::kQ4_0:
        for (int64_t b = 0; b < cols / 32; ++b) Decode(LoadAt<BlockQ4_0>(r + 18 * b), out + 32 * b);
        return;
      case DType::kMXFP4:
        for (int64_t b = 0; b < cols / 32; ++b) Decode(LoadAt<BlockMXFP4>(r + 17 * b), out + 32 * b);
        return;
      default: return;
    }
  }
  const uint8_t* panel = w.Panel(slice, row / kPanelRows);
  const int r = static_cast<int>(row % kPanelRows);
  switch (w.dtype) {
    case DType::kF32:
      for (int64_t k = 0; k < cols; ++k) out[k] = LoadAt<float>(panel + k * 64 + r * 4);
      return;
    case DType::kF16:
      for (int64_t k = 0; k < cols; ++k) out[k] = F16ToF32(LoadAt<uint16_t>(panel + (k / 2) * 64 + r * 4 + (k % 2) * 2));
      return;
    case DType::kBF16:
      for (int64_t k = 0; k < cols; ++k) out[k] = BF16ToF32(LoadAt<uint16_t>(panel + (k / 2) * 64 + r * 4 + (k % 2) * 2));
      return;
    case DType::kQ8_0:
    case DType::kQ4_0:
      for (int64_t k = 0; k < cols; ++k) {
        out[k] = PanelScale(w.dtype, panel, r, k / 32) * static_cast<float>(PanelQuant(w.dtype, panel, r, k));
      }
      return;
    case DType::kMXFP4:
      for (int64_t k = 0; k < cols; ++k) {
        out[k] = PanelScale(w.dtype, panel, r, k / 32) * (0.5f * static_cast<float>(PanelQuant(w.dtype, panel, r, k)));
      }
      return;
    default: return;
  }
}

}  // namespace tally
