// SPDX-License-Identifier: Apache-2.0
// tokenizer.json -> tokenizer.ggml.*: the pre-tokenizers that published files have, by their GGUF names; what GGUF cannot say.
#include <nlohmann/json.hpp>

#include <set>

#include "engine/text/bpe.h"
#include "loaders/loaders.h"
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

// `losses`: where they are to be told, joined by commas.
Result<Metadata> Converted(const Spec& spec, int32_t vocab = 270, const std::string& config = "", std::string* losses = nullptr,
                           const std::string& name = "model", const std::vector<int64_t>& ends = {}) {
  const Folder folder;
  if (!config.empty()) folder.Write("tokenizer_config.json", config);
  Inventory directory;
  directory.format = FileFormat::kHuggingFace;
  directory.tokenizer_json = folder.Write("tokenizer.json", spec.Text());
  if (!ends.empty()) directory.metadata.Set("generation_config.eos_token_id", ends);
  TALLY_ASSIGN_OR_RETURN(const GgufTokenizer made, GgufTokenizerKeys(directory, vocab, name));
  Metadata metadata;
  metadata.source = "made.gguf";
  metadata.Set("general.name", name);
  for (const auto& [key, value] : made.keys) metadata.Set(key, value);
  for (const GgufTokenizer::Loss& loss : made.losses) {
    if (losses != nullptr) *losses += (losses->empty() ? "" : ",") + loss.name;
  }
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
  EXPECT_EQ(PreOf(spec), "qwen2");
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
  spec.pre = Splits({R"( ?[^(\s|[.,!?…。，、।۔،])]+)"});
  EXPECT_EQ(PreOf(spec), "bloom");
  const std::string falcon = R"({"type":"Punctuation","behavior":"Contiguous"},{"type":"ByteLevel","add_prefix_space":false},)"
                             R"({"type":"Digits","individual_digits":false},)"
                             R"({"type":"Split","pattern":{"Regex":"[0-9][0-9][0-9]"},"behavior":"Isolated","invert":false})";
  spec.pre = R"({"type":"Sequence","pretokenizers":[)" + falcon + "]}";
  EXPECT_EQ(PreOf(spec), "falcon");
  // A merge of the two bytes of a Cyrillic letter that Falcon's steps cut apart, and GGUF's do not.
  spec.vocab.insert(spec.vocab.size() - 1, R"(,"\u00d0\u00b9":269)");
  spec.merges.insert(spec.merges.size() - 1, R"(,["\u00d0","\u00b9"])");
  EXPECT_NE(PreOf(spec).find("GGUF cannot say how it cuts text"), std::string::npos) << PreOf(spec);
}

// The ids of both for texts around special tokens.
void ExpectSameTokens(const Spec& spec, const Metadata& made, const std::vector<std::string>& texts) {
  const auto before = Make(spec);
  const auto after = TokenizerFromGguf(made);
  ASSERT_TRUE(after.ok()) << after.status().message();
  for (const std::string& text : texts) {
    EXPECT_EQ(Encode(**after, text, {false, true}), Encode(*before, text, {false, true})) << text;
    EXPECT_EQ(Encode(**after, text), Encode(*before, text)) << text;
  }
}

const std::vector<std::string> kAround = {
    "\n<|end|>\n", " <|end|> hello", "x<|end|>y<|end|>", "e\xCC\x81 <|end|>e\xCC\x81", "<|end|>  \n <|end|>", "hello <tool> 12"};

// What GGUF has no key for is said in keys of our own, and named.
TEST(TokenizerToGguf, WhatOtherEnginesWouldLoseIsNamed) {
  Spec spec = ByteLevel(R"({"type":"ByteLevel","add_prefix_space":false})");
  std::string losses;
  auto made = Converted(spec, 270, "", &losses);
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_EQ(losses, "");
  for (const auto& [key, value] : made->values()) EXPECT_FALSE(key.starts_with("tally.")) << key;

  spec.normalizer = R"({"type":"NFC"})";
  made = Converted(spec, 270, "", &losses);
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_EQ(losses, "normalizer");
  ExpectSameTokens(spec, *made, kAround);

  // Phi-4's.
  losses.clear();
  spec.normalizer = "null";
  spec.added = R"([{"id":260,"content":"<|end|>","special":true,"lstrip":true,"rstrip":true},{"id":262,"content":"<tool>"}])";
  made = Converted(spec, 270, "", &losses);
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_EQ(losses, "strip");
  EXPECT_EQ(made->GetInts("tally.tokenizer.lstrip").value(), std::vector<int64_t>{260});
  ExpectSameTokens(spec, *made, kAround);
  const auto read = TokenizerFromGguf(*made);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(Encode(**read, "\n<|end|>\nhe", {false, true}), (Ids{260, 256}));

  losses.clear();
  spec.normalizer = R"({"type":"NFC"})";
  EXPECT_TRUE(Converted(spec, 270, "", &losses).ok());
  EXPECT_EQ(losses, "strip,normalizer");

  // By their model's name engines know that Phi-3's tokens take the white space after them along.
  losses.clear();
  spec.normalizer = "null";
  spec.added = R"([{"id":260,"content":"<|end|>","special":true,"rstrip":true}])";
  made = Converted(spec, 270, "", &losses, "My-Phi-3-mini");
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_EQ(losses, "");
  ExpectSameTokens(spec, *made, kAround);
  EXPECT_TRUE(Converted(spec, 270, "", &losses, "another").ok());
  EXPECT_EQ(losses, "strip");
}

// Llama 2's way: characters, byte fallback, U+2581 for a space.
// `pieces` by id; `best`: the same, best first, if they are in another order.
Spec Scored(const std::vector<std::string>& pieces, const std::string& normalizer, const std::vector<std::string>& best = {}) {
  Json vocab = {{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}}, merges = Json::array();
  for (int b = 0; b < 256; ++b) {
    char text[8];
    std::snprintf(text, sizeof(text), "<0x%02X>", b);
    vocab[text] = 3 + b;
  }
  for (const std::string& piece : pieces) vocab[piece] = vocab.size();
  // As transformers' converter has it: for each token, best first, all pairs of tokens that make it.
  for (const std::string& piece : best.empty() ? pieces : best) {
    for (size_t cut = 1; cut < piece.size(); ++cut) {
      const std::string left = piece.substr(0, cut), right = piece.substr(cut);
      if (vocab.contains(left) && vocab.contains(right)) merges.push_back(Json::array({left, right}));
    }
  }
  Spec spec;
  spec.vocab = vocab.dump();
  spec.merges = merges.dump();
  spec.model = R"("unk_token":"<unk>","byte_fallback":true,"fuse_unk":true)";
  spec.added = R"([{"id":0,"content":"<unk>","special":true},{"id":1,"content":"<s>","special":true},)"
               R"({"id":2,"content":"</s>","special":true}])";
  spec.normalizer = normalizer;
  spec.post = R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>"}},{"Sequence":{"id":"A"}}],)"
              R"("special_tokens":{"<s>":{"ids":[1]}}})";
  spec.decoder = R"({"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"▁"},"content":" "},)"
                 R"({"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":0}]})";
  return spec;
}

const std::vector<std::string> kPieces = {"▁▁", "he", "ll", "▁he", "an", "ana", "llo", "▁hello", "hello", "12", "\n\n",
                                          "▁",  "h",  "e",  "l",   "o",  "a",   "n",   "1",      "2",     "\n"};
const std::string kReplace = R"({"type":"Replace","pattern":{"String":" "},"content":"▁"})";
const std::string kLlama = R"({"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"▁"},)" + kReplace + "]}";

TEST(TokenizerToGguf, CharactersBecomeScores) {
  const Spec spec = Scored(kPieces, kLlama);
  const std::string config = R"({"bos_token":"<s>","eos_token":"</s>","unk_token":"<unk>"})";
  std::string losses;
  const auto made = Converted(spec, 290, config, &losses);
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_EQ(losses, "");
  EXPECT_EQ(made->GetString("tokenizer.ggml.model").value(), "llama");
  const auto types = made->GetInts("tokenizer.ggml.token_type").value().value();
  const auto scores = made->GetDoubles("tokenizer.ggml.scores").value().value();
  EXPECT_EQ((std::vector<int64_t>{types[0], types[1], types[3], types[259], types[289]}), (std::vector<int64_t>{2, 3, 6, 1, 5}));
  EXPECT_EQ((std::vector<double>{scores[259], scores[260], scores[269], scores[3]}), (std::vector<double>{0, -1, -10, 0}));
  EXPECT_LT(scores[270], scores[269]);  // the space, which nothing makes
  EXPECT_EQ(made->GetBool("tokenizer.ggml.add_space_prefix").value(), true);
  EXPECT_EQ(made->GetBool("tokenizer.ggml.add_bos_token").value(), true);
  EXPECT_EQ(made->GetInt("tokenizer.ggml.unknown_token_id").value(), 0);
  ExpectSameTokens(spec, *made, {"hello", " hello  banana\n\n12", "<s>hello</s> ana</s>\n", "\xF0\x9F\x98\x80", "<unk>x"});
  const auto read = TokenizerFromGguf(*made);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(Encode(**read, "hello", {true, false}), (Ids{1, 266}));  // <s> ▁hello
  EXPECT_EQ((*read)->eos(), std::vector<int32_t>{2});

  // Gemma's: no space before, and a cut at the spaces that are gone by then; tokens of spaces that are not special.
  Spec gemma = Scored(kPieces, kReplace);
  gemma.pre = R"({"type":"Split","pattern":{"String":" "},"behavior":"MergedWithPrevious","invert":false})";
  gemma.decoder = R"({"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"▁"},"content":" "},)"
                  R"({"type":"ByteFallback"},{"type":"Fuse"}]})";
  gemma.added.insert(gemma.added.size() - 1, R"(,{"id":259,"content":"▁▁","special":false,"normalized":false},)"
                                             R"({"id":269,"content":"\n\n","special":false,"normalized":false})");
  const auto other = Converted(gemma, 290, config, &losses);
  ASSERT_TRUE(other.ok()) << other.status().message();
  EXPECT_EQ(losses, "");
  EXPECT_EQ(other->GetBool("tokenizer.ggml.add_space_prefix").value(), false);
  EXPECT_EQ(other->GetInts("tokenizer.ggml.token_type").value().value()[269], 4);
  ExpectSameTokens(gemma, *other, {"hello", " hello  ana\n\n\n", "<s>hello</s> ana"});
}

TEST(TokenizerToGguf, WhatScoresCannotSay) {
  std::string losses;
  // A later Llama's: a space before the text's beginning only.
  Spec spec = Scored(kPieces, "null");
  spec.pre = R"({"type":"Metaspace","replacement":"▁","prepend_scheme":"first","split":false})";
  auto made = Converted(spec, 290, "", &losses);
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_EQ(losses, "space");
  ExpectSameTokens(spec, *made, {"hello", " hello", "<s>hello</s> ana", "  hello"});
  // An early one's: special tokens are looked for in normalised text, so that only those after a space are found.
  losses.clear();
  spec = Scored(kPieces, kLlama);
  spec.added = R"([{"id":0,"content":"<unk>","special":true},{"id":1,"content":"<s>","special":true},)"
               R"({"id":2,"content":"</s>","special":true,"normalized":true}])";
  made = Converted(spec, 290, "", &losses);
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_EQ(losses, "normalized");
  ExpectSameTokens(spec, *made, {"hello</s>", "hello </s>", "</s>", "<s></s>"});
  // Not all pairs of tokens are merges, as a trainer leaves them.
  spec = Scored(kPieces, kLlama);
  spec.merges = R"([["h","e"],["l","l"],["ll","o"]])";
  const std::string error = Converted(spec, 290).status().message();
  EXPECT_NE(error.find("GGUF cannot say"), std::string::npos) << error;
}

// A published vocabulary: its scores as merges, by the rule of transformers' converter, and back.
TEST(TokenizerToGguf, ScoresOfAPublishedVocabulary) {
  const std::string path = Shared("tokenizers/llama.cpp-vocabs/ggml-vocab-llama-spm.gguf");
  TALLY_SKIP_WITHOUT(path);
  const Inventory file = ReadGguf(path).value();
  const auto tokens = file.metadata.GetStrings("tokenizer.ggml.tokens").value().value();
  const auto scores = file.metadata.GetDoubles("tokenizer.ggml.scores").value().value();
  std::vector<size_t> order;
  for (size_t id = 259; id < tokens.size(); ++id) order.push_back(id);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  std::vector<std::string> best;
  for (const size_t id : order) best.push_back(tokens[id]);
  const Spec spec = Scored({tokens.begin() + 259, tokens.end()}, kLlama, best);
  std::string losses;
  const auto made = Converted(spec, static_cast<int32_t>(tokens.size()), R"({"bos_token":"<s>","eos_token":"</s>"})", &losses);
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_EQ(losses, "");
  const auto published = TokenizerFromGguf(file.metadata), read = TokenizerFromGguf(*made);
  ASSERT_TRUE(published.ok() && read.ok());
  for (const char* name : {"text/war-and-peace.txt", "tokenizers/llama.cpp-vocabs/ggml-vocab-llama-spm.gguf.inp"}) {
    TALLY_SKIP_WITHOUT(Shared(name));
    const std::string text = ReadAll(Shared(name)).substr(0, 200'000);
    EXPECT_EQ(Encode(**read, text), Encode(**published, text));
  }
}

TEST(TokenizerToGguf, TokensTypesAndEnds) {
  const Spec spec = ByteLevel(R"({"type":"ByteLevel","add_prefix_space":false})");
  const auto made = Converted(spec, 264, R"({"bos_token":"<|end|>","eos_token":"<|end|>"})");
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
  const auto read = TokenizerFromGguf(*made);
  ASSERT_TRUE(read.ok());
  std::mt19937 random(5);
  const auto before = Make(spec);
  for (int i = 0; i < 50; ++i) {
    const std::string text = RandomText(random, 30) + "hello<tool>12";
    EXPECT_EQ(Encode(**read, text), Encode(*before, text));
  }
}

// GGUF has three keys for tokens that end a text, and readers know some by their names.
TEST(TokenizerToGguf, ManyEnds) {
  Spec spec = ByteLevel(R"({"type":"ByteLevel","add_prefix_space":false})");
  spec.added = R"([{"id":260,"content":"<|im_end|>","special":true},{"id":262,"content":"<|user|>","special":true}])";
  const auto ends = [&](const std::vector<int64_t>& ids, std::string* losses) {
    const auto made = Converted(spec, 264, R"({"eos_token":"<|user|>"})", losses, "model", ids);
    EXPECT_TRUE(made.ok()) << made.status().message();
    const std::vector<int32_t> eos = (*TokenizerFromGguf(*made))->eos();
    return std::set<int32_t>(eos.begin(), eos.end());
  };
  std::string losses;
  EXPECT_EQ(ends({262, 260, 65, 66}, &losses), (std::set<int32_t>{262, 260, 65, 66}));
  EXPECT_EQ(losses, "");
  EXPECT_EQ(ends({262, 260, 65, 66, 67, 68}, &losses), (std::set<int32_t>{262, 260, 65, 66, 67, 68}));
  EXPECT_EQ(losses, "ends");
}

TEST(TokenizerToGguf, Refusals) {
  const auto error = [](const Spec& spec, int32_t vocab = 270) { return Converted(spec, vocab).status().message(); };
  Spec spec = ByteLevel(R"({"type":"ByteLevel","add_prefix_space":false})");
  EXPECT_NE(error(spec, 200).find("has 263 tokens, and the model room for 200"), std::string::npos);
  spec = ByteLevel(R"({"type":"ByteLevel","add_prefix_space":true})");
  EXPECT_NE(error(spec).find("cannot say its pre-tokenizer"), std::string::npos);
  EXPECT_NE(error(Spec()).find("a BPE that is neither of bytes nor has U+2581 for spaces"), std::string::npos);
  spec = Scored(kPieces, kLlama);
  spec.model = "";
  spec.vocab.replace(spec.vocab.find("<0x41>"), 6, "<0xAB");
  EXPECT_NE(error(spec, 290).find("no token for each byte"), std::string::npos) << error(spec, 290);
}

}  // namespace
}  // namespace tally::test
