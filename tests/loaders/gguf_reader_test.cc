// SPDX-License-Identifier: Apache-2.0
// ReadGguf against files put together byte by byte; malformed ones: tests/siege.
#include <gtest/gtest.h>

#include "loaders/loaders.h"
#include "tests/loaders/file_tools.h"
#include "tests/support/allocations.h"

namespace tally {
namespace {

Result<Inventory> Read(const RawGguf& gguf) {
  const TempFolder dir;
  return ReadGguf(dir.Write("m.gguf", gguf.Make()));
}

RawGguf TwoTensors() {
  RawGguf g;
  g.keys = {Key("general.architecture", 8, Bytes().Str("llama"))};
  g.tensors = {{"a", {3, 2}, 0, 0}, {"b", {64, 5}, 8, 32}};  // 24 and 340 bytes
  g.data_bytes = 32 + 340;
  return g;
}

TEST(ReadGguf, ShapesOffsetsAndSizes) {
  for (const uint32_t version : {2u, 3u}) {
    RawGguf g = TwoTensors();
    g.version = version;
    const auto r = Read(g);
    ASSERT_TRUE(r.ok()) << r.status().message();
    EXPECT_EQ(r->format, FileFormat::kGguf);
    ASSERT_EQ(r->files.size(), 1u);
    EXPECT_EQ(r->files[0].size, g.Make().size());
    EXPECT_TRUE(r->files[0].stamp.has_value());
    ASSERT_EQ(r->tensors.size(), 2u);
    const uint64_t data = g.Make().size() - g.data_bytes;
    const StoredTensor *a = r->Find("a"), *b = r->Find("b");
    ASSERT_TRUE(a != nullptr && b != nullptr);
    EXPECT_EQ(a->shape, (std::vector<uint64_t>{2, 3}));
    EXPECT_EQ(a->dtype, DType::kF32);
    EXPECT_EQ(a->offset, data);
    EXPECT_EQ(a->bytes, 24u);
    EXPECT_EQ(b->shape, (std::vector<uint64_t>{5, 64}));
    EXPECT_EQ(b->dtype, DType::kQ8_0);
    EXPECT_EQ(b->offset, data + 32);
    EXPECT_EQ(b->bytes, 340u);
    EXPECT_EQ(r->metadata.GetString("general.architecture").value(), "llama");
  }
}

// The numbers, names and blocks of ggml.h and ggml-common.h, written out a second time.
TEST(ReadGguf, EveryTypeOfTensor) {
  struct Type {
    uint32_t number;
    const char* name;
    uint64_t block, bytes;
  };
  constexpr Type kTypes[] = {
      {0, "F32", 1, 4},        {1, "F16", 1, 2},         {2, "Q4_0", 32, 18},    {3, "Q4_1", 32, 20},    {6, "Q5_0", 32, 22},
      {7, "Q5_1", 32, 24},     {8, "Q8_0", 32, 34},      {9, "Q8_1", 32, 36},    {10, "Q2_K", 256, 84},  {11, "Q3_K", 256, 110},
      {12, "Q4_K", 256, 144},  {13, "Q5_K", 256, 176},   {14, "Q6_K", 256, 210}, {15, "Q8_K", 256, 292}, {16, "IQ2_XXS", 256, 66},
      {17, "IQ2_XS", 256, 74}, {18, "IQ3_XXS", 256, 98}, {19, "IQ1_S", 256, 50}, {20, "IQ4_NL", 32, 18}, {21, "IQ3_S", 256, 110},
      {22, "IQ2_S", 256, 82},  {23, "IQ4_XS", 256, 136}, {24, "I8", 1, 1},       {25, "I16", 1, 2},      {26, "I32", 1, 4},
      {27, "I64", 1, 8},       {28, "F64", 1, 8},        {29, "IQ1_M", 256, 56}, {30, "BF16", 1, 2},     {34, "TQ1_0", 256, 54},
      {35, "TQ2_0", 256, 66},  {39, "MXFP4", 32, 17},    {40, "NVFP4", 64, 36},  {41, "Q1_0", 128, 18},  {42, "Q2_0", 64, 18}};
  const TempFolder dir;
  for (const Type& type : kTypes) {
    SCOPED_TRACE(type.name);
    RawGguf g;
    g.tensors = {{"t", {2 * type.block, 3}, type.number, 0}};
    g.data_bytes = 6 * type.bytes;
    const auto r = ReadGguf(dir.Write("m.gguf", g.Make()));
    ASSERT_TRUE(r.ok()) << r.status().message();
    EXPECT_EQ(DTypeName(r->tensors[0].dtype), type.name);
    EXPECT_EQ(r->tensors[0].bytes, 6 * type.bytes);
    EXPECT_EQ(r->tensors[0].elements(), 6 * type.block);
  }
  uint32_t known = 0;
  for (uint32_t number = 0; number < 100; ++number) {
    RawGguf g;
    g.tensors = {{"t", {256}, number, 0}};
    g.data_bytes = 2048;
    const auto r = ReadGguf(dir.Write("m.gguf", g.Make()));
    ASSERT_TRUE(r.ok()) << r.status().message();
    known += r->tensors[0].other_type.empty() ? 1 : 0;
  }
  EXPECT_EQ(known, std::size(kTypes));
}

// Types that are not known are listed by number or by the name that ggml gave them, with the bytes up to the next tensor or the end.
TEST(ReadGguf, OtherTypesAreListed) {
  RawGguf g;
  g.tensors = {{"a", {100}, 99, 0}, {"b", {4}, 0, 96}, {"c", {32}, 36, 128}};
  g.data_bytes = 128 + 20;
  const auto r = Read(g);
  ASSERT_TRUE(r.ok()) << r.status().message();
  EXPECT_EQ(r->Find("a")->type_name(), "ggml type 99");
  EXPECT_EQ(r->Find("a")->bytes, 96u);
  EXPECT_EQ(r->Find("a")->elements(), 100u);
  EXPECT_EQ(r->Find("b")->type_name(), "F32");
  EXPECT_EQ(r->Find("c")->type_name(), "IQ4_NL_4_4 (withdrawn)");
  EXPECT_EQ(r->Find("c")->bytes, 20u);
}

TEST(ReadGguf, OuterDimensionsOfOneSayNothing) {
  RawGguf g;
  g.tensors = {{"a", {3, 2, 1, 1}, 0, 0}, {"b", {1, 1}, 0, 32}, {"c", {1, 3}, 0, 64}};
  g.data_bytes = 64 + 12;
  const auto r = Read(g);
  ASSERT_TRUE(r.ok()) << r.status().message();
  EXPECT_EQ(r->Find("a")->shape, (std::vector<uint64_t>{2, 3}));
  EXPECT_EQ(r->Find("b")->shape, (std::vector<uint64_t>{1}));
  EXPECT_EQ(r->Find("c")->shape, (std::vector<uint64_t>{3, 1}));
}

TEST(ReadGguf, KnowsTheLayers) {
  RawGguf g = TwoTensors();
  g.keys.push_back(Key("llama.block_count", 4, Bytes().U32(3)));
  g.keys.push_back(Key("llama.attention.head_count_kv", 9, Bytes().U32(5).U64(3).U32(2).U32(2).U32(2)));
  const auto r = Read(g);
  ASSERT_TRUE(r.ok()) << r.status().message();
  EXPECT_EQ(r->metadata.GetInt("llama.attention.head_count_kv").value(), 2);
}

TEST(ReadGguf, EveryMetadataType) {
  RawGguf g;
  g.keys = {Key("u8", 0, Bytes().U8(200)),
            Key("i8", 1, Bytes().Le(int8_t{-100})),
            Key("u16", 2, Bytes().Le(uint16_t{60000})),
            Key("i16", 3, Bytes().Le(int16_t{-30000})),
            Key("u32", 4, Bytes().U32(4000000000u)),
            Key("i32", 5, Bytes().Le(int32_t{-2000000000})),
            Key("f32", 6, Bytes().Le(0.1f)),
            Key("bool", 7, Bytes().U8(1)),
            Key("string", 8, Bytes().Str(std::string_view("a\0\n\xff", 4))),
            Key("u64", 10, Bytes().U64(UINT64_MAX)),
            Key("i64", 11, Bytes().Le(INT64_MIN)),
            Key("f64", 12, Bytes().Le(0.1)),
            Key("au8", 9, Bytes().U32(0).U64(2).U8(1).U8(255)),
            Key("ai8", 9, Bytes().U32(1).U64(1).Le(int8_t{-1})),
            Key("au16", 9, Bytes().U32(2).U64(1).Le(uint16_t{65535})),
            Key("ai16", 9, Bytes().U32(3).U64(1).Le(int16_t{-2})),
            Key("au32", 9, Bytes().U32(4).U64(1).U32(UINT32_MAX)),
            Key("ai32", 9, Bytes().U32(5).U64(1).Le(int32_t{-3})),
            Key("af32", 9, Bytes().U32(6).U64(2).Le(0.5f).Le(-1.5f)),
            Key("abool", 9, Bytes().U32(7).U64(3).U8(1).U8(0).U8(1)),
            Key("astring", 9, Bytes().U32(8).U64(2).Str("").Str("xy")),
            Key("au64", 9, Bytes().U32(10).U64(1).U64(INT64_MAX)),
            Key("ai64", 9, Bytes().U32(11).U64(1).Le(INT64_MIN)),
            Key("af64", 9, Bytes().U32(12).U64(1).Le(0.1)),
            Key("none", 9, Bytes().U32(8).U64(0))};
  const auto r = Read(g);
  ASSERT_TRUE(r.ok()) << r.status().message();
  const std::vector<std::pair<const char*, MetaValue>> expected = {
      {"u8", uint64_t{200}},
      {"i8", int64_t{-100}},
      {"u16", uint64_t{60000}},
      {"i16", int64_t{-30000}},
      {"u32", uint64_t{4000000000}},
      {"i32", int64_t{-2000000000}},
      {"f32", static_cast<double>(0.1f)},
      {"bool", true},
      {"string", std::string("a\0\n\xff", 4)},
      {"u64", UINT64_MAX},
      {"i64", INT64_MIN},
      {"f64", 0.1},
      {"au8", std::vector<int64_t>{1, 255}},
      {"ai8", std::vector<int64_t>{-1}},
      {"au16", std::vector<int64_t>{65535}},
      {"ai16", std::vector<int64_t>{-2}},
      {"au32", std::vector<int64_t>{UINT32_MAX}},
      {"ai32", std::vector<int64_t>{-3}},
      {"af32", std::vector<double>{0.5, -1.5}},
      {"abool", std::vector<bool>{true, false, true}},
      {"astring", std::vector<std::string>{"", "xy"}},
      {"au64", std::vector<int64_t>{INT64_MAX}},
      {"ai64", std::vector<int64_t>{INT64_MIN}},
      {"af64", std::vector<double>{0.1}},
      {"none", std::vector<std::string>{}},
  };
  EXPECT_EQ(r->metadata.values().size(), expected.size());
  for (const auto& [key, value] : expected) {
    ASSERT_TRUE(r->metadata.Has(key)) << key;
    EXPECT_EQ(*r->metadata.Find(key), value) << key;
  }
}

TEST(ReadGguf, AnyPowerOfTwoAlignment) {
  for (const uint32_t alignment : {1u, 2u, 8u, 64u, 4096u}) {
    RawGguf g = TwoTensors();
    g.keys.push_back(Key("general.alignment", 4, Bytes().U32(alignment)));
    g.alignment = alignment;
    g.tensors[1].offset = alignment <= 8 ? 24 : alignment;
    g.data_bytes = g.tensors[1].offset + 340;
    const auto r = Read(g);
    ASSERT_TRUE(r.ok()) << r.status().message();
    EXPECT_EQ(r->tensors[1].offset + r->tensors[1].bytes, g.Make().size());
  }
}

TEST(ReadGguf, TensorsAreInTheOrderOfTheirBytes) {
  RawGguf g = TwoTensors();
  std::swap(g.tensors[0], g.tensors[1]);
  const auto r = Read(g);
  ASSERT_TRUE(r.ok()) << r.status().message();
  EXPECT_EQ(r->tensors[0].name, "a");
  EXPECT_EQ(r->Find("b"), &r->tensors[1]);
}

TEST(ReadGguf, AVocabularyWithoutTensorsAndAScalar) {
  RawGguf g;
  g.keys = {Key("k", 7, Bytes().U8(0))};
  EXPECT_TRUE(Read(g).ok());
  g.tensors = {{"s", {}, 0, 0}};
  g.data_bytes = 4;
  const auto r = Read(g);
  ASSERT_TRUE(r.ok()) << r.status().message();
  EXPECT_TRUE(r->tensors[0].shape.empty());
  EXPECT_EQ(r->tensors[0].bytes, 4u);
}

TEST(ReadGguf, TooManyKeys) {
  RawGguf g;
  for (int i = 0; i <= 1 << 18; ++i) g.keys.push_back(Key("k" + std::to_string(i), 7, Bytes().U8(1)));
  ExpectBadInput(Read(g).status(), {"m.gguf: header: 262145 metadata keys; the limit is 262144"});
  g.keys.pop_back();
  EXPECT_TRUE(Read(g).ok());
}

// Files of a checkpoint split in three: one tensor each.
std::vector<std::string> SplitFiles() {
  std::vector<std::string> files;
  for (uint16_t i = 0; i < 3; ++i) {
    RawGguf g;
    if (i == 0) g.keys.push_back(Key("general.architecture", 8, Bytes().Str("llama")));
    g.keys.push_back(Key("split.no", 2, Bytes().Le(i)));
    g.keys.push_back(Key("split.count", 2, Bytes().Le(uint16_t{3})));
    g.keys.push_back(Key("split.tensors.count", 5, Bytes().Le(int32_t{3})));
    g.tensors = {{"t" + std::to_string(i), {4}, 0, 0}};
    g.data_bytes = 16;
    files.push_back(g.Make());
  }
  return files;
}

void WriteSplit(const TempFolder& dir, const std::vector<std::string>& files) {
  for (size_t i = 0; i < files.size(); ++i) {
    dir.Write("m-0000" + std::to_string(i + 1) + "-of-00003.gguf", files[i]);
  }
}

TEST(ReadGguf, AnyPartOfASplitOpensAll) {
  const TempFolder dir;
  WriteSplit(dir, SplitFiles());
  for (const char* part : {"m-00001-of-00003.gguf", "m-00002-of-00003.gguf", "m-00003-of-00003.gguf"}) {
    const auto r = ReadGguf(dir / part);
    ASSERT_TRUE(r.ok()) << r.status().message();
    EXPECT_EQ(r->path, dir / part);
    ASSERT_EQ(r->files.size(), 3u);
    EXPECT_EQ(r->files[2].path, dir / "m-00003-of-00003.gguf");
    ASSERT_EQ(r->tensors.size(), 3u);
    for (uint32_t i = 0; i < 3; ++i) {
      const StoredTensor* t = r->Find("t" + std::to_string(i));
      ASSERT_NE(t, nullptr);
      EXPECT_EQ(t->file, i);
    }
    EXPECT_EQ(r->metadata.GetString("general.architecture").value(), "llama");
    EXPECT_EQ(r->metadata.source, dir / "m-00001-of-00003.gguf");
  }
}

// NaN differs from itself, but not as a file's value.
TEST(ReadGguf, PartsWithTheSameNaN) {
  auto files = SplitFiles();
  for (int part = 0; part <= 2; ++part) {
    RawGguf g;
    g.keys = {Key("split.no", 2, Bytes().Le(static_cast<uint16_t>(part))), Key("split.count", 2, Bytes().Le(uint16_t{3})),
              Key("nan", 6, Bytes().U32(0x7FC00000)), Key("other", 6, Bytes().U32(part == 2 ? 0x7FC00000 : 0))};
    g.tensors = {{"t" + std::to_string(part), {4}, 0, 0}};
    g.data_bytes = 16;
    files[static_cast<size_t>(part)] = g.Make();
  }
  const TempFolder dir;
  WriteSplit(dir, files);
  ExpectBadInput(ReadGguf(dir / "m-00001-of-00003.gguf").status(), {"m-00003-of-00003.gguf", "metadata key 'other' differs"});
}

TEST(ReadGguf, PartsWithTooManyKeysTogether) {
  auto files = SplitFiles();
  for (int part = 1; part <= 2; ++part) {  // each within the limit
    RawGguf g;
    g.keys = {Key("split.no", 2, Bytes().Le(static_cast<uint16_t>(part))), Key("split.count", 2, Bytes().Le(uint16_t{3}))};
    for (int i = 0; i < 140'000; ++i) {
      g.keys.push_back(Key("k" + std::to_string(part) + "." + std::to_string(i), 7, Bytes().U8(1)));
    }
    g.tensors = {{"t" + std::to_string(part), {4}, 0, 0}};
    g.data_bytes = 16;
    files[static_cast<size_t>(part)] = g.Make();
  }
  const TempFolder dir;
  WriteSplit(dir, files);
  ExpectBadInput(ReadGguf(dir / "m-00001-of-00003.gguf").status(),
                 {"m-00003-of-00003.gguf", "the parts together have more than 262144 metadata keys"});
  EXPECT_TRUE(ReadGguf(dir.Write("m-00001-of-00001.gguf", TwoTensors().Make())).ok());
}

// A sparse file claims gigabytes at no cost: the reader must not allocate them.
TEST(ReadGguf, AHugeSparseFileIsRefusedAtOnce) {
  const TempFolder dir;
  const std::string path =
      dir.Write("m.gguf", Bytes().Raw("GGUF").U32(3).U64(0).U64(1).Str("k").U32(9).U32(8).U64(uint64_t{1} << 33).text());
  std::error_code error;
  std::filesystem::resize_file(path, uint64_t{1} << 40, error);
  if (error) GTEST_SKIP() << "no sparse files of 1 TiB here: " << error.message();
  const AllocationPeak peak;
  ExpectBadInput(ReadGguf(path).status(), {"limit of 256 MiB"});
  EXPECT_LE(peak.Bytes(), 4 << 20);
}

}  // namespace
}  // namespace tally
