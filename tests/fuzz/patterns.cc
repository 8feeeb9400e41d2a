// SPDX-License-Identifier: Apache-2.0
// Regular expressions: any of them is refused or searched for in bounded time, and searches do not depend on one another.
#include "engine/text/pattern.h"
#include "engine/text/utf8.h"
#include "tests/fuzz/harness.h"
#include "tests/fuzz/targets.h"

namespace tally::fuzz {
namespace {

using Spans = std::vector<std::pair<size_t, size_t>>;

size_t After(std::string_view text, size_t begin, size_t end) {
  if (end > begin) return end;
  for (++end; end < text.size() && (static_cast<uint8_t>(text[end]) & 0xC0) == 0x80;) ++end;
  return end;
}

// False where the search was given up.
bool FindAll(const Pattern& pattern, Matcher& matcher, std::string_view text, size_t from, Spans* spans) {
  while (from <= text.size()) {
    const Result<Matcher::Match> match = matcher.Find(pattern, text, from);
    if (!match.ok()) {
      Require(match.status().code() == StatusCode::kBadInput, "not a bad-input error: " + match.status().message());
      return false;
    }
    if (!match->found) return true;
    Require(match->begin >= from && match->end >= match->begin && match->end <= text.size(), "a match outside of the text");
    spans->emplace_back(match->begin, match->end);
    from = After(text, match->begin, match->end);
  }
  return true;
}

// An expression, and pieces of text, each of them repeated for as long as it and its place say.
void RunPattern(std::string_view input) {
  const std::vector<std::string_view> parts = Files(input);
  const Result<Pattern> pattern = Pattern::Compile(parts[0], "regex");
  if (!pattern.ok()) {
    Require(pattern.status().code() == StatusCode::kBadInput, "not a bad-input error: " + pattern.status().message());
    return;
  }
  std::string text;
  for (size_t i = 1; i < parts.size() && !parts[i].empty(); ++i) {
    size_t times = 1 + parts[i].size() * 97 * i % 800 / parts[i].size();
    for (; times > 0 && text.size() < 3000; --times) text += parts[i];
  }
  std::string repaired;
  const std::string_view sound = WellFormed(text, &repaired);
  Matcher matcher(sound.size());
  Spans spans;
  if (!FindAll(*pattern, matcher, sound, 0, &spans)) return;
  // What a search finds does not depend on how far before the match it begins, nor on the searches before it.
  size_t from = 0;
  for (const auto& [begin, end] : spans) {
    from += (begin - from) / 2;
    while (from < begin && (static_cast<uint8_t>(sound[from]) & 0xC0) == 0x80) ++from;
    Matcher fresh(sound.size());
    const Result<Matcher::Match> match = fresh.Find(*pattern, sound, from);
    Require(match.ok() && match->found && match->begin == begin && match->end == end, "another match from nearer by");
    from = After(sound, begin, end);
  }
}

std::vector<std::string> PatternSeeds() {
  const auto seed = [](std::string regex, std::initializer_list<std::string_view> texts) {
    for (const std::string_view text : texts) (regex += kNextFile) += text;
    return regex;
  };
  return {
      seed(R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", {"don't stop", "   ", "a", "12.5\n"}),
      seed(R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}]*[\p{Ll}\p{M}]+(?i:'s|'t)?|\p{N}{1,3}|\s*[\r\n]+|\s+)",
           {"Aa", "BBBB", "e\xCC\x81", "\r\n"}),
      seed(R"(\n^b|^.|x$)", {"x\nb", "xx\n", "b"}),
      seed(R"(a++(?=b)|[^b]c+(?!b))", {"ab", "cc", "b"}),
      seed(R"(\s\w*\w*\w*!|\s)", {" \xD1\x85\xD0\xA0", "\xC3\xA0", " "}),
      seed(R"((?:a|bb)+?c?|a*)", {"a", "bb", "ab", "c"}),
      seed(R"(\s+$)", {"  a", "   ", "\n"}),
      seed(R"(\w*\w*\w*ww\*|!)", {"x\n", "x", "\xC3\xA0y12"}),
      seed(R"([a-c\s-]|\x{62}\u0063|x{2,3}|(y)*?\d{2,}|(?i:K|\w)|\p{^Han}\P{L})", {"ab", "xxx", "y12"}),
  };
}

}  // namespace

const Target kPattern = {"pattern", RunPattern, PatternSeeds};

}  // namespace tally::fuzz
