// SPDX-License-Identifier: Apache-2.0
// IQ4_XS weights times int8 or f32 activations.
#ifndef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/formats/iq4_xs.cc"
#endif
#include "hwy/foreach_target.h"  // IWYU pragma: keep

#include "engine/kernels/formats/iq4_xs.h"
#include "engine/kernels/matmul/float-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {
FormatKernels KernelsIQ4_XS() { return QuantisedKernels<VectorIQ4_XS>(); }
}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tally {
HWY_EXPORT(KernelsIQ4_XS);
extern const WeightFormat kWeightFormatIQ4_XS;
constinit const WeightFormat kWeightFormatIQ4_XS =
    MakeQuantised<FormatIQ4_XS>([] { return HWY_DYNAMIC_DISPATCH(KernelsIQ4_XS)(); });
}  // namespace tally
#endif
