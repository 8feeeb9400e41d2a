// SPDX-License-Identifier: Apache-2.0
// Tokenizers from hand-made GGUF metadata: what the keys do, what they must not say, and the merging against
// the definition.
#include <cmath>
#include <ctime>
#include <limits>
#include <map>

#include "engine/text/bpe.h"
#include "tests/text/text_test_util.h"

namespace tally {
namespace {

using test::Encode;
using test::Ids;

// Byte-level: the 256 bytes, then `tokens`, then <s> and </s>; `merges` in GPT-2's alphabet.
Metadata ByteLevel(const std::vector<std::string>& tokens, const std::vector<std::string>& merges, const char* pre = "gpt-2") {
  Metadata m;
  m.source = "test.gguf";
  std::vector<std::string> all;
  for (int b = 0; b < 256; ++b) all.push_back(AlphabetOfBytes(std::string(1, static_cast<char>(b))));
  all.insert(all.end(), tokens.begin(), tokens.end());
  std::vector<int64_t> types(all.size(), 1);
  for (const char* special : {"<s>", "</s>"}) {
    all.push_back(special);
    types.push_back(3);
  }
  m.Set("tokenizer.ggml.model", std::string("gpt2"));
  m.Set("tokenizer.ggml.pre", std::string(pre));
  m.Set("tokenizer.ggml.bos_token_id", static_cast<uint64_t>(all.size() - 2));
  m.Set("tokenizer.ggml.eos_token_id", static_cast<uint64_t>(all.size() - 1));
  m.Set("tokenizer.ggml.tokens", all);
  m.Set("tokenizer.ggml.token_type", types);
  m.Set("tokenizer.ggml.merges", merges);
  return m;
}

const std::string kSpace = "\xE2\x96\x81";

// SentencePiece: <unk> <s> </s>, the 256 bytes, then `tokens` with `scores`.
Metadata Scored(const std::vector<std::string>& tokens, const std::vector<double>& scores, bool bytes = true) {
  Metadata m;
  m.source = "test.gguf";
  std::vector<std::string> all = {"<unk>", "<s>", "</s>"};
  std::vector<int64_t> types = {2, 3, 3};
  for (int b = 0; bytes && b < 256; ++b) {
    char text[8];
    std::snprintf(text, sizeof(text), "<0x%02X>", b);
    all.push_back(text);
    types.push_back(6);
  }
  std::vector<double> all_scores(all.size(), 0);
  all.insert(all.end(), tokens.begin(), tokens.end());
  all_scores.insert(all_scores.end(), scores.begin(), scores.end());
  types.resize(all.size(), 1);
  m.Set("tokenizer.ggml.model", std::string("llama"));
  m.Set("tokenizer.ggml.tokens", all);
  m.Set("tokenizer.ggml.token_type", types);
  m.Set("tokenizer.ggml.scores", all_scores);
  m.Set("tokenizer.ggml.bos_token_id", uint64_t{1});
  m.Set("tokenizer.ggml.eos_token_id", uint64_t{2});
  m.Set("tokenizer.ggml.unknown_token_id", uint64_t{0});
  return m;
}

std::unique_ptr<Tokenizer> Make(const Metadata& m) {
  auto made = TokenizerFromGguf(m);
  EXPECT_TRUE(made.ok()) << made.status().message();
  return made.ok() ? std::move(*made) : nullptr;
}

std::string GgufError(const Metadata& m) {
  auto made = TokenizerFromGguf(m);
  return made.ok() ? "" : made.status().message();
}

TEST(GgufTokenizer, MergesInOrderOfRank) {
  const auto t = Make(ByteLevel({"ab", "bc", "abc"}, {"b c", "a b", "a bc"}));
  EXPECT_EQ(Encode(*t, "abc"), (Ids{258}));  // bc, then a+bc
  EXPECT_EQ(Encode(*t, "abab"), (Ids{256, 256}));
  EXPECT_EQ(Encode(*t, ""), Ids{});
  EXPECT_EQ(t->TokenBytes(258), "abc");
  EXPECT_EQ(t->TokenBytes(-1), "");
  EXPECT_EQ(t->TokenBytes(261), "");
  EXPECT_EQ(t->vocab_size(), 261);
  EXPECT_EQ(t->bos(), 259);
  EXPECT_EQ(t->eos(), (std::vector<int32_t>{260}));
  EXPECT_FALSE(t->DropsLeadingSpace());
  EXPECT_EQ(t->Description(), "byte-level BPE (gpt-2), 261 tokens");
}

// The tokens are those of the joined text, but a special token counts only where all of it is in segments that parse.
TEST(GgufTokenizer, SegmentsSayWhereSpecialTokensAre) {
  const auto t = Make(ByteLevel({"ab"}, {"a b"}));
  const auto encode = [&](std::vector<TextSegment> segments) {
    auto ids = t->EncodeSegments(segments);
    EXPECT_TRUE(ids.ok()) << ids.status().message();
    return ids.ok() ? *ids : Ids{};
  };
  EXPECT_EQ(encode({{"<s>a", true}, {"b<s>", false}}), (Ids{257, 256, '<', 's', '>'}));  // "ab" over the border
  EXPECT_EQ(encode({{"<", true}, {"s>", false}}), (Ids{'<', 's', '>'}));
  EXPECT_EQ(encode({{"<", false}, {"s>", true}}), (Ids{'<', 's', '>'}));
  EXPECT_EQ(encode({{"<", true}, {"", false}, {"s>", true}}), (Ids{257}));
  EXPECT_EQ(encode({{"</s>", false}, {"</s>", true}, {"</s>", false}}), (Ids{'<', '/', 's', '>', 258, '<', '/', 's', '>'}));
  EXPECT_EQ(encode({}), Ids{});
  EXPECT_EQ(t->ControlText(258), "</s>");
  EXPECT_EQ(t->ControlText('a') + t->ControlText(-1) + t->ControlText(259), "");
}

// Gemma 4's: merges of characters, spaces as marks, bytes for what has no token; <bos> first, and no merge over a line end.
TEST(GgufTokenizer, MergesOfCharacters) {
  Metadata m = Scored({kSpace, "a", "b", "\n", "\n\n", "ab", kSpace + "ab"}, {0, 0, 0, 0, 0, 0, 0});
  m.Set("tokenizer.ggml.model", std::string("gemma4"));
  m.Set("tokenizer.ggml.merges", std::vector<std::string>{"a b", kSpace + " ab", "\n \n"});
  const auto t = Make(m);
  EXPECT_EQ(Encode(*t, "ab ab"), (Ids{264, 265}));
  EXPECT_EQ(Encode(*t, " ab", {true, false}), (Ids{1, 265}));
  EXPECT_EQ(Encode(*t, "a\n\nb"), (Ids{260, 263, 261}));
  EXPECT_EQ(Encode(*t, "\xC3\xA9"), (Ids{3 + 0xC3, 3 + 0xA9}));
  EXPECT_EQ(t->Decode(Ids{264, 265, 3 + 0xC3, 3 + 0xA9}), "ab ab\xC3\xA9");
  EXPECT_EQ(t->Description(), "BPE of characters, 266 tokens");
  EXPECT_FALSE(t->DropsLeadingSpace());

  // Sarvam's files, and some of Gemma 4, say so by the pre-tokenizer.
  m.Set("tokenizer.ggml.model", std::string("gpt2"));
  m.Set("tokenizer.ggml.pre", std::string("sarvam-moe"));
  EXPECT_EQ(Encode(*Make(m), " ab", {true, false}), (Ids{265}));
  EXPECT_EQ(Encode(*Make(m), "\xC3\xA9"), (Ids{3 + 0xC3, 3 + 0xA9}));
  EXPECT_EQ(Make(m)->Decode(Ids{264, 265}), "ab ab");
  m.Set("tokenizer.ggml.pre", std::string("gemma4"));
  EXPECT_EQ(Encode(*Make(m), " ab", {true, false}), (Ids{1, 265}));
}

TEST(GgufTokenizer, BytesOfAnyKind) {
  const auto t = Make(ByteLevel({}, {}));
  EXPECT_EQ(Encode(*t, std::string("a\0b", 3)), (Ids{'a', 0, 'b'}));
  EXPECT_EQ(Encode(*t, "\xFF"), (Ids{0xEF, 0xBF, 0xBD}));
  EXPECT_EQ(t->Decode(Ids{'a', 0, 'b'}), std::string("a\0b", 3));
  EXPECT_EQ(t->Decode(Ids{'a', 0xFF, 'b', 0xC3}),
            "a\xEF\xBF\xBD"
            "b\xEF\xBF\xBD");
}

TEST(GgufTokenizer, BosAndEosAsAsked) {
  Metadata m = ByteLevel({}, {});
  EXPECT_EQ(Encode(*Make(m), "a", {true, false}), (Ids{'a'}));
  m.Set("tokenizer.ggml.add_bos_token", true);
  m.Set("tokenizer.ggml.add_eos_token", true);
  EXPECT_EQ(Encode(*Make(m), "a", {true, false}), (Ids{256, 'a', 257}));
  EXPECT_EQ(Encode(*Make(m), "a", {false, false}), (Ids{'a'}));
  m = ByteLevel({}, {}, "llama-bpe");
  EXPECT_EQ(Encode(*Make(m), "a", {true, false}), (Ids{256, 'a'}));
  m.Set("tokenizer.ggml.add_bos_token", false);
  EXPECT_EQ(Encode(*Make(m), "a", {true, false}), (Ids{'a'}));
}

TEST(GgufTokenizer, IgnoreMerges) {
  const std::vector<std::string> tokens = {"xy", "xyz"};
  EXPECT_EQ(Encode(*Make(ByteLevel(tokens, {"x y"}, "llama-bpe")), "xyz"), (Ids{257}));
  EXPECT_EQ(Encode(*Make(ByteLevel(tokens, {"x y"}, "qwen2")), "xyz"), (Ids{256, 'z'}));
}

TEST(GgufTokenizer, AddedTokens) {
  Metadata m = ByteLevel({"<s>x", "  "}, {});
  std::vector<int64_t> types(260, 1);
  types[256] = types[257] = 4;  // user-defined
  types[258] = types[259] = 3;
  m.Set("tokenizer.ggml.token_type", types);
  const auto t = Make(m);
  EXPECT_EQ(Encode(*t, "a   b"), (Ids{'a', 257, ' ', 'b'}));
  EXPECT_EQ(Encode(*t, "<s>y", {false, true}), (Ids{258, 'y'}));
  EXPECT_EQ(Encode(*t, "<s>y"), (Ids{'<', 's', '>', 'y'}));
  EXPECT_EQ(Encode(*t, "<s>x", {false, true}), (Ids{256}));  // the longest
  EXPECT_EQ(Encode(*t, "<s>x"), (Ids{256}));                 // user-defined ones always
  EXPECT_EQ(t->Decode(Ids{258, 'a', 256, 257}), "a<s>x  ");
}

TEST(GgufTokenizer, EndsOfText) {
  Metadata m = ByteLevel({"<|im_end|>", "<|end|>", "<|return|>", "<|call|>"}, {});
  m.Set("tokenizer.ggml.eot_token_id", uint64_t{261});
  const auto t = Make(m);
  EXPECT_EQ(t->eos(), (std::vector<int32_t>{261, 256, 258, 259}));  // <|end|> only ends a message
  EXPECT_TRUE(t->IsControl(256));
  EXPECT_EQ(Make(ByteLevel({"<|end|>"}, {}))->eos(), (std::vector<int32_t>{258, 256}));
  // Gemma 4's after calls, Ling's.
  EXPECT_EQ(Make(ByteLevel({"<turn|>", "<|tool_response>", "<|role_end|>"}, {}))->eos(),
            (std::vector<int32_t>{260, 256, 257, 258}));
}

TEST(GgufTokenizer, ScoresOrderTheMerges) {
  const std::vector<std::string> tokens = {kSpace, "a", "b", "ab", "ba", kSpace + "a", "aba"};
  const auto t = Make(Scored(tokens, {-9, -9, -9, -2, -1, -3, -4}));
  const int32_t first = 259;
  EXPECT_EQ(Encode(*t, "aba"), (Ids{first + 5, first + 4}));  // ba, then _a; "aba" cannot come about
  EXPECT_EQ(Encode(*t, "ab"), (Ids{first, first + 3}));
  EXPECT_EQ(Encode(*t, "a", {true, false}), (Ids{1, first + 5}));
  EXPECT_EQ(Encode(*t, ""), Ids{});
  EXPECT_EQ(Encode(*t, "\n"), (Ids{first, 3 + '\n'}));
  EXPECT_EQ(Encode(*t, "\xC3\xA9"), (Ids{first, 3 + 0xC3, 3 + 0xA9}));
  EXPECT_EQ(Encode(*t, "<s>a", {false, true}), (Ids{1, first + 5}));
  EXPECT_EQ(t->Decode(Ids{1, first + 5, 3 + 0xC3, 3 + 0xA9, first, first}), "a\xC3\xA9  ");
  EXPECT_TRUE(t->DropsLeadingSpace());
  EXPECT_EQ(t->TokenBytes(first + 5), " a");

  Metadata m = Scored(tokens, {-9, -9, -9, -2, -1, -3, -4});
  m.Set("tokenizer.ggml.add_space_prefix", false);
  EXPECT_EQ(Encode(*Make(m), "a"), (Ids{first + 1}));
  EXPECT_FALSE(Make(m)->DropsLeadingSpace());
  EXPECT_EQ(Make(m)->Decode(Ids{first + 5}), " a");

  EXPECT_EQ(Encode(*Make(Scored({kSpace, "a"}, {0, 0}, false)), "a\xC3\xA9"), (Ids{3, 4, 0}));  // no bytes: unknown
}

TEST(GgufTokenizer, OfTwoEqualTokensTheLaterCounts) {
  EXPECT_EQ(Encode(*Make(Scored({kSpace, "a", "a"}, {0, 0, 0})), "a"), (Ids{259, 261}));
  EXPECT_EQ(Encode(*Make(ByteLevel({"ab", "ab"}, {"a b"})), "ab"), (Ids{257}));
}

// SentencePiece's own numbers, which files made of older ones rely on.
TEST(GgufTokenizer, ScoredOnesHaveSpecialIdsByDefault) {
  const Metadata all = Scored({kSpace, "a"}, {0, 0}, false);
  Metadata m;
  m.source = all.source;
  for (const auto& [key, value] : all.values()) {
    if (!key.ends_with("_token_id")) m.Set(key, value);
  }
  EXPECT_EQ(Make(m)->bos(), 1);
  EXPECT_EQ(Make(m)->eos(), (std::vector<int32_t>{2}));
  EXPECT_EQ(Encode(*Make(m), "a\xC3\xA9", {true, false}), (Ids{1, 3, 4, 0}));
  m.Set("tokenizer.ggml.bos_token_id", uint64_t{0xFFFFFFFF});  // none is not absent
  EXPECT_EQ(Make(m)->bos(), -1);
  EXPECT_EQ(Encode(*Make(m), "a", {true, false}), (Ids{3, 4}));
  m.Set("tokenizer.ggml.tokens", std::vector<std::string>{"a"});
  m.Set("tokenizer.ggml.token_type", std::vector<int64_t>{1});
  m.Set("tokenizer.ggml.scores", std::vector<double>{0});
  EXPECT_EQ(Make(m)->eos(), std::vector<int32_t>{});
  m = ByteLevel({}, {});
  EXPECT_EQ(Make(m)->eos(), (std::vector<int32_t>{257}));
}

// A token beyond the vocabulary can never be drawn: its key is as if absent, and said so.
TEST(GgufTokenizer, SpecialIdsBeyondTheVocabularyAreNoted) {
  Metadata m = ByteLevel({}, {}, "llama-bpe");  // which adds a BOS
  EXPECT_EQ(Make(m)->Notes(), std::vector<std::string>{});
  m.Set("tokenizer.ggml.bos_token_id", uint64_t{258});
  m.Set("tokenizer.ggml.eos_token_id", uint64_t{99999});
  m.Set("tokenizer.ggml.add_eos_token", true);
  auto t = Make(m);
  EXPECT_EQ(t->bos(), -1);
  EXPECT_EQ(t->eos(), std::vector<int32_t>{});
  EXPECT_EQ(Encode(*t, "a", {true, false}), (Ids{'a'}));
  EXPECT_EQ(t->Notes(),
            (std::vector<std::string>{"tokenizer.ggml.bos_token_id: token 258 is beyond the vocabulary of 258; there is none",
                                      "tokenizer.ggml.eos_token_id: token 99999 is beyond the vocabulary of 258; there is none",
                                      "tokenizer.ggml.add_eos_token: true, and not followed"}));
  m = Scored({kSpace, "a"}, {0, 0}, false);
  m.Set("tokenizer.ggml.bos_token_id", uint64_t{99999});
  t = Make(m);
  EXPECT_EQ(Encode(*t, "a", {true, false}), (Ids{1, 3, 4}));
  EXPECT_EQ(t->Notes(), std::vector<std::string>{"tokenizer.ggml.bos_token_id: token 99999 is beyond the vocabulary of "
                                                 "5; SentencePiece's is taken, 1"});
}

TEST(GgufTokenizer, WithoutANameOfItsPreTokenizerItIsNoted) {
  const Metadata all = ByteLevel({}, {}, "default");
  EXPECT_EQ(Make(all)->Notes(), std::vector<std::string>{});
  Metadata m;
  m.source = all.source;
  for (const auto& [key, value] : all.values()) {
    if (key != "tokenizer.ggml.pre") m.Set(key, value);
  }
  ASSERT_EQ(Make(m)->Notes().size(), 1u);
  EXPECT_TRUE(Make(m)->Notes()[0].starts_with("tokenizer.ggml.pre: absent, so text is cut as 'default'")) << Make(m)->Notes()[0];
}

// Each of them ends a text; looking among the others for each would take a minute.
TEST(GgufTokenizer, ManyEndTokens) {
  const std::vector<std::string> tokens(400'000, "<EOT>");
  const std::clock_t begin = std::clock();
  const auto t = Make(ByteLevel(tokens, {}));
  EXPECT_EQ(t->eos().size(), tokens.size() + 1);
  EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 30);
}

TEST(GgufTokenizer, Streaming) {
  const auto t = Make(Scored({kSpace, "a", kSpace + "a"}, {0, -1, -1}));
  StreamingDecoder s(*t);
  EXPECT_EQ(s.Push(1), "");
  EXPECT_EQ(s.Push(261), "a");
  EXPECT_EQ(s.Push(261), " a");
  EXPECT_EQ(s.Push(3 + 0xF0), "");
  EXPECT_EQ(s.Push(3 + 0x9F), "");
  EXPECT_EQ(s.Push(3 + 0x99), "");
  EXPECT_EQ(s.Push(3 + 0x82), "\xF0\x9F\x99\x82");
  EXPECT_EQ(s.Push(3 + 0xC3), "");
  EXPECT_EQ(s.Push(261), "\xEF\xBF\xBD a");
  EXPECT_EQ(s.Push(3 + 0xC3), "");
  EXPECT_EQ(s.Finish(), "\xEF\xBF\xBD");
  EXPECT_EQ(s.Finish(), "");
  StreamingDecoder on(*t, false);
  EXPECT_EQ(on.Push(261), " a");
}

TEST(GgufTokenizer, BadInputIsNamed) {
  const Metadata good = ByteLevel({"ab"}, {"a b"});
  const auto with = [&](const char* key, MetaValue value) {
    Metadata m = good;
    m.Set(key, std::move(value));
    return GgufError(m);
  };
  EXPECT_EQ(GgufError(good), "");
  const auto expect = [](const std::string& error, const std::string& part) {
    EXPECT_NE(error.find(part), std::string::npos) << "'" << error << "' has no '" << part << "'";
    EXPECT_NE(error.find("test.gguf"), std::string::npos) << error;
    EXPECT_EQ(error.find('\n'), std::string::npos);
  };
  expect(with("tokenizer.ggml.model", std::string("bert")), "tokenizer.ggml.model: tokenizer model 'bert' is not supported");
  expect(with("tokenizer.ggml.pre", std::string("nobody")), "pre-tokenizer 'nobody' is not supported");
  expect(with("tokenizer.ggml.eos_token_id", int64_t{-2}), "eos_token_id");
  EXPECT_EQ(with("tokenizer.ggml.eos_token_id", uint64_t{0xFFFFFFFF}), "");  // none
  expect(with("tokenizer.ggml.merges", std::vector<std::string>{"a b", "a c"}), "merge 1 ('a' 'c') needs the token 'ac'");
  expect(with("tokenizer.ggml.merges", std::vector<std::string>{"a \xE4\xB8\xAD"}), "needs the token '\xE4\xB8\xAD'");
  expect(with("tokenizer.ggml.merges", std::vector<std::string>{"ab"}), "merge 0 is 'ab'");
  expect(with("tokenizer.ggml.token_type", std::vector<int64_t>{1}), "1 types for 259 tokens");
  expect(with("tokenizer.ggml.add_sep_token", true), "add_sep_token");
  expect(with("tokenizer.ggml.add_space_prefix", true), "add_space_prefix");
  expect(with("tokenizer.ggml.tokens", std::vector<std::string>{}), "tokens");
  Metadata none;
  none.source = "test.gguf";
  expect(GgufError(none), "tokenizer.ggml.model");
  Metadata scored = Scored({"a"}, {0});
  scored.Set("tokenizer.ggml.scores", std::vector<double>{0});
  expect(GgufError(scored), "expected 260 scores");
  // Without scores all are 0, and the leftmost pair is merged first.
  Metadata equal, unscored;
  equal.source = unscored.source = "test.gguf";
  const Metadata abc = Scored({"a", "b", "c", "ab", "bc", kSpace}, {0, 0, 0, 0, 0, 0});
  for (const auto& [key, value] : abc.values()) {
    equal.Set(key, value);
    if (key != "tokenizer.ggml.scores") unscored.Set(key, value);
  }
  const std::vector<int32_t> ids = *Make(unscored)->Encode("abc");
  EXPECT_EQ(ids, *Make(equal)->Encode("abc"));
  EXPECT_EQ(ids, (std::vector<int32_t>{1, 264, 262, 261}));  // <s>, the space, ab, c
  scored = Scored({"a"}, {std::nan("")});
  expect(GgufError(scored), "the score of token 259 is not a number");
  expect(GgufError(Scored({std::string(1025, 'a')}, {0})), "tokens: token 259 has 1025 bytes, at most 1024 expected");
  const auto unknown_byte = Make(Scored({kSpace}, {0}, false));
  Metadata no_unknown = Scored({kSpace}, {0}, false);
  no_unknown.Set("tokenizer.ggml.unknown_token_id", uint64_t{0xFFFFFFFF});
  const auto refused = Make(no_unknown)->Encode("a");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kBadInput);
}

// The definition: of all neighbours that merge, those of the best key, leftmost first; again until none do.
template <class Key>
std::vector<std::string> Naive(std::vector<std::string> symbols, const Key& key) {
  while (true) {
    double best = std::numeric_limits<double>::infinity();
    size_t at = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      if (const double k = key(symbols[i], symbols[i + 1]); k < best) {
        best = k;
        at = i;
      }
    }
    if (best == std::numeric_limits<double>::infinity()) return symbols;
    symbols[at] += symbols[at + 1];
    symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(at) + 1);
  }
}

TEST(GgufTokenizer, MergingIsWhatItsDefinitionSays) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 60; ++round) {
    // A random vocabulary over three letters, grown by joining two of its tokens.
    std::vector<std::string> tokens = {"a", "b", "c"}, merges;
    std::map<std::pair<std::string, std::string>, double> rank;
    std::map<std::string, double> score;
    while (tokens.size() < 25) {
      const std::string l = tokens[random() % tokens.size()], r = tokens[random() % tokens.size()];
      if (rank.contains({l, r}) || (l + r).size() > 8) continue;
      rank[{l, r}] = static_cast<double>(merges.size());
      merges.push_back(l + " " + r);
      if (std::find(tokens.begin(), tokens.end(), l + r) == tokens.end()) tokens.push_back(l + r);
    }
    std::vector<double> scores;
    for (const std::string& t : tokens) scores.push_back(score[t] = -static_cast<double>(random() % 12));
    const auto ranked = Make(ByteLevel({tokens.begin() + 3, tokens.end()}, merges));
    Metadata m = Scored(tokens, scores);
    m.Set("tokenizer.ggml.add_space_prefix", false);
    const auto scored = Make(m);
    for (int k = 0; k < 40; ++k) {
      std::string text;
      std::vector<std::string> letters;
      for (size_t i = random() % 40; i > 0; --i) letters.push_back(std::string(1, "abc"[random() % 3]));
      for (const std::string& l : letters) text += l;
      const auto split = [&](const Tokenizer& t) {
        std::vector<std::string> out;
        for (const int32_t id : Encode(t, text)) out.push_back(t.TokenBytes(id));
        return out;
      };
      ASSERT_EQ(split(*ranked), Naive(letters,
                                      [&](const std::string& l, const std::string& r) {
                                        const auto found = rank.find({l, r});
                                        return found == rank.end() ? std::numeric_limits<double>::infinity() : found->second;
                                      }))
          << text;
      ASSERT_EQ(split(*scored), Naive(letters,
                                      [&](const std::string& l, const std::string& r) {
                                        const auto found = score.find(l + r);
                                        return found == score.end() ? std::numeric_limits<double>::infinity() : -found->second;
                                      }))
          << text;
    }
  }
}

}  // namespace
}  // namespace tally
