// SPDX-License-Identifier: Apache-2.0
#include "tests/support/test_target.h"

#include <cstdlib>
#include <tuple>

#include "engine/base/amx.h"
#include "engine/base/byte_dot.h"
#include "engine/machine/instruction_set.h"
#include "hwy/targets.h"

namespace tally {
namespace {

bool less = false;

}  // namespace

std::string_view TestTarget() {
  const char* const name = std::getenv("TALLY_TEST_TARGET");  // NOLINT(concurrency-mt-unsafe): no test sets it
  return name == nullptr ? std::string_view() : name;
}

Status UseTestTarget() {
  if (TestTarget().empty()) return {};
  const auto in_use = [] { return std::tuple(hwy::SupportedTargets(), CurrentByteDot(), AmxInUse()); };
  const auto before = in_use();
  if (const Status limited = LimitInstructionSet(TestTarget()); !limited.ok()) {
    return BadInput("TALLY_TEST_TARGET: " + limited.message());
  }
  less = less || in_use() != before;
  return {};
}

bool TestTargetIsLess() { return less; }

}  // namespace tally
