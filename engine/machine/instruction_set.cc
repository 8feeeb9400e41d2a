// SPDX-License-Identifier: Apache-2.0
#include "engine/machine/instruction_set.h"

#include <atomic>
#include <string>
#include <vector>

#include "engine/base/amx.h"
#include "engine/base/byte_dot.h"
#include "engine/machine/machine.h"
#include "hwy/targets.h"

namespace tally {
namespace {

std::atomic<bool> limited{false};

}  // namespace

Status LimitInstructionSet(std::string_view name) {
  std::vector<std::string> names;
  const auto limit = [](int64_t best, bool amx, ByteDot dot) {
    limited = true;
    UseAmx(amx);
    SetByteDot(dot);
    // Better targets are lower bits. Highway 1.2 forgets DisableTargets where SupportedTargets is called again.
    hwy::SetSupportedTargetsForTest(hwy::SupportedTargets() & -best);
    return Status();
  };
#if HWY_ARCH_ARM_A64
  for (const ByteDot dot : {ByteDot::kSmmla, ByteDot::kSdot, ByteDot::kNone}) {
    if (!HasByteDot(dot)) continue;
    if (name == ArmTargetName(dot)) {
      limited = true;
      SetByteDot(dot);
      return {};
    }
    names.emplace_back(ArmTargetName(dot));
  }
  const int64_t others = 0;
#else
  const int64_t others = hwy::SupportedTargets() & HWY_TARGETS;
#endif
  for (int64_t left = others; left != 0; left &= left - 1) {
    const int64_t target = left & -left;
    if (target == HWY_AVX3_DL && AmxAvailable()) {
      if (name == "AMX") return limit(target, true, ByteDot::kNone);
      names.push_back("AMX");
    }
    if (name == hwy::TargetName(target)) return limit(target, false, ByteDot::kNone);
    names.push_back(hwy::TargetName(target));
    if (target == HWY_AVX2 && AvailableByteDot() != ByteDot::kNone) {
      if (name == "AVX2_VNNI") return limit(target, false, AvailableByteDot());
      names.push_back("AVX2_VNNI");
    }
  }
  std::string list;
  for (const std::string& n : names) list += (list.empty() ? "" : ", ") + n;
  return BadInput("no instruction set '" + std::string(name) + "' here: " + list);
}

bool InstructionSetIsLimited() { return limited; }

Status CheckInstructionSet() {
  if ((hwy::SupportedTargets() & HWY_TARGETS) != 0) return {};
  std::string list;
  for (int64_t left = HWY_TARGETS; left != 0; left &= left - 1)
    list += (list.empty() ? "" : ", ") + std::string(hwy::TargetName(left & -left));
  return BadInput("this build of tally is for processors with " + list + ", and this one (" + ProcessorName() +
                  ") has none of them: build it here, or take a portable build");
}

}  // namespace tally
