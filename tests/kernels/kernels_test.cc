// SPDX-License-Identifier: Apache-2.0
// What holds for every op of the house: the list in kernels.inc is walked.
#include <gtest/gtest.h>

#include <string_view>

#include "engine/kernels/ops.h"
#include "hwy/targets.h"
#include "tests/support/sanitizers.h"

namespace tally {
namespace {

// Highway first, the scalar reference second, all others only by name; each complete.
template <class Op>
void CheckKernels() {
  const std::span<const Kernel<Op>> kernels = Kernels<Op>();
  if constexpr (std::is_same_v<Op, TemperatureOp> || std::is_same_v<Op, GatherOp> || std::is_same_v<Op, GatherPackOp> ||
                std::is_same_v<Op, PlaceRowsOp> || std::is_same_v<Op, FetchOp>) {  // no vectors
    ASSERT_EQ(kernels.size(), 1u);
    EXPECT_EQ(kernels[0].name, "ref");
    return;
  }
  ASSERT_GE(kernels.size(), 2u) << Op::kName;
  EXPECT_EQ(kernels[0].name, "hwy") << Op::kName;
  EXPECT_EQ(kernels[1].name, "ref") << Op::kName;
  for (const Kernel<Op>& k : kernels) {
    EXPECT_TRUE(k.unsupported != nullptr && k.plan != nullptr && k.run != nullptr && k.executed != nullptr)
        << Op::kName << " " << k.name;
  }
}

// The tests of kernels run on every target that was compiled and that the machine has: none may go missing unseen.
#if HWY_ARCH_X86 && !defined(TALLY_SHADOW_MEMORY)
TEST(Kernels, AreCompiledForEveryTargetOfX86) {
  if (std::string_view(TALLY_TARGETS) != "portable") GTEST_SKIP() << "built for " << TALLY_TARGETS;
  for (const int64_t target : {HWY_SSE4, HWY_AVX2, HWY_AVX3, HWY_AVX3_DL, HWY_AVX3_ZEN4}) {
    EXPECT_NE(HWY_TARGETS & target, 0) << hwy::TargetName(target);
  }
}
#endif

TEST(Kernels, EveryOpHasAHighwayKernelAndAScalarReference) {
#define TALLY_OP(op) CheckKernels<op>();
#include "engine/kernels/kernels.inc"
#undef TALLY_OP
}

}  // namespace
}  // namespace tally
