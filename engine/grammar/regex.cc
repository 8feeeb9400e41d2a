// SPDX-License-Identifier: Apache-2.0
#include "engine/grammar/regex.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tally {
namespace {

constexpr int kMostGroupDepth = 100;
constexpr uint32_t kMostRegexCount = 1'000'000;
constexpr uint32_t kMostRepeatedAnchors = 16;  // repetitions that a count of a piece with ^, $ or lookahead names
constexpr int kMostExpanded = 2000;            // pieces with ^, $ or lookahead, each where it stands

struct Piece;
using Pieces = std::vector<Piece>;

struct Piece {
  enum Kind { kChars, kConcat, kOr, kRepeat, kBegin, kEnd, kAhead, kNotAhead } kind = kConcat;
  CodePoints chars = {};
  Pieces parts = {};  // of kConcat and kOr; one of the others
  uint32_t min = 0, max = 0;
};

bool HasAnchors(const Piece& piece) {
  switch (piece.kind) {
    case Piece::kChars: return false;
    case Piece::kBegin:
    case Piece::kEnd:
    case Piece::kAhead:
    case Piece::kNotAhead: return true;
    default: return std::ranges::any_of(piece.parts, HasAnchors);
  }
}

// ^ or $, but in lookahead.
bool HasEnds(const Piece& piece) {
  if (piece.kind == Piece::kBegin || piece.kind == Piece::kEnd) return true;
  return piece.kind != Piece::kAhead && piece.kind != Piece::kNotAhead && std::ranges::any_of(piece.parts, HasEnds);
}

bool MayBeEmpty(const Piece& piece) {
  switch (piece.kind) {
    case Piece::kChars: return false;
    case Piece::kConcat: return std::ranges::all_of(piece.parts, MayBeEmpty);
    case Piece::kOr: return std::ranges::any_of(piece.parts, MayBeEmpty);
    case Piece::kRepeat: return piece.min == 0 || MayBeEmpty(piece.parts[0]);
    default: return true;
  }
}

CodePoints Digits() { return CodePoints::Of('0', '9'); }
CodePoints WordCharacters() {
  CodePoints set = Digits();
  set.Add('a', 'z');
  set.Add('A', 'Z');
  set.Add('_', '_');
  return set;
}
// ECMA-262's WhiteSpace and LineTerminator.
CodePoints Spaces() {
  CodePoints set = CodePoints::Of(9, 13);
  for (const auto& [first, last] : {CodePoints::Range{0x20, 0x20},
                                    {0xa0, 0xa0},
                                    {0x1680, 0x1680},
                                    {0x2000, 0x200a},
                                    {0x2028, 0x2029},
                                    {0x202f, 0x202f},
                                    {0x205f, 0x205f},
                                    {0x3000, 0x3000},
                                    {0xfeff, 0xfeff}}) {
    set.Add(first, last);
  }
  return set;
}
CodePoints NoLineEnd() {
  CodePoints set = CodePoints::Of('\n', '\n');
  set.Add('\r', '\r');
  set.Add(0x2028, 0x2029);
  return set.Complement();
}

class RegexParser {
 public:
  explicit RegexParser(std::u32string text) : text_(std::move(text)) {}

  Result<Piece> Parse() {
    TALLY_ASSIGN_OR_RETURN(Piece piece, Alternatives(0));
    if (at_ < text_.size()) return Error("a ) without its (");
    return piece;
  }

 private:
  Status Error(const std::string& what) const { return BadInput(what + " at character " + std::to_string(at_ + 1)); }
  bool Take(std::u32string_view expected) {
    if (std::u32string_view(text_).substr(at_, expected.size()) != expected) return false;
    at_ += expected.size();
    return true;
  }

  Result<Piece> Alternatives(int depth) {
    if (depth > kMostGroupDepth) return Error("groups nested deeper than " + std::to_string(kMostGroupDepth));
    Piece all{.kind = Piece::kOr};
    do {
      TALLY_ASSIGN_OR_RETURN(Piece piece, Sequence(depth));
      all.parts.push_back(std::move(piece));
    } while (Take(U"|"));
    if (all.parts.size() == 1) {
      Piece only = std::move(all.parts[0]);
      return only;
    }
    return all;
  }

  Result<Piece> Sequence(int depth) {
    Piece sequence{.kind = Piece::kConcat};
    while (at_ < text_.size() && text_[at_] != U'|' && text_[at_] != U')') {
      TALLY_ASSIGN_OR_RETURN(Piece piece, Atom(depth));
      TALLY_ASSIGN_OR_RETURN(piece, Counted(std::move(piece)));
      sequence.parts.push_back(std::move(piece));
    }
    return sequence;
  }

  Result<Piece> Counted(Piece piece) {
    while (at_ < text_.size()) {
      uint32_t min = 0, max = Expressions::kUnbounded;
      if (Take(U"*")) {
      } else if (Take(U"+")) {
        min = 1;
      } else if (Take(U"?")) {
        max = 1;
      } else if (text_[at_] == U'{' && at_ + 1 < text_.size() && text_[at_ + 1] >= U'0' && text_[at_ + 1] <= U'9') {
        ++at_;
        TALLY_ASSIGN_OR_RETURN(min, Number());
        max = min;
        if (Take(U",")) {
          max = Expressions::kUnbounded;
          if (at_ < text_.size() && text_[at_] != U'}') {
            TALLY_ASSIGN_OR_RETURN(max, Number());
          }
        }
        if (!Take(U"}")) return Error("a count without }");
        if (min > max) return Error("a count whose bounds are in the wrong order");
      } else {
        return piece;
      }
      if (!Take(U"?") && at_ < text_.size() && text_[at_] == U'+') return Error("a possessive count");
      Piece counted{.kind = Piece::kRepeat, .min = min, .max = max};
      counted.parts.push_back(std::move(piece));
      piece = std::move(counted);
    }
    return piece;
  }

  Result<uint32_t> Number() {
    uint32_t n = 0;
    const size_t begin = at_;
    for (; at_ < text_.size() && text_[at_] >= U'0' && text_[at_] <= U'9'; ++at_) {
      n = n * 10 + static_cast<uint32_t>(text_[at_] - U'0');
      if (n > kMostRegexCount) return Error("a count above " + std::to_string(kMostRegexCount));
    }
    if (at_ == begin) return Error("no number in a count");
    return n;
  }

  Result<Piece> Atom(int depth) {
    if (Take(U"^")) return Piece{.kind = Piece::kBegin};
    if (Take(U"$")) return Piece{.kind = Piece::kEnd};
    if (Take(U".")) return Piece{.kind = Piece::kChars, .chars = NoLineEnd()};
    if (Take(U"[")) return Class();
    if (text_[at_] == U'(') return Group(depth);
    if (text_[at_] == U'\\') {
      if (Take(U"\\A")) return Piece{.kind = Piece::kBegin};
      if (Take(U"\\Z") || Take(U"\\z")) return Piece{.kind = Piece::kEnd};
      TALLY_ASSIGN_OR_RETURN(CodePoints chars, Escape(/*in_class=*/false));
      return Piece{.kind = Piece::kChars, .chars = std::move(chars)};
    }
    const char32_t c = text_[at_];
    if (c == U'*' || c == U'+' || c == U'?') return Error("a count of nothing");
    ++at_;
    return Piece{.kind = Piece::kChars, .chars = CodePoints::Of(c, c)};
  }

  Result<Piece> Group(int depth) {
    Piece::Kind kind = Piece::kConcat;
    if (Take(U"(?:")) {
    } else if (Take(U"(?=")) {
      kind = Piece::kAhead;
    } else if (Take(U"(?!")) {
      kind = Piece::kNotAhead;
    } else if (Take(U"(?<=") || Take(U"(?<!")) {
      return Error("lookbehind, which is not supported,");
    } else if (Take(U"(?<") || Take(U"(?P<")) {
      while (at_ < text_.size() && text_[at_] != U'>') ++at_;
      if (!Take(U">")) return Error("a group's name without >");
    } else if (Take(U"(?")) {
      return Error("a flag or a group of a kind that is not supported");
    } else {
      ++at_;
    }
    TALLY_ASSIGN_OR_RETURN(Piece inner, Alternatives(depth + 1));
    if (!Take(U")")) return Error("a ( without its )");
    if (kind == Piece::kConcat) return inner;
    Piece ahead{.kind = kind};
    ahead.parts.push_back(std::move(inner));
    return ahead;
  }

  Result<uint32_t> Hex(size_t digits) {
    uint32_t value = 0;
    for (size_t i = 0; i < digits; ++i, ++at_) {
      const char32_t c = at_ < text_.size() ? text_[at_] : U' ';
      if (c >= U'0' && c <= U'9') {
        value = value * 16 + static_cast<uint32_t>(c - U'0');
      } else if ((c >= U'a' && c <= U'f') || (c >= U'A' && c <= U'F')) {
        value = value * 16 + static_cast<uint32_t>((c | 0x20) - U'a' + 10);
      } else {
        return Error("an escape that lacks hexadecimal digits");
      }
    }
    return value;
  }

  // After a backslash, which is still there.
  Result<CodePoints> Escape(bool in_class) {
    ++at_;
    if (at_ == text_.size()) return Error("a backslash at the end");
    const char32_t c = text_[at_++];
    const auto one = [](uint32_t code) { return CodePoints::Of(code, code); };
    switch (c) {
      case U'd': return Digits();
      case U'D': return Digits().Complement();
      case U'w': return WordCharacters();
      case U'W': return WordCharacters().Complement();
      case U's': return Spaces();
      case U'S': return Spaces().Complement();
      case U't': return one('\t');
      case U'n': return one('\n');
      case U'r': return one('\r');
      case U'f': return one('\f');
      case U'v': return one('\v');
      case U'a': return one('\a');
      case U'0': return one(0);
      case U'b':
        if (in_class) return one('\b');
        return Error("\\b, which is not supported,");
      case U'c': {
        const char32_t letter = at_ < text_.size() ? text_[at_] | 0x20 : U' ';
        if (letter < U'a' || letter > U'z') return Error("\\c without a letter");
        ++at_;
        return one(letter & 0x1f);
      }
      case U'x': {
        TALLY_ASSIGN_OR_RETURN(const uint32_t code, Hex(2));
        return one(code);
      }
      case U'u': {
        uint32_t code = 0;
        if (Take(U"{")) {
          size_t digits = 0;
          while (at_ + digits < text_.size() && text_[at_ + digits] != U'}') ++digits;
          if (digits == 0 || digits > 6) return Error("\\u{} that is no character");
          TALLY_ASSIGN_OR_RETURN(code, Hex(digits));
          if (!Take(U"}")) return Error("\\u{ without }");
        } else {
          TALLY_ASSIGN_OR_RETURN(code, Hex(4));
          if (code >= 0xd800 && code < 0xdc00 && Take(U"\\u")) {
            TALLY_ASSIGN_OR_RETURN(const uint32_t low, Hex(4));
            if (low < 0xdc00 || low > 0xdfff) return Error("half of a pair of surrogates");
            code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
          }
        }
        if (code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) return Error("\\u that is no character");
        return one(code);
      }
      case U'p':
      case U'P': {
        if (!Take(U"{")) return Error("\\p without {");
        std::string name;
        for (; at_ < text_.size() && text_[at_] != U'}'; ++at_) name += text_[at_] < 128 ? static_cast<char>(text_[at_]) : '?';
        if (!Take(U"}")) return Error("\\p{ without }");
        for (const char* prefix : {"General_Category=", "gc="}) {
          if (name.rfind(prefix, 0) == 0) name.erase(0, std::string(prefix).size());
        }
        std::optional<CodePoints> set = CodePoints::Category(name);
        if (!set) return Error("\\p{" + name + "}, which is no general category,");
        return c == U'p' ? *set : set->Complement();
      }
      default: break;
    }
    if (c >= U'1' && c <= U'9') return Error("a back reference, which is not supported,");
    if ((c >= U'a' && c <= U'z') || (c >= U'A' && c <= U'Z')) {
      return Error(std::string("the escape \\") + static_cast<char>(c) + ", which is not supported,");
    }
    return one(c);
  }

  // After [.
  Result<Piece> Class() {
    CodePoints set;
    const bool complement = Take(U"^");
    while (at_ < text_.size() && text_[at_] != U']') {
      CodePoints low;
      if (text_[at_] == U'\\') {
        TALLY_ASSIGN_OR_RETURN(low, Escape(/*in_class=*/true));
      } else {
        low = CodePoints::Of(text_[at_], text_[at_]);
        ++at_;
      }
      const bool is_one = low.ranges().size() == 1 && low.ranges()[0].first == low.ranges()[0].second;
      if (is_one && at_ + 1 < text_.size() && text_[at_] == U'-' && text_[at_ + 1] != U']') {
        ++at_;
        CodePoints high;
        if (text_[at_] == U'\\') {
          TALLY_ASSIGN_OR_RETURN(high, Escape(/*in_class=*/true));
        } else {
          high = CodePoints::Of(text_[at_], text_[at_]);
          ++at_;
        }
        if (high.ranges().size() != 1 || high.ranges()[0].first != high.ranges()[0].second)
          return Error("a range that ends in a class");
        if (low.ranges()[0].first > high.ranges()[0].first) return Error("a range in the wrong order");
        set.Add(low.ranges()[0].first, high.ranges()[0].first);
      } else {
        set.Add(low);
      }
    }
    if (!Take(U"]")) return Error("a [ without its ]");
    return Piece{.kind = Piece::kChars, .chars = complement ? set.Complement() : std::move(set)};
  }

  const std::u32string text_;
  size_t at_ = 0;
};

class RegexBuilder {
 public:
  RegexBuilder(Expressions& e, const Spelling& spelling) : e_(e), spelling_(spelling) {}

  // Without anchors.
  Result<Expr> Plain(const Piece& piece) {
    switch (piece.kind) {
      case Piece::kChars: return Chars(piece.chars);
      case Piece::kConcat:
      case Piece::kOr: {
        std::vector<Expr> parts;
        for (const Piece& part : piece.parts) {
          TALLY_ASSIGN_OR_RETURN(const Expr expr, Plain(part));
          parts.push_back(expr);
        }
        if (piece.kind == Piece::kOr) return e_.Or(parts);
        Expr all = Expressions::kEmpty;
        for (size_t i = parts.size(); i-- > 0;) all = e_.Concat(parts[i], all);
        return all;
      }
      case Piece::kRepeat: {
        TALLY_ASSIGN_OR_RETURN(const Expr part, Plain(piece.parts[0]));
        return e_.Repeat(part, piece.min, piece.max);
      }
      default: return Expressions::kNone;
    }
  }

  // Whole texts; `open`: anything may precede a match and follow it.
  Result<Expr> Whole(const Piece& piece, bool open) {
    if (!open) return Build(piece, Expressions::kEmpty, Place::kBegin);
    TALLY_ASSIGN_OR_RETURN(const Expr first, Build(piece, Any(), Place::kBegin));
    TALLY_ASSIGN_OR_RETURN(const Expr later, Build(piece, Any(), Place::kLater));
    if (first == later) return e_.Concat(Any(), first);
    return e_.Or({first, e_.Concat({Chars(CodePoints::All()), Any(), later})});
  }

 private:
  // Where a piece stands: where texts begin, later, or behind another piece, where either may be.
  enum class Place : uint8_t { kBegin, kLater, kBehind };

  // The texts from here to the end: what the piece has, and then `after`.
  Result<Expr> Build(const Piece& piece, Expr after, Place place) {
    if (!HasAnchors(piece)) {
      TALLY_ASSIGN_OR_RETURN(const Expr plain, Plain(piece));
      return e_.Concat(plain, after);
    }
    if (++expanded_ > kMostExpanded) return BadInput("too many alternatives and counts with ^, $ or lookahead");
    switch (piece.kind) {
      case Piece::kBegin:
        if (place == Place::kBehind) return BadInput("^ where texts do not begin");
        return place == Place::kBegin ? after : Expressions::kNone;
      case Piece::kEnd:
        if (!e_.MayEnd(after)) return BadInput("$ where texts do not end");
        return Expressions::kEmpty;
      case Piece::kAhead:
      case Piece::kNotAhead: {
        TALLY_ASSIGN_OR_RETURN(const Expr ahead, Build(piece.parts[0], Any(), place));
        return e_.And({piece.kind == Piece::kAhead ? ahead : e_.Not(ahead), after});
      }
      case Piece::kOr: {
        std::vector<Expr> parts;
        for (const Piece& part : piece.parts) {
          TALLY_ASSIGN_OR_RETURN(const Expr expr, Build(part, after, place));
          parts.push_back(expr);
        }
        return e_.Or(parts);
      }
      case Piece::kRepeat: {
        const bool unbounded = piece.max == Expressions::kUnbounded;
        uint32_t i = unbounded ? piece.min : piece.max;
        if (i > kMostRepeatedAnchors || (unbounded && (HasEnds(piece) || MayBeEmpty(piece.parts[0]))))
          return BadInput("a repeated ^, $ or lookahead");
        Expr rest = after;
        if (unbounded) {
          const Expr rule = e_.NewRule("a repeated lookahead");
          TALLY_ASSIGN_OR_RETURN(const Expr one, Build(piece.parts[0], rule, Place::kBehind));
          rest = e_.Or({one, after});
          e_.Define(rule, rest);
        }
        for (; i > 0; --i) {
          TALLY_ASSIGN_OR_RETURN(const Expr one, Build(piece.parts[0], rest, i == 1 ? place : Place::kBehind));
          rest = i > piece.min ? e_.Or({one, after}) : one;
        }
        return rest;
      }
      default: break;
    }
    const Pieces items = Items(piece);
    const auto reads = [](const Piece& item) {
      return item.kind == Piece::kChars || item.kind == Piece::kOr || item.kind == Piece::kRepeat;
    };
    const size_t read = static_cast<size_t>(std::ranges::find_if(items, reads) - items.begin());
    for (size_t i = items.size(); i-- > 0;) {
      TALLY_ASSIGN_OR_RETURN(after, Build(items[i], after, i <= read ? place : Place::kBehind));
    }
    return after;
  }

  // The parts of a concatenation, with those of concatenations within it.
  static Pieces Items(const Piece& piece) {
    if (piece.kind != Piece::kConcat) return {piece};
    Pieces items;
    for (const Piece& part : piece.parts) {
      Pieces inner = Items(part);
      items.insert(items.end(), std::make_move_iterator(inner.begin()), std::make_move_iterator(inner.end()));
    }
    return items;
  }
  Expr Any() { return e_.Star(Chars(CodePoints::All())); }
  Expr Chars(const CodePoints& set) {
    const auto [place, is_new] = spelled_.try_emplace(set.ranges(), Expressions::kNone);
    if (is_new) place->second = spelling_(e_, set);
    return place->second;
  }

  Expressions& e_;
  const Spelling& spelling_;
  std::map<std::vector<CodePoints::Range>, Expr> spelled_;
  int expanded_ = 0;
};

}  // namespace

Result<Expr> ParseRegex(Expressions& e, std::string_view pattern, const RegexOptions& options) {
  TALLY_ASSIGN_OR_RETURN(std::u32string text, DecodeUtf8(pattern));
  TALLY_ASSIGN_OR_RETURN(const Piece piece, RegexParser(std::move(text)).Parse());
  return RegexBuilder(e, options.spelling).Whole(piece, options.search);
}

}  // namespace tally
