// SPDX-License-Identifier: Apache-2.0
// A float that counts what is done to it, by DESIGN's rules: the scalar references instantiated with it must
// do exactly what their ops charge. See engine/kernels/scalar.h for what a scalar type offers.
#pragma once

#include <cmath>
#include <cstdint>

#include "engine/kernels/scalar.h"

namespace tally {

struct OpCounts {
  uint64_t flops = 0, special = 0;
  bool operator==(const OpCounts&) const = default;
};

struct Counting {
  static inline thread_local OpCounts count;

  float value = 0;
  Counting() = default;
  explicit Counting(float v) : value(v) {}
  explicit operator float() const { return value; }
  Counting operator-() const { return Counting(-value); }
  friend Counting operator+(Counting a, Counting b) { return Flop(a.value + b.value); }
  friend Counting operator-(Counting a, Counting b) { return Flop(a.value - b.value); }
  friend Counting operator*(Counting a, Counting b) { return Flop(a.value * b.value); }
  friend Counting operator/(Counting a, Counting b) { return Special(a.value / b.value); }
  Counting& operator+=(Counting o) { return *this = *this + o; }
  Counting& operator-=(Counting o) { return *this = *this - o; }
  Counting& operator*=(Counting o) { return *this = *this * o; }
  Counting& operator/=(Counting o) { return *this = *this / o; }
  friend bool operator<(Counting a, Counting b) { return Compare(a.value < b.value); }
  friend bool operator>(Counting a, Counting b) { return Compare(a.value > b.value); }
  friend bool operator<=(Counting a, Counting b) { return Compare(a.value <= b.value); }
  friend bool operator>=(Counting a, Counting b) { return Compare(a.value >= b.value); }
  friend bool operator==(Counting a, Counting b) { return Compare(a.value == b.value); }

  friend Counting Fma(Counting a, Counting b, Counting c) { return Flop(std::fma(a.value, b.value, c.value), 2); }
  friend Counting Max(Counting a, Counting b) { return Flop(tally::Max(a.value, b.value)); }
  friend Counting Min(Counting a, Counting b) { return Flop(tally::Min(a.value, b.value)); }
  friend Counting Abs(Counting x) { return Counting(std::fabs(x.value)); }
  friend Counting Sqrt(Counting x) { return Special(std::sqrt(x.value)); }
  friend Counting Rsqrt(Counting x) { return Special(tally::Rsqrt(x.value)); }
  friend Counting Exp(Counting x) { return Special(std::exp(x.value)); }
  friend Counting Expm1(Counting x) { return Special(std::expm1(x.value)); }
  friend Counting Tanh(Counting x) { return Special(std::tanh(x.value)); }
  friend Counting Erf(Counting x) { return Special(std::erf(x.value)); }
  friend Counting Log(Counting x) { return Special(std::log(x.value)); }
  friend Counting Log1p(Counting x) {
    ++count.flops;
    return Special(std::log1p(x.value));
  }
  friend Counting Sin(Counting x) { return Special(std::sin(x.value)); }
  friend Counting Cos(Counting x) { return Special(std::cos(x.value)); }
  friend Counting Choose(Counting x, Counting a, Counting b) { return x.value > 0 ? a : b; }
  friend float ToF32(Counting x) { return x.value; }

 private:
  static Counting Flop(float v, uint64_t n = 1) {
    count.flops += n;
    return Counting(v);
  }
  static Counting Special(float v) {
    ++count.special;
    return Counting(v);
  }
  static bool Compare(bool b) {
    ++count.flops;
    return b;
  }
};

// What `body` counts.
template <class F>
OpCounts CountOf(F&& body) {
  Counting::count = OpCounts();
  body();
  return Counting::count;
}

}  // namespace tally
