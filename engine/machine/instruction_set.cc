// SPDX-License-Identifier: Apache-2.0
#include "engine/machine/instruction_set.h"

#include <atomic>
#include <string>

#include "engine/base/byte_dot.h"
#include "hwy/targets.h"

namespace tally {
namespace {

std::atomic<bool> limited{false};

}  // namespace

Status LimitInstructionSet(std::string_view name) {
  std::string names;
  const bool dot = name == "AVX2_VNNI" && AvailableByteDot() != ByteDot::kNone;
  for (int64_t left = hwy::SupportedTargets(); left != 0; left &= left - 1) {
    const int64_t target = left & -left;
    if (name == hwy::TargetName(target) || (dot && target == HWY_AVX2)) {
      // Better targets are lower bits. Highway 1.2 forgets DisableTargets where SupportedTargets is called again.
      limited = true;
      SetByteDot(dot ? AvailableByteDot() : ByteDot::kNone);
      hwy::SetSupportedTargetsForTest(hwy::SupportedTargets() & -target);
      return {};
    }
    names += (names.empty() ? "" : ", ") + std::string(hwy::TargetName(target));
    if (target == HWY_AVX2 && AvailableByteDot() != ByteDot::kNone) names += ", AVX2_VNNI";
  }
  return BadInput("no instruction set '" + std::string(name) + "' here: " + names);
}

bool InstructionSetIsLimited() { return limited; }

}  // namespace tally
