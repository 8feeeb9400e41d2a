// SPDX-License-Identifier: Apache-2.0
// Awkward texts through every kind of vocabulary: there and back, invalid bytes, special tokens that are text, streams.
#include <algorithm>
#include <map>

#include "engine/text/bpe.h"
#include "loaders/loaders.h"
#include "tests/text/json_spec.h"
#include "tests/text/torture_strings.h"

namespace tally {
namespace {

using test::Encode;
using test::Ids;

// Merges that bite into characters: pairs of bytes (within a character, across two), learnt from the texts themselves.
std::vector<std::pair<std::string, std::string>> LearntPairs() {
  std::map<std::pair<std::string, std::string>, int> counts;
  for (const auto& [name, text] : test::TortureStrings()) {
    for (size_t i = 0; i + 1 < text.size(); ++i) ++counts[{text.substr(i, 1), text.substr(i + 1, 1)}];
  }
  std::vector<std::pair<int, std::pair<std::string, std::string>>> sorted;
  for (const auto& [pair, count] : counts) sorted.push_back({-count, pair});
  std::sort(sorted.begin(), sorted.end());
  std::vector<std::pair<std::string, std::string>> pairs;
  for (size_t i = 0; i < sorted.size() && i < 300; ++i) pairs.push_back(sorted[i].second);
  return pairs;
}

const std::vector<std::string> kSpecials = {"<|endoftext|>",     "<|start|>",  "<|end|>", "<|message|>",
                                            "<|begin_of_text|>", "<|eot_id|>", "<s>",     "</s>"};

Metadata ByteLevel(const std::string& pre) {
  Metadata m;
  m.source = "made by the test";
  std::vector<std::string> tokens, merges;
  for (int b = 0; b < 256; ++b) tokens.push_back(AlphabetOfBytes(std::string(1, static_cast<char>(b))));
  for (const auto& [left, right] : LearntPairs()) {
    merges.push_back(AlphabetOfBytes(left) + " " + AlphabetOfBytes(right));
    tokens.push_back(AlphabetOfBytes(left + right));
  }
  std::vector<int64_t> types(tokens.size(), 1);
  for (const std::string& special : kSpecials) {
    tokens.push_back(special);
    types.push_back(3);
  }
  m.Set("tokenizer.ggml.model", std::string("gpt2"));
  m.Set("tokenizer.ggml.pre", pre);
  m.Set("tokenizer.ggml.tokens", tokens);
  m.Set("tokenizer.ggml.token_type", types);
  m.Set("tokenizer.ggml.merges", merges);
  m.Set("tokenizer.ggml.add_bos_token", false);
  return m;
}

Metadata Scored(bool space_prefix) {
  Metadata m;
  m.source = "made by the test";
  std::vector<std::string> tokens = {"<unk>"};
  std::vector<int64_t> types = {2};
  for (const std::string& special : kSpecials) {
    tokens.push_back(special);
    types.push_back(3);
  }
  for (int b = 0; b < 256; ++b) {
    char text[8];
    std::snprintf(text, sizeof(text), "<0x%02X>", b);
    tokens.push_back(text);
    types.push_back(6);
  }
  for (const char* text :
       {"\u2581", "\u2581\u2581", "a", "e",  "e\u0301", "\u0301", "中", "京都", "🙂", "🙂🙂", "ab", "he",
        "the",    "\u2581a",      "1", "12", "ש",       "<",      "<|", "é",    "👍",    "👍🏽", "\n", "\n\n"}) {
    tokens.push_back(text);
    types.push_back(1);
  }
  std::vector<double> scores;
  for (size_t i = 0; i < tokens.size(); ++i) scores.push_back(-static_cast<double>(i));
  m.Set("tokenizer.ggml.model", std::string("llama"));
  m.Set("tokenizer.ggml.tokens", tokens);
  m.Set("tokenizer.ggml.token_type", types);
  m.Set("tokenizer.ggml.scores", scores);
  m.Set("tokenizer.ggml.unknown_token_id", uint64_t{0});
  m.Set("tokenizer.ggml.add_space_prefix", space_prefix);
  m.Set("tokenizer.ggml.add_bos_token", false);
  return m;
}

using Loaded = Result<std::unique_ptr<Tokenizer>>;

Loaded FromFile(const std::string& path) {
  if (path.ends_with(".json")) return TokenizerFromJson(path);
  if (path.ends_with(".tiktoken")) return TokenizerFromRanks(path);
  TALLY_ASSIGN_OR_RETURN(const Inventory inventory, ReadGguf(path));
  return TokenizerFor(inventory);
}

// What is made here, and what the shared folder holds.
std::vector<std::pair<std::string, Loaded>> Vocabularies() {
  std::vector<std::pair<std::string, Loaded>> all;
  for (const char* pre : {"gpt-2", "llama-bpe", "gpt-4o", "qwen2", "tekken", "deepseek-coder", "deepseek-llm", "deepseek-v3",
                          "starcoder", "falcon", "bloom", "viking", "kimi-k2", "seed-coder", "superbpe", "tiny_aya", "default"}) {
    all.emplace_back(pre, TokenizerFromGguf(ByteLevel(pre)));
  }
  all.emplace_back("scored", TokenizerFromGguf(Scored(true)));
  all.emplace_back("scored, no space before", TokenizerFromGguf(Scored(false)));
  const test::Folder folder;
  // Llama 2's way as a tokenizer.json: characters, byte fallback.
  test::Spec llama;
  llama.vocab = R"({"<unk>":0)";
  int id = 0;
  for (int b = 0; b < 256; ++b) {
    char text[24];
    std::snprintf(text, sizeof(text), ",\"<0x%02X>\":%d", b, ++id);
    llama.vocab += text;
  }
  for (const char* text : {"\u2581", "\u2581\u2581", "a", "中", "🙂", "🙂🙂", "\u2581a"}) {
    llama.vocab += std::string(",\"") + text + "\":" + std::to_string(++id);
  }
  llama.vocab += "}";
  llama.merges = "[\"\u2581 \u2581\",\"🙂 🙂\",\"\u2581 a\"]";
  llama.model = R"("unk_token":"<unk>","byte_fallback":true,"fuse_unk":true)";
  llama.added = R"([{"id":300,"content":"<s>","special":true},{"id":301,"content":"<|endoftext|>","special":true}])";
  llama.normalizer =
      "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":\"\u2581\"},{\"type\":\"Replace\","
      "\"pattern\":{\"String\":\" \"},\"content\":\"\u2581\"}]}";
  llama.decoder =
      "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":\"\u2581\"},\"content\":\" \"},"
      "{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]}";
  all.emplace_back("llama.json", TokenizerFromJson(folder.Write("tokenizer.json", llama.Text())));
  for (const char* path :
       {"tokenizers/llama.cpp-vocabs/ggml-vocab-gpt-2.gguf", "tokenizers/llama.cpp-vocabs/ggml-vocab-llama-spm.gguf",
        "tokenizers/llama.cpp-vocabs/ggml-vocab-phi-3.gguf", "tokenizers/llama.cpp-vocabs/ggml-vocab-deepseek-coder.gguf",
        "tokenizers/llama.cpp-vocabs/ggml-vocab-mpt.gguf", "tokenizers/hf/gpt2.tokenizer.json",
        "weights/stories260K-gguf/stories260Ktok512.gguf", "tokenizers/tiktoken/r50k_base.tiktoken",
        "tokenizers/tiktoken/p50k_base.tiktoken", "tokenizers/tiktoken/cl100k_base.tiktoken",
        "tokenizers/tiktoken/o200k_base.tiktoken"}) {
    const std::string file = test::Shared(path);
    if (std::filesystem::exists(file)) all.emplace_back(path, FromFile(file));
  }
  return all;
}

class Torture : public testing::Test {
 protected:
  static void SetUpTestSuite() { all_ = new std::vector(Vocabularies()); }
  static void TearDownTestSuite() { delete all_; }
  template <class F>
  static void ForEach(const F& f) {
    for (const auto& [name, tokenizer] : *all_) {
      SCOPED_TRACE(name);
      ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
      f(**tokenizer);
    }
  }
  static std::vector<std::pair<std::string, Loaded>>* all_;
};
std::vector<std::pair<std::string, Loaded>>* Torture::all_ = nullptr;

std::string BytesOf(const Tokenizer& tokenizer, const Ids& ids) {
  std::string bytes;
  for (const int32_t id : ids) bytes += tokenizer.TokenBytes(id);
  return bytes;
}

TEST_F(Torture, ThereAndBack) {
  ForEach([](const Tokenizer& t) {
    for (const auto& [name, text] : test::TortureStrings()) {
      const Ids ids = Encode(t, text);
      EXPECT_EQ(t.Decode(ids), text) << name;
      const std::string bytes = BytesOf(t, ids);  // the tokens side by side are the text
      EXPECT_EQ(t.DropsLeadingSpace() && !text.empty() ? bytes.substr(1) : bytes, text) << name;
      for (const int32_t id : ids) EXPECT_FALSE(t.IsControl(id)) << name << ": " << id;
    }
  });
}

TEST_F(Torture, InvalidBytesBecomeReplacementCharacters) {
  ForEach([](const Tokenizer& t) {
    for (const auto& [given, read] : test::IllFormed()) {
      EXPECT_EQ(Encode(t, given), Encode(t, read)) << testing::PrintToString(given);
      EXPECT_EQ(t.Decode(Encode(t, given)), read) << testing::PrintToString(given);
    }
  });
}

TEST_F(Torture, EveryTextCutAnywhereIsStillText) {
  ForEach([](const Tokenizer& t) {
    for (const auto& [name, text] : test::TortureStrings()) {
      for (size_t n = 0; n < text.size() && n < 24; ++n) {  // in the middle of characters, too
        std::string repaired;
        EXPECT_EQ(t.Decode(Encode(t, text.substr(0, n))), WellFormed(text.substr(0, n), &repaired)) << name << " " << n;
      }
    }
  });
}

// A limit is passed by one token as by a thousand, wherever it is noticed.
TEST_F(Torture, NoMoreTokensThanAsked) {
  ForEach([](const Tokenizer& t) {
    std::vector<std::string> texts = test::SpelledSpecials();
    for (const auto& [name, text] : test::TortureStrings()) texts.push_back(text + text);
    for (const std::string& text : texts) {
      const Ids ids = Encode(t, text, {true, true});
      const TextSegment segment{text, true};
      const Ids bare = *t.EncodeSegments(std::span(&segment, 1));
      EXPECT_EQ(Encode(t, text, {true, true, ids.size()}), ids) << text;
      EXPECT_EQ(*t.EncodeSegments(std::span(&segment, 1), bare.size()), bare) << text;
      if (ids.empty() || bare.empty()) continue;
      for (const size_t less : {size_t{0}, ids.size() / 2, ids.size() - 1}) {
        EXPECT_EQ(t.Encode(text, {true, true, less}).status().code(), StatusCode::kNoRoom) << text << less;
      }
      EXPECT_EQ(t.EncodeSegments(std::span(&segment, 1), bare.size() - 1).status().code(), StatusCode::kNoRoom) << text;
    }
  });
}

TEST_F(Torture, SpecialTokensAreTextUnlessAskedFor) {
  int parsed = 0;
  ForEach([&](const Tokenizer& t) {
    for (const std::string& text : test::SpelledSpecials()) {
      const Ids plain = Encode(t, text);
      for (const int32_t id : plain) EXPECT_FALSE(t.IsControl(id)) << text << ": " << id;
      EXPECT_EQ(t.Decode(plain), text);
      for (const int32_t id : Encode(t, text, {false, true})) parsed += t.IsControl(id);
    }
  });
  EXPECT_GT(parsed, 100);
}

// SentencePiece writes a space as U+2581 and cannot tell the two apart afterwards; byte-level vocabularies can.
TEST_F(Torture, TheCharacterThatStandsForASpace) {
  const std::string text = "a\u2581b \u2581\u2581";
  for (const bool prefix : {true, false}) {
    const Loaded scored = TokenizerFromGguf(Scored(prefix));
    ASSERT_TRUE(scored.ok());
    EXPECT_EQ(Encode(**scored, text), Encode(**scored, "a b   "));
    EXPECT_EQ((*scored)->Decode(Encode(**scored, text)), "a b   ");
  }
  const Loaded bytes = TokenizerFromGguf(ByteLevel("gpt-2"));
  ASSERT_TRUE(bytes.ok());
  EXPECT_EQ((*bytes)->Decode(Encode(**bytes, text)), text);
}

TEST_F(Torture, StreamsGiveWholeCharacters) {
  ForEach([](const Tokenizer& t) {
    for (const auto& [name, text] : test::TortureStrings()) {
      StreamingDecoder stream(t);
      std::string sum, storage;
      for (const int32_t id : Encode(t, text)) {
        const std::string piece = stream.Push(id);
        EXPECT_EQ(WellFormed(piece, &storage), piece) << name;
        sum += piece;
        EXPECT_TRUE(text.starts_with(sum)) << name;  // nothing is taken back
      }
      EXPECT_EQ(stream.Finish(), "") << name;
      EXPECT_EQ(sum, text) << name;
    }
  });
}

// Tokens in any order, as a model may give them: what comes is well-formed, and Decode gives the same.
TEST_F(Torture, StreamsOfAnyTokensAreWellFormed) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  ForEach([&](const Tokenizer& t) {
    for (int round = 0; round < 20; ++round) {
      Ids ids;
      for (int i = 0; i < 50; ++i)
        ids.push_back(static_cast<int32_t>(random() % std::min(600u, static_cast<unsigned>(t.vocab_size()))));
      StreamingDecoder stream(t);
      std::string sum, storage;
      for (const int32_t id : ids) {
        const std::string piece = stream.Push(id);
        EXPECT_EQ(WellFormed(piece, &storage), piece);
        sum += piece;
      }
      sum += stream.Finish();
      EXPECT_EQ(sum, t.Decode(ids));
      std::string bytes = BytesOf(t, ids);
      if (t.DropsLeadingSpace() && bytes.starts_with(' ')) bytes.erase(0, 1);
      EXPECT_EQ(sum, WellFormed(bytes, &storage));
    }
  });
}

}  // namespace
}  // namespace tally
