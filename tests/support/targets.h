// SPDX-License-Identifier: Apache-2.0
// The Highway targets of compiler and machine, one after the other.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <string>

#include "engine/base/byte_dot.h"
#include "engine/kernels/op.h"
#include "hwy/targets.h"

namespace tally {

// Calls body() once for each Highway target that compiler and machine offer, dispatch restricted to it, and prints which. AVX2 runs
// without and with dot products of bytes.
template <class F>
void ForEachTarget(F&& body) {
  struct Restore {
    ByteDot dot = CurrentByteDot();
    ~Restore() {
      hwy::SetSupportedTargetsForTest(0);
      SetByteDot(dot);
    }
  } restore;
  hwy::SetSupportedTargetsForTest(0);
  std::string ran;
  for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
    for (const ByteDot dot : {ByteDot::kNone, AvailableByteDot()}) {
      hwy::SetSupportedTargetsForTest(target);
      SetByteDot(dot);
      const std::string name(HwyTargetName());
      const bool avx2_dot = target == HWY_AVX2 && dot != ByteDot::kNone;
      ASSERT_EQ(name, avx2_dot ? "AVX2_VNNI" : hwy::TargetName(target)) << "the restriction to one target has no effect";
      SCOPED_TRACE(name);
      ran.append(" ").append(name);
      body();
      if (::testing::Test::HasFatalFailure()) return;
      if (target != HWY_AVX2 || AvailableByteDot() == ByteDot::kNone) break;
    }
  }
  ASSERT_FALSE(ran.empty());
  std::printf("Highway targets run:%s\n", ran.c_str());
}

}  // namespace tally
