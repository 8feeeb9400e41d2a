// Regular expressions: searching a text in parts must find what searching the whole of it finds.
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <memory>

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
bool FoundInParts(const Pattern& pattern, std::string_view text, Spans* spans) {
  Matcher matcher;
  for (size_t from = 0; from <= text.size();) {
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

bool FoundAtOnce(std::string_view regex, std::string_view text, Spans* spans) {
  const Result<std::string> translated = TranslatePattern(regex, "regex");
  Require(translated.ok(), "a pattern that is compiled and not translated");
  const std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> lines(pcre2_compile_context_create(nullptr),
                                                                                            pcre2_compile_context_free);
  pcre2_set_newline(lines.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE where = 0;
  const std::unique_ptr<pcre2_code, decltype(&pcre2_code_free)> code(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated->data()), translated->size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_ALT_CIRCUMFLEX, &error, &where, lines.get()),
      pcre2_code_free);
  Require(code != nullptr, "a pattern that PCRE2 takes once and then not");
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> data(pcre2_match_data_create(1, nullptr),
                                                                                 pcre2_match_data_free);
  const std::unique_ptr<pcre2_match_context, decltype(&pcre2_match_context_free)> limits(pcre2_match_context_create(nullptr),
                                                                                         pcre2_match_context_free);
  pcre2_set_match_limit(limits.get(), 10'000);  // more than makes Find try places one by one
  for (size_t from = 0; from <= text.size();) {
    const int rc = pcre2_match(code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from, PCRE2_NO_UTF_CHECK,
                               data.get(), limits.get());
    if (rc == PCRE2_ERROR_NOMATCH) return true;
    const PCRE2_SIZE* const span = pcre2_get_ovector_pointer(data.get());
    if (rc < 0 || span[1] < span[0] || span[0] < from) return false;
    spans->emplace_back(span[0], span[1]);
    from = After(text, span[0], span[1]);
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
  Spans in_parts, at_once;
  if (!FoundInParts(*pattern, sound, &in_parts) || !FoundAtOnce(parts[0], sound, &at_once)) return;
  Require(in_parts == at_once, "other matches in parts than at once");
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
      seed(R"((?<=b)a+|(?<!b)c+(?!b))", {"ab", "cc", "b"}),
      seed(R"(\s\w*\w*\w*!|\s)", {" \xD1\x85\xD0\xA0", "\xC3\xA0", " "}),
      seed(R"((?:a|bb)+?c?|a*)", {"a", "bb", "ab", "c"}),
      seed(R"(\s+$)", {"  a", "   ", "\n"}),
      seed(R"(\w*\w*\w*ww\*|!)", {"x\n", "x", "\xC3\xA0y12"}),
      seed(R"(\Aa|b\z|x{2,3}?|(y)\d{,2})", {"ab", "xxx", "y12"}),
  };
}

}  // namespace

const Target kPattern = {"pattern", RunPattern, PatternSeeds};

}  // namespace tally::fuzz
