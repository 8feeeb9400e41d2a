// SPDX-License-Identifier: Apache-2.0
// Which added tokens are found in a text: against a search by hand, and in time linear in the text.
#include "engine/text/added_tokens.h"

#include <ctime>

#include "tests/support/sanitizers.h"
#include "tests/text/text_test_util.h"

namespace tally {
namespace {

using Match = AddedTokens::Match;

std::string Show(const std::vector<Match>& matches) {
  std::string text;
  for (const Match& m : matches) {
    text += std::to_string(m.id) + "@" + std::to_string(m.begin) + "-" + std::to_string(m.end) + " ";
  }
  return text;
}

std::vector<Match> Find(const AddedTokens& tokens, std::string_view text, bool parse_special) {
  const ByteRange all{0, text.size()};
  return tokens.Find(text, std::span(&all, parse_special ? 1 : 0));
}

// Leftmost, then longest; of equal texts the later counts.
std::vector<Match> ByHand(const std::vector<AddedToken>& tokens, std::string_view text, bool parse_special) {
  std::vector<Match> matches;
  for (size_t at = 0, done = 0; at < text.size(); ++at) {
    const AddedToken* best = nullptr;
    for (size_t i = 0; i < tokens.size(); ++i) {
      const AddedToken& token = tokens[i];
      bool counts = !token.text.empty() && text.substr(at).starts_with(token.text);
      for (size_t later = i + 1; later < tokens.size(); ++later) counts = counts && tokens[later].text != token.text;
      if (counts && (parse_special || !token.special) && (best == nullptr || token.text.size() > best->text.size()))
        best = &token;
    }
    if (best == nullptr) continue;
    Match match{best->id, at, at + best->text.size()};
    while (best->lstrip && match.begin > done && text[match.begin - 1] == ' ') --match.begin;
    while (best->rstrip && match.end < text.size() && text[match.end] == ' ') ++match.end;
    done = match.end;
    matches.push_back(match);
    at = done - 1;
  }
  return matches;
}

TEST(AddedTokens, AreThoseFoundByHand) {
  std::mt19937 random(3);
  const auto word = [&](size_t longest) {
    std::string text;
    for (size_t n = random() % (longest + 1); n > 0; --n) text += "ab \xE2"[random() % 4];
    return text;
  };
  int found = 0;
  for (int round = 0; round < 4000; ++round) {
    std::vector<AddedToken> tokens;
    AddedTokens added;
    for (size_t n = random() % 7; n > 0; --n) {
      AddedToken token{word(5), static_cast<int32_t>(tokens.size()), random() % 3 == 0, random() % 5 == 0, random() % 5 == 0};
      tokens.push_back(token);
      added.Add(std::move(token));
    }
    added.Build();
    const std::string text = word(40);
    for (const bool parse_special : {false, true}) {
      const std::string want = Show(ByHand(tokens, text, parse_special));
      ASSERT_EQ(Show(Find(added, text, parse_special)), want) << "round " << round << ", text '" << text << "'";
      found += !want.empty();
    }
  }
  EXPECT_GT(found, 3000);
}

// A token that nearly begins everywhere: a search that looks ahead from each place would take a thousand times the text.
TEST(AddedTokens, TakeTimeLinearInTheText) {
  AddedTokens added;
  added.Add({.text = std::string(1023, 'a') + "b", .id = 1});
  added.Add({.text = "b" + std::string(1023, 'a'), .id = 2});
  added.Build();
  const std::string text(2'000'000, 'a');
  const std::clock_t begin = std::clock();
  EXPECT_TRUE(Find(added, text, true).empty());
  EXPECT_EQ(Find(added, text + "b", true).size(), 1u);
#if defined(TALLY_SHADOW_MEMORY)
  constexpr double kMostSeconds = 60;
#else
  constexpr double kMostSeconds = 4;
#endif
  EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, kMostSeconds);
}

}  // namespace
}  // namespace tally
