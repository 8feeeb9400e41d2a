// SPDX-License-Identifier: Apache-2.0
// Cost() against what can be counted, class by class and kind by kind.
#include <gtest/gtest.h>

#include "tests/kernels/cost_check.h"

namespace tally {
namespace {

TEST(Cost, IsWhatTheReferencesDoAndTheOperandsHold) {
  const int compared = CheckCosts([](const std::string& what) {
    ADD_FAILURE() << what;
    return true;
  });
  EXPECT_GT(compared, 10'000);
}

}  // namespace
}  // namespace tally
