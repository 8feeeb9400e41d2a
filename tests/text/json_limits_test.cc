// SPDX-License-Identifier: Apache-2.0
// tokenizer.json files that are not what they seem, or that ask for more than a file of their size may: one clear line each,
// at once, and no memory that the file does not justify.
#include <sys/stat.h>

#include <ctime>

#include "tests/support/allocations.h"
#include "tests/support/sanitizers.h"
#include "tests/text/json_spec.h"

namespace tally {
namespace {

// What this process has worked: the machine's other users do not count.
double ProcessorSeconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }
#ifdef TALLY_SHADOW_MEMORY
constexpr double kSlower = 3;  // instrumented
#else
constexpr double kSlower = 1;
#endif

using test::Encode;
using test::Error;
using test::Folder;
using test::Ids;
using test::Make;
using test::Spec;

void ExpectSays(const std::string& error, std::initializer_list<std::string> parts) {
  for (const std::string& part : parts) EXPECT_NE(error.find(part), std::string::npos) << "'" << part << "' is not in: " << error;
  EXPECT_EQ(error.find('\n'), std::string::npos) << error;
}

std::string Repeated(const std::string& item, int times) {
  std::string list;
  for (int i = 0; i < times; ++i) list += (i > 0 ? "," : "") + item;
  return "[" + list + "]";
}

std::string Replace(const std::string& find, const std::string& content) {
  return R"({"type":"Replace","pattern":{"String":")" + find + R"("},"content":")" + content + "\"}";
}

std::string EncodeError(const Spec& spec, const std::string& text) {
  const std::unique_ptr<Tokenizer> tokenizer = Make(spec);
  if (tokenizer == nullptr) return "not made";
  const Result<Ids> ids = tokenizer->Encode(text);
  if (ids.ok()) return "";
  EXPECT_EQ(ids.status().code(), StatusCode::kBadInput);
  return ids.status().message();
}

TEST(JsonLimits, PipesDevicesAndDirectoriesAreNotRead) {
  const Folder folder;
  const std::string path = folder.path() + "/tokenizer.json", config = folder.path() + "/tokenizer_config.json";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  ExpectSays(TokenizerFromJson(path).status().message(), {path, "expected a regular file, found a pipe"});
  ExpectSays(TokenizerFromJson("/dev/zero").status().message(), {"/dev/zero: expected a regular file, found a device"});
  ExpectSays(TokenizerFromJson(folder.path()).status().message(), {folder.path(), "found a directory"});
  std::filesystem::remove(path);
  folder.Write("tokenizer.json", Spec().Text());
  EXPECT_TRUE(TokenizerFromJson(path).ok());
  ASSERT_EQ(mkfifo(config.c_str(), 0600), 0);
  ExpectSays(TokenizerFromJson(path).status().message(), {config, "found a pipe"});
  std::filesystem::remove(config);
  std::filesystem::create_symlink("/dev/zero", config);
  ExpectSays(TokenizerFromJson(path).status().message(), {config, "found a device"});
  std::filesystem::remove(config);
  std::filesystem::create_symlink("nowhere", config);
  ExpectSays(TokenizerFromJson(path).status().message(), {config, "cannot be opened"});
}

TEST(JsonLimits, FilesBeyond256MiBAreNotRead) {
  const Folder folder;
  const std::string path = folder.Write("tokenizer.json", Spec().Text());
  const std::string config = folder.Write("tokenizer_config.json", "{}");
  EXPECT_TRUE(TokenizerFromJson(path).ok());
  const AllocationPeak peak;
  for (const std::string& file : {config, path}) {
    std::error_code error;
    std::filesystem::resize_file(file, uint64_t{1} << 32, error);  // sparse
    if (error) GTEST_SKIP() << "no sparse files of 4 GiB here: " << error.message();
    ExpectSays(TokenizerFromJson(path).status().message(), {file, "4294967296 bytes", "limit", "268435456"});
  }
  EXPECT_LT(peak.Bytes(), 100'000'000);
}

// A parsed value takes some tens of bytes, however few it takes in the file.
TEST(JsonLimits, NestingAndNumberOfValues) {
  std::string deep = "{\"a\":", closed;
  for (int i = 0; i < 100; ++i) deep += "[", closed += "]";
  ExpectSays(Error(deep + closed + "}"), {"tokenizer.json: nested more than 64 deep"});
  std::string many = "{\"a\":[";
  for (int i = 0; i < (1 << 24); ++i) many += "0,";
  many += "0]}";
  const AllocationPeak peak;
  ExpectSays(Error(many), {"more than 16777216 values"});
  EXPECT_LT(peak.Bytes(), 40'000'000);  // the text itself is 32 MiB
  // What stands in a string is text.
  Spec spec;
  spec.model += ",\"note\":\"" + std::string(100, '[') + "\\\"" + std::string(100, '{') + "\\\\\"";
  EXPECT_NE(Make(spec), nullptr);
}

TEST(JsonLimits, NormalizersMayNotGrowTextWithoutEnd) {
  Spec spec;
  const double start = ProcessorSeconds();
  const AllocationPeak peak;
  spec.normalizer = R"({"type":"Sequence","normalizers":)" + Repeated(Replace("a", "aa"), 27) + "}";
  ExpectSays(EncodeError(spec, "a"), {"normalizer", "step 17 (Replace)", "1 byte"});
  spec.normalizer = R"({"type":"Sequence","normalizers":)" +
                    Repeated(R"x({"type":"Replace","pattern":{"Regex":"a|(?=a)"},"content":"aa"})x", 27) + "}";
  ExpectSays(EncodeError(spec, "a"), {"(Replace)"});
  spec.normalizer = R"({"type":"Prepend","prepend":")" + std::string(100'000, 'a') + "\"}";
  ExpectSays(EncodeError(spec, "a"), {"step 1 (Prepend)"});
  // One step is enough where the text is long.
  spec.normalizer = Replace("a", std::string(1'000'000, 'b'));
  ExpectSays(EncodeError(spec, std::string(1'000'000, 'a')), {"step 1 (Replace)", "976.56 KiB"});
  spec.normalizer = R"({"type":"Sequence","normalizers":)" + Repeated(R"({"type":"NFC"})", 65) + "}";
  ExpectSays(Error(spec.Text()), {"normalizer", "more than 64 steps"});
  EXPECT_LT(peak.Bytes(), 300'000'000);
  EXPECT_LT(ProcessorSeconds() - start, 5 * kSlower);
  // Growth that models have use for.
  spec.normalizer = Replace("a", "bbbb");
  EXPECT_EQ(Encode(*Make(spec), std::string(1000, 'a')), Ids(4000, 1));
}

TEST(JsonLimits, PreTokenizersMayNotEither) {
  Spec spec;
  // Each pair of steps cuts all characters apart and puts one before some of them.
  std::string steps;
  for (int i = 0; i < 20; ++i) {
    steps += R"({"type":"Split","pattern":{"Regex":"."},"behavior":"Isolated"},{"type":"Metaspace","replacement":")" +
             std::string(1, static_cast<char>('A' + i)) + R"(","prepend_scheme":"always","split":false},)";
  }
  steps.pop_back();
  spec.pre = R"({"type":"Sequence","pretokenizers":[)" + steps + "]}";
  const double start = ProcessorSeconds();
  ExpectSays(EncodeError(spec, "aaaa"), {"pre-tokenizer"});
  EXPECT_LT(ProcessorSeconds() - start, 5 * kSlower);
  spec.pre = R"({"type":"Metaspace","replacement":")" + std::string(100'000, 'x') + "\"}";
  ExpectSays(Error(spec.Text()), {"pre_tokenizer.replacement: expected one character"});
  spec.pre = R"({"type":"Metaspace","replacement":"\u2581"})";
  EXPECT_NE(Make(spec), nullptr);
  // Steps call one another: their number is the depth of the stack.
  spec.pre = R"({"type":"Sequence","pretokenizers":)" + Repeated(R"({"type":"Digits"})", 200'000) + "}";
  ExpectSays(Error(spec.Text()), {"pre_tokenizer", "more than 64 steps"});
  EXPECT_LT(ProcessorSeconds() - start, 8 * kSlower);  // a parser that is linear in a list of objects
}

TEST(JsonLimits, DecodersMayNotEither) {
  Spec spec;
  const double start = ProcessorSeconds();
  const AllocationPeak peak;
  spec.decoder = R"({"type":"Sequence","decoders":)" + Repeated(Replace("a", "aa"), 27) + "}";
  ExpectSays(Error(spec.Text()), {"decoder, over all tokens", "step 21 (Replace)"});
  // Each token within its limit, but all of them together far beyond the file.
  spec.vocab = "{\"<u>\":0";
  for (int i = 1; i < 40'000; ++i) spec.vocab += ",\"a" + std::to_string(i) + "\":" + std::to_string(i);
  spec.vocab += "}";
  spec.merges = "[]";
  spec.decoder = Replace("a", std::string(60'000, 'x'));
  ExpectSays(Error(spec.Text()), {"decoder, over all tokens", "step 1 (Replace)"});
  spec.decoder = R"({"type":"Sequence","decoders":)" + Repeated(Replace("q", "r"), 65) + "}";
  ExpectSays(Error(spec.Text()), {"decoder", "more than 64 steps"});
  EXPECT_LT(peak.Bytes(), 300'000'000);
  EXPECT_LT(ProcessorSeconds() - start, 5 * kSlower);
}

// A limit on each stretch between added tokens would be none.
TEST(JsonLimits, GrowthIsThatOfTheWholeText) {
  Spec spec;
  spec.added = R"([{"id":8,"content":"x","normalized":false,"special":false}])";
  spec.normalizer = Replace("a", std::string(60'000, 'b'));
  std::string text;
  for (int i = 0; i < 100; ++i) text += "ax";
  const AllocationPeak peak;
  ExpectSays(EncodeError(spec, text), {"step 1 (Replace)", "200 bytes"});
  EXPECT_LT(peak.Bytes(), 50'000'000);
}

// As many ids as the file has, times as often as it names them.
TEST(JsonLimits, TemplatesMayNotMultiply) {
  Spec spec;
  const AllocationPeak peak;
  const std::string token = R"({"SpecialToken":{"id":"b","type_id":0}},)";
  std::string ids = "0";
  for (int i = 1; i < 30'000; ++i) ids += ",0";
  const auto post = [&](int times, const std::string& list) {
    std::string text = R"({"type":"TemplateProcessing","single":[)";
    for (int i = 0; i < times; ++i) text += token;
    return text + R"({"Sequence":{"id":"A","type_id":0}}],"pair":[],"special_tokens":{"b":{"id":"b","ids":[)" + list +
           R"(],"tokens":[]}}})";
  };
  spec.post = post(2'000, ids);
  ExpectSays(Error(spec.Text()), {"post_processor: puts more than 64 tokens around a text"});
  spec.post = post(65, "0");
  ExpectSays(Error(spec.Text()), {"post_processor: puts more than 64 tokens around a text"});
  spec.post = R"({"type":"Sequence","processors":[)" + post(40, "0") + "," + post(25, "0") + "]}";
  ExpectSays(Error(spec.Text()), {"processors[1]: puts more than 64 tokens around a text"});
  EXPECT_LT(peak.Bytes(), 50'000'000);
  spec.post = post(64, "0");
  EXPECT_EQ(Encode(*Make(spec), "a", {true, false}).size(), 65u);
}

TEST(JsonLimits, AddedTokensMayNotGrowTogether) {
  Spec spec;
  spec.normalizer = Replace("z", std::string(1'000, 'q'));
  spec.added = "[";
  for (int i = 0; i < 4'000; ++i) {
    spec.added += R"({"id":)" + std::to_string(8 + i) + R"(,"content":")" + std::to_string(i) + R"(z","normalized":true},)";
  }
  spec.added.back() = ']';
  const AllocationPeak peak;
  ExpectSays(Error(spec.Text()), {"added_tokens[", "normalizer: step 1 (Replace) grows a text of"});
  EXPECT_LT(peak.Bytes(), 50'000'000);
}

// What is made of tokens on the way counts, not only what is left of it.
TEST(JsonLimits, DecodersMayNotGrowAndShrinkWithoutEnd) {
  Spec spec;
  spec.vocab = "{\"<u>\":0";
  for (int i = 1; i < 20'000; ++i) spec.vocab += ",\"a" + std::to_string(i) + "\":" + std::to_string(i);
  spec.vocab += "}";
  spec.merges = "[]";
  spec.decoder = R"({"type":"Sequence","decoders":[)" + Replace("a", std::string(60'000, 'b')) + "," + Replace("b", "") + "]}";
  const double start = ProcessorSeconds();
  ExpectSays(Error(spec.Text()), {"decoder, over all tokens: step 1 (Replace)"});
  EXPECT_LT(ProcessorSeconds() - start, 5 * kSlower);
}

TEST(JsonLimits, LongLiteralsAreLookedForInLinearTime) {
  Spec spec;
  spec.normalizer = Replace(std::string(200'000, 'a') + "b", "c");
  const auto tokenizer = Make(spec);
  const double start = ProcessorSeconds();
  EXPECT_EQ(Encode(*tokenizer, std::string(1'000'000, 'a')).size(), 1'000'000u);  // 200,000 * 800,000 steps otherwise
  EXPECT_LT(ProcessorSeconds() - start, 5 * kSlower);
}

TEST(JsonLimits, AddedTokensStayShortWhenNormalized) {
  Spec spec;
  spec.normalizer = Replace("x", std::string(5000, 'y'));
  spec.added = R"([{"id":8,"content":"axa","normalized":true,"special":false}])";
  ExpectSays(Error(spec.Text()), {"added_tokens[0].content", "5002 bytes once normalized", "1024"});
}

// Tables are as long as the largest id, so ids may not run far ahead of what the file names.
TEST(JsonLimits, IdsMayNotRunAhead) {
  Spec spec;
  const AllocationPeak peak;
  spec.added = R"([{"id":2097151,"content":"x","normalized":false,"special":true}])";
  ExpectSays(Error(spec.Text()), {"tokenizer.json: added_tokens[0].id", "2097151", "names 9 tokens"});
  spec.added = "[]";
  spec.vocab = R"({"a":0,"b":1,"<u>":2000000})";
  spec.merges = "[]";
  ExpectSays(Error(spec.Text()), {"tokenizer.json: model.vocab['<u>']", "2000000", "names 3 tokens"});
  EXPECT_LT(peak.Bytes(), 50'000'000);
  spec.vocab = R"({"a":0,"b":1,"<u>":4000})";  // a hole, as some published ones have
  const auto made = Make(spec);
  ASSERT_NE(made, nullptr);
  EXPECT_EQ(made->vocab_size(), 4001);
}

}  // namespace
}  // namespace tally
