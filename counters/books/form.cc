#include "counters/books/form.h"

namespace tally::books {

Form Form::Symbol(std::string_view name, uint64_t value) {
  Form f;
  f.value_ = value;
  f.factor_ = 1;
  f.body_ = name;
  return f;
}

std::string Form::text() const {
  if (literal()) return std::to_string(factor_);
  return (factor_ == 1 ? "" : std::to_string(factor_) + " ") + body_;
}

std::string Form::AsFactor() const { return sum_ ? "(" + body_ + ")" : body_; }

Form operator+(const Form& a, const Form& b) {
  if (a.literal() && a.factor_ == 0) return b;
  if (b.literal() && b.factor_ == 0) return a;
  Form out;
  out.overflow_ = a.overflow_ || b.overflow_ || __builtin_add_overflow(a.value_, b.value_, &out.value_);
  if (!a.sum_ && !b.sum_ && a.body_ == b.body_) {  // like terms
    out.factor_ = a.factor_ + b.factor_;
    out.body_ = a.body_;
    return out;
  }
  out.factor_ = 1;
  out.body_ = a.text() + " + " + b.text();
  out.sum_ = true;
  return out;
}

Form operator-(const Form& a, const Form& b) {
  if (b.literal() && b.factor_ == 0) return a;
  Form out;
  out.overflow_ = a.overflow_ || b.overflow_ || __builtin_sub_overflow(a.value_, b.value_, &out.value_);
  out.factor_ = 1;
  out.body_ = a.text() + " - " + (b.sum_ ? "(" + b.text() + ")" : b.text());
  out.sum_ = true;
  return out;
}

Form operator*(const Form& a, const Form& b) {
  if ((a.literal() && a.factor_ == 0) || (b.literal() && b.factor_ == 0)) return {};
  if (a.literal() && a.factor_ == 1) return b;
  if (b.literal() && b.factor_ == 1) return a;
  Form out;
  out.overflow_ = a.overflow_ || b.overflow_ || __builtin_mul_overflow(a.value_, b.value_, &out.value_);
  if (__builtin_mul_overflow(a.factor_, b.factor_, &out.factor_)) {
    out.overflow_ = true;
    return out;
  }
  out.body_ = a.AsFactor() + (a.literal() || b.literal() ? "" : " ") + b.AsFactor();
  return out;
}

Form Form::Half() const {
  Form out = *this;
  out.overflow_ = overflow_ || value_ % 2 != 0;
  out.value_ = value_ / 2;
  if (factor_ % 2 == 0) {
    out.factor_ = factor_ / 2;
    return out;
  }
  out.factor_ = 1;
  out.body_ = "(" + text() + " / 2)";
  out.sum_ = false;
  return out;
}

}  // namespace tally::books
