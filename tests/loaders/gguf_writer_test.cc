// SPDX-License-Identifier: Apache-2.0
// GgufWriter: what it writes reads back the same, and nothing is left behind where it fails.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>

#include "loaders/loaders.h"
#include "tests/loaders/file_tools.h"

namespace tally {
namespace {

// The byte that stands at `offset` of tensor `tensor`.
uint8_t Pattern(size_t tensor, uint64_t offset) { return static_cast<uint8_t>(tensor * 31 + offset * 7 + (offset >> 13)); }

void FillPattern(size_t tensor, uint64_t offset, std::span<uint8_t> piece) {
  for (size_t i = 0; i < piece.size(); ++i) piece[i] = Pattern(tensor, offset + i);
}

Result<Inventory> WriteAndRead(const GgufWriter& writer, const std::string& path) {
  const Status status = writer.Write(path, FillPattern);
  if (!status.ok()) return status;
  return ReadGguf(path);
}

TEST(GgufWriter, EveryMetadataTypeReadsBack) {
  struct Case {
    const char* key;
    MetaValue written;
    int type;  // -1: Set
    MetaValue read;
  };
  const std::string odd("a\0\n\xff", 4);
  const double tenth = static_cast<double>(0.1f);
  const std::vector<Case> cases = {
      {"b", true, -1, true},
      {"u", uint64_t{UINT32_MAX}, -1, uint64_t{UINT32_MAX}},
      {"U", uint64_t{1} << 32, -1, uint64_t{1} << 32},
      {"i", int64_t{5}, -1, uint64_t{5}},
      {"in", int64_t{-5}, -1, int64_t{-5}},
      {"I", INT64_MIN, -1, INT64_MIN},
      {"Ip", INT64_MAX, -1, INT64_MAX},
      {"d", 0.1, -1, tenth},
      {"inf", -INFINITY, -1, -INFINITY},
      {"s", odd, -1, odd},
      {"vb", std::vector<bool>{true, false}, -1, std::vector<bool>{true, false}},
      {"vi", std::vector<int64_t>{1, -2}, -1, std::vector<int64_t>{1, -2}},
      {"vI", std::vector<int64_t>{INT64_MAX}, -1, std::vector<int64_t>{INT64_MAX}},
      {"vd", std::vector<double>{0.5, 0.1}, -1, std::vector<double>{0.5, tenth}},
      {"vs", std::vector<std::string>{"", odd}, -1, std::vector<std::string>{"", odd}},
      {"ve", std::vector<std::string>{}, -1, std::vector<std::string>{}},
      {"u8", uint64_t{255}, 0, uint64_t{255}},
      {"i8", int64_t{-128}, 1, int64_t{-128}},
      {"u16", int64_t{65535}, 2, uint64_t{65535}},
      {"i16", int64_t{-32768}, 3, int64_t{-32768}},
      {"u32", int64_t{7}, 4, uint64_t{7}},
      {"i32", uint64_t{7}, 5, int64_t{7}},
      {"f32", 0.1, 6, tenth},
      {"bool", false, 7, false},
      {"str", std::string("x"), 8, std::string("x")},
      {"u64", uint64_t{7}, 10, uint64_t{7}},
      {"i64", uint64_t{7}, 11, int64_t{7}},
      {"f64", 0.1, 12, 0.1},
      {"au8", std::vector<int64_t>{0, 255}, 0, std::vector<int64_t>{0, 255}},
      {"ai16", std::vector<int64_t>{-1}, 3, std::vector<int64_t>{-1}},
      {"au32", std::vector<int64_t>{UINT32_MAX}, 4, std::vector<int64_t>{UINT32_MAX}},
      {"au64", std::vector<int64_t>{1}, 10, std::vector<int64_t>{1}},
      {"af64", std::vector<double>{0.1}, 12, std::vector<double>{0.1}},
  };
  GgufWriter writer;
  for (const Case& c : cases) {
    if (c.type < 0) {
      writer.Set(c.key, c.written);
    } else {
      writer.SetTyped(c.key, c.written, static_cast<uint32_t>(c.type));
    }
  }
  const TempFolder dir;
  const auto r = WriteAndRead(writer, dir / "m.gguf");
  ASSERT_TRUE(r.ok()) << r.status().message();
  EXPECT_EQ(r->metadata.values().size(), cases.size());
  for (const Case& c : cases) {
    ASSERT_TRUE(r->metadata.Has(c.key)) << c.key;
    EXPECT_EQ(*r->metadata.Find(c.key), c.read) << c.key;
  }
  EXPECT_EQ(writer.TotalBytes(), r->files[0].size);
  EXPECT_EQ(dir.Entries(), 1u);
}

// The whole file, byte for byte, against one put together by hand.
TEST(GgufWriter, BytesAreThoseOfTheFormat) {
  GgufWriter writer;
  writer.Set("n", uint64_t{3});
  writer.AddTensor("x", DType::kF32, {2, 3});
  writer.AddTensor("q", DType::kMXFP4, {1, 32});
  const TempFolder dir;
  ASSERT_TRUE(writer.Write(dir / "m.gguf", FillPattern).ok());
  Bytes b;
  b.Raw("GGUF").U32(3).U64(2).U64(1).Str("n").U32(4).U32(3);
  b.Str("x").U32(2).U64(3).U64(2).U32(0).U64(0);
  b.Str("q").U32(2).U64(32).U64(1).U32(39).U64(32).AlignTo(32);
  for (uint64_t i = 0; i < 24; ++i) b.U8(Pattern(0, i));
  b.AlignTo(32);
  for (uint64_t i = 0; i < 17; ++i) b.U8(Pattern(1, i));
  b.AlignTo(32);
  EXPECT_EQ(ReadAll(dir / "m.gguf"), b.text());
}

TEST(GgufWriter, EveryDTypeAndRankReadsBack) {
  constexpr DType kTypes[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0, DType::kMXFP4,
                              DType::kF64, DType::kI8,  DType::kI16,  DType::kI32,  DType::kI64};
  const std::vector<std::vector<uint64_t>> shapes = {{32}, {3, 64}, {2, 3, 32}, {5, 2, 3, 96}};
  for (const uint64_t alignment : {uint64_t{1}, uint64_t{32}, uint64_t{4096}}) {
    GgufWriter writer;
    writer.Set("general.alignment", alignment);
    std::vector<StoredTensor> expected;
    for (const DType type : kTypes) {
      for (const auto& shape : shapes) {
        StoredTensor& t = expected.emplace_back();
        t.name = std::string(DTypeName(type)) + "." + std::to_string(shape.size());
        t.dtype = type;
        t.shape = shape;
        writer.AddTensor(t.name, type, shape);
      }
    }
    const TempFolder dir;
    const auto r = WriteAndRead(writer, dir / "m.gguf");
    ASSERT_TRUE(r.ok()) << r.status().message();
    ASSERT_EQ(r->tensors.size(), expected.size());
    const std::string file = ReadAll(dir / "m.gguf");
    for (size_t i = 0; i < expected.size(); ++i) {
      const StoredTensor& t = r->tensors[i];
      EXPECT_EQ(t.name, expected[i].name);
      EXPECT_EQ(t.dtype, expected[i].dtype);
      EXPECT_EQ(t.shape, expected[i].shape);
      EXPECT_EQ(t.offset % alignment, 0u);
      ASSERT_EQ(t.bytes, *StoredBytes(t.dtype, t.elements()));
      for (uint64_t b = 0; b < t.bytes; ++b) {
        ASSERT_EQ(static_cast<uint8_t>(file[t.offset + b]), Pattern(i, b)) << t.name << " byte " << b;
      }
    }
  }
}

// Large tensors come in several pieces of whole rows; rows beyond 8 MiB in whole blocks.
TEST(GgufWriter, PiecesAreWholeRowsOrBlocksInOrder) {
  constexpr uint64_t kMax = 8 << 20;
  GgufWriter writer;
  writer.AddTensor("small", DType::kF32, {5});
  writer.AddTensor("rows", DType::kF32, {7, 1000003});                // 4,000,012 bytes a row: 2 rows a piece
  writer.AddTensor("long", DType::kQ8_0, {1, 32 * (kMax / 34 + 9)});  // one row of more than 8 MiB
  const uint64_t unit[] = {20, 4000012, 34};
  std::vector<uint64_t> next(3), pieces(3);
  uint64_t done_before = 0, calls = 0;
  const TempFolder dir;
  const Status status = writer.Write(
      dir / "m.gguf",
      [&](size_t tensor, uint64_t offset, std::span<uint8_t> piece) {
        EXPECT_EQ(offset, next[tensor]);
        EXPECT_LE(piece.size(), kMax);
        EXPECT_EQ(piece.size() % unit[tensor], 0u);
        next[tensor] += piece.size();
        ++pieces[tensor];
        FillPattern(tensor, offset, piece);
      },
      [&](uint64_t done, uint64_t total) {
        EXPECT_EQ(total, writer.TotalBytes());
        EXPECT_GE(done, done_before);
        EXPECT_LE(done, total);
        done_before = done;
        ++calls;
        return true;
      });
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(pieces, (std::vector<uint64_t>{1, 4, 2}));
  EXPECT_GE(calls, 7u);
  const auto r = ReadGguf(dir / "m.gguf");
  ASSERT_TRUE(r.ok()) << r.status().message();
  const std::string file = ReadAll(dir / "m.gguf");
  for (size_t i = 0; i < 3; ++i) {
    const StoredTensor& t = r->tensors[i];
    EXPECT_EQ(next[i], t.bytes);
    uint64_t wrong = 0;
    for (uint64_t b = 0; b < t.bytes; ++b) wrong += static_cast<uint8_t>(file[t.offset + b]) != Pattern(i, b);
    EXPECT_EQ(wrong, 0u) << t.name;
  }
}

TEST(GgufWriter, RefusesWhatTheFormatCannotHold) {
  const TempFolder dir;
  const auto refuse = [&](const std::function<void(GgufWriter&)>& set, std::initializer_list<std::string_view> parts) {
    GgufWriter writer;
    set(writer);
    bool filled = false;
    ExpectBadInput(writer.Write(dir / "m.gguf", [&](size_t, uint64_t, std::span<uint8_t>) { filled = true; }), parts);
    EXPECT_EQ(writer.TotalBytes(), 0u);
    EXPECT_FALSE(filled);
    EXPECT_EQ(dir.Entries(), 0u);
  };
  refuse([](auto& w) { w.AddTensor("t", DType::kU8, {4}); }, {"tensor 't': GGUF has no type U8"});
  refuse([](auto& w) { w.AddTensor("t", DType::kQ8_0, {32, 33}); }, {"rows of 33 elements"});
  refuse([](auto& w) { w.AddTensor("t", DType::kF32, {1, 1, 1, 1, 1}); }, {"5 dimensions"});
  refuse([](auto& w) { w.AddTensor("t", DType::kF32, {4, 0}); }, {"the shape is empty"});
  refuse([](auto& w) { w.AddTensor("t", DType::kF32, {uint64_t{1} << 40, uint64_t{1} << 40}); }, {"overflows"});
  refuse([](auto& w) { w.AddTensor("t", DType::kF32, {uint64_t{1} << 61}); }, {"larger than 2^62 bytes"});
  refuse([](auto& w) { w.AddTensor("", DType::kF32, {4}); }, {"expected a name"});
  refuse([](auto& w) { w.AddTensor("t", DType::kF32, {4}), w.AddTensor("t", DType::kF32, {4}); }, {"'t' appears twice"});
  refuse([](auto& w) { w.Set("k", true), w.Set("k", true); }, {"metadata key 'k': set twice"});
  refuse([](auto& w) { w.Set("", true); }, {"expected 1 to 65535 bytes"});
  refuse([](auto& w) { w.SetTyped("k", int64_t{256}, 0); }, {"'k': the value is an integer that GGUF type 0 cannot hold"});
  refuse([](auto& w) { w.SetTyped("k", int64_t{-1}, 4); }, {"GGUF type 4 cannot hold"});
  refuse([](auto& w) { w.SetTyped("k", std::string("x"), 4); }, {"a string that GGUF type 4 cannot hold"});
  refuse([](auto& w) { w.SetTyped("k", std::vector<int64_t>{1, 128}, 1); }, {"GGUF type 1 cannot hold"});
  refuse([](auto& w) { w.SetTyped("k", std::vector<int64_t>{}, 9); }, {"GGUF type 9 cannot hold"});
  refuse([](auto& w) { w.Set("k", 1e300); }, {"a number that GGUF type 6 cannot hold"});
  refuse([](auto& w) { w.Set("general.alignment", uint64_t{48}); }, {"expected a power of two"});
}

GgufWriter OneTensor(uint64_t elements) {
  GgufWriter writer;
  writer.AddTensor("t", DType::kF32, {elements});
  return writer;
}

TEST(GgufWriter, PlacesThatCannotBeWritten) {
  const TempFolder dir;
  const GgufWriter writer = OneTensor(4);
  ExpectBadInput(writer.Write(dir / "none/m.gguf", FillPattern), {"none/m.gguf: cannot be created: No such file"});
  ExpectBadInput(writer.Write(dir.path(), FillPattern), {"exists and is not a regular file"});
  ExpectBadInput(writer.Write("/dev/null", FillPattern), {"/dev/null: exists and is not a regular file"});
  ExpectBadInput(writer.Write("", FillPattern), {"empty"});
  std::filesystem::create_symlink(dir / "nowhere", dir / "dangling");
  ExpectBadInput(writer.Write(dir / "dangling", FillPattern), {"leads nowhere"});
  EXPECT_EQ(dir.Entries(), 1u);
}

TEST(GgufWriter, ReplacesAFileOnlyWhenComplete) {
  const TempFolder dir;
  const GgufWriter writer = OneTensor(8 << 20);  // 32 MiB: several pieces
  const std::string path = dir.Write("m.gguf", "old");
  int calls = 0;
  const Status stopped = writer.Write(path, FillPattern, [&](uint64_t, uint64_t) { return ++calls < 3; });
  EXPECT_EQ(stopped.code(), StatusCode::kInterrupted);
  EXPECT_NE(stopped.message().find("m.gguf"), std::string::npos);
  EXPECT_EQ(ReadAll(path), "old");
  EXPECT_EQ(dir.Entries(), 1u);
  ASSERT_TRUE(writer.Write(path, FillPattern).ok());
  EXPECT_EQ(std::filesystem::file_size(path), writer.TotalBytes());
  EXPECT_EQ(dir.Entries(), 1u);

  std::filesystem::create_symlink("m.gguf", dir / "link");  // written through, not replaced
  ASSERT_TRUE(OneTensor(4).Write(dir / "link", FillPattern).ok());
  EXPECT_TRUE(std::filesystem::is_symlink(dir / "link"));
  EXPECT_EQ(std::filesystem::file_size(path), OneTensor(4).TotalBytes());
}

TEST(GgufWriter, LeftoversOfOthersAreNotTouched) {
  const TempFolder dir;
  const std::string stale = dir.Write("m.gguf.partial-" + std::to_string(::getpid()) + "-0", "theirs");
  ASSERT_TRUE(OneTensor(4).Write(dir / "m.gguf", FillPattern).ok());
  EXPECT_EQ(ReadAll(stale), "theirs");
  EXPECT_EQ(dir.Entries(), 2u);
}

// A limit on file sizes stands in for a full disk: write() takes part of a piece, then fails.
TEST(GgufWriter, AWriteThatFailsLeavesNothing) {
  const TempFolder dir;
  const std::string path = dir.Write("m.gguf", "old");
  struct rlimit before;
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  struct rlimit small = before;
  small.rlim_cur = 10'000'000;
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const Status status = OneTensor(8 << 20).Write(path, FillPattern);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, old_handler);
  ExpectBadInput(status, {"m.gguf: cannot be written at byte 10000000 of 335544", "File too large", "was removed"});
  EXPECT_EQ(ReadAll(path), "old");
  EXPECT_EQ(dir.Entries(), 1u);
}

}  // namespace
}  // namespace tally
