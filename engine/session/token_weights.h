// SPDX-License-Identifier: Apache-2.0
// The weight of a token in a draw; internal to the session. Only operations that IEEE 754 rounds correctly, so that every machine
// gets the same bits, and in loops that the compiler vectorises.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace tally {

// Weights are integers in units of 2^-40 of the most probable token's. Sums are exact in any order; 2^23 of them fit.
inline constexpr uint64_t kUnitWeight = uint64_t{1} << 40;

// Weight 2^((logit - max) * scale), max being the greatest logit and scale = log2(e) / temperature; of logits from LeastLogit() to max.
class TokenWeights {
 public:
  TokenWeights() = default;
  // max is finite.
  TokenWeights(float max, double temperature)
      : max_(max), exact_scale_(0x1.71547652b82fep+0 / temperature), scale_(static_cast<float>(std::min(exact_scale_, kMost))) {}

  uint64_t Of(float logit) const { return Bits(logit) - kBitsOfZero; }
  // out[i] of logits[i].
  void Of(const float* logits, size_t n, uint64_t* out) const {
    for (size_t i = 0; i < n; ++i) out[i] = Bits(logits[i]) - kBitsOfZero;
  }
  uint64_t Sum(const float* logits, size_t n) const {
    uint64_t sum = 0;
    for (size_t i = 0; i < n; ++i) sum += Bits(logits[i]);
    return sum - n * kBitsOfZero;
  }

  // The logit whose token is 2^y times as probable as the best (y <= 0), rounded; at least the lowest whose distance from max is finite.
  float LogitAt(double y) const {
    return static_cast<float>(std::max({max_ + y / exact_scale_, 0.999 * (max_ - kMost), -kMost}));
  }
  // No token with a lower logit has a weight.
  float LeastLogit() const { return LogitAt(-41.01); }

 private:
  static constexpr double kMost = 0x1.fffffep127, kRoundDouble = 0x1p52;
  static constexpr uint64_t kBitsOfZero = std::bit_cast<uint64_t>(kRoundDouble);

  // kBitsOfZero + the weight. With y = n + f, |f| <= 1/2: 2^f is a polynomial that errs by less than 3e-9 (Remez's algorithm, exact for
  // f = 0), times 2^n. y + 1.5 * 2^23 + 40 is rounded to an integer, whose low bits are n + 40; 2^40 is a unit.
  uint64_t Bits(float logit) const {
    constexpr float kRound = 0x1.8p23f + 40;
    const float y = (logit - max_) * scale_;
    const float shifted = y + kRound;
    const float f = y - (shifted - kRound);
    float p = 1.55946772e-4f;
    p = p * f + 1.34066434e-3f;
    p = p * f + 9.61769279e-3f;
    p = p * f + 5.55031039e-2f;
    p = p * f + 2.40226522e-1f;
    p = p * f + 6.93147242e-1f;
    p = p * f + 1.0f;
    const float weight = std::bit_cast<float>(std::bit_cast<uint32_t>(p) + (std::bit_cast<uint32_t>(shifted) << 23));
    return std::bit_cast<uint64_t>(static_cast<double>(weight) + kRoundDouble);
  }

  float max_ = 0;
  double exact_scale_ = 1;
  float scale_ = 1;
};

// log2(x) of x > 0, as above to some units of the last place: the same bits on every machine, which libm does not promise.
inline double ExactLog2(double x) {
  int exponent = 0;
  double m = std::frexp(x, &exponent);  // exact
  if (m < 0x1.6a09e667f3bcdp-1) m *= 2, --exponent;
  const double s = (m - 1) / (m + 1), square = s * s;  // ln m = 2 (s + s^3 / 3 + s^5 / 5 + ...), |s| < .172
  double sum = 0;
  for (int k = 21; k >= 1; k -= 2) sum = sum * square + 1.0 / k;
  return exponent + 0x1.71547652b82fep+1 * s * sum;
}

}  // namespace tally
