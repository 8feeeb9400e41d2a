#include "engine/text/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <vector>

namespace tally {
namespace {

// White_Space as members of a class. (PCRE2's own \s has U+180E besides; its \p{White_Space} is slower.)
constexpr std::string_view kSpaces = R"(\t-\r \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
// Oniguruma's \w: letters, marks, decimal digits, connectors.
constexpr std::string_view kWord = R"(\p{L}\p{M}\p{Nd}\p{Pc})";

// A search that sees no more of the text ahead than kVisible bytes, and takes no more than kTurns of PCRE2's own steps at one place,
// is counted as nothing; what wants more is metered item by item and paid for, out of kFree steps and kStepsPerByte for each byte
// of the text. An expression that takes long where it finds nothing would otherwise take the square of the text's length, or worse.
constexpr size_t kVisible = 128;
constexpr uint32_t kTurns = 256;
constexpr uint64_t kFree = uint64_t{1} << 26, kStepsPerByte = 256;
// Of an expression that is known to be linear: what 100 MB in one match need.
constexpr uint32_t kMatchLimit = 100'000'000;
// Both bound what one step may cost. PCRE2 has no word for reading back, so what is behind a place is seen for nothing.
constexpr size_t kMaxPatternBytes = 8192, kPatternBytesPerStep = 256;
constexpr uint32_t kMaxLookbehind = 64;  // characters
constexpr uint32_t kMaxHeapKib = 1 << 20;
// The stack of an expression that remembers every step (repeated groups), where PCRE2's own 32 KiB do not do.
size_t JitStackBytes(size_t text_bytes) { return std::min<size_t>((1 << 20) + 64 * text_bytes, 1 << 29); }

constexpr std::string_view kSpacesAtEnd = R"(\s+$)";

using Compiled = std::unique_ptr<pcre2_code, void (*)(pcre2_code*)>;
Compiled CompileProperty(const std::string& property) {
  int error = 0;
  PCRE2_SIZE at = 0;
  return {
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(property.data()), property.size(), PCRE2_UTF | PCRE2_UCP, &error, &at, nullptr),
      pcre2_code_free};
}

// {Name} of \p{Name} as Oniguruma has it. Of a script it means the characters of that script and no others; PCRE2 adds, from
// 10.40 on, those that the script shares, unless it is told not to.
std::string Property(std::string_view name) {
  const std::string_view bare = name.starts_with('^') ? name.substr(1) : name;
  const std::string script = (bare.size() == name.size() ? "{sc:" : "{^sc:") + std::string(bare) + "}";
  return CompileProperty("\\p" + script) == nullptr ? "{" + std::string(name) + "}" : script;
}

// Whether the property tells a letter's cases apart, as \p{Lu} and \p{Uppercase} do: where case is ignored PCRE2 10.42 and 10.46
// read some of them differently, and Oniguruma in a class all of them. Two letters are asked; what tells apart only the cases of
// others (Soft_Dotted) is not found.
bool TellsCase(const std::string& name) {
  const Compiled code = CompileProperty("\\p" + name);
  if (code == nullptr) return false;  // the whole expression's compilation says why
  const std::unique_ptr<pcre2_match_data, void (*)(pcre2_match_data*)> data(pcre2_match_data_create(1, nullptr),
                                                                            pcre2_match_data_free);
  const auto has = [&](std::string_view letter) {
    return pcre2_match(code.get(), reinterpret_cast<PCRE2_SPTR>(letter.data()), letter.size(), 0, 0, data.get(), nullptr) >= 0;
  };
  return has("a") != has("A") || has("\xC7\x85") != has("\xC7\x86");  // U+01C5 is a title's, U+01C6 its small letter
}

// The quantifier at the start of `text`: {n}, {n,}, {n,m}, {,n}. Its length, 0 where there is none; its n, if it fits PCRE2.
struct Quantifier {
  size_t length = 0;
  uint32_t least = 0;
  bool no_least = false, exact = false;
};
Quantifier ReadQuantifier(std::string_view text) {
  const auto digits = [&](size_t at) { return std::min(text.find_first_not_of("0123456789", at), text.size()); };
  const size_t first = digits(1);
  const bool comma = first < text.size() && text[first] == ',';
  const size_t last = comma ? digits(first + 1) : first;
  if (last >= text.size() || text[last] != '}' || last == 1 || (comma && last == 2)) return {};
  uint32_t least = 0;
  std::from_chars(text.data() + 1, text.data() + first, least);
  return {last + 1, least, first == 1, !comma};
}

Status Unsupported(const std::string& where, std::string_view what, std::string_view regex) {
  return BadInput(where + ": regular expression with " + std::string(what) + " is not supported: " + std::string(regex));
}

Status TooCostly(int rc, const Pattern& pattern) {
  PCRE2_UCHAR message[256];
  pcre2_get_error_message(rc, message, sizeof(message));
  return BadInput("regular expression too costly for this text (" + std::string(reinterpret_cast<const char*>(message)) +
                  "): " + pattern.source());
}

// What `(?` may go on with, flags aside: groups that PCRE2 and Oniguruma read alike. (Comments end at different places.)
bool IsGroup(std::string_view rest) {
  if (rest.empty()) return true;  // PCRE2 says what is missing
  if (std::string_view(":=!>'").find(rest[0]) != std::string_view::npos) return true;
  return rest[0] == '<' && rest.substr(1, 1) != "*";
}

// An open group of an expression: whether case is ignored where it is read now, and how many (?i) stand in it.
struct Group {
  bool caseless = false;
  size_t isolated = 0;
};

// What PCRE2 is given for `regex`, and the most times that an item of it must be repeated.
struct Translation {
  std::string text;
  uint32_t least = 0;
};

Result<Translation> Translate(std::string_view regex, const std::string& where) {
  if (regex.size() > kMaxPatternBytes) {
    return BadInput(where + ": regular expression of " + std::to_string(regex.size()) + " bytes, at most " +
                    std::to_string(kMaxPatternBytes) + " expected");
  }
  const std::string spaces = "[" + std::string(kSpaces) + "]";
  // Tried at every place of a run of spaces that something follows, this one is quadratic; a match can only
  // begin where the run or the search does.
  if (regex == kSpacesAtEnd) return Translation{"(?:\\G|(?<!" + spaces + "))" + spaces + "+$", 0};

  Translation translation;
  std::string& out = translation.text;
  bool in_class = false;
  size_t class_begin = 0;
  std::vector<Group> groups(1);
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
                 (!in_class && std::string_view("AzZ").find(e) != std::string_view::npos)) {
        out += c;
        out += e;
        if ((e == 'p' || e == 'P' || e == 'x') && rest.substr(2, 1) == "{") {  // its braces are no quantifier
          const size_t close = rest.find('}');
          if (close == rest.npos) return Unsupported(where, "an open brace", regex);
          const std::string braces = e == 'x' ? std::string(rest.substr(2, close - 1)) : Property(rest.substr(3, close - 3));
          if (e != 'x' && groups.back().caseless && TellsCase(braces)) {
            return Unsupported(where, "\\p" + braces + ", which tells cases apart, under the flag i", regex);
          }
          out += braces;
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
    } else if (c == '{') {
      const Quantifier quantifier = ReadQuantifier(rest);
      translation.least = std::max(translation.least, quantifier.least);
      if (quantifier.exact && rest.substr(quantifier.length, 1) == "?") {
        return Unsupported(where, "{n}? (lazy in one dialect, optional in another)", regex);
      }
      if (quantifier.no_least) {  // read as text by PCRE2 up to 10.42
        out += "{0";
        continue;
      }
    } else if (rest.substr(0, 2) == "(*") {
      return Unsupported(where, "(*", regex);
    } else if (rest.substr(0, 2) == "(?") {
      const size_t flags = rest.find_first_not_of("-imsxaudlnywD", 2);
      if (flags != rest.npos && flags > 2 && (rest[flags] == ':' || rest[flags] == ')') && rest.substr(2, flags - 2) != "i") {
        return Unsupported(where, "the flags " + std::string(rest.substr(0, flags + 1)), regex);
      }
      if ((flags == rest.npos || flags == 2 || (rest[flags] != ':' && rest[flags] != ')')) && !IsGroup(rest.substr(2))) {
        return Unsupported(where, "a (? that is no group, lookaround or flag i", regex);
      }
      // Oniguruma makes a group of all that follows an isolated option in its group, PCRE2 does not: a(?i)b|c is a(?i:b|c).
      if (rest.substr(0, 4) == "(?i)") {
        groups.back().caseless = true;
        ++groups.back().isolated;
        out += "(?i:";
        i += 3;
        continue;
      }
    }
    if (c == '(') {
      groups.push_back({groups.back().caseless || rest.substr(0, 4) == "(?i:", 0});
    } else if (c == ')') {
      // PCRE2 would take it for the end of a group that was added here.
      if (groups.size() == 1) return BadInput(where + ": bad regular expression (unmatched ')'): " + std::string(regex));
      out.append(groups.back().isolated, ')');
      groups.pop_back();
    }
    // A text's part may end after a line feed, where ^ is false without a word about what may follow; \z says it.
    if (c == '^') {
      out += R"((?:\A|^(?!\z)))";
      continue;
    }
    out += c;
  }
  out.append(groups[0].isolated, ')');
  return translation;
}

}  // namespace

Result<std::string> TranslatePattern(std::string_view regex, const std::string& where) {
  TALLY_ASSIGN_OR_RETURN(Translation translation, Translate(regex, where));
  return std::move(translation.text);
}

struct Pattern::Code {
  pcre2_code* code = nullptr;
  pcre2_code* here = nullptr;   // the same for one place only, and metered
  uint64_t item = 1, byte = 1;  // steps that an item of it costs, and a byte of text
  bool jit = false;
  bool linear = false;
  Code() = default;
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  ~Code() {
    pcre2_code_free(code);
    pcre2_code_free(here);
  }
};

Result<Pattern> Pattern::Compile(std::string_view regex, const std::string& where) {
  TALLY_ASSIGN_OR_RETURN(const Translation translation, Translate(regex, where));
  const std::string& text = translation.text;
  auto code = std::make_shared<Code>();
  int error = 0;
  PCRE2_SIZE at = 0;
  // MULTILINE: in Ruby's syntax ^ and $ always stand at lines, whose end is a line feed, however PCRE2 was built. ALT_CIRCUMFLEX: see
  // the translation of ^.
  const std::unique_ptr<pcre2_compile_context, void (*)(pcre2_compile_context*)> context(pcre2_compile_context_create(nullptr),
                                                                                         pcre2_compile_context_free);
  if (context == nullptr) return BadInput(where + ": not enough memory for a regular expression");
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  const auto compile = [&](uint32_t more) {
    return pcre2_compile(
        reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
        PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_ALT_CIRCUMFLEX | PCRE2_NEVER_BACKSLASH_C | PCRE2_NO_AUTO_CAPTURE | more,
        &error, &at, context.get());
  };
  code->code = compile(0);
  code->linear = regex == kSpacesAtEnd;
  if (code->code != nullptr && !code->linear) code->here = compile(PCRE2_ANCHORED | PCRE2_AUTO_CALLOUT);
  if (code->code == nullptr || (code->here == nullptr && !code->linear)) {
    PCRE2_UCHAR message[256];
    pcre2_get_error_message(error, message, sizeof(message));
    return BadInput(where + ": bad regular expression (" + reinterpret_cast<const char*>(message) + "): " + std::string(regex));
  }
  uint32_t behind = 0, groups = 0;
  pcre2_pattern_info(code->code, PCRE2_INFO_MAXLOOKBEHIND, &behind);
  pcre2_pattern_info(code->code, PCRE2_INFO_CAPTURECOUNT, &groups);
  if (behind > kMaxLookbehind) {
    return Unsupported(
        where, "a look behind of " + std::to_string(behind) + " characters, more than " + std::to_string(kMaxLookbehind) + ",",
        regex);
  }
  code->byte = 1 + regex.size() / kPatternBytesPerStep;  // a class is looked through member by member
  code->item = code->byte * (1 + translation.least) + groups;
  // Where the system forbids executable memory the interpreter does the same work, slower.
  const uint32_t modes = PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD;
  code->jit = pcre2_jit_compile(code->code, modes) == 0 && (code->here == nullptr || pcre2_jit_compile(code->here, modes) == 0);
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
  uint64_t left = kFree;        // steps
  uint64_t item = 1, byte = 1;  // Code's
  PCRE2_SIZE place = 0;         // of the last item

  bool Pay(uint64_t steps) {
    const bool enough = steps <= left;
    left = enough ? left - steps : 0;
    return enough;
  }
  // PCRE2 calls it before each item of a metered expression (PCRE2_AUTO_CALLOUT): between two calls it has read or given back what
  // lies between their places, or failed at an item that must be repeated, and copied the places of the groups. PCRE2's own match
  // limit counts such turns only, and there may be a long run of text between two of them.
  static int AtItem(pcre2_callout_block* block, void* self) {
    auto& impl = *static_cast<Impl*>(self);
    const PCRE2_SIZE place = block->current_position;
    const PCRE2_SIZE moved = place > impl.place ? place - impl.place : impl.place - place;
    impl.place = place;
    return impl.Pay(impl.item + impl.byte * moved) ? 0 : PCRE2_ERROR_CALLOUT;
  }

  // PCRE2's return code for text[0, end) from `at` on.
  int Run(const Pattern::Code& pattern, bool here, std::string_view text, size_t at, size_t end, uint32_t options) {
    const pcre2_code* const code = here ? pattern.here : pattern.code;
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data() == nullptr ? "" : text.data());
    const auto run = [&] {
      return pattern.jit ? pcre2_jit_match(code, subject, end, at, options, data, context)
                         : pcre2_match(code, subject, end, at, options, data, context);
    };
    const int rc = run();
    const size_t bytes = JitStackBytes(end - at);
    if (rc != PCRE2_ERROR_JIT_STACKLIMIT || stack_bytes >= bytes) return rc;
    pcre2_jit_stack_free(stack);
    stack = pcre2_jit_stack_create(32 << 10, bytes, nullptr);
    stack_bytes = stack == nullptr ? 0 : bytes;
    pcre2_jit_stack_assign(context, nullptr, stack);
    return run();
  }
};

Matcher::Matcher() : impl_(std::make_unique<Impl>()) {
  impl_->data = pcre2_match_data_create(1, nullptr);
  impl_->context = pcre2_match_context_create(nullptr);
  if (impl_->context == nullptr) return;
  pcre2_set_callout(impl_->context, Impl::AtItem, impl_.get());
  pcre2_set_heap_limit(impl_->context, kMaxHeapKib);
}

Matcher::~Matcher() {
  pcre2_match_data_free(impl_->data);
  pcre2_match_context_free(impl_->context);
  pcre2_jit_stack_free(impl_->stack);
}

void Matcher::Allow(size_t text_bytes) { impl_->left += kStepsPerByte * text_bytes; }

// The text is shown to PCRE2 as far as it wants to see it, which it says by a partial match, and more than a little of it, or
// more than a few turns, for one place at a time only: so what a search costs is known, and can be paid for.
Result<Matcher::Match> Matcher::Find(const Pattern& pattern, std::string_view text, size_t from) {
  if (impl_->data == nullptr || impl_->context == nullptr) return BadInput("not enough memory for a regular expression");
  if (from > text.size()) return Match{};
  const Pattern::Code& code = *pattern.code();
  impl_->item = code.item;
  impl_->byte = code.byte;
  const auto boundary = [&](size_t at) {  // of a character, at `at` or after it
    while (at < text.size() && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) ++at;
    return at;
  };
  size_t at = from, visible = kVisible, alone = from;  // places below `alone` are tried one by one
  const auto next = [&](size_t place) {
    at = place;
    visible = kVisible;
  };
  while (true) {
    const size_t end = code.linear || text.size() - at <= visible ? text.size() : boundary(at + visible);
    const bool last = end == text.size(), metered = at < alone;
    if (metered && !impl_->Pay(code.byte * (1 + end - at))) return TooCostly(PCRE2_ERROR_MATCHLIMIT, pattern);
    impl_->place = at;
    pcre2_set_match_limit(impl_->context, code.linear ? kMatchLimit : metered ? UINT32_MAX : kTurns);
    const int rc = impl_->Run(code, metered, text, at, end, PCRE2_NO_UTF_CHECK | (last ? 0 : PCRE2_PARTIAL_HARD));
    const PCRE2_SIZE* span = pcre2_get_ovector_pointer(impl_->data);
    if (rc >= 0) {
      if (last || span[0] < end) return Match{true, span[0], span[1]};
      next(end);  // an empty match where nothing more was to be seen
    } else if (rc == PCRE2_ERROR_NOMATCH) {
      if ((!metered && last) || at == text.size()) return Match{};
      next(metered ? boundary(at + 1) : end);
    } else if (rc == PCRE2_ERROR_PARTIAL && span[0] > at) {
      next(span[0]);
    } else if (rc == PCRE2_ERROR_PARTIAL) {
      visible *= 2;
      alone = std::max(alone, at + 1);
    } else if (rc == PCRE2_ERROR_MATCHLIMIT && !code.linear && !metered) {
      alone = std::max(end, at + 1);
    } else {
      return TooCostly(rc == PCRE2_ERROR_CALLOUT ? PCRE2_ERROR_MATCHLIMIT : rc, pattern);
    }
  }
}

}  // namespace tally
