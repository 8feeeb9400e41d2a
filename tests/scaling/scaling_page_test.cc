// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "tests/scaling/scaling.h"

namespace tally {
namespace {

TEST(Scaling, ThePageIsWhatIsComputed) {
  const auto stored = [](const std::string& name) {
    std::ifstream file(std::string(TALLY_SOURCE_DIR) + "/docs/" + name);
    return std::string{std::istreambuf_iterator<char>(file), {}};
  };
  const Page page = ScalingPage();
  EXPECT_EQ(stored("scaling.md"), page.text) << "docs/scaling.md: build/release/tests/scaling/scaling_page docs";
  for (const auto& [name, svg] : page.drawings) EXPECT_EQ(stored(name), svg) << name;
}

}  // namespace
}  // namespace tally
