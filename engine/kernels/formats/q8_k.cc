// SPDX-License-Identifier: Apache-2.0
// Q8_K weights times int8 or f32 activations.
#ifndef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/formats/q8_k.cc"
#endif
#include "hwy/foreach_target.h"  // IWYU pragma: keep

#include "engine/kernels/formats/q8_k.h"
#include "engine/kernels/matmul/float-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {
FormatKernels KernelsQ8_K() { return QuantisedKernels<VectorQ8_K>(); }
}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tally {
HWY_EXPORT(KernelsQ8_K);
extern const WeightFormat kWeightFormatQ8_K;
constinit const WeightFormat kWeightFormatQ8_K = MakeQuantised<FormatQ8_K>([] { return HWY_DYNAMIC_DISPATCH(KernelsQ8_K)(); });
}  // namespace tally
#endif
