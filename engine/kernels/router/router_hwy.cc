// SPDX-License-Identifier: Apache-2.0
// Routing: lanes are experts. The weighted sum of expert outputs: lanes are columns, and slots are added in order.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>

#ifndef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/router/router_hwy.cc"
#endif
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

// after foreach_target.h, which decides the first target
#include "engine/kernels/lanes-inl.h"
#include "engine/kernels/math-inl.h"
#include "engine/kernels/router/router.h"

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using DI = hn::RebindToSigned<D>;
using V = hn::Vec<D>;
using VI = hn::Vec<DI>;

inline constexpr int32_t kTaken = INT32_MIN;  // below the key of -infinity

// Integers with the order of the values. Both zeros give 0; every NaN is above infinity.
HWY_INLINE VI OrderedKey(V v) {
  const DI di;
  const VI bits = hn::BitCast(di, v), magnitude = hn::And(bits, hn::Set(di, 0x7fffffff));
  const VI key = hn::IfNegativeThenElse(bits, hn::Neg(magnitude), magnitude);
  return hn::IfThenElse(hn::Gt(magnitude, hn::Set(di, 0x7f800000)), hn::Set(di, INT32_MAX), key);
}

HWY_INLINE int32_t OrderedKeyOf(float v) { return hn::GetLane(OrderedKey(hn::Set(D(), v))); }

// Indices of the k largest of `padded` keys (whole vectors), descending, ties to the lower index. Sets the chosen keys to kTaken.
void TopK(int32_t* HWY_RESTRICT keys, int64_t padded, int64_t k, int32_t* HWY_RESTRICT chosen) {
  const DI di;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(di));
  for (int64_t slot = 0; slot < k; ++slot) {
    VI best = hn::Load(di, keys), index = hn::Iota(di, 0), best_index = index;
    for (int64_t i = lanes; i < padded; i += lanes) {
      index = hn::Add(index, hn::Set(di, static_cast<int32_t>(lanes)));
      const VI key = hn::Load(di, keys + i);
      const auto greater = hn::Gt(key, best);  // keeps the first of equal keys in a lane
      best = hn::IfThenElse(greater, key, best);
      best_index = hn::IfThenElse(greater, index, best_index);
    }
    const auto greatest = hn::Eq(best, hn::Set(di, hn::ReduceMax(di, best)));
    chosen[slot] = hn::ReduceMin(di, hn::IfThenElse(greatest, best_index, hn::Set(di, INT32_MAX)));
    keys[chosen[slot]] = kTaken;
  }
}

// NaNs do not count.
float Greatest(const float* x, int64_t n) {
  const D d;
  V greatest = hn::Set(d, -INFINITY);
  ForLanes(d, n, [&](auto tail, int64_t i, size_t count) HWY_ATTR {
    V v = LoadLanes(tail, d, x + i, count);
    if constexpr (tail) v = hn::IfThenElse(hn::FirstN(d, count), v, greatest);
    greatest = hn::Max(v, greatest);
  });
  return hn::ReduceMax(d, greatest);
}

// x may be out. If `greatest` is NaN or infinite, all results are NaN.
void Softmax(const float* x, int64_t n, float greatest, float* out) {
  const D d;
  const V max = hn::Set(d, greatest);
  V sums = hn::Zero(d);
  ForLanes(d, n, [&](auto tail, int64_t i, size_t count) HWY_ATTR {
    const V e = Exp(d, hn::Sub(LoadLanes(tail, d, x + i, count), max));
    StoreLanes(tail, e, d, out + i, count);
    sums = hn::Add(sums, ZeroBeyond(tail, d, e, count));
  });
  const V sum = hn::Set(d, hn::ReduceSum(d, sums));
  ForLanes(d, n, [&](auto tail, int64_t i, size_t count) HWY_ATTR {
    StoreLanes(tail, hn::Div(LoadLanes(tail, d, out + i, count), sum), d, out + i, count);
  });
}

// Divides by the sum, which `eps` joins.
void Renormalise(float* v, int64_t n, float eps) {
  const D d;
  V sums = hn::Zero(d);
  ForLanes(d, n, [&](auto tail, int64_t i, size_t count) HWY_ATTR { sums = hn::Add(sums, LoadLanes(tail, d, v + i, count)); });
  const V sum = hn::Set(d, hn::ReduceSum(d, sums) + eps);
  ForLanes(d, n, [&](auto tail, int64_t i, size_t count) HWY_ATTR {
    StoreLanes(tail, hn::Div(LoadLanes(tail, d, v + i, count), sum), d, v + i, count);
  });
}

// Sets the keys of the experts outside the kept groups to kTaken. `of_group` [groups] is a work array.
void DropGroups(const RouteOp& op, const float* scores, int32_t* keys, int32_t* of_group) {
  const int64_t size = op.logits.cols / op.groups;
  for (int64_t g = 0; g < op.groups; ++g) {
    float sum = 0;
    int64_t last = -1;
    for (int64_t i = 0; i < op.group_best; ++i) {
      int64_t best = -1;  // the next in order after `last`
      for (int64_t e = g * size; e < (g + 1) * size; ++e) {
        const bool left = last < 0 || keys[e] < keys[last] || (keys[e] == keys[last] && e > last);
        if (left && (best < 0 || keys[e] > keys[best])) best = e;
      }
      sum = i == 0 ? scores[best] : sum + scores[best];
      last = best;
    }
    of_group[g] = OrderedKeyOf(sum);
  }
  for (int64_t i = 0; i < op.kept_groups; ++i) *std::max_element(of_group, of_group + op.groups) = kTaken;
  for (int64_t g = 0; g < op.groups; ++g) {
    if (of_group[g] != kTaken) std::fill_n(keys + g * size, size, kTaken);
  }
}

// The values that weights are made from, and the scores that experts are chosen by; both may be the logits. `values` and `scores` are work
// arrays [X].
struct Scored {
  const float *values, *scores;
};
Scored ScoreExperts(const RouteOp& op, const float* logits, float* values, float* scores) {
  const D d;
  const float* bias = op.bias.empty() ? nullptr : op.bias.Vector();
  const bool softmax = SoftmaxOfAll(op.rule) && bias != nullptr;
  if (!softmax && !SigmoidOfAll(op.rule)) return {logits, logits};
  if (softmax) Softmax(logits, op.logits.cols, Greatest(logits, op.logits.cols), values);
  ForLanes(d, op.logits.cols, [&](auto tail, int64_t i, size_t count) HWY_ATTR {
    const V v = softmax ? LoadLanes(tail, d, values + i, count) : Sigmoid(d, LoadLanes(tail, d, logits + i, count));
    if (!softmax) StoreLanes(tail, v, d, values + i, count);
    if (bias != nullptr) StoreLanes(tail, hn::Add(v, LoadLanes(tail, d, bias + i, count)), d, scores + i, count);
  });
  return {values, bias != nullptr ? scores : values};
}

// Scratch: four arrays of one element for each expert, padded to whole vectors: keys, values, scores, keys of groups.
void RunRoute(const RouteOp& op, int64_t begin, int64_t end, std::span<uint8_t> scratch) {
  const D d;
  const DI di;
  const int64_t n = op.logits.cols, k = op.top_k, lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t padded = (n + lanes - 1) / lanes * lanes;
  int32_t* keys = reinterpret_cast<int32_t*>(scratch.data());
  float *values = reinterpret_cast<float*>(keys + padded), *scores = values + padded;
  int32_t* of_group = reinterpret_cast<int32_t*>(scores + padded);
  for (int64_t t = begin; t < end; ++t) {
    const float* logits = op.logits.Row(t);
    int32_t* experts = op.experts.Row(t);
    float* weights = op.weights.Row(t);
    const Scored scored = ScoreExperts(op, logits, values, scores);
    ForLanes(d, n, [&](auto tail, int64_t i, size_t count) HWY_ATTR {
      VI key = OrderedKey(LoadLanes(tail, d, scored.scores + i, count));
      if constexpr (tail) key = hn::IfThenElse(hn::FirstN(di, count), key, hn::Set(di, kTaken));
      hn::Store(key, di, keys + i);
    });
    if (op.groups > 1) DropGroups(op, scored.scores, keys, of_group);
    TopK(keys, padded, k, experts);
    const float greatest = logits[experts[0]];
    const float* from = scored.values;
    if (SoftmaxOfAll(op.rule) && op.bias.empty()) {
      Softmax(logits, n, greatest, values);
      from = values;
    }
    for (int64_t s = 0; s < k; ++s) weights[s] = from[experts[s]];
    if (op.rule == RoutingRule::kTopKThenSoftmax) Softmax(weights, k, greatest, weights);
    if (op.rule == RoutingRule::kTopKThenSigmoid) {
      ForLanes(d, k, [&](auto tail, int64_t i, size_t count) HWY_ATTR {
        StoreLanes(tail, Sigmoid(d, LoadLanes(tail, d, weights + i, count)), d, weights + i, count);
      });
    }
    if (Renormed(op.rule)) Renormalise(weights, k, op.sum_eps);
    if (op.scale != 1) {
      ForLanes(d, k, [&](auto tail, int64_t i, size_t count) HWY_ATTR {
        StoreLanes(tail, hn::Mul(LoadLanes(tail, d, weights + i, count), hn::Set(d, op.scale)), d, weights + i, count);
      });
    }
    if (!op.expert_scale.empty()) {
      for (int64_t s = 0; s < k; ++s) weights[s] *= op.expert_scale.Vector()[experts[s]];
    }
  }
}

void RunMoeCombine(const MoeCombineOp& op, int64_t begin, int64_t end) {
  const D d;
  const int64_t k = op.weights.cols;
  for (int64_t t = begin; t < end; ++t) {
    const float* w = op.weights.Row(t);
    float* out = op.out.Row(t);
    ForLanes(d, op.out.cols, [&](auto tail, int64_t i, size_t count) HWY_ATTR {
      V sum = hn::Zero(d);
      for (int64_t s = 0; s < k; ++s) {
        const V y = LoadLanes(tail, d, op.y.Row(t * k + s) + i, count);
        sum = op.weighted ? hn::MulAdd(hn::Set(d, w[s]), y, sum) : hn::Add(sum, y);
      }
      if (op.add_to_out) sum = hn::Add(LoadLanes(tail, d, out + i, count), sum);
      StoreLanes(tail, sum, d, out + i, count);
    });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tally {

HWY_EXPORT(RunRoute);
void RunRouteHwy(const RouteOp& op, int64_t begin, int64_t end, std::span<uint8_t> scratch) {
  HWY_DYNAMIC_DISPATCH(RunRoute)(op, begin, end, scratch);
}

HWY_EXPORT(RunMoeCombine);
void RunMoeCombineHwy(const MoeCombineOp& op, int64_t begin, int64_t end, std::span<uint8_t>) {
  HWY_DYNAMIC_DISPATCH(RunMoeCombine)(op, begin, end);
}

}  // namespace tally
#endif
