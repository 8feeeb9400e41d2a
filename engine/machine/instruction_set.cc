#include "engine/machine/instruction_set.h"

#include <atomic>
#include <string>

#include "hwy/targets.h"

namespace tally {
namespace {

std::atomic<bool> limited{false};

}  // namespace

Status LimitInstructionSet(std::string_view name) {
  std::string names;
  for (int64_t left = hwy::SupportedTargets(); left != 0; left &= left - 1) {
    const int64_t target = left & -left;
    if (name == hwy::TargetName(target)) {
      // Better targets are lower bits. Highway 1.2 forgets DisableTargets where SupportedTargets is called again.
      limited = true;
      hwy::SetSupportedTargetsForTest(hwy::SupportedTargets() & -target);
      return {};
    }
    names += (names.empty() ? "" : ", ") + std::string(hwy::TargetName(target));
  }
  return BadInput("no instruction set '" + std::string(name) + "' here: " + names);
}

bool InstructionSetIsLimited() { return limited; }

}  // namespace tally
