// SPDX-License-Identifier: Apache-2.0
// The current Highway target, as the dispatcher chooses it; a test can restrict the targets.
#include <cstdint>
#include <string_view>

#ifndef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/target.cc"
#endif
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

// after foreach_target.h, which decides the first target
#include "engine/base/amx.h"
#include "engine/base/byte_dot.h"
#include "engine/kernels/arm-inl.h"
#include "engine/kernels/op.h"
#include "engine/kernels/target.h"

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {

int64_t CurrentTarget() { return HWY_TARGET; }
bool HasAmx() { return HWY_TARGET == HWY_AVX3_DL && AmxInUse(); }
bool HasBf16Dot() { return HWY_NATIVE_DOT_BF16 != 0 || HasAmx() || (TALLY_ARM && CurrentByteDot() == ByteDot::kSmmla); }
bool HasInt8Dot() {  // int8-inl.h
  if (TALLY_ARM) return CurrentByteDot() != ByteDot::kNone;
  return HWY_ARCH_X86 && (HWY_TARGET <= HWY_AVX3_DL || (HWY_TARGET == HWY_AVX2 && CurrentByteDot() != ByteDot::kNone));
}
bool HasSmmla() { return TALLY_ARM && CurrentByteDot() == ByteDot::kSmmla; }
int64_t F32Lanes() { return static_cast<int64_t>(hwy::HWY_NAMESPACE::Lanes(hwy::HWY_NAMESPACE::ScalableTag<float>())); }

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tally {

HWY_EXPORT(CurrentTarget);
HWY_EXPORT(HasBf16Dot);
HWY_EXPORT(HasInt8Dot);
HWY_EXPORT(HasAmx);
HWY_EXPORT(HasSmmla);
HWY_EXPORT(F32Lanes);

std::string_view HwyTargetName() {
  const int64_t target = HWY_DYNAMIC_DISPATCH(CurrentTarget)();
  if (HwyTargetHasAmx()) return "AMX";
  if ((target & HWY_ALL_NEON) != 0) return ArmTargetName(CurrentByteDot());
  return target == HWY_AVX2 && CurrentByteDot() != ByteDot::kNone ? "AVX2_VNNI" : hwy::TargetName(target);
}
bool HwyTargetHasBf16Dot() { return HWY_DYNAMIC_DISPATCH(HasBf16Dot)(); }
bool HwyTargetHasInt8Dot() { return HWY_DYNAMIC_DISPATCH(HasInt8Dot)(); }
bool HwyTargetHasAmx() { return HWY_DYNAMIC_DISPATCH(HasAmx)(); }
bool HwyTargetHasSmmla() { return HWY_DYNAMIC_DISPATCH(HasSmmla)(); }
int64_t HwyF32Lanes() { return HWY_DYNAMIC_DISPATCH(F32Lanes)(); }

}  // namespace tally
#endif
