// The scalar references of RouteOp and MoeCombineOp.
//
// Tolerances of the Highway kernels, u = 2^-24.
//   Route: both choose the same experts: |w - w'| <= RouteTolerance w + m 2^-146. Relative errors of a softmax over m values:
//       exp        4.2 u     the arguments are equal; exp has 1.1 ulp there and 1 ulp here (2.2 u and 2 u)
//       sum        4.2 u of the terms, and (m - 1) u on each side, in any order
//       division   u on each side
//     Together (4.2 + 4.2 + 2 (m - 1) + 2) u, less than t = (2 m + 9) u. Renormalising k weights adds t + 2 (k - 1) u + 2 u.
//     m 2^-146: a subnormal exp may differ by a few of the smallest steps, and the division multiplies that by up to m.
//   Combine: targets with FMA give the same bits. Others round each of the k products once more, and then each side rounds k + 1
//     sums: |out - out'| <= (3 k + 2) u (|out before| + sum |w y|).
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <span>

#include "engine/kernels/router/router.h"
#include "engine/kernels/scalar.h"

namespace tally {

inline double RouteTolerance(const RouteOp& op) {
  const double k = static_cast<double>(op.top_k);
  const double m = op.rule == RoutingRule::kTopKThenSoftmax ? k : static_cast<double>(op.logits.cols);
  const double softmax = 2 * m + 9;
  return (op.rule == RoutingRule::kSoftmaxThenTopKRenormed ? 2 * softmax + 2 * k : softmax) * 0x1p-24;
}
inline double MoeCombineTolerance(int64_t top_k) { return static_cast<double>(3 * top_k + 2) * 0x1p-24; }

// Scratch: the probabilities of one row, and a flag for each expert that is taken.
inline size_t RouteScratchBytes(const RouteOp& op) { return static_cast<size_t>(op.logits.cols) * (sizeof(float) + 1); }

// Indices of the k largest values, descending, ties to the lower index, by k passes of n compares. A NaN ranks above all numbers,
// so that it reaches the weights.
template <class S>
void TopK(const float* values, int64_t n, int64_t k, uint8_t* taken, int32_t* chosen) {
  auto is_nan = [](float v) { return (std::bit_cast<uint32_t>(v) & 0x7fffffffu) > 0x7f800000u; };
  for (int64_t i = 0; i < n; ++i) taken[i] = 0;
  for (int64_t slot = 0; slot < k; ++slot) {
    int64_t best = -1;
    float best_value = -INFINITY;
    for (int64_t i = 0; i < n; ++i) {
      const bool greater = S(values[i]) > S(best_value);
      if (taken[i] != 0) continue;
      if (best < 0 || greater || (is_nan(values[i]) && !is_nan(best_value))) {
        best = i;
        best_value = values[i];
      }
    }
    taken[best] = 1;
    chosen[slot] = static_cast<int32_t>(best);
  }
}

// In place, over n values: n max, n subtractions, n adds; n exps, n divides.
template <class S>
void SoftmaxInPlace(float* v, int64_t n) {
  S max(-INFINITY), sum(0.0f);
  for (int64_t i = 0; i < n; ++i) max = Max(S(v[i]), max);
  for (int64_t i = 0; i < n; ++i) {
    const S e = Exp(S(v[i]) - max);
    v[i] = ToF32(e);
    sum = sum + e;
  }
  for (int64_t i = 0; i < n; ++i) v[i] = ToF32(S(v[i]) / sum);
}

// A task is one row.
template <class S>
void RouteRef(const RouteOp& op, int64_t begin, int64_t end, std::span<uint8_t> scratch) {
  const int64_t n = op.logits.cols, k = op.top_k;
  float* probabilities = reinterpret_cast<float*>(scratch.data());
  uint8_t* taken = scratch.data() + static_cast<size_t>(n) * sizeof(float);
  for (int64_t r = begin; r < end; ++r) {
    const float* logits = op.logits.Row(r);
    int32_t* experts = op.experts.Row(r);
    float* weights = op.weights.Row(r);
    TopK<S>(logits, n, k, taken, experts);
    if (op.rule == RoutingRule::kTopKThenSoftmax) {
      for (int64_t s = 0; s < k; ++s) weights[s] = logits[experts[s]];
      SoftmaxInPlace<S>(weights, k);
      continue;
    }
    for (int64_t i = 0; i < n; ++i) probabilities[i] = logits[i];
    SoftmaxInPlace<S>(probabilities, n);
    for (int64_t s = 0; s < k; ++s) weights[s] = probabilities[experts[s]];
    if (op.rule == RoutingRule::kSoftmaxThenTopKRenormed) {
      S sum(weights[0]);
      for (int64_t s = 1; s < k; ++s) sum = sum + S(weights[s]);
      for (int64_t s = 0; s < k; ++s) weights[s] = ToF32(S(weights[s]) / sum);
    }
  }
}

// A task is one row of out.
template <class S>
void MoeCombineRef(const MoeCombineOp& op, int64_t begin, int64_t end) {
  const int64_t k = op.weights.cols;
  for (int64_t t = begin; t < end; ++t) {
    const float* w = op.weights.Row(t);
    float* out = op.out.Row(t);
    for (int64_t i = 0; i < op.out.cols; ++i) {
      S sum(0.0f);
      for (int64_t s = 0; s < k; ++s) sum = Fma(S(w[s]), S(op.y.Row(t * k + s)[i]), sum);
      out[i] = ToF32(S(out[i]) + sum);
    }
  }
}

}  // namespace tally
