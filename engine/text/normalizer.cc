// SPDX-License-Identifier: Apache-2.0
#include "engine/text/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "engine/base/format.h"
#include "engine/text/utf8.h"

namespace tally {
namespace {

bool IsAscii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<uint8_t>(c) < 0x80; });
}

// UAX #15. Not by utf8proc_map, which sorts a long run of combining marks in quadratic time.
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
      out += "i\xCC\x87";  // the only unconditional lower case of two characters (SpecialCasing.txt)
    } else {
      AppendUtf8(static_cast<uint32_t>(utf8proc_tolower(c.code)), &out);
    }
    at += c.bytes;
  }
  return out;
}

// A text with a limit on its size. An Append beyond the limit is dropped and sets full().
class Grown {
 public:
  Grown(size_t most, size_t expected) : most_(most) { text_.reserve(expected); }
  void Append(std::string_view more) {
    if (more.size() > most_ - text_.size()) full_ = true;
    if (!full_) text_ += more;
  }
  bool full() const { return full_; }
  std::string Take() { return std::move(text_); }

 private:
  std::string text_;
  const size_t most_;
  bool full_ = false;
};

void ReplaceLiteral(std::string_view text, std::string_view find, std::string_view content, Grown& out) {
  size_t done = 0;
  for (size_t at; !out.full() && (at = FindText(text, find, done)) != text.npos; done = at + find.size()) {
    out.Append(text.substr(done, at - done));
    out.Append(content);
  }
  out.Append(text.substr(done));
}

Status ReplaceRegex(std::string_view text, const Pattern& regex, std::string_view content, Matcher& matcher, Grown& out) {
  size_t done = 0, search = 0;
  while (!out.full() && search <= text.size()) {
    TALLY_ASSIGN_OR_RETURN(const Matcher::Match match, matcher.Find(regex, text, search));
    if (!match.found) break;
    out.Append(text.substr(done, match.begin - done));
    out.Append(content);
    done = search = match.end;
    if (match.end == match.begin) search += std::max<uint32_t>(1, ReadUtf8(text, match.end).bytes);
  }
  out.Append(text.substr(done));
  return {};
}

Status RunStep(const NormalStep& step, std::string_view text, Matcher& matcher, Grown& out) {
  using Kind = NormalStep::Kind;
  switch (step.kind) {
    case Kind::kNfc:
    case Kind::kNfd:
    case Kind::kNfkc:
    case Kind::kNfkd: {
      const bool compatibility = step.kind == Kind::kNfkc || step.kind == Kind::kNfkd;
      const bool compose = step.kind == Kind::kNfc || step.kind == Kind::kNfkc;
      TALLY_ASSIGN_OR_RETURN(const std::string form, UnicodeForm(text, compatibility, compose));
      out.Append(form);
      return {};
    }
    case Kind::kLowercase: out.Append(Lowercase(text)); return {};
    case Kind::kPrepend:
      if (!text.empty()) out.Append(step.content);
      out.Append(text);
      return {};
    case Kind::kReplaceLiteral: ReplaceLiteral(text, step.find, step.content, out); return {};
    case Kind::kReplaceRegex: return ReplaceRegex(text, step.regex, step.content, matcher, out);
  }
  return InternalError("unknown normalizer step");
}

std::string_view NameOf(NormalStep::Kind kind) {
  switch (kind) {
    case NormalStep::Kind::kNfc: return "NFC";
    case NormalStep::Kind::kNfd: return "NFD";
    case NormalStep::Kind::kNfkc: return "NFKC";
    case NormalStep::Kind::kNfkd: return "NFKD";
    case NormalStep::Kind::kLowercase: return "Lowercase";
    case NormalStep::Kind::kPrepend: return "Prepend";
    case NormalStep::Kind::kReplaceLiteral:
    case NormalStep::Kind::kReplaceRegex: return "Replace";
  }
  return "?";
}

}  // namespace

Result<std::string> Normalizer::Apply(std::string_view text, Matcher& matcher, Growth& growth) const {
  std::string now(text);
  for (size_t i = 0; i < steps_.size(); ++i) {
    size_t& left = growth.left[i];
    Grown out(left, std::min(now.size() + now.size() / 4, left));
    TALLY_RETURN_IF_ERROR(RunStep(steps_[i], now, matcher, out));
    if (out.full()) {
      return BadInput("step " + std::to_string(i + 1) + " (" + std::string(NameOf(steps_[i].kind)) + ") grows a text of " +
                      BytesText(growth.bytes) + " to more than " + BytesText(growth.most));
    }
    now = out.Take();
    left -= now.size();
  }
  return now;
}

}  // namespace tally
