// SPDX-License-Identifier: Apache-2.0
// Numbers of JSON as they are written.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/grammar/expressions.h"

namespace tally {

// An exact decimal number: digits without leading zeros ("0" for none), and a fraction without trailing ones.
struct Decimal {
  bool negative = false;
  std::string digits = "0";
  std::string fraction = {};

  // A number of JSON. None: it is none, or has more than 400 digits.
  static std::optional<Decimal> Parse(std::string_view text);
  bool is_zero() const { return digits == "0" && fraction.empty(); }
  bool is_integer() const { return fraction.empty(); }
  std::string Text() const;
  friend bool operator==(const Decimal&, const Decimal&) = default;
};
// -1, 0 or 1.
int Compare(const Decimal& x, const Decimal& y);

struct NumberBounds {
  std::optional<Decimal> least = {}, most = {};
  bool above = false, below = false;         // the bounds themselves are out
  std::vector<Decimal> multiples = {};       // of all of these; positive
  bool integers = false, fractions = false;  // these alone
  std::vector<Decimal> except = {};

  bool none() const { return !least && !most && !fractions && multiples.empty() && except.empty(); }
};

// The numbers within bounds. Integers have no fraction; numbers with bounds have no exponent, and those of a multiple no more digits of
// fraction than it needs. None: a multiple's automaton would have more than 10,000 states.
std::optional<Expr> NumbersOf(Expressions& e, const NumberBounds& bounds);

}  // namespace tally
