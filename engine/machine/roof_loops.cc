// SPDX-License-Identifier: Apache-2.0
#include "engine/machine/roof_loops.h"

#include <hwy/cache_control.h>

#include <array>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/machine/roof_loops.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

uint64_t ReadAllT(const uint8_t* p, size_t bytes, ReadAhead ahead) {
  const hn::CappedTag<uint64_t, 8> d;  // 64 bytes at most, so that four vectors divide 256 bytes
  const size_t step = hn::Lanes(d) * sizeof(uint64_t);
  auto a = hn::Zero(d), b = a, c = a, e = a;
  for (size_t i = 0; i < bytes; i += 256) {
    if (ahead.first_cache != 0) {
      for (size_t line = 0; line < 256; line += 64) hwy::Prefetch(p + i + ahead.first_cache + line);
    }
    if (ahead.second_cache != 0) {
      for (size_t line = 0; line < 256; line += 64) __builtin_prefetch(p + i + ahead.second_cache + line, 0, 2);
    }
    for (size_t j = i; j < i + 256; j += 4 * step) {
      const uint64_t* const w = reinterpret_cast<const uint64_t*>(p + j);
      const size_t n = hn::Lanes(d);
      a = hn::Xor(a, hn::LoadU(d, w));
      b = hn::Xor(b, hn::LoadU(d, w + n));
      c = hn::Xor(c, hn::LoadU(d, w + 2 * n));
      e = hn::Xor(e, hn::LoadU(d, w + 3 * n));
    }
  }
  a = hn::Xor(hn::Xor(a, b), hn::Xor(c, e));
  uint64_t words[8] = {};
  hn::StoreU(a, d, words);
  uint64_t sum = 0;
  for (size_t i = 0; i < hn::Lanes(d); ++i) sum ^= words[i];
  return sum;
}

// Twelve sums, as a kernel's tile has them: 4 factors x 3 factors. `op(r, c, sum)` loads its two factors
// through pointers that the compiler knows nothing of, but that do not change: it keeps them in registers and
// cannot do the sums beforehand.
template <class D, class Op>
HWY_INLINE void Tile(D d, int64_t iterations, Op op) {
  auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0, s4 = s0, s5 = s0, s6 = s0, s7 = s0, s8 = s0, s9 = s0, s10 = s0, s11 = s0;
  for (int64_t i = 0; i < iterations; ++i) {
    s0 = op(0, 0, s0), s1 = op(0, 1, s1), s2 = op(0, 2, s2), s3 = op(1, 0, s3), s4 = op(1, 1, s4), s5 = op(1, 2, s5);
    s6 = op(2, 0, s6), s7 = op(2, 1, s7), s8 = op(2, 2, s8), s9 = op(3, 0, s9), s10 = op(3, 1, s10), s11 = op(3, 2, s11);
  }
  s0 = hn::Add(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)), hn::Add(hn::Add(s4, s5), hn::Add(s6, s7)));
  hwy::PreventElision(hn::GetLane(hn::Add(s0, hn::Add(hn::Add(s8, s9), hn::Add(s10, s11)))));
}

// The factors: zeros, so that sums stay zero, behind a pointer that PreventElision hides from the compiler.
template <class T>
struct Factors {
  const T* rows;
  const T* cols;
  size_t lanes;
};

template <class T, class D>
Factors<T> HiddenZeros(D d, const T* zeros) {
  hwy::PreventElision(zeros);
  return {zeros, zeros + 4 * hn::Lanes(d), hn::Lanes(d)};
}

// Seven vectors of the widest target (SVE: 256 bytes) fit.
HWY_ALIGN constexpr std::array<uint8_t, 7 * 256> kZeros = {};

struct FmaOp {
  Factors<float> f;
  template <class V>
  HWY_INLINE V operator()(size_t r, size_t c, V sum) const {
    const hn::ScalableTag<float> d;
    return hn::MulAdd(hn::LoadU(d, f.rows + r * f.lanes), hn::LoadU(d, f.cols + c * f.lanes), sum);
  }
};

void FmaT(int64_t iterations) {
  const hn::ScalableTag<float> d;
  Tile(d, iterations, FmaOp{HiddenZeros(d, reinterpret_cast<const float*>(kZeros.data()))});
}

struct DotOp {
  Factors<int8_t> f;
  template <class V>
  HWY_INLINE V operator()(size_t r, size_t c, V sum) const {
    const hn::ScalableTag<int8_t> d;
    const hn::ScalableTag<int32_t> sums;
    return hn::SumOfMulQuadAccumulate(sums, hn::LoadU(d, f.rows + r * f.lanes), hn::LoadU(d, f.cols + c * f.lanes), sum);
  }
};

void DotT(int64_t iterations) {
  const hn::ScalableTag<int8_t> d;
  const hn::ScalableTag<int32_t> sums;
  Tile(sums, iterations, DotOp{HiddenZeros(d, reinterpret_cast<const int8_t*>(kZeros.data()))});
}

struct Bf16Op {
  Factors<hwy::bfloat16_t> f;
  template <class V>
  HWY_INLINE V operator()(size_t r, size_t c, V sum) const {
    const hn::ScalableTag<hwy::bfloat16_t> d;
    const hn::ScalableTag<float> sums;
    V odd = hn::Zero(sums);  // where the dot product is native it stays zero and costs nothing
    return hn::ReorderWidenMulAccumulate(sums, hn::LoadU(d, f.rows + r * f.lanes), hn::LoadU(d, f.cols + c * f.lanes), sum, odd);
  }
};

void Bf16T(int64_t iterations) {
  const hn::ScalableTag<hwy::bfloat16_t> d;
  const hn::ScalableTag<float> sums;
  Tile(sums, iterations, Bf16Op{HiddenZeros(d, reinterpret_cast<const hwy::bfloat16_t*>(kZeros.data()))});
}

int64_t FloatLanesT() { return static_cast<int64_t>(hn::Lanes(hn::ScalableTag<float>())); }

bool NativeBf16T() { return HWY_NATIVE_DOT_BF16 != 0; }

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tally {

HWY_EXPORT(ReadAllT);
HWY_EXPORT(FmaT);
HWY_EXPORT(DotT);
HWY_EXPORT(Bf16T);
HWY_EXPORT(FloatLanesT);
HWY_EXPORT(NativeBf16T);

uint64_t ReadAll(const uint8_t* p, size_t bytes, ReadAhead ahead) { return HWY_DYNAMIC_DISPATCH(ReadAllT)(p, bytes, ahead); }

std::vector<ArithmeticLoop> PortableLoops() {
  const int64_t lanes = HWY_DYNAMIC_DISPATCH(FloatLanesT)();
  std::vector<ArithmeticLoop> loops;
  loops.push_back({PeakKind::kF32, "MulAdd", 12 * lanes * 2, [](int64_t n) { HWY_DYNAMIC_DISPATCH(FmaT)(n); }});
  if (HWY_DYNAMIC_DISPATCH(NativeBf16T)()) {
    loops.push_back({PeakKind::kBF16, "ReorderWidenMulAccumulate", 12 * lanes * 2 * 2, [](int64_t n) {
                       HWY_DYNAMIC_DISPATCH(Bf16T)(n);
                     }});
  }
  loops.push_back({PeakKind::kInt8, "SumOfMulQuadAccumulate", 12 * lanes * 4 * 2, [](int64_t n) {
                     HWY_DYNAMIC_DISPATCH(DotT)(n);
                   }});
  return loops;
}

}  // namespace tally
#endif
