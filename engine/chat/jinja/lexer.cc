// SPDX-License-Identifier: Apache-2.0
#include "engine/chat/jinja/lexer.h"

#include <utf8proc.h>

#include <algorithm>
#include <charconv>

#include "engine/chat/jinja/budget.h"
#include "engine/chat/jinja/text.h"
#include "engine/text/utf8.h"

namespace tally::jinja {
namespace {

using Kind = Token::Kind;

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

bool IsNameCharacter(int32_t code) {
  if (code < 0x80)
    return (code >= '0' && code <= '9') || (code >= 'a' && code <= 'z') || (code >= 'A' && code <= 'Z') || code == '_';
  switch (utf8proc_category(code)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC: return true;
    default: return IsLetter(code);
  }
}

// \r\n and \r become \n, and a newline at the very end goes.
std::string NormalizeNewlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
    } else {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

// Digits with single underscores between them, at `at`: how many bytes they are, 0 for none.
template <class IsOne>
size_t DigitRun(std::string_view text, size_t at, const IsOne& is_one) {
  size_t end = at;
  while (end < text.size()) {
    if (is_one(text[end])) {
      ++end;
    } else if (text[end] == '_' && end > at && end + 1 < text.size() && is_one(text[end + 1])) {
      end += 2;
    } else {
      break;
    }
  }
  return end - at;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  Result<std::vector<Token>> Run() {
    while (at_ < source_.size()) {
      TALLY_RETURN_IF_ERROR(Data());
    }
    Add(Kind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  Status Fail(std::string_view reason) const { return AtLine(line_, reason); }

  bool Has(std::string_view text, size_t at) const { return std::string_view(source_).substr(at).starts_with(text); }

  void Add(Kind kind, std::string text) { tokens_.push_back({kind, line_, std::move(text)}); }

  // Moves to `end`, counting lines.
  void MoveTo(size_t end) {
    line_ += static_cast<int>(
        std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_), source_.begin() + static_cast<std::ptrdiff_t>(end), '\n'));
    starts_line_ = end > 0 && source_[end - 1] == '\n';
    at_ = end;
  }

  size_t SkipSpace(size_t at) const {
    while (at < source_.size()) {
      const Utf8Char c = ReadUtf8(source_, at);
      if (!IsPythonSpace(c.code)) break;
      at += c.bytes;
    }
    return at;
  }

  // Adds the data from here to `tag`, less the white space that the sign of the tag or lstrip_blocks take off.
  void AddData(size_t tag, char sign, bool lstrip) {
    std::string_view text = std::string_view(source_).substr(at_, tag - at_);
    if (sign == '-') {
      text = text.substr(0, Stripped(text, false, true).end);
    } else if (sign != '+' && lstrip) {
      const size_t begin = text.rfind('\n') + 1;  // 0 where there is none
      if ((begin > 0 || starts_line_) && Stripped(text.substr(begin), true, false).begin == text.size() - begin) {
        text = text.substr(0, begin);
      }
    }
    if (!text.empty()) Add(Kind::kData, std::string(text));
    MoveTo(tag);
  }

  // The sign of a tag, at `at`; 0 for none.
  char Sign(size_t at) const { return at < source_.size() && (source_[at] == '-' || source_[at] == '+') ? source_[at] : '\0'; }

  // "{%", sign, white space, `word`, white space: the byte behind them, or nothing.
  size_t TagWord(size_t tag, std::string_view word) const {
    size_t at = tag + 2;
    if (Sign(at) != 0) ++at;
    at = SkipSpace(at);
    if (!Has(word, at)) return std::string::npos;
    return SkipSpace(at + word.size());
  }

  // Behind a closing tag at `at` (the two bytes of `mark`, with a sign before them): where the text goes on; npos: it is none.
  size_t Closing(std::string_view mark, size_t at, bool trims, bool plus) const {
    const char sign = Sign(at);
    if (sign == '-' && Has(mark, at + 1)) return SkipSpace(at + 3);
    if (sign == '+' && plus && Has(mark, at + 1)) return at + 3;
    if (!Has(mark, at)) return std::string::npos;
    return trims && Has("\n", at + 2) ? at + 3 : at + 2;
  }

  // Text up to the next tag, and the tag.
  Status Data() {
    size_t tag = at_;
    while (tag < source_.size() && !Has("{{", tag) && !Has("{%", tag) && !Has("{#", tag)) {
      tag = std::min(source_.find('{', tag + 1), source_.size());
    }
    if (tag == source_.size()) {
      AddData(tag, '+', false);
      return {};
    }
    const char sign = Sign(tag + 2);
    const size_t inside = tag + 2 + (sign != 0 ? 1 : 0);
    if (source_[tag + 1] == '{') {
      AddData(tag, sign, false);
      Add(Kind::kPrintBegin, "");
      MoveTo(inside);
      return Inside("}}", Kind::kPrintEnd);
    }
    AddData(tag, sign, true);
    if (source_[tag + 1] == '#') return Comment(inside);
    const size_t after_raw = TagWord(tag, "raw");
    if (after_raw != std::string::npos) {
      const size_t begin = Closing("%}", after_raw, false, false);
      if (begin != std::string::npos) return Raw(begin);
    }
    Add(Kind::kBlockBegin, "");
    MoveTo(inside);
    return Inside("%}", Kind::kBlockEnd);
  }

  Status Comment(size_t begin) {
    const size_t end = source_.find("#}", begin);
    if (end != std::string::npos) {
      MoveTo(Closing("#}", end > begin && Sign(end - 1) != 0 ? end - 1 : end, true, true));
      return {};
    }
    return Fail("Missing end of comment tag");
  }

  Status Raw(size_t begin) {
    MoveTo(begin);
    for (size_t tag = begin; (tag = source_.find("{%", tag)) != std::string::npos; ++tag) {
      const size_t after = TagWord(tag, "endraw");
      const size_t end = after == std::string::npos ? after : Closing("%}", after, true, true);
      if (end == std::string::npos) continue;
      AddData(tag, Sign(tag + 2), true);
      MoveTo(end);
      return {};
    }
    return Fail("Missing end of raw directive");
  }

  // Tokens up to the closing `mark`, which counts only outside of brackets.
  Status Inside(std::string_view mark, Kind end_kind) {
    std::string open;  // the closing brackets that are waited for
    while (at_ < source_.size()) {
      if (open.empty()) {
        const size_t after = Closing(mark, at_, end_kind == Kind::kBlockEnd, end_kind == Kind::kBlockEnd);
        if (after != std::string::npos) {
          Add(end_kind, "");
          MoveTo(after);
          return {};
        }
      }
      const size_t after_space = SkipSpace(at_);
      if (after_space > at_) {
        MoveTo(after_space);
        continue;
      }
      TALLY_RETURN_IF_ERROR(One(&open));
    }
    return {};  // the parser sees the end
  }

  Status One(std::string* open) {
    const char c = source_[at_];
    if (IsDigit(c)) return Number();
    if (c == '\'' || c == '"') return String(c);
    size_t end = at_;
    while (end < source_.size()) {
      const Utf8Char next = ReadUtf8(source_, end);
      if (!IsNameCharacter(next.code)) break;
      end += next.bytes;
    }
    if (end - at_ > kMaxNameBytes) return Fail("a name of more than " + std::to_string(kMaxNameBytes) + " bytes");
    if (end > at_) {
      Add(Kind::kName, source_.substr(at_, end - at_));
      at_ = end;
      return {};
    }
    return Operator(open);
  }

  Status Operator(std::string* open) {
    static constexpr std::string_view kOperators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
                                                      "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
    for (const std::string_view op : kOperators) {
      if (!Has(op, at_)) continue;
      if (op == "(") *open += ')';
      if (op == "[") *open += ']';
      if (op == "{") *open += '}';
      if (op == ")" || op == "]" || op == "}") {
        if (open->empty()) return Fail("unexpected '" + std::string(op) + "'");
        if (open->back() != op[0]) return Fail("unexpected '" + std::string(op) + "', expected '" + open->back() + "'");
        open->pop_back();
      }
      Add(Kind::kOperator, std::string(op));
      at_ += op.size();
      return {};
    }
    const Utf8Char c = ReadUtf8(source_, at_);
    return Fail("unexpected char '" + source_.substr(at_, c.bytes) + "'");
  }

  Status Number() {
    const std::string_view text = source_;
    // A digit after a dot is an index: foo.0.1
    const bool may_be_float = at_ == 0 || text[at_ - 1] != '.';
    size_t end = at_ + DigitRun(text, at_, IsDigit);
    bool is_float = false;
    if (may_be_float) {
      if (Has(".", end) && DigitRun(text, end + 1, IsDigit) > 0) {
        end += 1 + DigitRun(text, end + 1, IsDigit);
        is_float = true;
      }
      if (Has("e", end) || Has("E", end)) {
        const size_t digits = end + 1 + (Sign(end + 1) != 0 ? 1 : 0);
        if (DigitRun(text, digits, IsDigit) > 0) {
          end = digits + DigitRun(text, digits, IsDigit);
          is_float = true;
        }
      }
    }
    if (!is_float) end = IntegerEnd(end);
    std::string digits(text.substr(at_, end - at_));
    std::erase(digits, '_');
    Add(is_float ? Kind::kFloat : Kind::kInteger, std::move(digits));
    at_ = end;
    return {};
  }

  // Of 0x, 0o and 0b numbers, and zeros; else `decimal`.
  size_t IntegerEnd(size_t decimal) const {
    if (source_[at_] != '0') return decimal;
    const char base = at_ + 1 < source_.size() ? static_cast<char>(source_[at_ + 1] | 0x20) : '\0';
    const auto digits = [&](std::string_view known) {
      const size_t begin = Has("_", at_ + 2) ? at_ + 3 : at_ + 2;
      const size_t n = DigitRun(source_, begin, [&](char c) { return known.find(c) != known.npos; });
      return n > 0 ? begin + n : size_t{0};
    };
    size_t end = 0;
    if (base == 'x') end = digits("0123456789abcdefABCDEF");
    if (base == 'o') end = digits("01234567");
    if (base == 'b') end = digits("01");
    return end > 0 ? end : at_ + DigitRun(source_, at_, [](char c) { return c == '0'; });
  }

  Status String(char quote) {
    std::string out;
    size_t at = at_ + 1;
    for (; at < source_.size() && source_[at] != quote; ++at) {
      if (source_[at] != '\\') {
        out += source_[at];
      } else {
        TALLY_RETURN_IF_ERROR(Escape(&at, &out));
      }
    }
    if (at >= source_.size()) return Fail(std::string("unexpected char ") + quote);
    Add(Kind::kString, std::move(out));
    MoveTo(at + 1);
    return {};
  }

  // A backslash at *at, which moves to the last byte of the escape. Those of Python; an unknown one stays as it is.
  Status Escape(size_t* at, std::string* out) {
    if (*at + 1 >= source_.size()) return Fail("unexpected char '\\'");
    const char c = source_[++*at];
    static constexpr std::string_view kNames = "abfnrtv\\'\"", kMeant = "\a\b\f\n\r\t\v\\'\"";
    if (const size_t known = kNames.find(c); known != kNames.npos) {
      *out += kMeant[known];
    } else if (c == '\n') {
      return {};
    } else if (c == 'x' || c == 'u' || c == 'U') {
      return CodeEscape(at, c == 'x' ? 2 : c == 'u' ? 4 : 8, out);
    } else if (c == 'N') {
      return Fail("character names (\\N) are not supported");
    } else if (c >= '0' && c <= '7') {
      uint32_t code = 0;
      size_t end = *at;
      for (; end < source_.size() && end < *at + 3 && source_[end] >= '0' && source_[end] <= '7'; ++end) {
        code = code * 8 + static_cast<uint32_t>(source_[end] - '0');
      }
      AppendUtf8(code, out);
      *at = end - 1;
    } else {
      (*out += '\\') += c;
    }
    return {};
  }

  Status CodeEscape(size_t* at, size_t digits, std::string* out) {
    uint32_t code = 0;
    const std::string_view hex = std::string_view(source_).substr(*at + 1, digits);
    const auto read = std::from_chars(hex.data(), hex.data() + hex.size(), code, 16);
    if (hex.size() < digits || read.ptr != hex.data() + digits) return Fail("truncated escape in a string");
    if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) return Fail("an escape that is no character");
    AppendUtf8(code, out);
    *at += digits;
    return {};
  }

  const std::string source_;
  size_t at_ = 0;
  int line_ = 1;
  bool starts_line_ = true;  // what comes next is the beginning of a line
  std::vector<Token> tokens_;
};

}  // namespace

Status AtLine(int line, std::string_view reason) { return BadInput("line " + std::to_string(line) + ": " + std::string(reason)); }

Result<std::vector<Token>> Tokenize(std::string_view source) {
  std::string storage;
  if (WellFormed(source, &storage).data() != source.data()) return BadInput("is not UTF-8");
  return Lexer(NormalizeNewlines(source)).Run();
}

}  // namespace tally::jinja
