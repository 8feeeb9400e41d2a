// SPDX-License-Identifier: Apache-2.0
// MXFP4 weights times int8 or f32 activations.
#ifndef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/formats/mxfp4.cc"
#endif
#include "hwy/foreach_target.h"  // IWYU pragma: keep

#include "engine/kernels/formats/mxfp4.h"
#include "engine/kernels/matmul/float-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {
FormatKernels KernelsMXFP4() { return QuantisedKernels<VectorMXFP4>(); }
}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tally {
HWY_EXPORT(KernelsMXFP4);
extern const WeightFormat kWeightFormatMXFP4;
constinit const WeightFormat kWeightFormatMXFP4 = MakeQuantised<FormatMXFP4>([] { return HWY_DYNAMIC_DISPATCH(KernelsMXFP4)(); });
}  // namespace tally
#endif
