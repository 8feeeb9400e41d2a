// Every malformed checkpoint given to `tally`: exit code 2, the expected line on standard error, nothing on standard output.
#include <gtest/gtest.h>

#include "tests/app/runner.h"
#include "tests/siege/siege.h"

namespace tally::siege {
namespace {

class CliSiege : public testing::TestWithParam<Case> {};

TEST_P(CliSiege, OneLineAndExitCode2) {
  const TempFolder folder;
  const std::string path = GetParam().write(folder);
  const Ended e = Tally({"logits", path, "--tokens", "0"});
  EXPECT_EQ(e.code, 2);
  EXPECT_EQ(e.out, "");
  EXPECT_EQ(e.err, "tally: " + In(folder, GetParam().line) + "\n");
}

INSTANTIATE_TEST_SUITE_P(All, CliSiege, testing::ValuesIn(AllCases()), [](const auto& c) { return c.param.name; });

}  // namespace
}  // namespace tally::siege
