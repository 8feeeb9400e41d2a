// SPDX-License-Identifier: Apache-2.0
// A count together with its closed form. The same operations build the integer and the expression, so the two always agree.
//
// Expressions are written as formulas: "2 P (H + 2 K) D E". A space multiplies. Literal factors stand in front, and like terms are
// added. Literal terms 0 and factors 1 are left out.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/export.h"

namespace tally::books {

class Form {
 public:
  Form() : Form(0) {}
  TALLY_API Form(uint64_t literal);  // NOLINT(google-explicit-constructor): implicit on purpose
  // `name` has no blanks.
  static TALLY_API Form Symbol(std::string_view name, uint64_t value);

  uint64_t value() const { return value_; }
  // True if the value did not fit 64 bits or was negative; value() is then unspecified, text() is right.
  bool overflow() const { return overflow_; }
  TALLY_API std::string text() const;

  friend TALLY_API Form operator+(const Form& a, const Form& b);
  friend TALLY_API Form operator-(const Form& a, const Form& b);
  friend TALLY_API Form operator*(const Form& a, const Form& b);
  Form& operator+=(const Form& b) { return *this = *this + b; }
  // The value must be even; an odd one sets overflow().
  TALLY_API Form Half() const;

 private:
  struct Term {
    uint64_t factor = 0;
    std::string body;  // empty: a literal
    bool minus = false;
  };
  void Add(const Term& term);  // merges like terms
  Term AsFactor() const;       // a sum gets parentheses

  uint64_t value_ = 0;
  bool overflow_ = false;
  std::vector<Term> terms_;  // none: the literal 0
};

}  // namespace tally::books
