// SPDX-License-Identifier: Apache-2.0
#include "engine/grammar/json_numbers.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace tally {
namespace {

constexpr size_t kMostDigits = 400;

Expr DigitsBetween(Expressions& e, char first, char last) {
  if (first > last) return Expressions::kNone;
  return e.Bytes(ByteSet::Range(static_cast<uint8_t>(first), static_cast<uint8_t>(last)));
}
Expr Digit(Expressions& e) { return DigitsBetween(e, '0', '9'); }
Expr AnyDigits(Expressions& e) { return e.Star(Digit(e)); }
Expr AnyInteger(Expressions& e) { return e.Or({e.Literal("0"), e.Concat(DigitsBetween(e, '1', '9'), AnyDigits(e))}); }
Expr AnyFraction(Expressions& e) { return e.Optional(e.Concat({e.Literal("."), Digit(e), AnyDigits(e)})); }

bool IsZero(std::string_view digits) { return digits.find_first_not_of('0') == std::string_view::npos; }

// Digits of a number without sign that is greater (or less) than `digits`.
Expr IntegersBeyond(Expressions& e, const std::string& digits, bool greater) {
  std::vector<Expr> parts;
  const uint32_t n = static_cast<uint32_t>(digits.size());
  if (greater) {
    parts.push_back(e.Concat(DigitsBetween(e, '1', '9'), e.Repeat(Digit(e), n, Expressions::kUnbounded)));  // longer ones
  } else if (n > 1) {
    parts.push_back(e.Literal("0"));
    parts.push_back(e.Concat(DigitsBetween(e, '1', '9'), e.Repeat(Digit(e), 0, n - 2)));
  }
  for (uint32_t i = 0; i < n; ++i) {  // the same as far as i
    const char least = i == 0 && n > 1 ? '1' : '0';
    const Expr digit = greater ? DigitsBetween(e, static_cast<char>(digits[i] + 1), '9')
                               : DigitsBetween(e, least, static_cast<char>(digits[i] - 1));
    parts.push_back(
        e.Concat({e.Literal(std::string_view(digits).substr(0, i)), digit, e.Repeat(Digit(e), n - 1 - i, n - 1 - i)}));
  }
  return e.Or(parts);
}

// Digits of a fraction from the i-th on that are beyond those of `bound`, or equal to it unless `strict`.
Expr FractionFrom(Expressions& e, std::string_view bound, bool greater, bool strict, bool may_end) {
  const bool zero = IsZero(bound);
  // No more digits: all that is left is zero.
  const bool end = may_end && (greater ? zero && !strict : !zero || !strict);
  std::vector<Expr> parts;
  if (end) parts.push_back(Expressions::kEmpty);
  if (bound.empty()) {
    const Expr zeros = e.Star(e.Literal("0"));
    if (greater) {
      parts.push_back(strict ? e.Concat({zeros, DigitsBetween(e, '1', '9'), AnyDigits(e)}) : e.Concat(Digit(e), AnyDigits(e)));
    } else if (!strict) {
      parts.push_back(e.Concat(e.Literal("0"), zeros));
    }
    return e.Or(parts);
  }
  const Expr beyond =
      greater ? DigitsBetween(e, static_cast<char>(bound[0] + 1), '9') : DigitsBetween(e, '0', static_cast<char>(bound[0] - 1));
  parts.push_back(e.Concat(beyond, AnyDigits(e)));
  parts.push_back(e.Concat(e.Literal(bound.substr(0, 1)), FractionFrom(e, bound.substr(1), greater, strict, true)));
  return e.Or(parts);
}

// Numbers without sign beyond `bound`, or equal to it unless `strict`.
Expr Beyond(Expressions& e, const Decimal& bound, bool greater, bool strict, bool integers) {
  const Expr others = IntegersBeyond(e, bound.digits, greater);
  const Expr same = e.Literal(bound.digits);
  if (integers) {
    const bool fits = bound.fraction.empty() ? !strict : !greater;  // the bound without its fraction
    return fits ? e.Or({others, same}) : others;
  }
  const bool zero = bound.fraction.empty();
  std::vector<Expr> fractions = {e.Concat(e.Literal("."), FractionFrom(e, bound.fraction, greater, strict, false))};
  if (greater ? zero && !strict : !zero || !strict) fractions.push_back(Expressions::kEmpty);
  return e.Or({e.Concat(others, AnyFraction(e)), e.Concat(same, e.Or(fractions))});
}

Decimal Magnitude(Decimal x) {
  x.negative = false;
  return x;
}

// Numbers without sign between bounds, either of which may be missing.
Expr Within(Expressions& e, const std::optional<Decimal>& least, bool above, const std::optional<Decimal>& most, bool below,
            bool integers) {
  std::vector<Expr> all;
  if (least && (!least->is_zero() || above)) all.push_back(Beyond(e, *least, /*greater=*/true, above, integers));
  if (most) all.push_back(Beyond(e, *most, /*greater=*/false, below, integers));
  if (all.empty()) return integers ? AnyInteger(e) : e.Concat(AnyInteger(e), AnyFraction(e));
  return all.size() == 1 ? all[0] : e.And(all);
}

// Multiples of a number, without sign: the remainder of what was read so far is the state.
std::optional<Expr> Multiples(Expressions& e, const Decimal& of, bool integers) {
  const uint32_t places = integers ? 0 : static_cast<uint32_t>(of.fraction.size());
  std::string scaled = of.digits + of.fraction;
  if (scaled.size() > 9) return std::nullopt;
  uint64_t divisor = std::strtoull(scaled.c_str(), nullptr, 10);
  if (integers) {  // an integer is a multiple of 3/10 if it is one of 3: of the divisor in lowest terms
    uint64_t power = 1;
    for (size_t i = 0; i < of.fraction.size(); ++i) power *= 10;
    uint64_t a = divisor, b = power;
    while (b != 0) a = std::exchange(b, a % b);
    divisor /= a;
  }
  if (divisor == 0 || divisor * (places + 1) > 10'000) return std::nullopt;
  // scale[p]: what makes an integer out of a number with p digits of fraction.
  std::vector<uint64_t> scale(places + 1, 1);
  for (uint32_t p = places; p-- > 0;) scale[p] = scale[p + 1] * 10 % divisor;
  std::vector<std::vector<Expr>> rules(places + 1);
  for (uint32_t p = 0; p <= places; ++p) {
    for (uint64_t r = 0; r < divisor; ++r) rules[p].push_back(e.NewRule("multiple"));
  }
  const auto digit = [&](int d) { return e.Literal(std::string(1, static_cast<char>('0' + d))); };
  for (uint32_t p = 0; p <= places; ++p) {
    for (uint64_t r = 0; r < divisor; ++r) {
      std::vector<Expr> parts;
      if (r * scale[p] % divisor == 0) parts.push_back(Expressions::kEmpty);
      for (int d = 0; d < 10; ++d) {
        const uint64_t next = (r * 10 + static_cast<uint64_t>(d)) % divisor;
        if (p == 0) parts.push_back(e.Concat(digit(d), rules[0][next]));
        if (p > 0 && p < places) parts.push_back(e.Concat(digit(d), rules[p + 1][next]));
        if (p == 0 && places > 0) parts.push_back(e.Concat({e.Literal("."), digit(d), rules[1][next]}));
      }
      e.Define(rules[p][r], e.Or(parts));
    }
  }
  std::vector<Expr> first;
  for (int d = 1; d < 10; ++d) first.push_back(e.Concat(digit(d), rules[0][static_cast<uint64_t>(d) % divisor]));
  // After a zero: nothing, or a fraction.
  std::vector<Expr> zero = {Expressions::kEmpty};
  if (places > 0) {
    for (int d = 0; d < 10; ++d)
      zero.push_back(e.Concat({e.Literal("."), digit(d), rules[1][static_cast<uint64_t>(d) % divisor]}));
  }
  first.push_back(e.Concat(e.Literal("0"), e.Or(zero)));
  return e.Or(first);
}

}  // namespace

std::optional<Decimal> Decimal::Parse(std::string_view text) {
  Decimal x;
  size_t at = 0;
  if (at < text.size() && text[at] == '-') x.negative = true, ++at;
  std::string digits;
  long point = -1, exponent = 0;
  for (; at < text.size(); ++at) {
    if (text[at] == '.') {
      point = static_cast<long>(digits.size());
    } else if (text[at] >= '0' && text[at] <= '9') {
      digits += text[at];
    } else if (text[at] == 'e' || text[at] == 'E') {
      exponent = std::strtol(std::string(text.substr(at + 1)).c_str(), nullptr, 10);
      break;
    } else {
      return std::nullopt;
    }
  }
  if (digits.empty() || digits.size() > kMostDigits || std::abs(exponent) > static_cast<long>(kMostDigits)) return std::nullopt;
  long places = (point < 0 ? static_cast<long>(digits.size()) : point) + exponent;  // digits before the point
  if (places < 0) {
    digits.insert(0, static_cast<size_t>(-places), '0');
    places = 0;
  }
  if (static_cast<size_t>(places) > digits.size()) digits.append(static_cast<size_t>(places) - digits.size(), '0');
  x.digits = digits.substr(0, static_cast<size_t>(places));
  x.fraction = digits.substr(static_cast<size_t>(places));
  x.digits.erase(0, std::min(x.digits.find_first_not_of('0'), x.digits.size()));
  if (x.digits.empty()) x.digits = "0";
  x.fraction.erase(x.fraction.find_last_not_of('0') + 1);
  if (x.is_zero()) x.negative = false;
  return x;
}

std::string Decimal::Text() const { return (negative ? "-" : "") + digits + (fraction.empty() ? "" : "." + fraction); }

int Compare(const Decimal& x, const Decimal& y) {
  if (x.negative != y.negative) return x.negative ? -1 : 1;
  int order = 0;
  if (x.digits.size() != y.digits.size()) {
    order = x.digits.size() < y.digits.size() ? -1 : 1;
  } else if (const int digits = x.digits.compare(y.digits); digits != 0) {
    order = digits < 0 ? -1 : 1;
  } else {
    const int fractions = x.fraction.compare(y.fraction);
    order = fractions < 0 ? -1 : fractions > 0 ? 1 : 0;
  }
  return x.negative ? -order : order;
}

std::optional<Expr> NumbersOf(Expressions& e, const NumberBounds& bounds) {
  if (bounds.none()) {
    if (bounds.integers)
      return e.Or({e.Literal("0"), e.Concat({e.Optional(e.Literal("-")), DigitsBetween(e, '1', '9'), AnyDigits(e)})});
    const Expr exponent = e.Concat(
        {e.Or({e.Literal("e"), e.Literal("E")}), e.Optional(e.Or({e.Literal("+"), e.Literal("-")})), Digit(e), AnyDigits(e)});
    return e.Concat({e.Optional(e.Literal("-")), AnyInteger(e), AnyFraction(e), e.Optional(exponent)});
  }
  const auto &least = bounds.least, &most = bounds.most;
  std::vector<Expr> signs;
  // From 0 on.
  if (!most || Compare(*most, {}) >= 0) {
    const bool from_zero = !least || least->negative;
    signs.push_back(Within(e, from_zero ? std::nullopt : least, !from_zero && bounds.above, most, bounds.below, bounds.integers));
  }
  // Below 0: magnitudes above 0.
  if (!least || least->negative) {
    const bool to_zero = !most || !most->negative;
    const std::optional<Decimal> low = to_zero ? Decimal{} : Magnitude(*most);
    const std::optional<Decimal> high = least ? std::optional(Magnitude(*least)) : std::nullopt;
    signs.push_back(e.Concat(e.Literal("-"), Within(e, low, to_zero || bounds.below, high, bounds.above, bounds.integers)));
  }
  std::vector<Expr> all = {e.Or(signs)};
  for (const Decimal& multiple : bounds.multiples) {
    const std::optional<Expr> of = Multiples(e, multiple, bounds.integers);
    if (!of) return std::nullopt;
    all.push_back(e.Concat(e.Optional(e.Literal("-")), *of));
  }
  if (bounds.fractions) {
    const Expr zeros = e.Optional(e.Concat({e.Literal(".0"), e.Star(e.Literal("0"))}));
    all.push_back(e.Not(e.Concat({e.Optional(e.Literal("-")), AnyInteger(e), zeros})));
  }
  for (const Decimal& number : bounds.except) {
    const Expr zeros = e.Star(e.Literal("0"));
    const Expr fraction = number.fraction.empty() ? e.Optional(e.Concat({e.Literal(".0"), zeros}))
                                                  : e.Concat({e.Literal("." + number.fraction), zeros});
    const Expr sign = number.is_zero() ? e.Optional(e.Literal("-")) : e.Literal(number.negative ? "-" : "");
    all.push_back(e.Not(e.Concat({sign, e.Literal(number.digits), fraction})));
  }
  return all.size() == 1 ? all[0] : e.And(all);
}

}  // namespace tally
