// SPDX-License-Identifier: Apache-2.0
#include "engine/grammar/gbnf.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/grammar/code_points.h"

namespace tally {
namespace {

constexpr size_t kMostGbnfBytes = size_t{1} << 20;
constexpr int kMostGbnfDepth = 100;
constexpr uint32_t kMostGbnfCount = 1'000'000;

class GbnfParser {
 public:
  GbnfParser(Expressions& e, std::u32string text) : e_(e), text_(std::move(text)) {}

  Result<Expr> Parse() {
    Space(/*newlines=*/true);
    while (at_ < text_.size()) TALLY_RETURN_IF_ERROR(Definition());
    for (const auto& [name, rule] : rules_) {
      if (!rule.defined) return BadInput("line " + std::to_string(rule.line) + ": there is no rule " + name);
    }
    const auto root = rules_.find("root");
    if (root == rules_.end()) return BadInput("there is no rule root");
    return root->second.expr;
  }

 private:
  struct Rule {
    Expr expr = Expressions::kNone;
    bool defined = false;
    int line = 0;  // where it is first named
  };

  Status Error(const std::string& what) { return BadInput("line " + std::to_string(Line()) + ": " + what); }
  int Line() {
    for (; counted_ < std::min(at_, text_.size()); ++counted_) line_ += text_[counted_] == U'\n' ? 1 : 0;
    return line_;
  }
  char32_t Peek() const { return at_ < text_.size() ? text_[at_] : U'\0'; }
  bool Take(std::u32string_view expected) {
    if (std::u32string_view(text_).substr(at_, expected.size()) != expected) return false;
    at_ += expected.size();
    return true;
  }
  void Space(bool newlines) {
    while (at_ < text_.size()) {
      const char32_t c = text_[at_];
      if (c == U'#') {
        while (at_ < text_.size() && text_[at_] != U'\n' && text_[at_] != U'\r') ++at_;
      } else if (c == U' ' || c == U'\t' || (newlines && (c == U'\n' || c == U'\r'))) {
        ++at_;
      } else {
        return;
      }
    }
  }

  static bool IsWord(char32_t c) {
    return (c >= U'a' && c <= U'z') || (c >= U'A' && c <= U'Z') || (c >= U'0' && c <= U'9') || c == U'-' || c == U'_';
  }
  std::string Word() {
    std::string word;
    while (at_ < text_.size() && IsWord(text_[at_])) word += static_cast<char>(text_[at_++]);
    return word;
  }
  Rule& Named(const std::string& name) {
    const auto [place, is_new] = rules_.try_emplace(name);
    if (is_new) {
      place->second.expr = e_.NewRule(name);
      place->second.line = Line();
    }
    return place->second;
  }

  Status Definition() {
    const std::string name = Word();
    if (name.empty()) return Error("a rule's name is expected");
    Space(/*newlines=*/false);
    if (!Take(U"::=")) return Error("::= is expected after " + name);
    if (Named(name).defined) return Error("rule " + name + " is defined twice");
    Space(/*newlines=*/true);
    TALLY_ASSIGN_OR_RETURN(const Expr body, Alternatives(0));
    Rule& rule = Named(name);
    e_.Define(rule.expr, body);
    rule.defined = true;
    if (at_ < text_.size() && Peek() != U'\n' && Peek() != U'\r') return Error("what follows is no part of a rule");
    Space(/*newlines=*/true);
    return {};
  }

  // Within a group rules go on over ends of lines, and at the top after `|`.
  Result<Expr> Alternatives(int depth) {
    if (depth > kMostGbnfDepth) return Error("groups nested deeper than " + std::to_string(kMostGbnfDepth));
    std::vector<Expr> all;
    for (;;) {
      TALLY_ASSIGN_OR_RETURN(const Expr sequence, Sequence(depth));
      all.push_back(sequence);
      Space(depth > 0);
      if (!Take(U"|")) break;
      Space(/*newlines=*/true);
    }
    return e_.Or(all);
  }

  Result<Expr> Sequence(int depth) {
    std::vector<Expr> parts;
    for (;;) {
      Space(depth > 0);
      const char32_t c = Peek();
      Expr part = Expressions::kNone;
      if (c == U'"') {
        TALLY_ASSIGN_OR_RETURN(part, Quoted());
      } else if (c == U'[') {
        TALLY_ASSIGN_OR_RETURN(part, Class());
      } else if (c == U'(') {
        ++at_;
        TALLY_ASSIGN_OR_RETURN(part, Alternatives(depth + 1));
        if (!Take(U")")) return Error("a ( without its )");
      } else if (c == U'.') {
        ++at_;
        part = Utf8Of(e_, CodePoints::All());
      } else if (c == U'<' || c == U'!') {
        return Error("tokens by their ids or names are not supported");
      } else if (IsWord(c)) {
        part = Named(Word()).expr;
      } else {
        break;
      }
      TALLY_ASSIGN_OR_RETURN(part, Counted(part));
      parts.push_back(part);
    }
    Expr all = Expressions::kEmpty;
    for (size_t i = parts.size(); i-- > 0;) all = e_.Concat(parts[i], all);
    return all;
  }

  Result<Expr> Counted(Expr part) {
    for (;;) {
      if (Take(U"*")) {
        part = e_.Star(part);
      } else if (Take(U"+")) {
        part = e_.Repeat(part, 1, Expressions::kUnbounded);
      } else if (Take(U"?")) {
        part = e_.Optional(part);
      } else if (Take(U"{")) {
        uint32_t min = 0, max = Expressions::kUnbounded;
        Space(/*newlines=*/false);
        TALLY_ASSIGN_OR_RETURN(min, Number());
        max = min;
        Space(/*newlines=*/false);
        if (Take(U",")) {
          max = Expressions::kUnbounded;
          Space(/*newlines=*/false);
          if (Peek() != U'}') {
            TALLY_ASSIGN_OR_RETURN(max, Number());
          }
        }
        Space(/*newlines=*/false);
        if (!Take(U"}")) return Error("a count without }");
        if (min > max) return Error("a count whose bounds are in the wrong order");
        part = e_.Repeat(part, min, max);
      } else {
        return part;
      }
    }
  }

  Result<uint32_t> Number() {
    uint32_t n = 0;
    const size_t begin = at_;
    for (; Peek() >= U'0' && Peek() <= U'9'; ++at_) {
      n = n * 10 + static_cast<uint32_t>(Peek() - U'0');
      if (n > kMostGbnfCount) return Error("a count above " + std::to_string(kMostGbnfCount));
    }
    if (at_ == begin) return Error("no number in a count");
    return n;
  }

  // One character of a literal or a class.
  Result<uint32_t> Character() {
    if (at_ == text_.size() || Peek() == U'\n') return Error("a literal or a class does not end on its line");
    const char32_t c = text_[at_++];
    if (c != U'\\') return static_cast<uint32_t>(c);
    const char32_t escape = Peek();
    ++at_;
    switch (escape) {
      case U'n': return uint32_t{'\n'};
      case U'r': return uint32_t{'\r'};
      case U't': return uint32_t{'\t'};
      case U'x': return Hex(2);
      case U'u': return Hex(4);
      case U'U': return Hex(8);
      case U'"':
      case U'\\':
      case U'[':
      case U']':
      case U'-':
      case U'^': return static_cast<uint32_t>(escape);
      default: break;
    }
    return Error("an escape that is not known");
  }

  Result<uint32_t> Hex(int digits) {
    uint64_t value = 0;
    for (int i = 0; i < digits; ++i, ++at_) {
      const char32_t c = Peek();
      if (c >= U'0' && c <= U'9') {
        value = value * 16 + (c - U'0');
      } else if ((c >= U'a' && c <= U'f') || (c >= U'A' && c <= U'F')) {
        value = value * 16 + ((c | 0x20) - U'a' + 10);
      } else {
        return Error("an escape that lacks hexadecimal digits");
      }
    }
    if (value > 0x10ffff || (value >= 0xd800 && value <= 0xdfff)) return Error("an escape that is no character");
    return static_cast<uint32_t>(value);
  }

  Result<Expr> Quoted() {
    ++at_;
    std::vector<Expr> parts;
    while (!Take(U"\"")) {
      TALLY_ASSIGN_OR_RETURN(const uint32_t c, Character());
      parts.push_back(Utf8Of(e_, CodePoints::Of(c, c)));
    }
    Expr all = Expressions::kEmpty;
    for (size_t i = parts.size(); i-- > 0;) all = e_.Concat(parts[i], all);
    return all;
  }

  Result<Expr> Class() {
    ++at_;
    const bool complement = Take(U"^");
    CodePoints set;
    while (!Take(U"]")) {
      TALLY_ASSIGN_OR_RETURN(const uint32_t first, Character());
      uint32_t last = first;
      if (Peek() == U'-' && at_ + 1 < text_.size() && text_[at_ + 1] != U']') {
        ++at_;
        TALLY_ASSIGN_OR_RETURN(last, Character());
        if (first > last) return Error("a range in the wrong order");
      }
      set.Add(first, last);
    }
    return Utf8Of(e_, complement ? set.Complement() : set);
  }

  Expressions& e_;
  const std::u32string text_;
  size_t at_ = 0, counted_ = 0;  // line_ is that of the character at counted_
  int line_ = 1;
  std::map<std::string, Rule> rules_;
};

}  // namespace

Result<Expr> ParseGbnf(Expressions& e, std::string_view text) {
  if (text.size() > kMostGbnfBytes) return BadInput("a grammar of more than 1 MiB is not supported");
  TALLY_ASSIGN_OR_RETURN(std::u32string decoded, DecodeUtf8(text));
  return GbnfParser(e, std::move(decoded)).Parse();
}

}  // namespace tally
