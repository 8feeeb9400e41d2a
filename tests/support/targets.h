// SPDX-License-Identifier: Apache-2.0
// The Highway targets of compiler and machine, one after the other.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "engine/base/amx.h"
#include "engine/base/byte_dot.h"
#include "engine/kernels/op.h"
#include "hwy/targets.h"
#include "tests/support/test_target.h"

namespace tally {

// Calls body() once for each Highway target that compiler and machine offer, dispatch restricted to it, and prints which. AVX2 runs
// without and with dot products of bytes, AVX3_DL without and with matrix tiles, NEON with each of the products that Arm may have. With
// TALLY_TEST_TARGET: that one alone.
template <class F>
void ForEachTarget(F&& body) {
  struct Restore {
    ByteDot dot = CurrentByteDot();
    bool amx = AmxInUse();
    ~Restore() {
      hwy::SetSupportedTargetsForTest(0);
      SetByteDot(dot);
      UseAmx(amx);
      EXPECT_TRUE(UseTestTarget().ok());
    }
  } restore;
  struct Variant {
    std::string name;
    ByteDot dot = ByteDot::kNone;
    bool amx = false;
  };
  hwy::SetSupportedTargetsForTest(0);
  std::string ran;
  for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
    std::vector<Variant> variants = {{hwy::TargetName(target)}};
    if (target == HWY_AVX2 && AvailableByteDot() != ByteDot::kNone) variants.push_back({"AVX2_VNNI", AvailableByteDot()});
    if (target == HWY_AVX3_DL && AmxAvailable()) variants.push_back({"AMX", ByteDot::kNone, true});
    if ((target & HWY_ALL_NEON) != 0) {
      variants.clear();
      for (const ByteDot dot : {ByteDot::kNone, ByteDot::kSdot, ByteDot::kSmmla}) {
        if (HasByteDot(dot)) variants.push_back({std::string(ArmTargetName(dot)), dot});
      }
    }
    for (const Variant& variant : variants) {
      if (!TestTarget().empty() && variant.name != TestTarget()) continue;
      hwy::SetSupportedTargetsForTest(target);
      SetByteDot(variant.dot);
      UseAmx(variant.amx);
      const std::string name(HwyTargetName());
      ASSERT_EQ(name, variant.name) << "the restriction to one target has no effect";
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
