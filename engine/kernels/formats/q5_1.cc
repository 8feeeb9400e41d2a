// SPDX-License-Identifier: Apache-2.0
// Q5_1 weights times int8 or f32 activations.
#ifndef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/formats/q5_1.cc"
#endif
#include "hwy/foreach_target.h"  // IWYU pragma: keep

#include "engine/kernels/formats/q5_1.h"
#include "engine/kernels/matmul/float-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {
FormatKernels KernelsQ5_1() { return QuantisedKernels<VectorQ5_1>(); }
}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tally {
HWY_EXPORT(KernelsQ5_1);
extern const WeightFormat kWeightFormatQ5_1;
constinit const WeightFormat kWeightFormatQ5_1 = MakeQuantised<FormatQ5_1>([] { return HWY_DYNAMIC_DISPATCH(KernelsQ5_1)(); });
}  // namespace tally
#endif
