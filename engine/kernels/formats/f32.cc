// SPDX-License-Identifier: Apache-2.0
// F32 weights times f32 activations.
#ifndef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/formats/f32.cc"
#endif
#include "hwy/foreach_target.h"  // IWYU pragma: keep

#include "engine/kernels/formats/f32.h"
#include "engine/kernels/matmul/float-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {
FormatKernels KernelsF32() { return FloatKernels<VectorF32>(); }
}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tally {
HWY_EXPORT(KernelsF32);
extern const WeightFormat kWeightFormatF32;
constinit const WeightFormat kWeightFormatF32 = MakePlain<FormatF32>([] { return HWY_DYNAMIC_DISPATCH(KernelsF32)(); });
}  // namespace tally
#endif
