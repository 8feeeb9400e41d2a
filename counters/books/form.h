// A count together with its closed form: the integer and the expression in symbols are built by the same operations, so what is
// printed is what was computed.
//
// Expressions read as formulas do: "2 P (H + 2 K) D E". A space multiplies; literal factors are gathered in front, like terms into one.
// Terms that are the literal 0 and factors that are the literal 1 leave no trace, so a recipe without biases has none in its formula.
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
  TALLY_API Form(uint64_t literal);  // NOLINT(google-explicit-constructor): a number is a form
  // `name` has no blanks.
  static TALLY_API Form Symbol(std::string_view name, uint64_t value);

  uint64_t value() const { return value_; }
  // The value did not fit 64 bits, or was below 0: it is meaningless, the text is right.
  bool overflow() const { return overflow_; }
  TALLY_API std::string text() const;

  friend TALLY_API Form operator+(const Form& a, const Form& b);
  friend TALLY_API Form operator-(const Form& a, const Form& b);
  friend TALLY_API Form operator*(const Form& a, const Form& b);
  Form& operator+=(const Form& b) { return *this = *this + b; }
  // Half of it; an odd value is a defect and overflows.
  TALLY_API Form Half() const;

 private:
  struct Term {
    uint64_t factor = 0;
    std::string body;  // empty: a literal
    bool minus = false;
  };
  void Add(const Term& term);  // to like terms, where there are any
  Term AsFactor() const;       // a sum stands in parentheses

  uint64_t value_ = 0;
  bool overflow_ = false;
  std::vector<Term> terms_;  // none: the literal 0
};

}  // namespace tally::books
