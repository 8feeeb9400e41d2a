// SPDX-License-Identifier: Apache-2.0
// Q4_K weights times int8 or f32 activations.
#ifndef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/formats/q4_k.cc"
#endif
#include "hwy/foreach_target.h"  // IWYU pragma: keep

#include "engine/kernels/formats/q4_k.h"
#include "engine/kernels/matmul/float-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {
FormatKernels KernelsQ4_K() { return QuantisedKernels<VectorQ4_K>(); }
}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tally {
HWY_EXPORT(KernelsQ4_K);
extern const WeightFormat kWeightFormatQ4_K;
constinit const WeightFormat kWeightFormatQ4_K = MakeQuantised<FormatQ4_K>([] { return HWY_DYNAMIC_DISPATCH(KernelsQ4_K)(); });
}  // namespace tally
#endif
