// ReadGguf against files put together byte by byte, sound and broken.
#include <gtest/gtest.h>

#include "loaders/loaders.h"
#include "tests/loaders/file_tools.h"

namespace tally {
namespace {

Result<Inventory> Read(const RawGguf& gguf) {
  const TempFolder dir;
  return ReadGguf(dir.Write("m.gguf", gguf.Make()));
}

Status ErrorOf(const std::string& bytes) {
  const TempFolder dir;
  return ReadGguf(dir.Write("m.gguf", bytes)).status();
}
Status ErrorOf(const RawGguf& gguf) { return ErrorOf(gguf.Make()); }

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
  RawGguf g = TwoTensors();
  g.keys.push_back(Key("general.alignment", 4, Bytes().U32(48)));
  ExpectBadInput(ErrorOf(g), {"m.gguf: general.alignment is 48; expected a power of two"});
  g.keys.back() = Key("general.alignment", 4, Bytes().U32(0));
  ExpectBadInput(ErrorOf(g), {"general.alignment is 0"});
  g.keys.back() = Key("general.alignment", 8, Bytes().Str("32"));
  ExpectBadInput(ErrorOf(g), {"m.gguf: key 'general.alignment': expected an integer", "found a string"});
  g.keys.back() = Key("general.alignment", 10, Bytes().U64(uint64_t{1} << 62));
  ExpectBadInput(ErrorOf(g), {"tensor data begin at byte 4611686018427387904, but the file ends"});
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

TEST(ReadGguf, OtherFormatsAreNamed) {
  ExpectBadInput(ErrorOf("hello, world"), {"m.gguf: header: expected a GGUF file", "found 'hell'"});
  ExpectBadInput(ErrorOf("GG"), {"expected the letters GGUF at byte 0, but the file ends at byte 2"});
  ExpectBadInput(ErrorOf(""), {"the file is empty"});
  ExpectBadInput(ErrorOf("tjggxxxxxxxx"), {"before GGUF"});
  ExpectBadInput(ErrorOf("PK\x03\x04xxxx"), {"zip archive"});
  ExpectBadInput(ErrorOf(std::string("\x01\x02\n\x04zzzz")), {"found '\\x01\\x02\\n\\x04'"});
  RawGguf g = TwoTensors();
  g.version = 1;
  ExpectBadInput(ErrorOf(g), {"GGUF version 1; versions 2 and 3 can be read"});
  g.version = 4;
  ExpectBadInput(ErrorOf(g), {"GGUF version 4;"});
  g.version = 0x03000000;
  ExpectBadInput(ErrorOf(g), {"big-endian"});
}

TEST(ReadGguf, ImpossibleCounts) {
  RawGguf g = TwoTensors();
  g.more_tensors = 1000;
  ExpectBadInput(ErrorOf(g), {"expected 1002 tensors", "the file ends"});
  g.more_tensors = -3;  // 2^64 - 1
  ExpectBadInput(ErrorOf(g), {"expected 18446744073709551615 tensors"});
  g.more_tensors = 0;
  g.more_keys = INT64_MAX - 1;
  ExpectBadInput(ErrorOf(g), {"expected 9223372036854775807 metadata keys"});
}

TEST(ReadGguf, TooManyKeys) {
  RawGguf g;
  for (int i = 0; i <= 1 << 18; ++i) g.keys.push_back(Key("k" + std::to_string(i), 7, Bytes().U8(1)));
  ExpectBadInput(ErrorOf(g), {"m.gguf: header: 262145 metadata keys; the limit is 262144"});
  g.keys.pop_back();
  EXPECT_TRUE(Read(g).ok());
}

TEST(ReadGguf, BrokenMetadata) {
  const auto error = [](std::string key) {
    RawGguf g;
    g.keys = {std::move(key)};
    g.tensors = {{"t", {16}, 0, 0}};
    g.data_bytes = 64;
    return ErrorOf(g);
  };
  ExpectBadInput(error(Key("k", 13, Bytes().U64(0))), {"metadata key 1 of 1, 'k': a value of type 13"});
  ExpectBadInput(error(Key("k", 7, Bytes().U8(2))), {"'k': a boolean is 0 or 1, found 2"});
  ExpectBadInput(error(Key("k", 9, Bytes().U32(9).U64(1).U32(4).U64(1).U32(7))), {"'k': an array of arrays"});
  ExpectBadInput(error(Key("k", 9, Bytes().U32(99).U64(1).U32(4))), {"'k': array elements of type 99"});
  ExpectBadInput(error(Key("k", 9, Bytes().U32(4).U64(uint64_t{1} << 62).U32(4))),
                 {"'k': expected an array of 4611686018427387904 elements"});
  ExpectBadInput(error(Key("k", 9, Bytes().U32(7).U64(2).U8(1).U8(9))), {"a boolean is 0 or 1, found 9"});
  ExpectBadInput(error(Key("k", 9, Bytes().U32(10).U64(2).U64(1).U64(UINT64_MAX))), {"array element 1 is 18446744073709551615"});
  ExpectBadInput(error(Key("k", 8, Bytes().U64(uint64_t{1} << 63).Raw("abc"))),
                 {"'k': expected a string (9223372036854775808 bytes) at byte", "but the file ends at byte"});
  ExpectBadInput(error(Key("k", 9, Bytes().U32(8).U64(2).Str("a").U64(100000))), {"expected a string (100000 bytes)"});
  ExpectBadInput(error(Key("", 7, Bytes().U8(1))), {"metadata key 1 of 1: the key is empty"});
  ExpectBadInput(error(Key(std::string(70000, 'k'), 7, Bytes().U8(1))),
                 {"the length of a key is 70000 bytes; the limit is 65535"});
  ExpectBadInput(error(Key("a\nb\x1b[31m", 13, Bytes())), {"'a\\nb\\x1b[31m'"});
  RawGguf g;
  g.keys = {Key("k", 7, Bytes().U8(1)), Key("l", 7, Bytes().U8(1)), Key("k", 7, Bytes().U8(1))};
  ExpectBadInput(ErrorOf(g), {"metadata key 3 of 3, 'k': the key appears twice"});
}

TEST(ReadGguf, BrokenTensors) {
  const auto error = [](RawTensor tensor, uint64_t data = 4096) {
    RawGguf g;
    g.tensors = {std::move(tensor)};
    g.data_bytes = data;
    return ErrorOf(g);
  };
  ExpectBadInput(error({"t", {1, 1, 1, 1, 1}, 0, 0}), {"tensor 1 of 1, 't': 5 dimensions; GGUF has at most 4"});
  ExpectBadInput(error({"t", {4, 0}, 0, 0}), {"'t': dimension 1 is 0"});
  ExpectBadInput(error({"t", {uint64_t{1} << 32, uint64_t{1} << 32}, 0, 0}), {"'t': the number of elements overflows"});
  ExpectBadInput(error({"t", {uint64_t{1} << 63}, 0, 0}), {"overflows 63 bits"});
  ExpectBadInput(error({"t", {uint64_t{1} << 62}, 0, 0}), {"the size in bytes overflows 64 bits"});
  ExpectBadInput(error({"blk.0.w", {256, 2}, 12, 0}), {"'blk.0.w': ggml type 12 (Q4_K) cannot be read", "MXFP4"});
  ExpectBadInput(error({"t", {256}, 36, 0}), {"ggml type 36 (IQ4_NL_4_4"});
  ExpectBadInput(error({"t", {256}, 4711, 0}), {"ggml type 4711 (unknown)"});
  ExpectBadInput(error({"t", {33, 32}, 8, 0}), {"rows of 33 elements are not whole Q8_0 blocks of 32"});
  ExpectBadInput(error({"t", {4}, 0, 8}), {"offset 8 is not a multiple of the alignment, 32"});
  ExpectBadInput(error({"t", {4}, 0, 4096}), {"'t': 16 bytes at offset 4096", "past the end of the file"});
  ExpectBadInput(error({"t", {1024}, 0, 32}), {"'t': 4096 bytes at offset 32"});
  ExpectBadInput(error({"t", {1024}, 0, UINT64_MAX - 31}), {"past the end of the file"});
  ExpectBadInput(error({"t", {4}, 0, 0}, 0), {"tensor data begin at byte", "the file ends at byte"});
  ExpectBadInput(error({"", {4}, 0, 0}), {"tensor 1 of 1: the name is empty"});
  ExpectBadInput(error({std::string(2000, 'n'), {4}, 0, 0}), {"the length of a tensor name is 2000 bytes; the limit is 1024"});

  RawGguf g = TwoTensors();
  g.tensors[1].name = "a";
  ExpectBadInput(ErrorOf(g), {"m.gguf: tensor 'a' appears twice"});
  g = TwoTensors();
  g.tensors[0].ne = {16, 2};
  ExpectBadInput(ErrorOf(g), {"tensors 'a' and 'b' overlap at byte"});
  g.tensors[1].offset = 0;
  ExpectBadInput(ErrorOf(g), {"overlap"});
}

TEST(ReadGguf, EveryTruncationIsAnError) {
  RawGguf g = TwoTensors();
  g.keys.push_back(Key("list", 9, Bytes().U32(8).U64(2).Str("one").Str("two")));
  const std::string whole = g.Make();
  ASSERT_TRUE(Read(g).ok());
  for (size_t n = 0; n < whole.size(); ++n) {
    const Status status = ErrorOf(whole.substr(0, n));
    ASSERT_EQ(status.code(), StatusCode::kBadInput) << n;
    ASSERT_NE(status.message().find("m.gguf"), std::string::npos);
  }
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

TEST(ReadGguf, BrokenSplits) {
  const auto error = [](const std::vector<std::string>& files) {
    const TempFolder dir;
    WriteSplit(dir, files);
    return ReadGguf(dir / "m-00001-of-00003.gguf").status();
  };
  auto files = SplitFiles();
  std::swap(files[1], files[2]);
  ExpectBadInput(error(files), {"m-00002-of-00003.gguf: expected split.no 1 and split.count 3, found 2 and 3"});
  files = SplitFiles();
  files.pop_back();
  ExpectBadInput(error(files), {"m-00003-of-00003.gguf: cannot be opened", "(part 3 of 3 of the split checkpoint)"});
  files = SplitFiles();
  files[2] = "GGUF";
  ExpectBadInput(error(files), {"m-00003-of-00003.gguf: header: expected the GGUF version", "part 3 of 3"});

  RawGguf g;
  g.keys = {Key("split.no", 2, Bytes().Le(uint16_t{1})), Key("split.count", 2, Bytes().Le(uint16_t{3}))};
  g.tensors = {{"t0", {4}, 0, 0}};
  g.data_bytes = 16;
  files = SplitFiles();
  files[1] = g.Make();
  ExpectBadInput(error(files), {"tensor 't0' appears twice"});
  g.keys.push_back(Key("general.architecture", 8, Bytes().Str("gpt2")));
  files[1] = g.Make();
  ExpectBadInput(error(files), {"m-00002-of-00003.gguf: metadata key 'general.architecture' differs", "not parts of one"});
  g.keys.pop_back();
  g.tensors = {{"t1", {4}, 0, 0}, {"more", {4}, 0, 32}};
  g.data_bytes = 48;
  files[1] = g.Make();
  ExpectBadInput(error(files), {"split.tensors.count is 3, but the files hold 4 tensors"});
  for (int part = 1; part <= 2; ++part) {  // each within the limit
    g = RawGguf();
    g.keys = {Key("split.no", 2, Bytes().Le(static_cast<uint16_t>(part))), Key("split.count", 2, Bytes().Le(uint16_t{3}))};
    for (int i = 0; i < 140'000; ++i) {
      g.keys.push_back(Key("k" + std::to_string(part) + "." + std::to_string(i), 7, Bytes().U8(1)));
    }
    g.tensors = {{"t" + std::to_string(part), {4}, 0, 0}};
    g.data_bytes = 16;
    files[static_cast<size_t>(part)] = g.Make();
  }
  ExpectBadInput(error(files), {"m-00003-of-00003.gguf", "the parts together have more than 262144 metadata keys"});

  const TempFolder dir;
  ExpectBadInput(ReadGguf(dir.Write("renamed.gguf", SplitFiles()[0])).status(),
                 {"renamed.gguf: split.count is 3, so the name must end in"});
  ExpectBadInput(ReadGguf(dir.Write("m-00001-of-00002.gguf", TwoTensors().Make())).status(),
                 {"the name says part 1 of 2, but the file has no split.count"});
  EXPECT_TRUE(ReadGguf(dir.Write("m-00001-of-00001.gguf", TwoTensors().Make())).ok());
}

// A sparse file claims gigabytes at no cost: the reader must neither allocate nor read them.
TEST(ReadGguf, AHugeSparseFileIsRefusedAtOnce) {
  const TempFolder dir;
  const std::string path =
      dir.Write("m.gguf", Bytes().Raw("GGUF").U32(3).U64(0).U64(1).Str("k").U32(9).U32(8).U64(uint64_t{1} << 33).text());
  std::error_code error;
  std::filesystem::resize_file(path, uint64_t{1} << 40, error);
  if (error) GTEST_SKIP() << "no sparse files of 1 TiB here: " << error.message();
  ExpectBadInput(ReadGguf(path).status(), {"limit of 256 MiB"});
}

}  // namespace
}  // namespace tally
