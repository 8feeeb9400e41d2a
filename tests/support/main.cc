// SPDX-License-Identifier: Apache-2.0
// The main of the test programs. --file=NAME runs the tests that stand in the source file NAME, and fails where there are none. --again:
// the tests have run with all that the processor has; nothing runs where that is no more than TALLY_TEST_TARGET (test_target.h).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include "hwy/targets.h"
#include "tests/support/test_target.h"

namespace {

// Whether another processor may have it.
bool IsHighwayTarget(std::string_view name) {
  for (int bit = 0; bit < 63; ++bit) {
    if (name == hwy::TargetName(int64_t{1} << bit)) return true;
  }
  return false;
}

// "Suite.Name:Suite.Name..." of the tests in that file.
std::string TestsOf(std::string_view file) {
  const auto ends_with_file = [&](std::string_view path) {
    return path.ends_with(file) && (path.size() == file.size() || path[path.size() - file.size() - 1] == '/');
  };
  std::string filter;
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  for (int s = 0; s < all.total_test_suite_count(); ++s) {
    const testing::TestSuite& suite = *all.GetTestSuite(s);
    for (int t = 0; t < suite.total_test_count(); ++t) {
      const testing::TestInfo& test = *suite.GetTestInfo(t);
      if (ends_with_file(test.file())) filter += std::string(suite.name()) + "." + test.name() + ":";
    }
  }
  return filter;
}

}  // namespace

int main(int argc, char** argv) {
  // The child of a death test in the style "threadsafe" has a filter of its own.
  const bool child = std::any_of(
      argv, argv + argc, [](const char* a) { return std::string_view(a).starts_with("--gtest_internal_run_death_test="); });
  testing::InitGoogleTest(&argc, argv);
  constexpr std::string_view kFile = "--file=", kAgain = "--again";
  bool again = false;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument.starts_with(kFile)) {
      const std::string filter = TestsOf(argument.substr(kFile.size()));
      if (filter.empty()) {
        std::fprintf(stderr, "%s: this program has no tests of that file\n", argv[i]);
        return 2;
      }
      if (!child) testing::GTEST_FLAG(filter) = filter;
    } else if (argument == kAgain) {
      again = true;
    } else {
      std::fprintf(stderr, "%s: --file=NAME, --again or options of GoogleTest's\n", argv[i]);
      return 2;
    }
  }
  const std::string target(tally::TestTarget());
  const tally::Status limited = tally::UseTestTarget();
  if (again && !tally::TestTargetIsLess() && (limited.ok() || IsHighwayTarget(target))) {
    std::printf("skipped: %s once more: this processor has nothing above it\n", target.c_str());
    return 0;
  }
  if (!limited.ok()) {
    std::fprintf(stderr, "%s\n", limited.message().c_str());
    return 2;
  }
  if (!target.empty()) std::printf("at most %s, but for programs that are started\n", target.c_str());
  return RUN_ALL_TESTS();
}
