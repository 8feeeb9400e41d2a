#include "engine/text/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>

#include "engine/text/utf8.h"

namespace tally {
namespace {

bool IsAscii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<uint8_t>(c) < 0x80; });
}

// UAX #15. utf8proc_map would do all of it, but sorts a long run of combining marks in quadratic time.
Result<std::string> UnicodeForm(std::string_view text, bool compatibility, bool compose) {
  if (IsAscii(text)) return std::string(text);
  const auto decompose =
      static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compatibility ? UTF8PROC_COMPAT : 0));
  std::vector<utf8proc_int32_t> codes;
  codes.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = ReadUtf8(text, at);
    utf8proc_int32_t buffer[32];  // the longest decomposition has 18
    int boundary = 0;
    const utf8proc_ssize_t n = utf8proc_decompose_char(c.code, buffer, std::size(buffer), decompose, &boundary);
    if (n < 0 || n > static_cast<utf8proc_ssize_t>(std::size(buffer))) return InternalError("utf8proc_decompose_char failed");
    codes.insert(codes.end(), buffer, buffer + n);
    at += c.bytes;
  }
  const auto rank = [](utf8proc_int32_t code) { return utf8proc_get_property(code)->combining_class; };
  for (size_t begin = 0; begin < codes.size();) {
    if (codes[begin] < 0x300 || rank(codes[begin]) == 0) {
      ++begin;
      continue;
    }
    size_t end = begin + 1;
    while (end < codes.size() && rank(codes[end]) != 0) ++end;
    std::stable_sort(codes.begin() + begin, codes.begin() + end, [&](auto a, auto b) { return rank(a) < rank(b); });
    begin = end;
  }
  if (compose) {
    const utf8proc_ssize_t n = utf8proc_normalize_utf32(codes.data(), static_cast<utf8proc_ssize_t>(codes.size()),
                                                        static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    if (n < 0) return InternalError("utf8proc_normalize_utf32 failed");
    codes.resize(static_cast<size_t>(n));
  }
  std::string out;
  out.reserve(text.size());
  for (const utf8proc_int32_t code : codes) AppendUtf8(static_cast<uint32_t>(code), &out);
  return out;
}

std::string Lowercase(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = ReadUtf8(text, at);
    if (c.code == 0x130) {
      out += "i\xCC\x87";  // the one letter whose lower case is two, whatever stands around it
                           // (SpecialCasing.txt)
    } else {
      AppendUtf8(static_cast<uint32_t>(utf8proc_tolower(c.code)), &out);
    }
    at += c.bytes;
  }
  return out;
}

std::string ReplaceLiteral(std::string_view text, std::string_view find, std::string_view content) {
  std::string out;
  out.reserve(text.size() + text.size() / 4);
  size_t done = 0;
  for (size_t at; (at = text.find(find, done)) != text.npos; done = at + find.size()) {
    out.append(text, done, at - done);
    out.append(content);
  }
  out.append(text.substr(done));
  return out;
}

Result<std::string> ReplaceRegex(std::string_view text, const Pattern& regex, std::string_view content, Matcher& matcher) {
  std::string out;
  size_t done = 0, search = 0;
  while (search <= text.size()) {
    TALLY_ASSIGN_OR_RETURN(const Matcher::Match match, matcher.Find(regex, text, search));
    if (!match.found || match.begin < done || match.end < match.begin) break;
    out.append(text, done, match.begin - done);
    out.append(content);
    done = search = match.end;
    if (match.end == match.begin) search += std::max<uint32_t>(1, ReadUtf8(text, match.end).bytes);
  }
  out.append(text.substr(done));
  return out;
}

}  // namespace

Result<std::string> Normalizer::Apply(std::string_view text, Matcher& matcher) const {
  std::string now(text);
  for (const NormalStep& step : steps_) {
    switch (step.kind) {
      case NormalStep::Kind::kNfc: {
        TALLY_ASSIGN_OR_RETURN(now, UnicodeForm(now, false, true));
        break;
      }
      case NormalStep::Kind::kNfd: {
        TALLY_ASSIGN_OR_RETURN(now, UnicodeForm(now, false, false));
        break;
      }
      case NormalStep::Kind::kNfkc: {
        TALLY_ASSIGN_OR_RETURN(now, UnicodeForm(now, true, true));
        break;
      }
      case NormalStep::Kind::kNfkd: {
        TALLY_ASSIGN_OR_RETURN(now, UnicodeForm(now, true, false));
        break;
      }
      case NormalStep::Kind::kLowercase: now = Lowercase(now); break;
      case NormalStep::Kind::kPrepend:
        if (!now.empty()) now.insert(0, step.content);
        break;
      case NormalStep::Kind::kReplaceLiteral: now = ReplaceLiteral(now, step.find, step.content); break;
      case NormalStep::Kind::kReplaceRegex: {
        TALLY_ASSIGN_OR_RETURN(now, ReplaceRegex(now, step.regex, step.content, matcher));
        break;
      }
    }
  }
  return now;
}

}  // namespace tally
