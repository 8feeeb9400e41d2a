// SPDX-License-Identifier: Apache-2.0
// The main of the test programs. --file=NAME runs the tests that stand in the source file NAME, and fails where there are none.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <string_view>

namespace {

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
  testing::InitGoogleTest(&argc, argv);
  constexpr std::string_view kFile = "--file=";
  if (argc == 2 && std::string_view(argv[1]).starts_with(kFile)) {
    const std::string filter = TestsOf(std::string_view(argv[1]).substr(kFile.size()));
    if (filter.empty()) {
      std::fprintf(stderr, "%s: this program has no tests of that file\n", argv[1]);
      return 2;
    }
    testing::GTEST_FLAG(filter) = filter;
  } else if (argc > 1) {
    std::fprintf(stderr, "%s: --file=NAME or options of GoogleTest's\n", argv[1]);
    return 2;
  }
  return RUN_ALL_TESTS();
}
