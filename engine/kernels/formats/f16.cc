// SPDX-License-Identifier: Apache-2.0
// F16 weights times f32 activations.
#ifndef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/formats/f16.cc"
#endif
#include "hwy/foreach_target.h"  // IWYU pragma: keep

#include "engine/kernels/formats/f16.h"
#include "engine/kernels/matmul/float-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {
FormatKernels KernelsF16() { return FloatKernels<VectorF16>(); }
}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tally {
HWY_EXPORT(KernelsF16);
extern const WeightFormat kWeightFormatF16;
constinit const WeightFormat kWeightFormatF16 = MakePlain<FormatF16>([] { return HWY_DYNAMIC_DISPATCH(KernelsF16)(); });
}  // namespace tally
#endif
