// SPDX-License-Identifier: Apache-2.0
#include "counters/books/form.h"

#include <algorithm>

namespace tally::books {

Form::Form(uint64_t literal) : value_(literal) {
  if (literal != 0) terms_.push_back({literal, "", false});
}

Form Form::Symbol(std::string_view name, uint64_t value) {
  Form f;
  f.value_ = value;
  f.terms_.push_back({1, std::string(name), false});
  return f;
}

std::string Form::text() const {
  std::string out;
  for (const Term& t : terms_) {
    if (!out.empty()) out += t.minus ? " - " : " + ";
    if (t.body.empty()) {
      out += std::to_string(t.factor);
    } else {
      out += (t.factor == 1 ? "" : std::to_string(t.factor) + " ") + t.body;
    }
  }
  return out.empty() ? "0" : out;
}

void Form::Add(const Term& term) {
  const auto like = [&](const Term& t) { return t.body == term.body && t.minus == term.minus; };
  const auto found = std::find_if(terms_.begin(), terms_.end(), like);
  if (found == terms_.end()) {
    terms_.push_back(term);
  } else if (__builtin_add_overflow(found->factor, term.factor, &found->factor)) {
    overflow_ = true;
  }
}

Form::Term Form::AsFactor() const { return terms_.size() == 1 ? terms_.front() : Term{1, "(" + text() + ")", false}; }

Form operator+(const Form& a, const Form& b) {
  Form out = a;
  out.overflow_ = a.overflow_ || b.overflow_ || __builtin_add_overflow(a.value_, b.value_, &out.value_);
  for (const Form::Term& t : b.terms_) out.Add(t);
  return out;
}

Form operator-(const Form& a, const Form& b) {
  if (b.terms_.empty()) return a;
  Form out = a;
  out.overflow_ = a.overflow_ || b.overflow_ || __builtin_sub_overflow(a.value_, b.value_, &out.value_);
  Form::Term term = b.AsFactor();
  term.minus = true;
  out.Add(term);
  return out;
}

Form operator*(const Form& a, const Form& b) {
  Form out;
  if (a.terms_.empty() || b.terms_.empty()) return out;
  out.overflow_ = a.overflow_ || b.overflow_ || __builtin_mul_overflow(a.value_, b.value_, &out.value_);
  const auto is_one = [](const Form& f) { return f.terms_.size() == 1 && f.terms_[0].body.empty() && f.terms_[0].factor == 1; };
  if (is_one(a) || is_one(b)) {
    out.terms_ = is_one(a) ? b.terms_ : a.terms_;
    return out;
  }
  const Form::Term x = a.AsFactor(), y = b.AsFactor();
  Form::Term product{0, x.body + (x.body.empty() || y.body.empty() ? "" : " ") + y.body, false};
  if (__builtin_mul_overflow(x.factor, y.factor, &product.factor)) out.overflow_ = true;
  out.terms_.push_back(std::move(product));
  return out;
}

Form Form::Half() const {
  Form out = *this;
  out.overflow_ = overflow_ || value_ % 2 != 0;
  out.value_ = value_ / 2;
  if (std::all_of(terms_.begin(), terms_.end(), [](const Term& t) { return t.factor % 2 == 0; })) {
    for (Term& t : out.terms_) t.factor /= 2;
  } else {
    out.terms_ = {{1, "(" + text() + " / 2)", false}};
  }
  return out;
}

}  // namespace tally::books
