// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "engine/base/aligned.h"
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

// Reads in odd places and sizes, to addresses that lie as the file's pages do and to others, by ReadDirect and by ReadAt.
void ExpectDirectReadsRight(const FileReader& file, const std::string& text) {
  const uint64_t align = file.direct_alignment(), size = text.size();
  EXPECT_GE(align, 4096u);
  const std::array<uint64_t, 12> places = {0,    1,     511,     4095,          4096,        4097,
                                           8192, 99999, 1 << 20, (1 << 20) + 7, size - 4096, size - 1};
  AlignedBuffer<uint8_t> room;
  ASSERT_TRUE(room.Resize(size + 3 * align));
  uint8_t* const page = room.data() + align - reinterpret_cast<uintptr_t>(room.data()) % align;
  for (const uint64_t begin : places) {
    for (const uint64_t end : places) {
      if (end < begin) continue;
      for (const uint64_t shift : {uint64_t{0}, uint64_t{64}, begin % align}) {
        const uint64_t n = end - begin + 1;
        std::memset(page + shift, '?', n + 1);
        const Status status = file.ReadDirect(begin, {page + shift, n});
        ASSERT_TRUE(status.ok()) << status.message();
        ASSERT_EQ(std::memcmp(page + shift, text.data() + begin, n), 0) << begin << " to " << end << " shift " << shift;
        ASSERT_EQ(page[shift + n], '?');  // not a byte beyond
      }
    }
  }
  EXPECT_TRUE(file.ReadDirect(size, {}).ok());
  ExpectBadInput(file.ReadDirect(size - 1, {page, 2}), {"the file has"});
}

std::string Megabytes() {
  std::string text((size_t{2} << 20) + 12345, 'x');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 2654435761u >> 13);
  return text;
}

TEST(FileReader, DirectReadsAreThoseThroughTheCache) {
  const TempFolder dir;
  const std::string text = Megabytes();
  const std::string path = dir.Write("a", text);
  FileReader file = FileReader::Open(path).value();
  std::filesystem::rename(path, dir / "b");  // the same file by another name: the second descriptor is of it
  dir.Write("a", "another");
  ExpectDirectReadsRight(file, text);
  FileReader moved = std::move(file);
  ExpectDirectReadsRight(moved, text);

  FileReader refused = FileReader::Open(dir / "b").value();
  refused.RefuseDirect();
  EXPECT_FALSE(refused.direct());
  ExpectDirectReadsRight(refused, text);
}

#ifdef __linux__
TEST(FileReader, DirectReadsOfAFileSystemWithoutADisk) {
  const std::string path = "/dev/shm/tally-file-reader-test-" + std::to_string(getpid());
  const std::string text = Megabytes();
  std::ofstream(path) << text;
  const auto file = FileReader::Open(path);
  std::filesystem::remove(path);
  if (!file.ok()) GTEST_SKIP() << file.status().message();
  ExpectDirectReadsRight(*file, text);
}

TEST(FileReader, DirectReadsLeaveThePageCacheAsItWas) {
  const TempFolder dir;
  const std::string text = Megabytes(), path = dir.Write("a", text);
  const int fd = open(path.c_str(), O_RDONLY);
  fsync(fd);
  const auto open_cold = [&] {
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    return FileReader::Open(path).value();
  };
  std::vector<uint8_t> out(text.size());
  for (const bool refuse : {false, true}) {
    const FileReader file = open_cold();
    if (file.CachedBytes(0, text.size()) != 0) GTEST_SKIP() << "the file system keeps its copies";
    if (refuse) file.RefuseDirect();
    ASSERT_TRUE(file.ReadDirect(0, out).ok());
    EXPECT_EQ(file.CachedBytes(0, text.size()), 0u) << refuse;
    const FileReader held = open_cold();
    ASSERT_TRUE(held.ReadAt(0, out).ok());
    EXPECT_EQ(held.CachedBytes(0, text.size()), text.size());
    EXPECT_EQ(held.CachedBytes(5000, 10), 10u);
    if (refuse) held.RefuseDirect();
    ASSERT_TRUE(held.ReadDirect(0, out).ok());
    EXPECT_EQ(held.CachedBytes(0, text.size()), text.size()) << refuse;
  }
  close(fd);
}
#endif

TEST(FileReader, DirectReadsOfAFileThatShrank) {
  const TempFolder dir;
  for (const bool refuse : {false, true}) {
    const std::string path = dir.Write("a", std::string(100000, 'x'));
    const FileReader file = FileReader::Open(path).value();
    if (refuse) file.RefuseDirect();
    std::filesystem::resize_file(path, 60000);
    std::vector<uint8_t> out(100000);
    ExpectBadInput(file.ReadDirect(0, out), {path, "become shorter", "100000 bytes", "before byte 60001"});
    EXPECT_TRUE(file.ReadDirect(10, {out.data(), 59990}).ok());
  }
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
