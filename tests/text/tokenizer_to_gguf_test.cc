// SPDX-License-Identifier: Apache-2.0
// tokenizer.json -> tokenizer.ggml.*: the pre-tokenizers that published files have, by their GGUF names; what GGUF cannot say.
#include <nlohmann/json.hpp>

#include "engine/text/bpe.h"
#include "tests/text/json_spec.h"

namespace tally::test {
namespace {

using Json = nlohmann::json;

// All bytes, and a few merges over them.
Spec ByteLevel(const std::string& pre) {
  Json vocab = Json::object(), merges = Json::array();
  for (int b = 0; b < 256; ++b) vocab[AlphabetOfBytes(std::string(1, static_cast<char>(b)))] = b;
  for (const auto& [a, b] : std::vector<std::pair<std::string, std::string>>{{"h", "e"}, {"l", "l"}, {"he", "ll"}, {"1", "2"}}) {
    const int id = static_cast<int>(vocab.size());
    vocab[a + b] = id;
    merges.push_back(Json::array({a, b}));
  }
  Spec spec;
  spec.vocab = vocab.dump();
  spec.merges = merges.dump();
  spec.model = R"("ignore_merges":false)";
  spec.pre = pre;
  spec.decoder = R"({"type":"ByteLevel"})";
  spec.added = R"([{"id":260,"content":"<|end|>","special":true},{"id":262,"content":"<tool>","special":false}])";
  return spec;
}

// Splits that isolate the matches of expressions, then bytes.
std::string Splits(const std::vector<std::string>& expressions) {
  Json steps = Json::array();
  for (const std::string& e : expressions) {
    steps.push_back({{"type", "Split"}, {"pattern", {{"Regex", e}}}, {"behavior", "Isolated"}, {"invert", false}});
  }
  steps.push_back({{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}});
  return Json{{"type", "Sequence"}, {"pretokenizers", steps}}.dump();
}

Result<Metadata> Converted(const Spec& spec, int32_t vocab = 270, const std::string& config = "") {
  const Folder folder;
  if (!config.empty()) folder.Write("tokenizer_config.json", config);
  Inventory directory;
  directory.format = FileFormat::kHuggingFace;
  directory.tokenizer_json = folder.Write("tokenizer.json", spec.Text());
  TALLY_ASSIGN_OR_RETURN(const auto keys, GgufTokenizerKeys(directory, vocab));
  Metadata metadata;
  for (const auto& [key, value] : keys) metadata.Set(key, value);
  return metadata;
}

std::string PreOf(const Spec& spec) {
  const Result<Metadata> made = Converted(spec);
  return made.ok() ? made->GetString("tokenizer.ggml.pre").value().value_or("none") : made.status().message();
}

TEST(TokenizerToGguf, NamesPublishedPreTokenizers) {
  const std::string tail = R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  const std::string llama3 = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)" + tail;
  const std::string qwen2 = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|)" + tail;
  Spec spec = ByteLevel(R"({"type":"ByteLevel","add_prefix_space":false})");
  EXPECT_EQ(PreOf(spec), "gpt-2");
  spec.pre = R"({"type":"Sequence","pretokenizers":[{"type":"Digits","individual_digits":true},)"
             R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":true}]})";
  EXPECT_EQ(PreOf(spec), "starcoder");
  spec.pre = Splits({qwen2});
  spec.normalizer = R"({"type":"NFC"})";
  EXPECT_EQ(PreOf(spec), "qwen2");
  spec.normalizer = "null";
  spec.pre = Splits({llama3});
  EXPECT_EQ(PreOf(spec), "dbrx");
  spec.model = R"("ignore_merges":true)";
  EXPECT_EQ(PreOf(spec), "llama-bpe");
  spec.model = "";
  spec.pre =
      Splits({R"(\p{N}{1,3})", "[一-龥\xE3\x81\x80-ゟ゠-ヿ]+",
              R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|)"
              R"(\s*[\r\n]+|\s+(?!\S)|\s+)"});
  EXPECT_EQ(PreOf(spec), "deepseek-v3");
}

TEST(TokenizerToGguf, TokensTypesAndEnds) {
  const Spec spec = ByteLevel(R"({"type":"ByteLevel","add_prefix_space":false})");
  const auto made = Converted(spec, 264, R"({"bos_token":"<|end|>","eos_token":"<|end|>","chat_template":"{{ x }}"})");
  ASSERT_TRUE(made.ok()) << made.status().message();
  const auto tokens = made->GetStrings("tokenizer.ggml.tokens").value().value();
  const auto types = made->GetInts("tokenizer.ggml.token_type").value().value();
  ASSERT_EQ(tokens.size(), 264u);
  EXPECT_EQ(tokens[258], "hell");
  EXPECT_EQ(tokens[260], "<|end|>");
  EXPECT_EQ(tokens[261], "[PAD261]");
  EXPECT_EQ(types[258], 1);
  EXPECT_EQ(types[260], 3);
  EXPECT_EQ(types[261], 5);
  EXPECT_EQ(types[262], 4);
  EXPECT_EQ(made->GetStrings("tokenizer.ggml.merges").value().value()[2], "he ll");
  EXPECT_EQ(made->GetInt("tokenizer.ggml.eos_token_id").value(), 260);
  EXPECT_EQ(made->GetBool("tokenizer.ggml.add_bos_token").value(), false);
  EXPECT_EQ(made->GetString("tokenizer.chat_template").value(), "{{ x }}");
  const auto read = TokenizerFromGguf(*made);
  ASSERT_TRUE(read.ok());
  std::mt19937 random(5);
  const auto before = Make(spec);
  for (int i = 0; i < 50; ++i) {
    const std::string text = RandomText(random, 30) + "hello<tool>12";
    EXPECT_EQ(Encode(**read, text), Encode(*before, text));
  }
}

TEST(TokenizerToGguf, Refusals) {
  const auto error = [](const Spec& spec, int32_t vocab = 270) { return Converted(spec, vocab).status().message(); };
  Spec spec = ByteLevel(R"({"type":"ByteLevel","add_prefix_space":false})");
  EXPECT_NE(error(spec, 200).find("has 263 tokens, and the model room for 200"), std::string::npos);
  spec.normalizer = R"({"type":"Lowercase"})";
  EXPECT_NE(error(spec).find("cannot say its normalizer"), std::string::npos);
  spec = ByteLevel(R"({"type":"ByteLevel","add_prefix_space":true})");
  EXPECT_NE(error(spec).find("cannot say its pre-tokenizer"), std::string::npos);
  EXPECT_NE(error(Spec()).find("not of bytes"), std::string::npos);
}

}  // namespace
}  // namespace tally::test
