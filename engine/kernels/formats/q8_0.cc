// SPDX-License-Identifier: Apache-2.0
// Q8_0 weights times int8 or f32 activations.
#ifndef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/formats/q8_0.cc"
#endif
#include "hwy/foreach_target.h"  // IWYU pragma: keep

#include "engine/kernels/formats/q8_0.h"
#include "engine/kernels/matmul/float-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {
FormatKernels KernelsQ8_0() { return QuantisedKernels<VectorQ8_0>(); }
}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tally {
HWY_EXPORT(KernelsQ8_0);

namespace {

// As PackQuantised, but rows are made where the blocks lie: a copy of a block on the stack would be read at other offsets than it was
// written at, which the processor makes wait.
void PackQ8_0(int64_t cols, int valid, const StagedRows& src, uint8_t* panel) {
  using F = FormatQ8_0;
  alignas(16) uint8_t rows[kPanelRows * kStagedRowBytes<F>] = {};
  for (int r = valid; r < kPanelRows; ++r) F::Padding(rows + static_cast<size_t>(r) * kStagedRowBytes<F>);
  const uint8_t* block = src.data;
  for (int64_t b = 0; b < cols / F::kPanelCols; ++b, block += sizeof(F::Block), panel += kPanelBlockBytes<F>) {
    for (int r = 0; r < valid; ++r) {
      const uint8_t* __restrict from = block + static_cast<size_t>(r) * src.stride;
      uint8_t* __restrict to = rows + static_cast<size_t>(r) * kStagedRowBytes<F>;
      std::memcpy(to, from, 2);
      for (int i = 2; i < 34; ++i) to[i] = static_cast<uint8_t>(from[i] ^ 0x80);
    }
    ScatterRows<F>(rows, panel);
  }
}

constexpr WeightFormat MakeQ8_0() {
  WeightFormat format = MakeQuantised<FormatQ8_0>([] { return HWY_DYNAMIC_DISPATCH(KernelsQ8_0)(); });
  format.pack = PackQ8_0;
  return format;
}

}  // namespace

extern const WeightFormat kWeightFormatQ8_0;
constinit const WeightFormat kWeightFormatQ8_0 = MakeQ8_0();
}  // namespace tally
#endif
