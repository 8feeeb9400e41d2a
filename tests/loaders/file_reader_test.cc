// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <thread>

#include "loaders/loaders.h"
#include "tests/loaders/file_tools.h"

namespace tally {
namespace {

std::string Read(const FileReader& file, uint64_t offset, size_t n) {
  std::string out(n, '?');
  const Status status = file.ReadAt(offset, {reinterpret_cast<uint8_t*>(out.data()), n});
  return status.ok() ? out : status.message();
}

TEST(FileReader, ReadsRangesAndKnowsItsSize) {
  const TempFolder dir;
  auto file = FileReader::Open(dir.Write("a", "0123456789"));
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->size(), 10u);
  EXPECT_EQ(Read(*file, 0, 10), "0123456789");
  file->Forget(0, 10);
  EXPECT_EQ(Read(*file, 7, 3), "789");
  EXPECT_EQ(Read(*file, 10, 0), "");
  FileReader moved = std::move(*file);
  EXPECT_EQ(Read(moved, 1, 2), "12");
  std::vector<uint8_t> none(1);
  EXPECT_EQ(file->ReadAt(0, none).code(), StatusCode::kInternal);
  moved = std::move(FileReader::Open(dir.Write("b", "xyz"))).value();
  EXPECT_EQ(Read(moved, 0, 3), "xyz");
}

TEST(FileReader, RangesBeyondTheFileAreRefused) {
  const TempFolder dir;
  auto file = FileReader::Open(dir.Write("a", "0123456789"));
  ASSERT_TRUE(file.ok());
  std::vector<uint8_t> out(4);
  ExpectBadInput(file->ReadAt(7, out), {"/a", "the file has 10"});
  ExpectBadInput(file->ReadAt(UINT64_MAX, out), {"/a", "the file has 10"});
}

TEST(FileReader, AFileThatShrankIsAnError) {
  const TempFolder dir;
  const std::string path = dir.Write("a", std::string(1000, 'x'));
  auto file = FileReader::Open(path);
  ASSERT_TRUE(file.ok());
  std::filesystem::resize_file(path, 600);
  std::vector<uint8_t> out(1000);
  ExpectBadInput(file->ReadAt(0, out), {path, "become shorter", "1000 bytes", "before byte 601"});
}

TEST(FileReader, RefusesWhatIsNotAFullFile) {
  const TempFolder dir;
  ExpectBadInput(FileReader::Open("").status(), {"empty"});
  ExpectBadInput(FileReader::Open(dir / "none").status(), {"/none: cannot be opened: No such file or directory"});
  ExpectBadInput(FileReader::Open(dir.path()).status(), {dir.path(), "expected a regular file, found a directory"});
  ExpectBadInput(FileReader::Open(dir.Write("empty", "")).status(), {"/empty: the file is empty"});
  ExpectBadInput(FileReader::Open("/dev/null").status(), {"/dev/null: expected a regular file, found a device"});
  const std::string pipe = dir / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  ExpectBadInput(FileReader::Open(pipe).status(), {"expected a regular file, found a pipe"});  // must not hang
  ExpectBadInput(FileReader::Open(dir / std::string_view("a\0b", 3)).status(), {"a\\x00b", "zero byte"});
  ExpectBadInput(FileReader::Open(dir / "a\nb").status(), {"a\\nb: cannot be opened"});
}

TEST(ReadTextFile, WithinALimit) {
  const TempFolder dir;
  const std::string path = dir.Write("a", "0123456789");
  const auto whole = ReadTextFile(path, 10);
  ASSERT_TRUE(whole.ok()) << whole.status().message();
  EXPECT_EQ(*whole, "0123456789");
  ExpectBadInput(ReadTextFile(path, 9).status(), {path, "10 bytes; the limit for this file is 9"});
  ExpectBadInput(ReadTextFile("/dev/zero", 1 << 20).status(), {"/dev/zero: expected a regular file, found a device"});
}

TEST(FileReader, ThreadsMayShareIt) {
  const TempFolder dir;
  std::string text(1 << 16, '\0');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>('a' + i % 23);
  auto file = FileReader::Open(dir.Write("a", text));
  ASSERT_TRUE(file.ok());
  std::vector<int> wrong(4);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < 500; ++i) {
        const size_t at = (i * 127 + t * 31) % 60000;
        wrong[t] += Read(*file, at, 1000) != text.substr(at, 1000);
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, std::vector<int>(4));
}

}  // namespace
}  // namespace tally
