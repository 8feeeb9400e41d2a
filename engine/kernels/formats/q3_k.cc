// SPDX-License-Identifier: Apache-2.0
// Q3_K weights times int8 or f32 activations.
#ifndef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/formats/q3_k.cc"
#endif
#include "hwy/foreach_target.h"  // IWYU pragma: keep

#include "engine/kernels/formats/q3_k.h"
#include "engine/kernels/matmul/float-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {
FormatKernels KernelsQ3_K() { return QuantisedKernels<VectorQ3_K>(); }
}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tally {
HWY_EXPORT(KernelsQ3_K);
extern const WeightFormat kWeightFormatQ3_K;
constinit const WeightFormat kWeightFormatQ3_K = MakeQuantised<FormatQ3_K>([] { return HWY_DYNAMIC_DISPATCH(KernelsQ3_K)(); });
}  // namespace tally
#endif
