// Scales of quantised groups by least squares. x: values, w: their weights or null for 1, n of them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "engine/base/float16.h"
#include "engine/kernels/formats/panel_row.h"

namespace tally {

inline float WeightAt(const float* w, int i) { return w == nullptr ? 1.0f : w[i]; }

// The value of largest magnitude.
inline float Extreme(const float* x, int n) {
  float extreme = 0;
  for (int i = 0; i < n; ++i) {
    if (std::fabs(x[i]) > std::fabs(extreme)) extreme = x[i];
  }
  return extreme;
}

// Values below this are far below what the smallest f16 scale gives, and their squares underflow.
inline constexpr float kTooSmall = 1e-30f;

// Rounds to nearest even and clamps; NaN gives lo. |lo|, |hi| < 2^22.
inline float RoundTo(float x, float lo, float hi) {
  const float in = x > lo ? std::min(x, hi) : lo;
  return in + 12582912.0f - 12582912.0f;
}

// Levels of a symmetric quantiser: integers kLo..kHi; code = value - kLo.
template <int kLo, int kHi>
struct Uniform {
  static constexpr float kEnds[] = {kLo},
                         kStep = 0.1f;  // the levels that the value of largest magnitude gets, give or take steps
  static float Nearest(float x) { return RoundTo(x, kLo, kHi); }
  static int Code(float value) { return static_cast<int>(value) - kLo; }
};

// The scale s that makes sum w (x - s Nearest(x / s))^2 least among 19 candidates near extreme / end for each of kEnds, each moved to
// the best scale for its levels.
template <class Levels>
float SymmetricScale(const float* x, const float* w, int n) {
  const float extreme = Extreme(x, n);
  if (!(std::fabs(extreme) > kTooSmall)) return 0;
  double best = 0, most = -1;  // `most`: the sum of squares minus the least error so far
  for (const float end : Levels::kEnds) {
    for (int step = -9; step <= 9; ++step) {
      const float inverse = (end + Levels::kStep * static_cast<float>(step)) / extreme;
      double xq = 0, qq = 0;
      for (int i = 0; i < n; ++i) {
        const double q = static_cast<double>(Levels::Nearest(x[i] * inverse)), weighted = static_cast<double>(WeightAt(w, i)) * q;
        xq += static_cast<double>(x[i]) * weighted;
        qq += weighted * q;
      }
      if (!(qq > 0) || xq * xq <= most * qq) continue;
      most = xq * xq / qq;
      best = xq / qq;
    }
  }
  return static_cast<float>(best);
}

// sum w (x - scale q - minimum)^2 where q is the nearest of the levels; writes the levels.
template <class Nearest>
double QuantiseGroup(const float* x, const float* w, int n, float scale, float minimum, const Nearest& nearest, float* q) {
  const float inverse = InverseScale(scale);
  double error = 0;
  for (int i = 0; i < n; ++i) {
    q[i] = nearest((x[i] - minimum) * inverse);
    const double off = static_cast<double>(x[i]) - static_cast<double>(scale * q[i] + minimum);
    error += static_cast<double>(WeightAt(w, i)) * off * off;
  }
  return error;
}

inline int NearestSub(float x, int lo, int hi) {
  return static_cast<int>(RoundTo(x, static_cast<float>(lo), static_cast<float>(hi)));
}

// A block of kElements values in groups of kGroup with scales d * sub: d f16, sub an integer kSubLo..kSubHi. The greatest scale of a
// group gets kSubLo; every other the neighbouring integer with the least error. set(i, code) and set_sub(group, sub) take the result.
// Returns d's bits.
template <class Levels, int kElements, int kGroup, int kSubLo, int kSubHi, class SetSub, class SetCode>
uint16_t EncodeSymmetric(const float* x, const float* w, const SetSub& set_sub, const SetCode& set_code) {
  constexpr int kGroups = kElements / kGroup;
  float scales[kGroups];
  for (int g = 0; g < kGroups; ++g) {
    scales[g] = SymmetricScale<Levels>(x + kGroup * g, w == nullptr ? nullptr : w + kGroup * g, kGroup);
  }
  const uint16_t bits = F32ToF16(Extreme(scales, kGroups) / static_cast<float>(kSubLo));
  const float d = F16ToF32(bits), inverse = InverseScale(d);
  for (int g = 0; g < kGroups; ++g) {
    const float *xs = x + kGroup * g, *ws = w == nullptr ? nullptr : w + kGroup * g;
    const int near = NearestSub(scales[g] * inverse, kSubLo, kSubHi);
    float best[kGroup] = {}, q[kGroup];
    double least = INFINITY;
    int chosen = near;
    for (int sub = std::max(near - 1, kSubLo); sub <= std::min(near + 1, kSubHi); ++sub) {
      const double error = QuantiseGroup(xs, ws, kGroup, d * static_cast<float>(sub), 0, Levels::Nearest, q);
      if (!(error < least)) continue;
      least = error;
      chosen = sub;
      std::copy(q, q + kGroup, best);
    }
    set_sub(g, chosen);
    for (int i = 0; i < kGroup; ++i) set_code(kGroup * g + i, Levels::Code(best[i]));
  }
  return bits;
}

// scale and minimum <= 0 of x ~ scale q + minimum, q in 0..top: the least squared error among 21 candidates for the range, each moved
// to the best scale and minimum for its integers.
struct Affine {
  float scale, minimum;
};
inline Affine AffineScale(const float* x, const float* w, int n, int top) {
  float lo = 0, hi = x[0];
  for (int i = 0; i < n; ++i) lo = std::min(lo, x[i]), hi = std::max(hi, x[i]);
  const float levels = static_cast<float>(top);
  if (!(hi - lo > kTooSmall)) return {0, lo};
  Affine best = {(hi - lo) / levels, lo};
  double least = INFINITY;
  for (int step = -10; step <= 10; ++step) {
    const float inverse = (levels + 0.1f * static_cast<float>(step)) / (hi - lo);
    double sw = 0, sx = 0, sq = 0, xx = 0, xq = 0, qq = 0;
    for (int i = 0; i < n; ++i) {
      const double q = static_cast<double>(RoundTo((x[i] - lo) * inverse, 0, levels)), v = static_cast<double>(x[i]),
                   weight = static_cast<double>(WeightAt(w, i));
      sw += weight, sx += weight * v, sq += weight * q;
      xx += weight * v * v, xq += weight * v * q, qq += weight * q * q;
    }
    const double determinant = sw * qq - sq * sq;
    if (!(determinant > 0)) continue;
    double scale = (sw * xq - sx * sq) / determinant, minimum = (qq * sx - sq * xq) / determinant;
    if (minimum > 0) minimum = 0, scale = xq / qq;
    const double error =
        xx - 2 * scale * xq - 2 * minimum * sx + scale * scale * qq + 2 * scale * minimum * sq + minimum * minimum * sw;
    if (!(error < least)) continue;
    least = error;
    best = {static_cast<float>(scale), static_cast<float>(minimum)};
  }
  return best;
}

// The same for scales d * sub and minima -dmin * sub, both sub in 0..kSubTop. set_sub(group, sub, sub of the minimum).
struct AffineBits {
  uint16_t d, dmin;
};
template <int kTop, int kElements, int kGroup, int kSubTop, class SetSub, class SetCode>
AffineBits EncodeAffine(const float* x, const float* w, const SetSub& set_sub, const SetCode& set_code) {
  constexpr int kGroups = kElements / kGroup;
  Affine found[kGroups];
  float scale = 0, minimum = 0;
  for (int g = 0; g < kGroups; ++g) {
    found[g] = AffineScale(x + kGroup * g, w == nullptr ? nullptr : w + kGroup * g, kGroup, kTop);
    scale = std::max(scale, found[g].scale), minimum = std::max(minimum, -found[g].minimum);
  }
  const AffineBits bits = {F32ToF16(scale / kSubTop), F32ToF16(minimum / kSubTop)};
  const float d = F16ToF32(bits.d), dmin = F16ToF32(bits.dmin), inverse = InverseScale(d), inverse_min = InverseScale(dmin);
  for (int g = 0; g < kGroups; ++g) {
    const float *xs = x + kGroup * g, *ws = w == nullptr ? nullptr : w + kGroup * g;
    const int near = NearestSub(found[g].scale * inverse, 0, kSubTop),
              near_min = NearestSub(-found[g].minimum * inverse_min, 0, kSubTop);
    float best[kGroup] = {}, q[kGroup];
    double least = INFINITY;
    int chosen = near, chosen_min = near_min;
    for (int sub = std::max(near - 1, 0); sub <= std::min(near + 1, kSubTop); ++sub) {
      for (int sub_min = std::max(near_min - 1, 0); sub_min <= std::min(near_min + 1, kSubTop); ++sub_min) {
        const double error = QuantiseGroup(
            xs, ws, kGroup, d * static_cast<float>(sub), -(dmin * static_cast<float>(sub_min)),
            [](float v) { return RoundTo(v, 0, kTop); }, q);
        if (!(error < least)) continue;
        least = error;
        chosen = sub, chosen_min = sub_min;
        std::copy(q, q + kGroup, best);
      }
    }
    set_sub(g, chosen, chosen_min);
    for (int i = 0; i < kGroup; ++i) set_code(kGroup * g + i, static_cast<int>(best[i]));
  }
  return bits;
}

}  // namespace tally
