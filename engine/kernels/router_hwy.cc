// The weighted sum of expert outputs over vectors of columns; slots are added in order.
#include <cstdint>
#include <span>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/router_hwy.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

// after foreach_target.h, which decides the first target
#include "engine/kernels/lanes-inl.h"
#include "engine/kernels/small_hwy.h"

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void RunMoeCombine(const MoeCombineOp& op, int64_t begin, int64_t end) {
  const hn::ScalableTag<float> d;
  const int64_t k = op.weights.cols;
  for (int64_t t = begin; t < end; ++t) {
    const float* w = op.weights.Row(t);
    float* out = op.out.Row(t);
    ForLanes(d, op.out.cols, [&](auto tail, int64_t i, size_t count) HWY_ATTR {
      auto sum = hn::Zero(d);
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

HWY_EXPORT(RunMoeCombine);
void RunMoeCombineHwy(const MoeCombineOp& op, int64_t begin, int64_t end, std::span<uint8_t>) {
  HWY_DYNAMIC_DISPATCH(RunMoeCombine)(op, begin, end);
}

}  // namespace tally
#endif
