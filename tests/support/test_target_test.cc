// SPDX-License-Identifier: Apache-2.0
#include "tests/support/test_target.h"

#include <gtest/gtest.h>

#include <string>

#include "engine/kernels/op.h"
#include "tests/support/targets.h"

namespace tally {
namespace {

TEST(TestTarget, IsWhatKernelsUse) {
  const std::string before(HwyTargetName());
  if (TestTarget().empty()) {
    EXPECT_FALSE(TestTargetIsLess());
  } else {
    EXPECT_EQ(before, TestTarget());
  }
  int run = 0;
  ForEachTarget([&] { ++run; });
  EXPECT_TRUE(run == 1 || TestTarget().empty());
  EXPECT_EQ(HwyTargetName(), before) << "behind ForEachTarget too";
}

}  // namespace
}  // namespace tally
