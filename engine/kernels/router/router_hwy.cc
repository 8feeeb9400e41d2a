// Routing: lanes are experts. The weighted sum of expert outputs: lanes are columns, and slots are added in order.
#include <cstdint>
#include <span>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/router/router_hwy.cc"
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

// Divides by the sum.
void Renormalise(float* v, int64_t n) {
  const D d;
  V sums = hn::Zero(d);
  ForLanes(d, n, [&](auto tail, int64_t i, size_t count) HWY_ATTR { sums = hn::Add(sums, LoadLanes(tail, d, v + i, count)); });
  const V sum = hn::Set(d, hn::ReduceSum(d, sums));
  ForLanes(d, n, [&](auto tail, int64_t i, size_t count) HWY_ATTR {
    StoreLanes(tail, hn::Div(LoadLanes(tail, d, v + i, count), sum), d, v + i, count);
  });
}

// Scratch: the keys, padded to whole vectors; for rules with a softmax over all experts, the probabilities.
void RunRoute(const RouteOp& op, int64_t begin, int64_t end, std::span<uint8_t> scratch) {
  const D d;
  const DI di;
  const int64_t n = op.logits.cols, k = op.top_k, lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t padded = (n + lanes - 1) / lanes * lanes;
  int32_t* keys = reinterpret_cast<int32_t*>(scratch.data());
  float* probabilities = reinterpret_cast<float*>(keys + padded);
  for (int64_t t = begin; t < end; ++t) {
    const float* logits = op.logits.Row(t);
    int32_t* experts = op.experts.Row(t);
    float* weights = op.weights.Row(t);
    ForLanes(d, n, [&](auto tail, int64_t i, size_t count) HWY_ATTR {
      VI key = OrderedKey(LoadLanes(tail, d, logits + i, count));
      if constexpr (tail) key = hn::IfThenElse(hn::FirstN(di, count), key, hn::Set(di, kTaken));
      hn::Store(key, di, keys + i);
    });
    TopK(keys, padded, k, experts);
    const float greatest = logits[experts[0]];
    const bool all = op.rule != RoutingRule::kTopKThenSoftmax;
    if (all) Softmax(logits, n, greatest, probabilities);
    for (int64_t s = 0; s < k; ++s) weights[s] = (all ? probabilities : logits)[experts[s]];
    if (!all) Softmax(weights, k, greatest, weights);
    if (op.rule == RoutingRule::kSoftmaxThenTopKRenormed) Renormalise(weights, k);
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
        sum = hn::MulAdd(hn::Set(d, w[s]), LoadLanes(tail, d, op.y.Row(t * k + s) + i, count), sum);
      }
      StoreLanes(tail, hn::Add(LoadLanes(tail, d, out + i, count), sum), d, out + i, count);
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
