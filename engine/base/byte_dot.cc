// SPDX-License-Identifier: Apache-2.0
#include "engine/base/byte_dot.h"

#include <atomic>

#include "engine/base/arm_features.h"
#include "engine/base/x86_features.h"

namespace tally {
namespace {

ByteDot Detect() {
  if (const ArmFeatures arm = DetectArmFeatures(); arm.dot) return arm.i8mm && arm.bf16 ? ByteDot::kSmmla : ByteDot::kSdot;
  const X86Features f = DetectX86Features();
  if (TALLY_VEX_DOT && f.avx_vnni) return ByteDot::kAvxVnni;
  return TALLY_EVEX_DOT && f.avx512_vnni && f.avx512vl ? ByteDot::kAvx512 : ByteDot::kNone;
}

std::atomic<ByteDot>& Current() {
  static std::atomic<ByteDot> current{AvailableByteDot() == ByteDot::kAvx512 ? ByteDot::kNone : AvailableByteDot()};
  return current;
}

}  // namespace

ByteDot AvailableByteDot() {
  static const ByteDot available = Detect();
  return available;
}

bool HasByteDot(ByteDot dot) {
  const ByteDot best = AvailableByteDot();
  return dot == ByteDot::kNone || dot == best || (dot == ByteDot::kSdot && best == ByteDot::kSmmla);
}

ByteDot CurrentByteDot() { return Current().load(std::memory_order_relaxed); }
void SetByteDot(ByteDot dot) { Current().store(dot, std::memory_order_relaxed); }

}  // namespace tally
