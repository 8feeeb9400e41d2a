// Rotary embedding over vectors of pairs.
#include <cstdint>
#include <cstring>
#include <span>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/rope_hwy.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

// after foreach_target.h, which decides the first target
#include "engine/kernels/lanes-inl.h"
#include "engine/kernels/small_hwy.h"

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

HWY_INLINE void Turn(V& a, V& b, V c, V s) {
  const V first = hn::MulSub(a, c, hn::Mul(b, s));
  b = hn::MulAdd(b, c, hn::Mul(a, s));
  a = first;
}

void TurnHalves(float* x, const float* cos, const float* sin, int64_t half) {
  const D d;
  ForLanes(d, half, [&](auto tail, int64_t i, size_t count) HWY_ATTR {
    V a = LoadLanes(tail, d, x + i, count), b = LoadLanes(tail, d, x + half + i, count);
    Turn(a, b, LoadLanes(tail, d, cos + i, count), LoadLanes(tail, d, sin + i, count));
    StoreLanes(tail, a, d, x + i, count);
    StoreLanes(tail, b, d, x + half + i, count);
  });
}

void TurnAdjacent(float* x, const float* cos, const float* sin, int64_t half) {
  const D d;
  ForLanes(d, half, [&](auto tail, int64_t i, size_t count) HWY_ATTR {
    V a, b;
    if constexpr (tail) {  // there is no masked interleaved load: by way of a buffer
      HWY_ALIGN float pairs[2 * hn::MaxLanes(D())] = {};
      std::memcpy(pairs, x + 2 * i, 2 * count * sizeof(float));
      hn::LoadInterleaved2(d, pairs, a, b);
      Turn(a, b, hn::LoadN(d, cos + i, count), hn::LoadN(d, sin + i, count));
      hn::StoreInterleaved2(a, b, d, pairs);
      std::memcpy(x + 2 * i, pairs, 2 * count * sizeof(float));
    } else {
      hn::LoadInterleaved2(d, x + 2 * i, a, b);
      Turn(a, b, hn::LoadU(d, cos + i), hn::LoadU(d, sin + i));
      hn::StoreInterleaved2(a, b, d, x + 2 * i);
    }
  });
}

void RunRope(const RopeOp& op, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    const int64_t row = t / op.heads;
    float* x = op.x.Row(row) + t % op.heads * op.head_dim;
    if (op.style == RopeStyle::kAdjacentPair) {
      TurnAdjacent(x, op.cos.Row(row), op.sin.Row(row), op.dim / 2);
    } else {
      TurnHalves(x, op.cos.Row(row), op.sin.Row(row), op.dim / 2);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tally {

HWY_EXPORT(RunRope);
void RunRopeHwy(const RopeOp& op, int64_t begin, int64_t end, std::span<uint8_t>) {
  HWY_DYNAMIC_DISPATCH(RunRope)(op, begin, end);
}

}  // namespace tally
#endif
