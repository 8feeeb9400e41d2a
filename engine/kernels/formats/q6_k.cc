// SPDX-License-Identifier: Apache-2.0
// Q6_K weights times int8 or f32 activations.
#ifndef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/formats/q6_k.cc"
#endif
#include "hwy/foreach_target.h"  // IWYU pragma: keep

#include "engine/kernels/formats/q6_k.h"
#include "engine/kernels/matmul/float-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {
FormatKernels KernelsQ6_K() { return QuantisedKernels<VectorQ6_K>(); }
}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tally {
HWY_EXPORT(KernelsQ6_K);
extern const WeightFormat kWeightFormatQ6_K;
constinit const WeightFormat kWeightFormatQ6_K = MakeQuantised<FormatQ6_K>([] { return HWY_DYNAMIC_DISPATCH(KernelsQ6_K)(); });
}  // namespace tally
#endif
