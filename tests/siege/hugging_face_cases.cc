// SPDX-License-Identifier: Apache-2.0
// Hugging Face directories: safetensors, the index of shards, config.json as JSON.
#include <cstdint>
#include <utility>

#include "tests/loaders/raw_files.h"
#include "tests/siege/siege.h"

namespace tally::siege {
namespace {

constexpr char kConfig[] = R"({"architectures": ["LlamaForCausalLM"]})";

// model.safetensors of these bytes beside a config.json.
auto File(std::string bytes) {
  return [bytes = std::move(bytes)](const TempFolder& folder) {
    folder.Write("config.json", kConfig);
    folder.Write("model.safetensors", bytes);
    return folder.path();
  };
}

// A file of so many bytes that takes little of the disk, beside a config.json.
auto Sparse(std::string name, std::string begin, uint64_t bytes) {
  return [name = std::move(name), begin = std::move(begin), bytes](const TempFolder& folder) {
    folder.Write("config.json", kConfig);
    std::filesystem::resize_file(folder.Write(name, begin), bytes);
    return folder.path();
  };
}

auto Header(std::string_view header, size_t data_bytes = 0) { return File(Safetensors(header, data_bytes)); }

// A header of one tensor "w".
auto Tensor(const std::string& body, size_t data_bytes = 4) { return Header("{\"w\":{" + body + "}}", data_bytes); }

auto Shape(const std::string& shape) { return Tensor(R"("dtype":"F32","shape":)" + shape + R"(,"data_offsets":[0,4])"); }
auto Offsets(const std::string& offsets, size_t data_bytes = 4) {
  return Tensor(R"("dtype":"F32","shape":[1],"data_offsets":)" + offsets, data_bytes);
}

// Two tensors of one F32 each.
auto Two(const std::string& second, const std::string& offsets, size_t data_bytes) {
  const std::string f32 = R"({"dtype":"F32","shape":[1],"data_offsets":)";
  return Header(R"({"w":)" + f32 + "[0,4]},\"" + second + "\":" + f32 + offsets + "}}", data_bytes);
}

std::string Nested(const std::string& open, int times) {
  std::string text;
  for (int i = 0; i < times; ++i) text += open;
  return text;
}

}  // namespace

std::vector<Case> SafetensorsCases() {
  return {
      {"Empty", File(""), "DIR/model.safetensors: the file is empty"},
      {"ShorterThanItsLength", File("1234567"),
       "DIR/model.safetensors: header: expected 8 bytes of header length, the file has 7"},
      {"HeaderLengthPastTheEnd", File(Bytes().U64(3).Raw("{}").text()),
       "DIR/model.safetensors: header: its length is given as 3 bytes, but the file has 2 more; not a safetensors file, or a "
       "truncated one"},
      {"HeaderLengthNegative", File(Bytes().U64(UINT64_MAX).Raw("{}").text()),
       "DIR/model.safetensors: header: its length is given as 18446744073709551615 bytes, but the file has 2 more; not a "
       "safetensors file, or a truncated one"},
      {"HeaderLengthZero", Header(""), "DIR/model.safetensors: header: expected a JSON object, which begins with '{'"},
      {"HeaderLengthBeyondTheLimit", Sparse("model.safetensors", Bytes().U64(200'000'000).Raw("{").text(), 300'000'000),
       "DIR/model.safetensors: header: its length is given as 200000000 bytes; the limit is 100000000"},
      {"WrongMagic", Header("GGUF"), "DIR/model.safetensors: header: expected a JSON object, which begins with '{'"},
      {"HeaderAnArray", Header("[]"), "DIR/model.safetensors: header: expected a JSON object, which begins with '{'"},
      {"HeaderAfterASpace", Header(" {}"), "DIR/model.safetensors: header: expected a JSON object, which begins with '{'"},
      {"HeaderBroken", Header("{\"w\":"),
       "DIR/model.safetensors: header: not valid JSON: parse error at line 1, column 6: syntax error while parsing value - "
       "unexpected end of input; expected '[', '{', or a literal"},
      {"HeaderDeep", Header("{\"__metadata__\":" + Nested("{\"a\":", 100'000)),
       "DIR/model.safetensors: header: tensor '__metadata__': expected its values to be strings"},
      {"HeaderNotUtf8", Header("{\"\xff\xfe\":3}"),
       "DIR/model.safetensors: header: not valid JSON: parse error at line 1, column 3: syntax error while parsing object key - "
       "invalid string: ill-formed UTF-8 byte; last read: '\"\\xff'; expected string literal"},
      {"TensorANumber", Header("{\"w\":3}"), "DIR/model.safetensors: header: tensor 'w': expected an object"},
      {"TensorAnArray", Header("{\"w\":[]}"), "DIR/model.safetensors: header: tensor 'w': expected an object"},
      {"MetadataANumber", Header(R"({"__metadata__":3})"),
       "DIR/model.safetensors: header: tensor '__metadata__': expected an object"},
      {"MetadataOfNumbers", Header(R"({"__metadata__":{"format":"pt","steps":3}})"),
       "DIR/model.safetensors: header: tensor '__metadata__': expected its values to be strings"},
      {"NameEmpty", Header("{\"\":{}}"), "DIR/model.safetensors: header: a tensor has an empty name"},
      {"NameTooLong", Header("{\"" + std::string(2000, 'n') + "\":{}}"),
       "DIR/model.safetensors: header: the tensor name "
       "'nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn...nnnnnnnnnnnnnnnnnnnnnnnn' (2000 bytes) is too long"},
      {"NameOfControlCharacters", Header(R"({"a\n\u001b[31m\u0000":{}})"),
       "DIR/model.safetensors: header: tensor 'a\\n\\x1b[31m\\x00': the key dtype is missing"},
      {"DTypeMissing", Tensor(R"("shape":[1],"data_offsets":[0,4])"),
       "DIR/model.safetensors: header: tensor 'w': the key dtype is missing"},
      {"ShapeMissing", Tensor(R"("dtype":"F32","data_offsets":[0,4])"),
       "DIR/model.safetensors: header: tensor 'w': the key shape is missing"},
      {"OffsetsMissing", Tensor(R"("dtype":"F32","shape":[1])"),
       "DIR/model.safetensors: header: tensor 'w': the key data_offsets is missing"},
      {"KeyExtra", Tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1)"),
       "DIR/model.safetensors: header: tensor 'w': unexpected key 'x'; expected dtype, shape, data_offsets"},
      {"KeyTwice", Tensor(R"("dtype":"F32","dtype":"F16")"), "DIR/model.safetensors: header: the key 'dtype' appears twice"},
      {"TensorTwice", Two("w", "[4,8]", 8), "DIR/model.safetensors: header: the key 'w' appears twice"},
      {"DTypeEmpty", Tensor(R"("dtype":"","shape":[4],"data_offsets":[0,4])"),
       "DIR/model.safetensors: header: tensor 'w': expected a type's name of 1 to 32 bytes, found ''"},
      {"DTypeUnknownPastTheEnd", Tensor(R"("dtype":"F8_E8M0","shape":[4],"data_offsets":[0,5])"),
       "DIR/model.safetensors: header: tensor 'w': its bytes end at 5 of the data, but the file has only 4"},
      {"DTypeANumber", Tensor(R"("dtype":3)"), "DIR/model.safetensors: header: tensor 'w': expected dtype to be a string"},
      {"DTypeAnArray", Tensor(R"("dtype":["F32"])"), "DIR/model.safetensors: header: tensor 'w': expected dtype to be a string"},
      {"ShapeANumber", Shape("3"), "DIR/model.safetensors: header: tensor 'w': expected shape to be an array of whole numbers"},
      {"ShapeOfArrays", Shape("[[1]]"),
       "DIR/model.safetensors: header: tensor 'w': expected shape to be an array of whole numbers"},
      {"ShapeOfTexts", Shape("[\"1\"]"),
       "DIR/model.safetensors: header: tensor 'w': expected shape to be an array of whole numbers"},
      {"ShapeAnObject", Shape("{\"a\":1}"),
       "DIR/model.safetensors: header: tensor 'w': expected shape to be an array of whole numbers"},
      {"ShapeNull", Shape("null"), "DIR/model.safetensors: header: tensor 'w': expected shape to be an array of whole numbers"},
      {"DimensionNegative", Shape("[-1]"),
       "DIR/model.safetensors: header: tensor 'w': expected shape to be an array of whole numbers"},
      {"DimensionFraction", Shape("[1.5]"),
       "DIR/model.safetensors: header: tensor 'w': expected shape to be an array of whole numbers"},
      {"DimensionTooLarge", Shape("[18446744073709551616]"),
       "DIR/model.safetensors: header: tensor 'w': expected shape to be an array of whole numbers"},
      {"TooManyDimensions", Shape("[1,1,1,1,1,1,1,1,1]"), "DIR/model.safetensors: header: tensor 'w': more than 8 dimensions"},
      {"DimensionsProductOverflows", Shape("[4294967296,4294967296]"),
       "DIR/model.safetensors: header: tensor 'w': the number of elements overflows 63 bits"},
      {"DimensionsProductWrapsToSmall", Shape("[9223372036854775808,2,4]"),
       "DIR/model.safetensors: header: tensor 'w': the number of elements overflows 63 bits"},
      {"BytesDoNotFitTheShape", Shape("[2]"),
       "DIR/model.safetensors: header: tensor 'w': 2 elements of F32 take 8 bytes, data_offsets give 4"},
      {"OffsetsOne", Offsets("[0]"),
       "DIR/model.safetensors: header: tensor 'w': expected data_offsets to be an array of two whole numbers"},
      {"OffsetsNone", Offsets("[]"),
       "DIR/model.safetensors: header: tensor 'w': expected data_offsets to be an array of two whole numbers"},
      {"OffsetsThree", Offsets("[0,4,8]"),
       "DIR/model.safetensors: header: tensor 'w': expected data_offsets to be an array of two whole numbers"},
      {"OffsetNegative", Offsets("[-1,3]"),
       "DIR/model.safetensors: header: tensor 'w': expected data_offsets to be an array of two whole numbers"},
      {"OffsetsBackwards", Offsets("[4,0]"),
       "DIR/model.safetensors: header: tensor 'w': data_offsets end at 0, before they begin at 4"},
      {"OffsetsPastTheEnd", Offsets("[0,4]", 3),
       "DIR/model.safetensors: header: tensor 'w': its bytes end at 4 of the data, but the file has only 3"},
      {"OffsetsOverflow", Offsets("[18446744073709551611,18446744073709551615]"),
       "DIR/model.safetensors: header: tensor 'w': its bytes begin at 18446744073709551611 of the data, leaving a hole from 0"},
      {"DataLeftOver", Offsets("[0,4]", 5),
       "DIR/model.safetensors: header: the tensors end at byte 4 of the data, but the file has 5"},
      {"TensorsLeaveAHole", Two("v", "[8,12]", 12),
       "DIR/model.safetensors: header: tensor 'v': its bytes begin at 8 of the data, leaving a hole from 4"},
      {"TensorsOverlap", Two("v", "[2,6]", 6),
       "DIR/model.safetensors: header: tensor 'v': its bytes begin at 2 of the data, inside another tensor, which ends at 4"},
      {"TensorsAtOnePlace", Two("v", "[0,4]", 4),
       "DIR/model.safetensors: header: tensor 'v': its bytes begin at 0 of the data, inside another tensor, which ends at 4"},
  };
}

namespace {

// Two shards: "a" in s1, "b" in s2.
auto Index(std::string index) {
  return [index = std::move(index)](const TempFolder& folder) {
    folder.Write("config.json", kConfig);
    folder.Write("s1.safetensors", Safetensors(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4));
    folder.Write("s2.safetensors", Safetensors(R"({"b":{"dtype":"F16","shape":[3],"data_offsets":[0,6]}})", 6));
    folder.Write("model.safetensors.index.json", index);
    return folder.path();
  };
}

auto Map(const std::string& map) { return Index("{\"weight_map\":{" + map + "}}"); }

// "a" is said to be in shard.safetensors, a symbolic link to `target`.
auto Link(std::string target) {
  return [target = std::move(target)](const TempFolder& folder) {
    std::filesystem::create_symlink(target, folder / "shard.safetensors");
    return Map(R"("a":"shard.safetensors")")(folder);
  };
}

}  // namespace

std::vector<Case> IndexCases() {
  return {
      {"Empty", Index(""), "DIR/model.safetensors.index.json: the file is empty"},
      {"Broken", Index("{"),
       "DIR/model.safetensors.index.json: not valid JSON: parse error at line 1, column 2: syntax error while parsing object key "
       "- unexpected end of input; expected string literal"},
      {"AnArray", Index("[]"), "DIR/model.safetensors.index.json: expected a JSON object, found an array"},
      {"WithoutMap", Index("{}"), "DIR/model.safetensors.index.json: expected the key weight_map with at least one tensor"},
      {"MapEmpty", Map(""), "DIR/model.safetensors.index.json: expected the key weight_map with at least one tensor"},
      {"MapAnArray", Index(R"({"weight_map":[]})"),
       "DIR/model.safetensors.index.json: expected weight_map to map tensor names to file names"},
      {"MapANumber", Index(R"({"weight_map":3})"),
       "DIR/model.safetensors.index.json: expected weight_map to map tensor names to file names, at 'weight_map'"},
      {"MapOfNumbers", Map(R"("a":3)"),
       "DIR/model.safetensors.index.json: expected weight_map to map tensor names to file names, at 'a'"},
      {"MapOfMaps", Map(R"("a":{"b":"c"})"),
       "DIR/model.safetensors.index.json: expected weight_map to map tensor names to file names"},
      {"Deep", Index("{\"metadata\":" + Nested("[", 1'000'000)), "DIR/model.safetensors.index.json: nested more than 16 deep"},
      {"TooLarge", Sparse("model.safetensors.index.json", "{", (64 << 20) + 1),
       "DIR/model.safetensors.index.json: 67108865 bytes; the limit for this file is 67108864"},
      {"NotUtf8", Map("\"\xff\":\"s1.safetensors\""),
       "DIR/model.safetensors.index.json: not valid JSON: parse error at line 1, column 17: syntax error while parsing object "
       "key - invalid string: ill-formed UTF-8 byte; last read: '\"\\xff'; expected string literal"},
      {"TensorTwice", Map(R"("a":"s1.safetensors","a":"s2.safetensors")"),
       "DIR/model.safetensors.index.json: the key 'a' appears twice"},
      {"TensorNameEmpty", Map(R"("":"s1.safetensors")"),
       "DIR/model.safetensors.index.json: tensor name '': expected 1 to 1024 bytes"},
      {"TensorNameTooLong", Map("\"" + std::string(2000, 'n') + "\":\"s1.safetensors\""),
       "DIR/model.safetensors.index.json: tensor name "
       "'nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn...nnnnnnnnnnnnnnnnnnnnnnnn' (2000 bytes): expected 1 "
       "to 1024 bytes"},
      {"ShardNameEmpty", Map(R"("a":"")"),
       "DIR/model.safetensors.index.json: tensor 'a': expected the name of a file in the same directory, found ''"},
      {"ShardOfTheParent", Map(R"("a":"..")"),
       "DIR/model.safetensors.index.json: tensor 'a': expected the name of a file in the same directory, found '..'"},
      {"ShardTheFolderItself", Map(R"("a":".")"),
       "DIR/model.safetensors.index.json: tensor 'a': expected the name of a file in the same directory, found '.'"},
      {"ShardInAnotherFolder", Map(R"("a":"../s1.safetensors")"),
       "DIR/model.safetensors.index.json: tensor 'a': expected the name of a file in the same directory, found "
       "'../s1.safetensors'"},
      {"ShardBelow", Map(R"("a":"sub/s1.safetensors")"),
       "DIR/model.safetensors.index.json: tensor 'a': expected the name of a file in the same directory, found "
       "'sub/s1.safetensors'"},
      {"ShardAbsolute", Map(R"("a":"/etc/passwd")"),
       "DIR/model.safetensors.index.json: tensor 'a': expected the name of a file in the same directory, found '/etc/passwd'"},
      {"ShardNameWithBackslash", Map(R"("a":"a\\b")"),
       "DIR/model.safetensors.index.json: tensor 'a': expected the name of a file in the same directory, found 'a\\b'"},
      {"ShardNameWithZeroByte", Map(R"("a":"a\u0000b")"),
       "DIR/model.safetensors.index.json: tensor 'a': expected the name of a file in the same directory, found 'a\\x00b'"},
      {"ShardNowhere", Map(R"("a":"s3.safetensors")"),
       "DIR/s3.safetensors: cannot be opened: No such file or directory (named by model.safetensors.index.json)"},
      {"ShardADirectory",
       [](const TempFolder& folder) {
         std::filesystem::create_directory(folder / "shard.safetensors");
         return Map(R"("a":"shard.safetensors")")(folder);
       },
       "DIR/shard.safetensors: expected a regular file, found a directory (named by model.safetensors.index.json)"},
      // Links are followed: a Hugging Face cache is made of links to files elsewhere. What they lead to must be a shard.
      {"ShardALinkToNowhere", Link("nowhere"),
       "DIR/shard.safetensors: cannot be opened: No such file or directory (named by model.safetensors.index.json)"},
      {"ShardALinkToItself", Link("shard.safetensors"),
       "DIR/shard.safetensors: cannot be opened: Too many levels of symbolic links (named by model.safetensors.index.json)"},
      {"ShardALinkToADirectoryOutside", Link("/etc"),
       "DIR/shard.safetensors: expected a regular file, found a directory (named by model.safetensors.index.json)"},
      {"ShardALinkToADevice", Link("/dev/zero"),
       "DIR/shard.safetensors: expected a regular file, found a device (named by model.safetensors.index.json)"},
      {"ShardALinkToAnotherFileOutside",
       [](const TempFolder& folder) {
         std::filesystem::create_directory(folder / "inside");
         folder.Write("secret", "root:x:0:0:root");
         std::filesystem::create_symlink("../secret", folder / "inside/shard.safetensors");
         folder.Write("inside/config.json", kConfig);
         folder.Write("inside/model.safetensors.index.json", R"({"weight_map":{"a":"shard.safetensors"}})");
         return folder / "inside";
       },
       "DIR/inside/shard.safetensors: header: its length is given as 3475222254926655346 bytes, but the file has 7 more; not a "
       "safetensors file, or a truncated one (named by model.safetensors.index.json)"},
      {"ShardWithoutTheTensor", Map(R"("a":"s2.safetensors","b":"s2.safetensors")"),
       "DIR/model.safetensors.index.json: tensor 'a' is said to be in 's2.safetensors', which does not have it"},
      {"ShardsSwapped", Map(R"("a":"s2.safetensors","b":"s1.safetensors")"),
       "DIR/model.safetensors.index.json: tensor 'a' is said to be in 's2.safetensors', which does not have it"},
      {"TensorMissing", Map(R"("a":"s1.safetensors","c":"s2.safetensors")"),
       "DIR/model.safetensors.index.json: tensor 'c' is said to be in 's2.safetensors', which does not have it"},
      {"TensorInTwoShards",
       [](const TempFolder& folder) {
         Map(R"("a":"s1.safetensors","b":"s2.safetensors")")(folder);
         folder.Write("s2.safetensors", Safetensors(R"({"a":{"dtype":"I32","shape":[1],"data_offsets":[0,4]}})", 4));
         return folder.path();
       },
       "DIR/model.safetensors.index.json: tensor 'a' is in 's1.safetensors' and in 's2.safetensors', and they differ"},
  };
}

namespace {

auto Config(std::string config) {
  return [config = std::move(config)](const TempFolder& folder) {
    File(Safetensors("{}", 0))(folder);
    folder.Write("config.json", config);
    return folder.path();
  };
}

}  // namespace

std::vector<Case> ConfigCases() {
  std::string many = "{\"a\": 1";
  for (int i = 0; i < 1 << 18; ++i) many += ",\"" + std::to_string(i) + "\":null";
  return {
      {"Missing", [](const TempFolder& folder) { return folder.path(); },
       "DIR: expected a Hugging Face directory, but it has no config.json"},
      {"ADirectory",
       [](const TempFolder& folder) {
         std::filesystem::create_directory(folder / "config.json");
         return folder.path();
       },
       "DIR/config.json: expected a regular file, found a directory"},
      {"Empty", Config(""), "DIR/config.json: the file is empty"},
      {"Blank", Config(" \n"),
       "DIR/config.json: not valid JSON: parse error at line 2, column 1: syntax error while parsing value - unexpected end of "
       "input; expected '[', '{', or a literal"},
      {"Broken", Config("{\"a\": 1,\n  \"b\": }"),
       "DIR/config.json: not valid JSON: parse error at line 2, column 8: syntax error while parsing value - unexpected '}'; "
       "expected '[', '{', or a literal"},
      {"ZeroByteAfterTheEnd", Config(std::string("{}\0}}} x", 8)), "DIR/config.json: not valid JSON: a zero byte at byte 2"},
      {"TextAfterTheEnd", Config("{} x"),
       "DIR/config.json: not valid JSON: parse error at line 1, column 4: syntax error while parsing value - invalid literal; "
       "last read: '{} x'; expected end of input"},
      {"AnArray", Config("[1]"), "DIR/config.json: expected a JSON object, found an array"},
      {"ANumber", Config("3"), "DIR/config.json: expected a JSON object"},
      {"NotUtf8", Config("{\"a\": \"\xff\"}"),
       "DIR/config.json: not valid JSON: parse error at line 1, column 8: syntax error while parsing value - invalid string: "
       "ill-formed UTF-8 byte; last read: '\"\\xff'"},
      {"NumberOverflows", Config("{\"rms_norm_eps\": 1e999}"),
       "DIR/config.json: not valid JSON: number overflow parsing '1e999'"},
      {"NumberNan", Config(R"({"model_type": "llama", "num_hidden_layers": NaN})"),
       "DIR/config.json: key 'num_hidden_layers': expected an integer that fits 64 signed bits, found a number (nan)"},
      {"NumberInfinite", Config(R"({"model_type": "llama", "num_hidden_layers": -Infinity})"),
       "DIR/config.json: key 'num_hidden_layers': expected an integer that fits 64 signed bits, found a number (-inf)"},
      {"KeyTwice", Config("{\"a\": 1, \"b\": 2, \"a\": 3}"), "DIR/config.json: the key 'a' appears twice"},
      {"KeyTwiceInAnArray", Config("{\"x\": [{\"a\": 1, \"a\": 3}]}"), "DIR/config.json: the key 'a' appears twice"},
      {"KeyTwiceOnceWithDots", Config("{\"a\": {\"b\": 1}, \"a.b\": 2}"),
       "DIR/config.json: the key 'a.b' appears twice, once nested and once with dots"},
      {"KeyTwiceOnceAnObject", Config("{\"a\": {\"b\": {}}, \"a.b\": 2}"),
       "DIR/config.json: the key 'a.b' appears twice, once nested and once with dots"},
      {"KeyTwiceOnceNull", Config("{\"a\": {\"b\": null}, \"a.b\": 2}"),
       "DIR/config.json: the key 'a.b' appears twice, once nested and once with dots"},
      {"KeyTooLong", Config("{\"" + std::string(600, 'k') + "\": 1}"),
       "DIR/config.json: the key 'kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk...kkkkkkkkkkkkkkkkkkkkkkkk' "
       "(600 bytes) is longer than 512 bytes"},
      {"StringWithoutEnd", Config("{\"a\": \"" + std::string(1 << 20, 'x')),
       "DIR/config.json: not valid JSON: parse error at line 1, column 1048584: syntax error while parsing value - invalid "
       "string: missing closing quote; last read: "
       "'\"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx.."
       "."},
      {"Deep", Config(Nested("{\"a\":", 100'000)), "DIR/config.json: nested more than 32 deep"},
      {"DeepArrays", Config("{\"a\":" + Nested("[", 1'000'000)), "DIR/config.json: nested more than 32 deep"},
      {"TooManyKeys", Config(many + "}"), "DIR/config.json: more than 262144 values"},
      {"TooLarge", Config("{\"a\": \"" + std::string(9 << 20, 'x') + "\"}"),
       "DIR/config.json: 9437193 bytes; the limit for this file is 8388608"},
      {"GenerationConfigBroken",
       [](const TempFolder& folder) {
         folder.Write("generation_config.json", "{");
         return Config(kConfig)(folder);
       },
       "DIR/generation_config.json: not valid JSON: parse error at line 1, column 2: syntax error while parsing object key - "
       "unexpected end of input; expected string literal"},
  };
}

}  // namespace tally::siege
