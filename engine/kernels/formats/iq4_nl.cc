// SPDX-License-Identifier: Apache-2.0
// IQ4_NL weights times int8 or f32 activations.
#ifndef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/formats/iq4_nl.cc"
#endif
#include "hwy/foreach_target.h"  // IWYU pragma: keep

#include "engine/kernels/formats/iq4_nl.h"
#include "engine/kernels/matmul/float-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {
FormatKernels KernelsIQ4_NL() { return QuantisedKernels<VectorIQ4_NL>(); }
}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tally {
HWY_EXPORT(KernelsIQ4_NL);
extern const WeightFormat kWeightFormatIQ4_NL;
constinit const WeightFormat kWeightFormatIQ4_NL =
    MakeQuantised<FormatIQ4_NL>([] { return HWY_DYNAMIC_DISPATCH(KernelsIQ4_NL)(); });
}  // namespace tally
#endif
