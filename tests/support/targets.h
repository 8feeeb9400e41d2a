// SPDX-License-Identifier: Apache-2.0
// The Highway targets of compiler and machine, one after the other.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <string>

#include "engine/base/amx.h"
#include "engine/base/byte_dot.h"
#include "engine/kernels/op.h"
#include "hwy/targets.h"

namespace tally {

// Calls body() once for each Highway target that compiler and machine offer, dispatch restricted to it, and prints which. AVX2 runs
// without and with dot products of bytes, AVX3_DL without and with matrix tiles.
template <class F>
void ForEachTarget(F&& body) {
  struct Restore {
    ByteDot dot = CurrentByteDot();
    ~Restore() {
      hwy::SetSupportedTargetsForTest(0);
      SetByteDot(dot);
      UseAmx(true);
    }
  } restore;
  hwy::SetSupportedTargetsForTest(0);
  std::string ran;
  for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
    const bool two = (target == HWY_AVX2 && AvailableByteDot() != ByteDot::kNone) || (target == HWY_AVX3_DL && AmxAvailable());
    for (int more = 0; more < (two ? 2 : 1); ++more) {
      hwy::SetSupportedTargetsForTest(target);
      SetByteDot(more != 0 ? AvailableByteDot() : ByteDot::kNone);
      UseAmx(more != 0);
      const std::string name(HwyTargetName());
      ASSERT_EQ(name, more == 0            ? hwy::TargetName(target)
                      : target == HWY_AVX2 ? "AVX2_VNNI"
                                           : "AMX")
          << "the restriction to one target has no effect";
      SCOPED_TRACE(name);
      ran.append(" ").append(name);
      body();
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
  ASSERT_FALSE(ran.empty());
  std::printf("Highway targets run:%s\n", ran.c_str());
}

}  // namespace tally
