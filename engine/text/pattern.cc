#include "engine/text/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>

namespace tally {
namespace {

// White_Space as members of a class. (PCRE2's own \s has U+180E besides; its \p{White_Space} is slower.)
constexpr std::string_view kSpaces = R"(\t-\r \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
// Oniguruma's \w: letters, marks, decimal digits, connectors.
constexpr std::string_view kWord = R"(\p{L}\p{M}\p{Nd}\p{Pc})";

// Steps of backtracking beyond which a search is given up: what a linear expression needs for 100 MB in one
// match.
constexpr uint32_t kMatchLimit = 100'000'000;
constexpr size_t kMaxPatternBytes = 1 << 16;
// The stack of an expression that remembers every step (repeated groups), where PCRE2's own 32 KiB do not do.
size_t JitStackBytes(size_t text_bytes) { return std::min<size_t>((1 << 20) + 64 * text_bytes, 1 << 29); }

Status Unsupported(const std::string& where, std::string_view what, std::string_view regex) {
  return BadInput(where + ": regular expression with " + std::string(what) + " is not supported: " + std::string(regex));
}

}  // namespace

Result<std::string> TranslatePattern(std::string_view regex, const std::string& where) {
  if (regex.size() > kMaxPatternBytes) {
    return BadInput(where + ": regular expression of " + std::to_string(regex.size()) + " bytes, at most " +
                    std::to_string(kMaxPatternBytes) + " expected");
  }
  // Tried at every place of a run of spaces that something follows, this one is quadratic; a match can only
  // begin where the run or the search does.
  const std::string spaces = "[" + std::string(kSpaces) + "]";
  if (regex == R"(\s+$)") return "(?:\\G|(?<!" + spaces + "))" + spaces + "+$";

  std::string out;
  bool in_class = false;
  size_t class_begin = 0;
  for (size_t i = 0; i < regex.size(); ++i) {
    const char c = regex[i];
    const std::string_view rest = regex.substr(i);
    if (c == '\\') {
      if (rest.size() < 2) return Unsupported(where, "a backslash at its end", regex);
      const char e = rest[1];
      ++i;
      const bool alnum = (e >= '0' && e <= '9') || (e >= 'a' && e <= 'z') || (e >= 'A' && e <= 'Z');
      if (e == 's') {
        out += in_class ? std::string(kSpaces) : spaces;
      } else if (e == 'S') {
        out += in_class ? R"(\P{White_Space})" : "[^" + std::string(kSpaces) + "]";
      } else if (e == 'w') {
        out += in_class ? std::string(kWord) : "[" + std::string(kWord) + "]";
      } else if (e == 'W' && !in_class) {
        out += "[^" + std::string(kWord) + "]";
      } else if (e == 'v') {
        out += R"(\x{0b})";
      } else if (e == 'u') {
        const std::string_view hex = rest.substr(2, 4);
        if (hex.size() < 4 || hex.find_first_not_of("0123456789abcdefABCDEF") != hex.npos) {
          return Unsupported(where, "\\u without four hexadecimal digits", regex);
        }
        out += "\\x{" + std::string(hex) + "}";
        i += 4;
      } else if (!alnum || std::string_view("rntfaepPxdD").find(e) != std::string_view::npos ||
                 (!in_class && std::string_view("AzZG").find(e) != std::string_view::npos)) {
        out += c;
        out += e;
        if ((e == 'p' || e == 'P' || e == 'x') && rest.substr(2, 1) == "{") {  // its braces are no quantifier
          const size_t close = rest.find('}');
          if (close == rest.npos) return Unsupported(where, "an open brace", regex);
          out += rest.substr(2, close - 1);
          i += close - 1;
        }
      } else {
        return Unsupported(where, "\\" + std::string(1, e) + (in_class ? " in a class" : ""), regex);
      }
      continue;
    }
    if (in_class) {
      if (c == '[') return Unsupported(where, "a class in a class", regex);
      if (rest.substr(0, 2) == "&&") return Unsupported(where, "&&", regex);
      if (c == ']' && i > class_begin) in_class = false;
      out += c;
      continue;
    }
    if (c == '[') {
      in_class = true;
      class_begin = i + 1;
      if (i + 1 < regex.size() && regex[i + 1] == '^') {
        out += "[^";
        ++i;
        class_begin = i + 1;
        continue;
      }
    } else if (c == '}' && i + 1 < regex.size() && regex[i + 1] == '+') {
      return Unsupported(where, "{n,m}+ (possessive in one dialect, repeated in another)", regex);
    } else if (rest.substr(0, 2) == "(?") {
      const size_t flags = rest.find_first_not_of("-imsxaudlnywD", 2);
      if (flags != rest.npos && flags > 2 && (rest[flags] == ':' || rest[flags] == ')') && rest.substr(2, flags - 2) != "i") {
        return Unsupported(where, "the flags " + std::string(rest.substr(0, flags + 1)), regex);
      }
    }
    out += c;
  }
  return out;
}

struct Pattern::Code {
  pcre2_code* code = nullptr;
  bool jit = false;
  Code() = default;
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  ~Code() { pcre2_code_free(code); }
};

Result<Pattern> Pattern::Compile(std::string_view regex, const std::string& where) {
  TALLY_ASSIGN_OR_RETURN(const std::string text, TranslatePattern(regex, where));
  auto code = std::make_shared<Code>();
  int error = 0;
  PCRE2_SIZE at = 0;
  // MULTILINE: in Ruby's syntax ^ and $ always stand at lines.
  code->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                             PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &at, nullptr);
  if (code->code == nullptr) {
    PCRE2_UCHAR message[256];
    pcre2_get_error_message(error, message, sizeof(message));
    return BadInput(where + ": bad regular expression (" + reinterpret_cast<const char*>(message) + "): " + std::string(regex));
  }
  // Where the system forbids executable memory the interpreter does the same work, slower.
  code->jit = pcre2_jit_compile(code->code, PCRE2_JIT_COMPLETE) == 0;
  Pattern pattern;
  pattern.code_ = std::move(code);
  pattern.source_ = std::string(regex);
  return pattern;
}

struct Matcher::Impl {
  pcre2_match_data* data = nullptr;
  pcre2_match_context* context = nullptr;
  pcre2_jit_stack* stack = nullptr;
  size_t stack_bytes = 0;
};

Matcher::Matcher() : impl_(std::make_unique<Impl>()) {
  impl_->data = pcre2_match_data_create(1, nullptr);
  impl_->context = pcre2_match_context_create(nullptr);
  if (impl_->context != nullptr) pcre2_set_match_limit(impl_->context, kMatchLimit);
}

Matcher::~Matcher() {
  pcre2_match_data_free(impl_->data);
  pcre2_match_context_free(impl_->context);
  pcre2_jit_stack_free(impl_->stack);
}

Result<Matcher::Match> Matcher::Find(const Pattern& pattern, std::string_view text, size_t from) {
  if (impl_->data == nullptr || impl_->context == nullptr) return BadInput("not enough memory for a regular expression");
  if (from > text.size()) return Match{};
  const Pattern::Code& code = *pattern.code();
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data() == nullptr ? "" : text.data());
  const auto run = [&] {
    return code.jit ? pcre2_jit_match(code.code, subject, text.size(), from, PCRE2_NO_UTF_CHECK, impl_->data, impl_->context)
                    : pcre2_match(code.code, subject, text.size(), from, PCRE2_NO_UTF_CHECK, impl_->data, impl_->context);
  };
  int rc = run();
  if (const size_t bytes = JitStackBytes(text.size()); rc == PCRE2_ERROR_JIT_STACKLIMIT && impl_->stack_bytes < bytes) {
    pcre2_jit_stack_free(impl_->stack);
    impl_->stack = pcre2_jit_stack_create(32 << 10, bytes, nullptr);
    impl_->stack_bytes = impl_->stack == nullptr ? 0 : bytes;
    pcre2_jit_stack_assign(impl_->context, nullptr, impl_->stack);
    rc = run();
  }
  if (rc == PCRE2_ERROR_NOMATCH) return Match{};
  if (rc < 0) {
    PCRE2_UCHAR message[256];
    pcre2_get_error_message(rc, message, sizeof(message));
    return BadInput("regular expression too costly for this text (" + std::string(reinterpret_cast<const char*>(message)) +
                    "): " + pattern.source());
  }
  const PCRE2_SIZE* span = pcre2_get_ovector_pointer(impl_->data);
  return Match{true, span[0], span[1]};
}

}  // namespace tally
