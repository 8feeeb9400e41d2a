// What holds for every op of the house: the list in kernels.inc is walked.
#include <gtest/gtest.h>

#include <string_view>

#include "engine/kernels/attention/attention.h"
#include "engine/kernels/embed.h"
#include "engine/kernels/matmul/matmul.h"
#include "engine/kernels/norm.h"
#include "engine/kernels/rope.h"
#include "engine/kernels/router.h"

namespace tally {
namespace {

// Highway first, the scalar reference second, all others only by name; each complete.
template <class Op>
void CheckKernels() {
  const std::span<const Kernel<Op>> kernels = Kernels<Op>();
  ASSERT_GE(kernels.size(), 2u) << Op::kName;
  EXPECT_EQ(kernels[0].name, "hwy") << Op::kName;
  EXPECT_EQ(kernels[1].name, "ref") << Op::kName;
  for (const Kernel<Op>& k : kernels) {
    EXPECT_TRUE(k.unsupported != nullptr && k.plan != nullptr && k.run != nullptr && k.executed != nullptr)
        << Op::kName << " " << k.name;
  }
}

TEST(Kernels, EveryOpHasAHighwayKernelAndAScalarReference) {
#define TALLY_OP(op) CheckKernels<op>();
#include "engine/kernels/kernels.inc"
#undef TALLY_OP
}

}  // namespace
}  // namespace tally
