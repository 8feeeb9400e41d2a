// SPDX-License-Identifier: Apache-2.0
// ReadHuggingFace and ReadCheckpoint: directories, flattening, safetensors, sharded indexes; malformed ones: tests/siege.
#include <gtest/gtest.h>

#include "loaders/loaders.h"
#include "tests/loaders/file_tools.h"

namespace tally {
namespace {

constexpr char kTwoTensors[] = R"({"__metadata__":{"format":"pt"},"b":{"dtype":"BF16","shape":[2,3],"data_offsets":[16,28]},)"
                               R"("a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})";

// A directory with this config.json and a sound model.safetensors.
Result<Inventory> WithConfig(std::string_view config) {
  const TempFolder dir;
  dir.Write("config.json", config);
  dir.Write("model.safetensors", Safetensors(kTwoTensors, 28));
  return ReadHuggingFace(dir.path());
}

// The error of a directory with this safetensors header and data.
Status HeaderError(std::string_view header, size_t data_bytes) {
  const TempFolder dir;
  dir.Write("config.json", "{}");
  dir.Write("model.safetensors", Safetensors(header, data_bytes));
  return ReadHuggingFace(dir.path()).status();
}

TEST(ReadHuggingFace, TensorsOfOneFile) {
  const TempFolder dir;
  dir.Write("config.json", R"({"model_type":"llama"})");
  dir.Write("model.safetensors", Safetensors(kTwoTensors, 28));
  dir.Write("tokenizer.json", "{}");
  dir.Write("other.safetensors", "not looked at");
  for (const std::string& path : {dir.path(), dir.path() + "/", dir / "config.json"}) {
    for (const auto& r : {ReadHuggingFace(path), ReadCheckpoint(path)}) {
      ASSERT_TRUE(r.ok()) << r.status().message();
      EXPECT_EQ(r->format, FileFormat::kHuggingFace);
      EXPECT_EQ(r->path, path);
      EXPECT_TRUE(r->tokenizer_json.ends_with("/tokenizer.json"));
      ASSERT_EQ(r->tensors.size(), 2u);
      const uint64_t data = 8 + std::string(kTwoTensors).size();
      EXPECT_EQ(r->tensors[0].name, "a");  // in the order of the bytes
      const StoredTensor *a = r->Find("a"), *b = r->Find("b");
      ASSERT_TRUE(a != nullptr && b != nullptr);
      EXPECT_EQ(a->offset, data);
      EXPECT_EQ(a->bytes, 16u);
      EXPECT_EQ(b->dtype, DType::kBF16);
      EXPECT_EQ(b->shape, (std::vector<uint64_t>{2, 3}));
      EXPECT_EQ(b->offset, data + 16);
      EXPECT_EQ(r->metadata.GetString("model_type").value(), "llama");
      EXPECT_FALSE(r->metadata.Has("format"));
    }
  }
}

TEST(ReadHuggingFace, EveryDType) {
  struct Case {
    const char* name;
    DType dtype;
    uint64_t bytes;
  };
  for (const Case& c : {Case{"F64", DType::kF64, 8},
                        {"F32", DType::kF32, 4},
                        {"F16", DType::kF16, 2},
                        {"BF16", DType::kBF16, 2},
                        {"F8_E4M3", DType::kF8_E4M3, 1},
                        {"F8_E5M2", DType::kF8_E5M2, 1},
                        {"I64", DType::kI64, 8},
                        {"I32", DType::kI32, 4},
                        {"I16", DType::kI16, 2},
                        {"I8", DType::kI8, 1},
                        {"U64", DType::kU64, 8},
                        {"U32", DType::kU32, 4},
                        {"U16", DType::kU16, 2},
                        {"U8", DType::kU8, 1},
                        {"BOOL", DType::kBOOL, 1}}) {
    const TempFolder dir;
    dir.Write("config.json", "{}");
    const std::string header = std::string(R"({"s":{"dtype":")") + c.name + R"(","shape":[],"data_offsets":[0,)" +
                               std::to_string(c.bytes) + "]}}  ";  // a scalar; spaces pad the header
    dir.Write("x.safetensors", Safetensors(header, c.bytes));      // the only one: its name does not matter
    const auto r = ReadHuggingFace(dir.path());
    ASSERT_TRUE(r.ok()) << r.status().message();
    EXPECT_EQ(r->tensors[0].dtype, c.dtype);
    EXPECT_EQ(r->tensors[0].bytes, c.bytes);
    EXPECT_EQ(r->tensors[0].elements(), 1u);
  }
}

TEST(ReadHuggingFace, OtherTypesAreListed) {
  const TempFolder dir;
  dir.Write("config.json", "{}");
  dir.Write("model.safetensors", Safetensors(R"({"w":{"dtype":"F4","shape":[8],"data_offsets":[0,4]}})", 4));
  const auto r = ReadHuggingFace(dir.path());
  ASSERT_TRUE(r.ok()) << r.status().message();
  EXPECT_EQ(r->tensors[0].type_name(), "F4");
  EXPECT_EQ(r->tensors[0].bytes, 4u);
  EXPECT_EQ(r->tensors[0].elements(), 8u);
}

// torch.compile's and others' prefixes go where all names have them.
TEST(ReadHuggingFace, PrefixesOfWrappers) {
  const auto names = [](const char* a, const char* b) {
    const TempFolder dir;
    dir.Write("config.json", "{}");
    dir.Write("model.safetensors",
              Safetensors(std::string(R"({")") + a + R"(":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},")" + b +
                              R"(":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                          2));
    const auto r = ReadHuggingFace(dir.path());
    EXPECT_TRUE(r.ok()) << r.status().message();
    return r.ok() ? r->name_prefix + "|" + r->tensors[0].name + "|" + r->tensors[1].name : "";
  };
  EXPECT_EQ(names("_orig_mod.a", "_orig_mod.b"), "_orig_mod.|a|b");
  EXPECT_EQ(names("module._orig_mod.a", "module._orig_mod.b"), "module._orig_mod.|a|b");
  EXPECT_EQ(names("base_model.model.a", "base_model.model.b"), "base_model.model.|a|b");
  EXPECT_EQ(names("module.a", "b"), "|module.a|b");
}

TEST(ReadHuggingFace, AdaptersAreNamed) {
  const TempFolder dir;
  const auto says = [&](const std::string& file) {
    EXPECT_EQ(ReadHuggingFace(dir.path()).status().message(),
              dir.path() + ": a LoRA adapter (" + file +
                  "), not a model: merge it into its model (PEFT: merge_and_unload) and name that directory");
  };
  dir.Write("adapter_config.json", "{}");
  says("adapter_config.json");
  dir.Write("config.json", "{}");
  dir.Write("adapter_model.safetensors", Safetensors(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1));
  says("adapter_model.safetensors");
}

TEST(ReadHuggingFace, ConfigIsFlattened) {
  const auto r = WithConfig(R"({"i": 3, "n": -4, "big": 18446744073709551615, "bigger": 18446744073709551616, "f": 1e-5,
    "whole": 10000.0, "t": true, "s": "x\u00e9", "none": null, "eos_token_id": [1, 2], "empty": [], "eo": {},
    "rope": {"factor": 8, "deep": {"er": [0.5, 2]}, "none": null}, "after": 1, "strings": ["a", "b"],
    "bools": [true, false], "mixed": [1, "a"], "objects": [{"a": 1, "b": [1]}, {"a": 2}],
    "nested": [[1], [2]], "nulls": [1, null], "with.dot": 5})");
  ASSERT_TRUE(r.ok()) << r.status().message();
  const std::vector<std::pair<const char*, MetaValue>> expected = {
      {"i", int64_t{3}},
      {"n", int64_t{-4}},
      {"big", UINT64_MAX},
      {"bigger", 18446744073709551616.0},
      {"f", 1e-5},
      {"whole", 10000.0},
      {"t", true},
      {"s", std::string("x\xc3\xa9")},
      {"eos_token_id", std::vector<int64_t>{1, 2}},
      {"empty", std::vector<int64_t>{}},
      {"rope.factor", int64_t{8}},
      {"rope.deep.er", std::vector<double>{0.5, 2}},
      {"after", int64_t{1}},
      {"strings", std::vector<std::string>{"a", "b"}},
      {"bools", std::vector<bool>{true, false}},
      {"with.dot", int64_t{5}},
  };
  for (const auto& [key, value] : expected) {
    ASSERT_TRUE(r->metadata.Has(key)) << key;
    EXPECT_EQ(*r->metadata.Find(key), value) << key;
  }
  EXPECT_EQ(r->metadata.values().size(), expected.size());  // null, mixed, objects, nested: absent
  for (const char* key : {"none", "rope.none"}) EXPECT_TRUE(r->metadata.IsNull(key) && !r->metadata.Has(key)) << key;
  for (const char* key : {"i", "mixed", "nulls", "rope", "er", "absent"}) EXPECT_FALSE(r->metadata.IsNull(key)) << key;
}

TEST(ReadHuggingFace, GenerationConfigHasAPlaceOfItsOwn) {
  const TempFolder dir;
  dir.Write("config.json", R"({"eos_token_id": 1, "generation_config": {"eos_token_id": 9, "x": 1}})");
  dir.Write("generation_config.json", R"({"eos_token_id": [1, 5], "a": {"b": 0.5}})");
  dir.Write("model.safetensors", Safetensors(kTwoTensors, 28));
  const auto r = ReadHuggingFace(dir.path());
  ASSERT_TRUE(r.ok()) << r.status().message();
  EXPECT_EQ(r->metadata.GetInt("eos_token_id").value(), 1);
  EXPECT_EQ(r->metadata.GetInts("generation_config.eos_token_id").value(), (std::vector<int64_t>{1, 5}));
  EXPECT_EQ(r->metadata.GetDouble("generation_config.a.b").value(), 0.5);
  EXPECT_FALSE(r->metadata.Has("generation_config.x"));
  EXPECT_EQ(r->metadata.source, dir / "config.json");
  dir.Write("generation_config.json", "{");
  ExpectBadInput(ReadHuggingFace(dir.path()).status(), {"/generation_config.json: not valid JSON"});
}

TEST(ReadHuggingFace, WhichWeights) {
  const TempFolder dir;
  ExpectBadInput(ReadHuggingFace(dir.path()).status(), {dir.path(), "it has no config.json"});
  dir.Write("m.gguf", "GGUF");
  ExpectBadInput(ReadHuggingFace(dir.path()).status(), {"no config.json; to use 'm.gguf', name that file"});
  dir.Write("config.json", "{}");
  ExpectBadInput(ReadHuggingFace(dir.path()).status(),
                 {"no weights: expected model.safetensors, model.safetensors.index.json or one other", "'m.gguf'"});
  ExpectBadInput(ReadHuggingFace(dir / "config.json").status(), {"no weights"});
  std::filesystem::remove(dir / "m.gguf");
  dir.Write("pytorch_model.bin", "x");
  ExpectBadInput(ReadHuggingFace(dir.path()).status(), {"no weights", "'pytorch_model.bin' is not in the safetensors format"});
  dir.Write("a.safetensors", Safetensors(kTwoTensors, 28));
  EXPECT_TRUE(ReadHuggingFace(dir.path()).ok());
  dir.Write("b.safetensors", Safetensors(kTwoTensors, 28));
  ExpectBadInput(ReadHuggingFace(dir.path()).status(), {"2 safetensors files ('a.safetensors', 'b.safetensors')"});
  dir.Write("model.safetensors", Safetensors(kTwoTensors, 28));
  EXPECT_TRUE(ReadHuggingFace(dir.path()).ok());
  std::filesystem::remove(dir / "model.safetensors");
  std::filesystem::create_directory(dir / "model.safetensors");
  ExpectBadInput(ReadHuggingFace(dir.path()).status(), {"/model.safetensors: expected a regular file, found a directory"});
}

TEST(ReadCheckpoint, OtherPaths) {
  const TempFolder dir;
  ExpectBadInput(ReadCheckpoint("").status(), {"path of the checkpoint is empty"});
  ExpectBadInput(ReadCheckpoint(dir / "none").status(), {"/none: cannot be opened: No such file"});
  ExpectBadInput(ReadCheckpoint(dir / "none/config.json").status(), {"no such file or directory"});
  ExpectBadInput(ReadCheckpoint(dir.Write("x.json", "{}")).status(), {"expected a Hugging Face directory or the config.json"});
  ExpectBadInput(ReadCheckpoint(dir.Write("x.safetensors", "{}")).status(), {"name the directory"});
  RawGguf g;
  EXPECT_TRUE(ReadCheckpoint(dir.Write("any.name", g.Make())).ok());
}

TEST(Safetensors, EmptyTensorsAreAllowed) {
  const TempFolder dir;
  dir.Write("config.json", "{}");
  dir.Write("model.safetensors", Safetensors(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                                             R"("e":{"dtype":"F32","shape":[0,5],"data_offsets":[4,4]},)"
                                             R"("z":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})",
                                             4));
  const auto r = ReadHuggingFace(dir.path());
  ASSERT_TRUE(r.ok()) << r.status().message();
  EXPECT_EQ(r->Find("e")->bytes, 0u);
  EXPECT_EQ(r->Find("e")->elements(), 0u);
}

TEST(Safetensors, TheWritersOwnMetadataIsFree) {
  for (const char* metadata : {"null", "{}", R"({"a":"b"})"}) {
    const TempFolder dir;
    dir.Write("config.json", "{}");
    dir.Write("model.safetensors", Safetensors(std::string(R"({"__metadata__":)") + metadata + "}", 0));
    const auto r = ReadHuggingFace(dir.path());
    EXPECT_TRUE(r.ok()) << r.status().message();
  }
  ExpectBadInput(HeaderError(R"({"__metadata__":3})", 0), {"'__metadata__': expected an object"});
}

// Two shards: "a" in the first, "b" in the second.
void WriteShards(const TempFolder& dir, std::string_view weight_map) {
  dir.Write("config.json", "{}");
  dir.Write("s1.safetensors", Safetensors(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4));
  dir.Write("s2.safetensors", Safetensors(R"({"b":{"dtype":"F16","shape":[3],"data_offsets":[0,6]}})", 6));
  dir.Write("model.safetensors.index.json", weight_map);
}

TEST(ReadHuggingFace, Shards) {
  const TempFolder dir;
  WriteShards(dir, R"({"metadata":{"total_size":10,"x":[[1]]},"weight_map":{"b":"s2.safetensors","a":"s1.safetensors"}})");
  const auto r = ReadHuggingFace(dir.path());
  ASSERT_TRUE(r.ok()) << r.status().message();
  ASSERT_EQ(r->files.size(), 2u);
  EXPECT_TRUE(r->files[0].stamp.has_value() && r->files[1].stamp.has_value());
  ASSERT_EQ(r->tensors.size(), 2u);
  EXPECT_EQ(r->files[r->Find("a")->file].path, dir / "s1.safetensors");
  EXPECT_EQ(r->files[r->Find("b")->file].path, dir / "s2.safetensors");
}

// A tensor that two shards have, with the same bytes.
TEST(ReadHuggingFace, ShardsMayRepeatATensor) {
  const TempFolder dir;
  WriteShards(dir, R"({"weight_map":{"b":"s2.safetensors","a":"s3.safetensors","c":"s3.safetensors"}})");
  const auto both = [](const char* c) {
    return Safetensors(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},")" + std::string(c) +
                           R"(":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                       8);
  };
  dir.Write("s2.safetensors", both("b"));
  dir.Write("s3.safetensors", both("c"));
  const auto r = ReadHuggingFace(dir.path());
  ASSERT_TRUE(r.ok()) << r.status().message();
  ASSERT_EQ(r->tensors.size(), 3u);
  EXPECT_EQ(r->files[r->Find("a")->file].path, dir / "s3.safetensors");  // where the index has it
}

// A Hugging Face cache is made of links to files elsewhere.
TEST(ReadHuggingFace, ShardsMayBeLinks) {
  const TempFolder dir, elsewhere;
  WriteShards(dir, R"({"weight_map":{"b":"s2.safetensors","a":"s1.safetensors"}})");
  elsewhere.Write("blob", ReadAll(dir / "s1.safetensors"));
  std::filesystem::remove(dir / "s1.safetensors");
  std::filesystem::create_symlink(elsewhere / "blob", dir / "s1.safetensors");
  const auto r = ReadHuggingFace(dir.path());
  ASSERT_TRUE(r.ok()) << r.status().message();
  EXPECT_EQ(r->files[r->Find("a")->file].path, dir / "s1.safetensors");
}

}  // namespace
}  // namespace tally
