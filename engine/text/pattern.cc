// SPDX-License-Identifier: Apache-2.0
#include "engine/text/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <charconv>
#include <vector>

namespace tally {
namespace {

constexpr size_t kMaxPatternBytes = 8192;
// Budget unit: one byte read by a short expression. The costs of a callout and of a byte grow with the expression, since each
// item may be tried at each place and a long class is searched for each character.
constexpr uint64_t kFreeBudget = uint64_t{1} << 26, kBudgetPerByte = 1024;
constexpr size_t kCalloutCost = 8, kPatternBytesPerCalloutCost = 8, kPatternBytesPerByteCost = 512;
// Bytes of memory for one search. A repeated group keeps a record of each repetition.
constexpr size_t kFreeMemory = size_t{1} << 20, kMemoryPerByte = 128, kMaxMemory = size_t{1} << 29;

// The grammar of one token of the supported dialect: an opening parenthesis, a mark (| ^ $), or an atom or closing parenthesis
// with its quantifier. Everything else is refused.
constexpr std::string_view kToken = R"(
  (?(DEFINE) (?<escape> \\ (?: [rntf] | x\{[0-9a-fA-F]+\} | u[0-9a-fA-F]{4} | [^0-9a-zA-Z] ))
             (?<set>    \\ (?: [sSwdD] | [pP]\{\^?[0-9A-Za-z_&]+\} ))
             (?<single> (?&escape) | [^][\\&-] | & (?!&) )
             (?<member> (?&set) | (?&single) (?: - (?&single) )? )
             (?<plain>  \[ (?!:) \^? -? (?&member)++ -? \] )
             (?<inner>  \[ (?!:) \^? -? (?: (?&member) | (?&plain) )++ (?: && (?: (?&member) | (?&plain) )++ )* -? \] )
             (?<class>  \[ (?!:) \^? -? (?: (?&member) | (?&inner) )++ (?: && (?: (?&member) | (?&inner) )++ )* -? \] ))
    \( (?: \? (?: i?: | [=!] ) | (?![?*]) )
  | [|^$] | \\b
  | (?: \) | (?&class) | (?&set) | \\W | (?&escape) | [^[\\()|^$?*+{] )
    ((?: [?*+] [?+]? | \{ [0-9]{1,3} (?: , [0-9]{0,3} )? \} )?) (?! [?*+{] ))";
constexpr uint32_t kQuantifierGroup = 8;  // the named groups come before it

// Members of classes. PCRE2's \s has U+180E besides, which is not White_Space. PCRE2's \w has numbers other than Nd besides.
constexpr std::string_view kSpaces = R"(\t-\r \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kWord = R"(\p{L}\p{M}\p{Nd}\p{Pc})";
// \p{Han} is the set of characters of that script. From 10.40 on PCRE2 adds characters that the script shares, but for \p{sc:Han}.
constexpr std::string_view kScript = PCRE2_MAJOR > 10 || PCRE2_MINOR >= 40 ? "sc:" : "";
constexpr std::string_view kCallout = "(?C)";

template <class T>
using Owned = std::unique_ptr<T, void (*)(T*)>;

PCRE2_SPTR Units(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.empty() ? "" : text.data()); }

Owned<pcre2_code> CompileText(std::string_view text, uint32_t options, int* error) {
  PCRE2_SIZE at = 0;
  return {pcre2_compile(Units(text), text.size(), options, error, &at, nullptr), pcre2_code_free};
}

std::string ErrorText(int code) {
  PCRE2_UCHAR message[256];
  pcre2_get_error_message(code, message, sizeof(message));
  return reinterpret_cast<const char*>(message);
}

// Appends an atom, in which escapes that PCRE2 reads differently are rewritten.
void AppendAtom(std::string_view atom, std::string* out) {
  const bool in_class = atom[0] == '[';
  for (size_t i = 0; i < atom.size(); ++i) {
    if (atom[i] != '\\') {
      *out += atom[i];
      continue;
    }
    const char e = atom[++i];
    if (e == 'S' && in_class) {
      *out += R"(\P{White_Space})";
    } else if (e == 'b') {
      const std::string word = "[" + std::string(kWord) + "]";
      *out += "(?:(?<=" + word + ")(?!" + word + ")|(?<!" + word + ")(?=" + word + "))";
    } else if (e == 's' || e == 'S' || e == 'w' || e == 'W') {
      const std::string members(e == 's' || e == 'S' ? kSpaces : kWord);
      *out += in_class ? members : (e == 's' || e == 'w' ? "[" : "[^") + members + "]";
    } else if (e == 'u') {
      *out += "\\x{" + std::string(atom.substr(i + 1, 4)) + "}";
      i += 4;
    } else {
      *out += {'\\', e};
      if (e != 'p' && e != 'P') continue;
      const size_t name = atom[i + 2] == '^' ? i + 3 : i + 2, size = atom.find('}', name) - name;
      const bool category = size <= 2 && std::string_view("CLMNPSZ").find(atom[name]) != std::string_view::npos;
      *out += atom.substr(i + 1, name - i - 1);
      if (!category) *out += kScript;
      i = name - 1;
    }
  }
}

// A class: characters, ranges and sets, and what stands for it in PCRE2, which has neither classes in classes nor "&&".
struct ClassParts {
  std::string members;  // without the classes in it; empty where `text` cannot be a plain class
  bool negated = false;
  std::string text;  // matches one character of the class
};

// The length of the escape at `at`.
size_t EscapeBytes(std::string_view text, size_t at) {
  const char e = text[at + 1];
  if (e == 'p' || e == 'P' || e == 'x') return text.find('}', at) + 1 - at;
  return e == 'u' ? 6 : 2;
}

// Reads the class that begins at *at, which the grammar has accepted: at most three deep. *at moves behind it. Groups here match one
// character in one way, so that nothing is tried again inside them.
ClassParts ReadClass(std::string_view text, size_t* at) {
  ClassParts whole;
  struct Operand {
    std::string members;
    std::vector<std::string> classes;
  };
  std::vector<Operand> operands(1);
  size_t& i = *at;
  whole.negated = text[++i] == '^';
  if (whole.negated) ++i;
  const size_t first = i;
  while (text[i] != ']') {
    Operand& operand = operands.back();
    if (text[i] == '[') {
      ClassParts inner = ReadClass(text, at);
      if (!inner.members.empty() && !inner.negated) {
        operand.members += inner.members;
      } else {
        operand.classes.push_back(std::move(inner.text));
      }
    } else if (text[i] == '\\') {
      const size_t bytes = EscapeBytes(text, i);
      operand.members += text.substr(i, bytes);
      i += bytes;
    } else if (text.substr(i).starts_with("&&")) {
      operands.emplace_back();
      i += 2;
    } else {
      if (text[i] == '-' && (i == first || text[i + 1] == ']')) operand.members += '\\';
      operand.members += text[i++];
    }
  }
  ++i;
  const auto plain = [](const std::string& members, bool negated) {
    std::string out;
    AppendAtom((negated ? "[^" : "[") + members + "]", &out);
    return out;
  };
  if (operands.size() == 1 && operands[0].classes.empty()) {
    whole.members = std::move(operands[0].members);
    whole.text = plain(whole.members, whole.negated);
    return whole;
  }
  std::string all;
  for (const Operand& operand : operands) {
    std::string any = operand.members.empty() ? "" : plain(operand.members, false);
    for (const std::string& each : operand.classes) any += (any.empty() ? "" : "|") + each;
    all += &operand == &operands.back() ? "(?>" + any + ")" : "(?=" + any + ")";
  }
  whole.text = whole.negated ? "(?:(?!" + all + ")\\p{Any})" : "(?:" + all + ")";
  return whole;
}

// The expression as passed to PCRE2. Callouts stand at its beginning, follow each quantifier and group, and precede an
// alternative after an unbounded quantifier. Every backtrack therefore passes one, and the distance between two bounds the bytes
// read.
struct Translation {
  std::string text = "(*LF)(?C)";  // LF: only a line feed ends a line, however PCRE2 was built
  uint32_t least = 0;              // the largest n of {n,m}
};

Result<Translation> Translate(std::string_view regex, const std::string& where) {
  Translation translation;
  std::string& out = translation.text;
  if (regex == R"(\s+$)") {
    // Matches only from the start of a run of spaces; trying every position takes quadratic time if text follows the run.
    const std::string spaces = "[" + std::string(kSpaces) + "]";
    out += "(?:\\G|(?<!" + spaces + "))" + spaces + "+(?C)$";
    return translation;
  }
  struct Group {
    bool caseless = false, lookahead = false;
    bool unbounded = false;  // it has had a quantifier without a bound
  };
  std::vector<Group> groups(1);
  int error = 0;
  const Owned<pcre2_code> grammar = CompileText(kToken, PCRE2_EXTENDED | PCRE2_ANCHORED, &error);
  const Owned<pcre2_match_data> data(pcre2_match_data_create(kQuantifierGroup + 1, nullptr), pcre2_match_data_free);
  if (grammar == nullptr || data == nullptr) return NoRoom(where + ": not enough memory for a regular expression");
  const PCRE2_SIZE* span = pcre2_get_ovector_pointer(data.get());
  for (size_t at = 0; at < regex.size(); at = span[1]) {
    const int rc = pcre2_match(grammar.get(), Units(regex), regex.size(), at, 0, data.get(), nullptr);
    const std::string_view token = regex.substr(at, rc < 0 ? 0 : span[1] - at);
    const bool opens = token.starts_with('('), closes = token.starts_with(')');
    const std::string_view atom = rc <= int{kQuantifierGroup} ? token : token.substr(0, span[2 * kQuantifierGroup] - at);
    const std::string_view quantifier = token.substr(atom.size());
    const bool property = token.find("\\p") != token.npos || token.find("\\P") != token.npos;
    // PCRE2 10.42, PCRE2 10.46 and Oniguruma disagree about \p{Lu} where case is ignored.
    if (rc < 0 || (closes && groups.size() == 1) || (closes && groups.back().lookahead && !quantifier.empty()) ||
        (property && groups.back().caseless)) {
      return BadInput(where + ": regular expression with '" + std::string(regex.substr(at, 12)) + "' at byte " +
                      std::to_string(at) + " is not supported: " + std::string(regex));
    }
    if (opens) groups.push_back({groups.back().caseless || token == "(?i:", token == "(?=" || token == "(?!", false});
    const bool unbounded = (closes && groups.back().unbounded) || quantifier.find_first_of("*+,") != quantifier.npos;
    if (closes) groups.pop_back();
    groups.back().unbounded |= unbounded;
    if (size_t begin = 0; atom[0] == '[') {
      out += ReadClass(atom, &begin).text;
    } else {
      AppendAtom(atom, &out);
    }
    out += quantifier;
    if (closes || !quantifier.empty() || (token == "|" && groups.back().unbounded)) out += kCallout;
    if (!quantifier.starts_with('{')) continue;
    uint32_t least = 0;
    std::from_chars(quantifier.data() + 1, quantifier.data() + quantifier.size(), least);
    translation.least = std::max(translation.least, least);
  }
  return translation;
}

}  // namespace

struct Pattern::Code {
  Owned<pcre2_code> code{nullptr, pcre2_code_free};
  bool jit = false;
  uint64_t callout_cost = 0, byte_cost = 0;
};

Result<Pattern> Pattern::Compile(std::string_view regex, const std::string& where) {
  if (regex.size() > kMaxPatternBytes) {
    return BadInput(where + ": regular expression of " + std::to_string(regex.size()) + " bytes, at most " +
                    std::to_string(kMaxPatternBytes) + " expected");
  }
  TALLY_ASSIGN_OR_RETURN(const Translation translation, Translate(regex, where));
  auto code = std::make_shared<Code>();
  int error = 0;
  // MULTILINE: ^ and $ of the Ruby syntax stand at lines.
  code->code = CompileText(translation.text, PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NO_AUTO_CAPTURE, &error);
  if (code->code == nullptr) {
    return BadInput(where + ": bad regular expression (" + ErrorText(error) + "): " + std::string(regex));
  }
  // If the system forbids executable memory, PCRE2 interprets the expression, with the same matches.
  code->jit = pcre2_jit_compile(code->code.get(), PCRE2_JIT_COMPLETE) == 0;
  code->callout_cost = kCalloutCost + regex.size() / kPatternBytesPerCalloutCost + translation.least;
  code->byte_cost = 1 + regex.size() / kPatternBytesPerByteCost;
  Pattern pattern;
  pattern.code_ = std::move(code);
  pattern.source_ = std::string(regex);
  return pattern;
}

struct Matcher::Impl {
  Owned<pcre2_match_data> data{pcre2_match_data_create(1, nullptr), pcre2_match_data_free};
  Owned<pcre2_match_context> context{pcre2_match_context_create(nullptr), pcre2_match_context_free};
  Owned<pcre2_jit_stack> stack{nullptr, pcre2_jit_stack_free};  // if PCRE2's own 32 KiB were too small
  size_t memory = 0;
  uint64_t budget = 0, callout_cost = 0, byte_cost = 0;  // the costs are those of the expression
  PCRE2_SIZE place = 0;                                  // of the last callout

  static int AtCallout(pcre2_callout_block* block, void* self) {
    auto& impl = *static_cast<Impl*>(self);
    const PCRE2_SIZE place = block->current_position;
    const uint64_t cost = impl.callout_cost + impl.byte_cost * (std::max(place, impl.place) - std::min(place, impl.place));
    impl.place = place;
    if (cost > impl.budget) return PCRE2_ERROR_MATCHLIMIT;
    impl.budget -= cost;
    return 0;
  }
};

Matcher::Matcher(size_t text_bytes) : impl_(std::make_unique<Impl>()) {
  impl_->memory = std::min(kFreeMemory + kMemoryPerByte * text_bytes, kMaxMemory);
  impl_->budget = kFreeBudget + kBudgetPerByte * text_bytes;
  if (impl_->context == nullptr) return;
  pcre2_set_callout(impl_->context.get(), Impl::AtCallout, impl_.get());
  pcre2_set_heap_limit(impl_->context.get(), static_cast<uint32_t>(impl_->memory >> 9));  // KiB; twice what JIT needs
}

Matcher::~Matcher() = default;

Result<Matcher::Match> Matcher::Find(const Pattern& pattern, std::string_view text, size_t from) {
  Impl& impl = *impl_;
  const Pattern::Code& code = *pattern.code();
  if (impl.data == nullptr || impl.context == nullptr) return NoRoom("not enough memory for a regular expression");
  impl.callout_cost = code.callout_cost;
  impl.byte_cost = code.byte_cost;
  const auto run = [&] {
    impl.place = from;
    pcre2_set_match_limit(impl.context.get(), static_cast<uint32_t>(std::min<uint64_t>(impl.budget, UINT32_MAX)));
    return (code.jit ? pcre2_jit_match : pcre2_match)(code.code.get(), Units(text), text.size(), from, PCRE2_NO_UTF_CHECK,
                                                      impl.data.get(), impl.context.get());
  };
  int rc = run();
  if (rc == PCRE2_ERROR_JIT_STACKLIMIT && impl.stack == nullptr) {
    impl.stack.reset(pcre2_jit_stack_create(size_t{32} << 10, impl.memory, nullptr));
    pcre2_jit_stack_assign(impl.context.get(), nullptr, impl.stack.get());
    rc = run();
  }
  if (rc == PCRE2_ERROR_NOMATCH) return Match{};
  if (rc < 0) return BadInput("regular expression too costly for this text (" + ErrorText(rc) + "): " + pattern.source());
  const PCRE2_SIZE* span = pcre2_get_ovector_pointer(impl.data.get());
  return Match{true, span[0], span[1]};
}

}  // namespace tally
