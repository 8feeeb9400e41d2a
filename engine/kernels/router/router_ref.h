// SPDX-License-Identifier: Apache-2.0
// The scalar references of RouteOp and MoeCombineOp.
//
// Tolerances of the Highway kernels, u = 2^-24.
//   Route: both choose the same experts: |w - w'| <= RouteTolerance w + m 2^-146. Relative errors of a softmax over m values:
//       exp        4.2 u     the arguments are equal; exp has 1.1 ulp there and 1 ulp here (2.2 u and 2 u)
//       sum        4.2 u of the terms, and (m - 1) u on each side, in any order
//       division   u on each side
//     Together (4.2 + 4.2 + 2 (m - 1) + 2) u, less than t = (2 m + 9) u. Renormalising k weights adds t + 2 (k - 1) u + 2 u. A
//     sigmoid has 4.2 u of exp, and 2 roundings on each side, less than with m = 1. The scale rounds once on each side.
//     m 2^-146: a subnormal exp may differ by a few of the smallest steps, and the division multiplies that by up to m.
//     Scores that differ by less than the tolerance of the sigmoid may be chosen in another order.
//   Combine: targets with FMA give the same bits. Others round each of the k products once more, and then each side rounds k + 1
//     sums: |out - out'| <= (3 k + 2) u (|out before| + sum |w y|).
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <span>

#include "engine/kernels/math_scalar.h"
#include "engine/kernels/router/router.h"
#include "engine/kernels/scalar.h"

namespace tally {

inline double RouteTolerance(const RouteOp& op) {
  const double k = static_cast<double>(op.top_k);
  const double m = SoftmaxOfAll(op.rule) ? static_cast<double>(op.logits.cols) : op.rule == RoutingRule::kTopKThenSoftmax ? k : 1;
  const double softmax = 2 * m + 9 + (op.scale != 1 ? 2 : 0) + (op.expert_scale.empty() ? 0 : 2);
  return (Renormed(op.rule) ? 2 * softmax + 2 * k : softmax) * 0x1p-24;
}
inline double MoeCombineTolerance(int64_t top_k) { return static_cast<double>(3 * top_k + 2) * 0x1p-24; }

// Scratch: a row's probabilities or sigmoids, its scores, the groups' scores, two lists of indices, and a flag for each expert.
inline size_t RouteScratchBytes(const RouteOp& op) { return static_cast<size_t>(op.logits.cols) * (5 * sizeof(float) + 1); }

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

// Sets the scores of experts outside the kept groups to -infinity. `of_group`, `chosen` [groups] and `taken` are work arrays.
template <class S>
void DropGroups(const RouteOp& op, float* scores, float* of_group, uint8_t* taken, int32_t* chosen) {
  const int64_t size = op.logits.cols / op.groups;
  for (int64_t g = 0; g < op.groups; ++g) {
    TopK<S>(scores + g * size, size, op.group_best, taken, chosen);
    S sum(scores[g * size + chosen[0]]);
    for (int64_t i = 1; i < op.group_best; ++i) sum = sum + S(scores[g * size + chosen[i]]);
    of_group[g] = ToF32(sum);
  }
  TopK<S>(of_group, op.groups, op.kept_groups, taken, chosen);
  for (int64_t g = 0; g < op.groups; ++g) {
    if (taken[g] == 0) std::fill_n(scores + g * size, size, -INFINITY);
  }
}

// A task is one row.
template <class S>
void RouteRef(const RouteOp& op, int64_t begin, int64_t end, std::span<uint8_t> scratch) {
  const int64_t n = op.logits.cols, k = op.top_k;
  float* values = reinterpret_cast<float*>(scratch.data());  // what weights are taken from
  float *scores = values + n, *of_group = scores + n;
  int32_t* chosen = reinterpret_cast<int32_t*>(of_group + n);
  uint8_t* taken = reinterpret_cast<uint8_t*>(chosen + 2 * n);
  for (int64_t r = begin; r < end; ++r) {
    const float* logits = op.logits.Row(r);
    int32_t* experts = op.experts.Row(r);
    float* weights = op.weights.Row(r);
    const bool softmax_first = SoftmaxOfAll(op.rule) && !op.bias.empty();
    for (int64_t i = 0; i < n; ++i) values[i] = SigmoidOfAll(op.rule) ? ToF32(Sigmoid(S(logits[i]))) : logits[i];
    if (softmax_first) SoftmaxInPlace<S>(values, n);
    for (int64_t i = 0; i < n; ++i) scores[i] = op.bias.empty() ? values[i] : ToF32(S(values[i]) + S(op.bias.Vector()[i]));
    if (op.groups > 1) DropGroups<S>(op, scores, of_group, taken, chosen);
    TopK<S>(scores, n, k, taken, experts);
    if (SoftmaxOfAll(op.rule) && !softmax_first) SoftmaxInPlace<S>(values, n);
    for (int64_t s = 0; s < k; ++s) {
      const float value = values[experts[s]];
      weights[s] = op.rule == RoutingRule::kTopKThenSigmoid ? ToF32(Sigmoid(S(value))) : value;
    }
    if (op.rule == RoutingRule::kTopKThenSoftmax) SoftmaxInPlace<S>(weights, k);
    if (Renormed(op.rule)) {
      S sum(weights[0]);
      for (int64_t s = 1; s < k; ++s) sum = sum + S(weights[s]);
      if (op.sum_eps != 0) sum = sum + S(op.sum_eps);
      for (int64_t s = 0; s < k; ++s) weights[s] = ToF32(S(weights[s]) / sum);
    }
    if (op.scale != 1) {
      for (int64_t s = 0; s < k; ++s) weights[s] = ToF32(S(weights[s]) * S(op.scale));
    }
    if (!op.expert_scale.empty()) {
      for (int64_t s = 0; s < k; ++s) weights[s] = ToF32(S(weights[s]) * S(op.expert_scale.Vector()[experts[s]]));
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
      for (int64_t s = 0; s < k; ++s) {
        const S y(op.y.Row(t * k + s)[i]);
        sum = op.weighted ? Fma(S(w[s]), y, sum) : sum + y;
      }
      out[i] = ToF32(op.add_to_out ? S(out[i]) + sum : sum);
    }
  }
}

}  // namespace tally
