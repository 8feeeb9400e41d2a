// SPDX-License-Identifier: Apache-2.0
// Scales of quantised groups by least squares. x: values, w: their weights or null for 1, n of them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

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

// Sums over a group are made in lanes, of values divided by the group's extreme, so that no square overflows or underflows.
using Floats4 [[gnu::vector_size(16)]] = float;  // the compilers' portable vectors: within every target's baseline
inline Floats4 LoadFloats4(const float* x) {
  Floats4 v;
  std::memcpy(&v, x, sizeof v);
  return v;
}
inline Floats4 Weights4(const float* w, int i) { return w == nullptr ? Floats4{1, 1, 1, 1} : LoadFloats4(w + i); }
inline Floats4 Round4(Floats4 x, float lo, float hi) {
  const Floats4 low = Floats4{} + lo, high = Floats4{} + hi, in = x > low ? x : low, out = in < high ? in : high;
  return out + 12582912.0f - 12582912.0f;
}
inline double SumOf(Floats4 v) {
  return static_cast<double>(v[0]) + static_cast<double>(v[1]) + static_cast<double>(v[2]) + static_cast<double>(v[3]);
}

// Levels of a symmetric quantiser: integers kLo..kHi; code = value - kLo.
template <int kLo, int kHi>
struct Uniform {
  static constexpr float kEnds[] = {kLo},
                         kStep = 0.1f;  // the levels that the value of largest magnitude gets, give or take steps
  static float Nearest(float x) { return RoundTo(x, kLo, kHi); }
  static Floats4 Nearest4(Floats4 x) { return Round4(x, kLo, kHi); }
  static int Code(float value) { return static_cast<int>(value) - kLo; }
};

// The scale s that makes sum w (x - s Nearest(x / s))^2 least among 19 candidates near extreme / end for each of kEnds, each moved to
// the best scale for its levels. n: a multiple of 4, at most 32.
template <class Levels>
float SymmetricScale(const float* x, const float* w, int n) {
  const float extreme = Extreme(x, n);
  if (!(std::fabs(extreme) > kTooSmall)) return 0;
  float parts[32];
  for (int i = 0; i < n; ++i) parts[i] = x[i] / extreme;
  double best = 0, most = -1;  // `most`: the sum of squares minus the least error so far
  for (const float end : Levels::kEnds) {
    for (int step = -9; step <= 9; ++step) {
      const float inverse = end + Levels::kStep * static_cast<float>(step);
      Floats4 xq_lanes{}, qq_lanes{};
      for (int i = 0; i < n; i += 4) {
        const Floats4 v = LoadFloats4(parts + i), q = Levels::Nearest4(v * inverse), weighted = Weights4(w, i) * q;
        xq_lanes += v * weighted;
        qq_lanes += weighted * q;
      }
      const double xq = SumOf(xq_lanes), qq = SumOf(qq_lanes);
      if (!(qq > 0) || xq * xq <= most * qq) continue;
      most = xq * xq / qq;
      best = xq / qq;
    }
  }
  return static_cast<float>(best * static_cast<double>(extreme));
}

// sum w (x - scale q - minimum)^2 where q is the nearest of the levels; writes the levels. The sum is divided by `size`^2.
template <class Nearest4>
double QuantiseGroup(const float* x, const float* w, int n, float scale, float minimum, float size, const Nearest4& nearest,
                     float* q) {
  const float inverse = InverseScale(scale), shrink = InverseScale(size);
  Floats4 error{};
  for (int i = 0; i < n; i += 4) {
    const Floats4 v = LoadFloats4(x + i), level = nearest((v - minimum) * inverse),
                  off = (v - (scale * level + minimum)) * shrink;
    error += Weights4(w, i) * off * off;
    std::memcpy(q + i, &level, sizeof level);
  }
  return SumOf(error);
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
    const float size = Extreme(xs, kGroup);
    float best[kGroup] = {}, q[kGroup];
    double least = INFINITY;
    int chosen = near;
    for (int sub = std::max(near - 1, kSubLo); sub <= std::min(near + 1, kSubHi); ++sub) {
      const double error = QuantiseGroup(xs, ws, kGroup, d * static_cast<float>(sub), 0, size, Levels::Nearest4, q);
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

// scale and minimum <= 0 of x ~ scale q + minimum, q in 0..top (n a multiple of 4, at most 32): the least squared error among 21 candidates
// for the range, each moved to the best scale and minimum for its integers.
struct Affine {
  float scale, minimum;
};
inline Affine AffineScale(const float* x, const float* w, int n, int top) {
  float lo = 0, hi = x[0];
  for (int i = 0; i < n; ++i) lo = std::min(lo, x[i]), hi = std::max(hi, x[i]);
  const float levels = static_cast<float>(top), range = hi - lo;
  if (!(range > kTooSmall && range < 1e38f)) return {0, lo};
  float parts[32];  // x = lo + range * part
  for (int i = 0; i < n; ++i) parts[i] = (x[i] - lo) / range;
  const double offset = static_cast<double>(lo / range);
  Affine best = {range / levels, lo};
  double least = INFINITY;
  for (int step = -10; step <= 10; ++step) {
    const float inverse = levels + 0.1f * static_cast<float>(step);
    Floats4 sums[6] = {};
    for (int i = 0; i < n; i += 4) {
      const Floats4 v = LoadFloats4(parts + i), q = Round4(v * inverse, 0, levels), weight = Weights4(w, i);
      sums[0] += weight, sums[1] += weight * v, sums[2] += weight * q;
      sums[3] += weight * v * v, sums[4] += weight * v * q, sums[5] += weight * q * q;
    }
    const double sw = SumOf(sums[0]), sv = SumOf(sums[1]), sq = SumOf(sums[2]), vv = SumOf(sums[3]), vq = SumOf(sums[4]),
                 qq = SumOf(sums[5]), determinant = sw * qq - sq * sq;
    if (!(determinant > 0)) continue;
    double scale = (sw * vq - sv * sq) / determinant, minimum = (qq * sv - sq * vq) / determinant;
    if (minimum + offset > 0) minimum = -offset, scale = (vq + offset * sq) / qq;  // the minimum is 0
    const double error =
        vv - 2 * scale * vq - 2 * minimum * sv + scale * scale * qq + 2 * scale * minimum * sq + minimum * minimum * sw;
    if (!(error < least)) continue;
    least = error;
    best = {static_cast<float>(scale) * range, static_cast<float>(minimum + offset) * range};
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
    const float size = Extreme(xs, kGroup);
    float best[kGroup] = {}, q[kGroup];
    double least = INFINITY;
    int chosen = near, chosen_min = near_min;
    for (int sub = std::max(near - 1, 0); sub <= std::min(near + 1, kSubTop); ++sub) {
      for (int sub_min = std::max(near_min - 1, 0); sub_min <= std::min(near_min + 1, kSubTop); ++sub_min) {
        const double error = QuantiseGroup(
            xs, ws, kGroup, d * static_cast<float>(sub), -(dmin * static_cast<float>(sub_min)), size,
            [](Floats4 v) { return Round4(v, 0, kTop); }, q);
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
