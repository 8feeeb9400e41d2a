// SPDX-License-Identifier: Apache-2.0
#include "engine/machine/disk_rate.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/temp_folder.h"

namespace tally {
namespace {

namespace fs = std::filesystem;

constexpr DiskProbe kSmall = {.seconds = .05, .bytes = uint64_t{4} << 20, .request = uint64_t{64} << 10, .readers = 3};

TEST(DiskRate, OfADirectoryAndOfAFile) {
  const TempFolder folder;
  const auto made = MeasureDisk(folder.path(), kSmall);
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_GT(made->bytes_per_second, 0);
  EXPECT_LE(made->bytes, kSmall.bytes);
  EXPECT_TRUE(made->written);
  EXPECT_TRUE(fs::is_empty(folder.path())) << "nothing is left of it";

  const std::string file = folder / "weights";
  std::ofstream(file) << std::string((size_t{2} << 20) + 5, 'w');  // no whole number of sectors
  const auto found = MeasureDisk(file, kSmall);
  ASSERT_TRUE(found.ok()) << found.status().message();
  EXPECT_GT(found->bytes_per_second, 0);
  EXPECT_GT(found->bytes, 0u);
  EXPECT_EQ(found->bytes % kSmall.request, 0u);
  EXPECT_FALSE(found->written);
  EXPECT_EQ(fs::file_size(file), (size_t{2} << 20) + 5);
}

TEST(DiskRate, RefusesWhatCannotBeMeasured) {
  const TempFolder folder;
  std::ofstream(folder / "small") << "w";
  for (const std::string& path : {folder / "none", folder / "small", std::string("/dev/null"), std::string()}) {
    const auto refused = MeasureDisk(path, kSmall);
    ASSERT_FALSE(refused.ok()) << path;
    EXPECT_EQ(refused.status().code(), StatusCode::kBadInput) << path;
    EXPECT_EQ(refused.status().message().find('\n'), std::string::npos);
  }
  EXPECT_EQ(MeasureDisk(folder.path(), {.request = 100}).status().code(), StatusCode::kInternal);
}

}  // namespace
}  // namespace tally
