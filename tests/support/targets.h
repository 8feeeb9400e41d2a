// The Highway targets of compiler and machine, one after the other.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <string>

#include "engine/kernels/op.h"
#include "hwy/targets.h"

namespace tally {

// Calls body() once for each Highway target that compiler and machine offer, dispatch restricted to it, and
// prints which.
template <class F>
void ForEachTarget(F&& body) {
  struct Restore {
    ~Restore() { hwy::SetSupportedTargetsForTest(0); }
  } restore;
  hwy::SetSupportedTargetsForTest(0);
  std::string ran;
  for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    ASSERT_EQ(HwyTargetName(), hwy::TargetName(target)) << "the restriction to one target has no effect";
    const std::string name(HwyTargetName());
    SCOPED_TRACE(name);
    ran.append(" ").append(name);
    body();
    if (::testing::Test::HasFatalFailure()) return;
  }
  ASSERT_FALSE(ran.empty());
  std::printf("Highway targets run:%s\n", ran.c_str());
}

}  // namespace tally
