// SPDX-License-Identifier: Apache-2.0
#include "engine/base/file_lock.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <utility>

#include "tests/support/temp_folder.h"

namespace tally {
namespace {

TEST(FileLock, OneHolderAtATime) {
  const TempFolder folder;
  const std::string path = folder / "x.lock";
  FileLock first, second;
  EXPECT_EQ(first.Take(path, 0600, FileLock::After::kRemove), 0);
  EXPECT_EQ(second.Take(path, 0600, FileLock::After::kRemove), EWOULDBLOCK);
  second.Release();
  EXPECT_TRUE(std::filesystem::exists(path)) << "who did not get it removes nothing";
  {
    const FileLock moved = std::move(first);
    EXPECT_EQ(second.Take(path, 0600, FileLock::After::kRemove), EWOULDBLOCK);
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_EQ(second.Take(path, 0600, FileLock::After::kKeep), 0);
  second.Release();
  EXPECT_TRUE(std::filesystem::exists(path));
  EXPECT_EQ(first.Take(path, 0600, FileLock::After::kRemove), 0) << "a file that is left over is no lock";
  EXPECT_EQ(second.Take(folder / "none/x.lock", 0600, FileLock::After::kKeep), ENOENT);
}

}  // namespace
}  // namespace tally
