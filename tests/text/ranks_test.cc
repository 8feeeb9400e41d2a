// SPDX-License-Identifier: Apache-2.0
// Files of ranks that the test makes: what they may hold, what comes of it, and the merging against its definition.
#include <algorithm>
#include <functional>
#include <map>

#include "tests/text/json_spec.h"

namespace tally {
namespace {

using test::Encode;
using test::Folder;
using test::Ids;

std::string Base64(std::string_view bytes) {
  static constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t three = 0;
    for (size_t k = 0; k < 3; ++k) three = three << 8 | (i + k < bytes.size() ? static_cast<uint8_t>(bytes[i + k]) : 0);
    for (size_t k = 0; k < 4; ++k) out += i + k > bytes.size() ? '=' : kDigits[three >> (18 - 6 * k) & 63];
  }
  return out;
}

std::vector<std::string> Bytes() {
  std::vector<std::string> tokens;
  for (int b = 0; b < 256; ++b) tokens.push_back(std::string(1, static_cast<char>(b)));
  return tokens;
}

// The 256 bytes, then `more`, in order.
std::string Lines(const std::vector<std::string>& more) {
  std::vector<std::string> tokens = Bytes();
  tokens.insert(tokens.end(), more.begin(), more.end());
  std::string text;
  for (size_t i = 0; i < tokens.size(); ++i) text += Base64(tokens[i]) + " " + std::to_string(i) + "\n";
  return text;
}

// As many ranks as an encoding has: bytes, then words of two and three bytes.
std::string Full(size_t count, size_t hole = 0) {
  std::string text;
  for (size_t i = 0, rank = 0; i < count; ++i, ++rank) {
    std::string token(1, static_cast<char>(i));
    if (i >= 256) token += static_cast<char>(i >> 8);
    if (i >= 65536) token += static_cast<char>(i >> 16);
    if (hole != 0 && rank == hole) ++rank;
    text += Base64(token) + " " + std::to_string(rank) + "\n";
  }
  return text;
}

std::unique_ptr<Tokenizer> Make(const std::string& text, const std::string& encoding, const std::string& file = "x.tiktoken") {
  const Folder folder;
  auto made = TokenizerFromRanks(folder.Write(file, text), encoding);
  EXPECT_TRUE(made.ok()) << made.status().message();
  return made.ok() ? std::move(*made) : nullptr;
}

std::string RanksError(const std::string& text, const std::string& encoding = "r50k", const std::string& file = "x.tiktoken") {
  const Folder folder;
  auto made = TokenizerFromRanks(folder.Write(file, text), encoding);
  EXPECT_FALSE(made.ok()) << text.substr(0, 100);
  if (made.ok()) return "";
  EXPECT_EQ(made.status().code(), StatusCode::kBadInput);
  EXPECT_EQ(made.status().message().find('\n'), std::string::npos);
  return made.status().message();
}

TEST(Ranks, MergesAreTokensOfTheirBytes) {
  // "abc" comes about from a+bc only; tiktoken takes whichever two neighbours make a token, so from ab+c too.
  const auto t = Make(Lines({"ab", "abc", "bc"}), "r50k");
  EXPECT_EQ(Encode(*t, "abc"), (Ids{257}));
  EXPECT_EQ(Encode(*t, "xabc"), (Ids{'x', 257}));
  EXPECT_EQ(Encode(*t, "bcc"), (Ids{258, 'c'}));
  EXPECT_EQ(Encode(*t, "abbc"), (Ids{256, 258}));
  EXPECT_EQ(Encode(*t, ""), Ids{});
  EXPECT_EQ(t->Decode(Ids{257, 'x', 258}), "abcxbc");
  EXPECT_EQ(t->vocab_size(), 259);
  EXPECT_EQ(t->bos(), -1);
  EXPECT_TRUE(t->eos().empty());  // another vocabulary than r50k_base's: no special tokens
  // A piece that is a token is that token, though no merges lead to it.
  EXPECT_EQ(Encode(*Make(Lines({"abcd"}), "r50k"), "abcd"), (Ids{256}));
  EXPECT_EQ(Encode(*Make(Lines({"abcd"}), "r50k"), "xabcd"), (Ids{'x', 'a', 'b', 'c', 'd'}));
}

TEST(Ranks, EncodingsCutEachInTheirWay) {
  const std::string text = Lines({"12", "123", "1234", "bC", "Ab", "AbC"});
  const auto pieces = [&](const char* encoding, std::string_view given) {
    const auto t = Make(text, encoding);
    return Encode(*t, given);
  };
  EXPECT_EQ(pieces("r50k", "1234"), (Ids{258}));
  EXPECT_EQ(pieces("cl100k", "1234"), (Ids{257, '4'}));
  EXPECT_EQ(pieces("cl100k_base", "AbC"), (Ids{261}));
  EXPECT_EQ(pieces("o200k", "AbC"), (Ids{260, 'C'}));
  EXPECT_EQ(pieces("o200k_harmony", "AbC"), (Ids{260, 'C'}));
  EXPECT_EQ(pieces("p50k", "AbC"), (Ids{261}));
}

TEST(Ranks, SpecialTokensComeWithTheEncoding) {
  const auto r50k = Make(Full(50256), "", "r50k_base.tiktoken");
  EXPECT_EQ(r50k->vocab_size(), 50257);
  EXPECT_EQ(r50k->eos(), (Ids{50256}));
  EXPECT_TRUE(r50k->IsControl(50256));
  EXPECT_EQ(Encode(*r50k, "<|endoftext|>", {true, true}), (Ids{50256}));
  for (const int32_t id : Encode(*r50k, "a<|endoftext|>b")) EXPECT_LT(id, 50256);
  EXPECT_EQ(r50k->Decode(Encode(*r50k, "a<|endoftext|>b")), "a<|endoftext|>b");
  EXPECT_EQ(r50k->Decode(Encode(*r50k, "a<|endoftext|>b", {true, true})), "ab");

  // The special token of p50k_base stands among its ranks.
  const auto p50k = Make(Full(50280, 50256), "", "p50k_base.tiktoken");
  EXPECT_EQ(p50k->vocab_size(), 50281);
  EXPECT_EQ(Encode(*p50k, "<|endoftext|>", {true, true}), (Ids{50256}));
  EXPECT_NE(RanksError(Full(50280), "p50k").find("rank 50256 is the id of <|endoftext|>"), std::string::npos);

  const std::string o200k = Full(199998);
  EXPECT_EQ(Make(o200k, "", "o200k_base.tiktoken")->vocab_size(), 200019);
  const auto harmony = Make(o200k, "o200k_harmony", "o200k_base.tiktoken");
  EXPECT_EQ(harmony->vocab_size(), 201088);
  EXPECT_EQ(Encode(*harmony, "<|start|><|message|><|end|><|endofprompt|><|reserved_200018|><|reserved_201087|>", {true, true}),
            (Ids{200006, 200008, 200007, 200018, 200018, 201087}));
  Ids ends = harmony->eos();
  std::sort(ends.begin(), ends.end());
  EXPECT_EQ(ends, (Ids{199999, 200002, 200012}));
  for (int32_t id = 199998; id < 201088; ++id) EXPECT_TRUE(harmony->IsControl(id)) << id;

  const auto cl100k = Make(Full(100256), "", "cl100k_base.tiktoken");
  EXPECT_EQ(cl100k->vocab_size(), 100277);
  EXPECT_EQ(Encode(*cl100k, "<|fim_prefix|><|fim_middle|><|fim_suffix|><|endofprompt|><|endoftext|>", {true, true}),
            (Ids{100258, 100259, 100260, 100276, 100257}));
  EXPECT_EQ(cl100k->TokenBytes(100256), "");  // there is no such token
}

TEST(Ranks, LinesInAnyOrderAndWithCarriageReturns) {
  std::string text = Lines({"ab"});
  std::vector<std::string> lines;
  std::istringstream all(text);
  for (std::string line; std::getline(all, line);) lines.push_back(line);
  std::reverse(lines.begin(), lines.end());
  text.clear();
  for (const std::string& line : lines) text += line + "\r\n\r\n";
  text.resize(text.size() - 4);  // nor need the last line end
  EXPECT_EQ(Encode(*Make(text, "r50k"), "aab"), (Ids{'a', 256}));
}

TEST(Ranks, BadFilesAreNamed) {
  const auto expect = [](const std::string& error, const std::string& part) {
    EXPECT_NE(error.find(part), std::string::npos) << error << "\nexpected: " << part;
  };
  expect(RanksError(""), "x.tiktoken: the file is empty");
  expect(RanksError("\n\n"), "x.tiktoken: has no ranks");
  for (const char* line : {"YWI=", "YWI", "YWI 256", "YW== I 256", "YW=I 256", "Y!I= 256", " 256", "==== 256", "A=== 256",
                           "YWJ= 256", "{\"a\": 1}", "YWI=\t256", "\xFF\xFE 256", "YWI=  256", "YWI= 256 1"}) {
    const std::string error = RanksError(Lines({}) + line + "\n");
    expect(error, "x.tiktoken: line 257: ");
    expect(error, "expected");
  }
  for (const char* rank : {"-1", "+256", "256x", "2.5", "", "99999999999999999999", "4294967296", "2097152", "100000", "0x10"}) {
    const std::string error = RanksError(Lines({}) + "YWI= " + rank + "\n");
    expect(error, std::string("line 257: rank '") + rank + "', expected 0 to 273");
  }
  expect(RanksError(Lines({}) + "YWI= 255\n"), "line 257: rank 255 for the second time");
  expect(RanksError(Lines({}) + "YQ== 256\n"), "ranks 97 and 256 have the same token 'a'");
  expect(RanksError(Lines({}) + "YWI= 257\n"), "no line has rank 256, expected all of 0 to 257");
  expect(RanksError(Lines({std::string(1025, 'a')})), "line 257: a token of 1025 bytes, at most 1024 expected");
  EXPECT_NE(Make(Lines({std::string(1024, 'a')}), "r50k"), nullptr);
  std::string without = Lines({});
  without.erase(without.find(Base64("\n") + " 10\n"), 8);
  expect(RanksError(without), "no line has rank 10");
  expect(RanksError("YQ== 0\n"), "no token for the byte 0, expected one for each of the 256");
  // Known by its name, so that a file that was cut off does not go unnoticed.
  expect(RanksError(Full(100255), "", "cl100k_base.tiktoken"), "100255 ranks, expected the 100256 of cl100k_base");
  expect(RanksError(Lines({}), "", "mine.tiktoken"), "mine.tiktoken: not named for an encoding");
  expect(RanksError(Lines({}), "r51k"), "encoding 'r51k' is not known, expected one of r50k_base, p50k_base, cl100k_base");
  expect(RanksError(Lines({}), "_base"), "is not known");
  for (const std::string& text :
       {std::string(5000, 'x'), std::string(1000, '\0'), Lines({}) + std::string(100, '\n') + "\x1B[2J 1"}) {
    EXPECT_LT(RanksError(text).size(), 300u);
  }
  const Folder folder;
  for (const std::string& path : {folder.path(), folder.path() + "/absent.tiktoken", std::string("/dev/zero")}) {
    const auto made = TokenizerFromRanks(path, "r50k");
    ASSERT_FALSE(made.ok());
    expect(made.status().message(), path);
  }
}

// The definition: of all neighbours that are a token together, those of the lowest rank, leftmost first; again until none are.
TEST(Ranks, MergingIsWhatItsDefinitionSays) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 30; ++round) {
    std::map<std::string, int32_t> rank;
    std::vector<std::string> more;
    while (more.size() < 25) {
      std::string token;
      for (size_t n = 2 + random() % 4; n > 0; --n) token += "abc"[random() % 3];
      if (rank.emplace(token, 256 + more.size()).second) more.push_back(token);
    }
    const auto tokenizer = Make(Lines(more), "r50k");
    for (int k = 0; k < 60; ++k) {
      std::string text;
      for (size_t n = random() % 80; n > 0; --n) text += "abc"[random() % 3];
      std::vector<std::string> parts;
      for (const char c : text) parts.push_back(std::string(1, c));
      if (rank.contains(text)) parts = {text};
      while (true) {
        int32_t best = INT32_MAX;
        size_t at = 0;
        for (size_t i = 0; i + 1 < parts.size(); ++i) {
          const auto found = rank.find(parts[i] + parts[i + 1]);
          if (found != rank.end() && found->second < best) {
            best = found->second;
            at = i;
          }
        }
        if (best == INT32_MAX) break;
        parts[at] += parts[at + 1];
        parts.erase(parts.begin() + static_cast<ptrdiff_t>(at) + 1);
      }
      Ids expected;
      for (const std::string& part : parts) expected.push_back(part.size() == 1 ? part[0] : rank.at(part));
      ASSERT_EQ(Encode(*tokenizer, text), expected) << text;
    }
  }
}

}  // namespace
}  // namespace tally
