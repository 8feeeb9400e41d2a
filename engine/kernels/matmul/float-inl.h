// SPDX-License-Identifier: Apache-2.0
// f32 products: acc = fma(w[k], x[k], acc), k in order.
//
// The Vector<NAME> of a format that is not quantised has Widen(step, v, w), which widens vector v of a step: kStepK values of k.
#include "engine/kernels/embed/embed-inl.h"
#include "engine/kernels/matmul/amx_quantised-inl.h"
#include "engine/kernels/matmul/int8-inl.h"

#if defined(TALLY_MATMUL_FLOAT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TALLY_MATMUL_FLOAT_INL_H_
#undef TALLY_MATMUL_FLOAT_INL_H_
#else
#define TALLY_MATMUL_FLOAT_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {

// Rows of a tile per microkernel call. 16-lane targets have 32 registers, AVX2 and SSE4 have 16.
inline constexpr int kStreamSubTile = kLanes >= 16 ? 6 : (kLanes == 8 ? 3 : 1);

HWY_INLINE VF Broadcast(const float* p) { return hn::Set(DF(), *p); }

// Widens k in [k0, k0 + n) of two panels to [n][32] f32.
using WidenPanels = void (*)(const uint8_t* p0, const uint8_t* p1, int64_t k0, int64_t n, float* HWY_RESTRICT out);

// f32 activations, many rows: widens the pair of panels in pieces of K, and multiplies each piece by every tile of the group.
// products_hwy.cc.
void FloatGroup(const MatJob& job, const RowGroup& group, const PanelPair& panels, const Epilogue& epilogue,
                std::span<uint8_t> scratch, WidenPanels widen);
// f32 activations, any rows, each pair of panels as FloatGroup.
void RunWidened(const MatJob& job, int64_t begin, int64_t end, std::span<uint8_t> scratch, WidenPanels widen);

// Few rows: widens the weights in registers. acc: [T][32]. x: [K][tile] f32, from the first of the T rows on.
template <class F, int T>
HWY_NOINLINE void StreamMicro(const uint8_t* HWY_RESTRICT p0, const uint8_t* HWY_RESTRICT p1, const float* HWY_RESTRICT x,
                              int tile, int64_t cols, float* HWY_RESTRICT acc) {
  const DF df;
  constexpr int kStepK = F::kStepK, kVecs = 2 * kPanelVecs;
  VF f[T][kVecs];
  HWY_UNROLL(8) for (int j = 0; j < T; ++j) HWY_UNROLL(16) for (int v = 0; v < kVecs; ++v) f[j][v] = hn::Zero(df);
  int64_t k = 0;
  for (; k + kStepK <= cols; k += kStepK, p0 += 64, p1 += 64, x += kStepK * tile) {
    hwy::Prefetch(p0 + 2048);
    hwy::Prefetch(p1 + 2048);
    HWY_UNROLL(16) for (int v = 0; v < kVecs; ++v) {
      VF w[kStepK];
      F::Widen(v < kPanelVecs ? p0 : p1, v % kPanelVecs, w);
      HWY_UNROLL(2) for (int i = 0; i < kStepK; ++i) {
        HWY_UNROLL(8) for (int j = 0; j < T; ++j) f[j][v] = hn::MulAdd(w[i], Broadcast(x + i * tile + j), f[j][v]);
      }
    }
  }
  if (k < cols) {  // an odd K: the second half of the last pair is padding
    for (int v = 0; v < kVecs; ++v) {
      VF w[kStepK];
      F::Widen(v < kPanelVecs ? p0 : p1, v % kPanelVecs, w);
      for (int j = 0; j < T; ++j) f[j][v] = hn::MulAdd(w[0], Broadcast(x + j), f[j][v]);
    }
  }
  HWY_UNROLL(8) for (int j = 0; j < T; ++j) {
    HWY_UNROLL(16) for (int v = 0; v < kVecs; ++v) hn::StoreU(f[j][v], df, acc + 32 * j + kLanes * v);
  }
}

// Widens k in [k0, k0 + n) of two panels to [n][32] f32.
template <class F>
void WidenPair(const uint8_t* p0, const uint8_t* p1, int64_t k0, int64_t n, float* HWY_RESTRICT out) {
  for (int64_t k = 0; k < n; k += F::kStepK) {
    const size_t at = static_cast<size_t>((k0 + k) / F::kStepK) * 64;
    for (int v = 0; v < 2 * kPanelVecs; ++v) {
      VF w[F::kStepK];
      F::Widen((v < kPanelVecs ? p0 : p1) + at, v % kPanelVecs, w);
      for (int i = 0; i < F::kStepK; ++i) {
        if (k + i < n) hn::Store(w[i], DF(), out + 32 * (k + i) + kLanes * v);
      }
    }
  }
}

// The same for block-quantised formats. The values have the same bits as Decode's.
template <class F>
void DequantisePair(const uint8_t* p0, const uint8_t* p1, int64_t k0, int64_t n, float* HWY_RESTRICT out) {
  const DF df;
  const DI di;
  PackedSource<F> panels[] = {{F::At(p0, k0 / kInt8Block)}, {F::At(p1, k0 / kInt8Block)}};
  for (int64_t b = 0; b < n / kInt8Block; ++b) {
    for (PackedSource<F>& src : panels) src.Begin();
    for (int v = 0; v < 2 * kPanelVecs; ++v) {
      const PackedSource<F>& src = panels[v / kPanelVecs];
      const int pv = v % kPanelVecs;
      const HalfScales<F> halves[] = {{src, 0, pv}, {src, 1, pv}};
      for (int c = 0; c < 4; ++c) {
        VU8 steps[2];
        src.Steps(c, pv, steps[0], steps[1]);
        for (int h = 0; h < 2; ++h) {
          const VI word = hn::BitCast(di, steps[h]);
          const int64_t step = static_cast<int64_t>(StepOf<F>(c, h)), k = kInt8Block * b + 4 * step;
          const VI parts[4] = {hn::ShiftLeft<24>(word), hn::ShiftLeft<16>(word), hn::ShiftLeft<8>(word), word};
          for (int i = 0; i < 4; ++i) {
            const VI stored = hn::BitCast(di, hn::ShiftRight<24>(hn::BitCast(DU(), parts[i])));
            const VI q = hn::Sub(stored, hn::Set(di, F::kInt8.offset));
            const HalfScales<F>& half = halves[step / 4];
            VF w = hn::Mul(half.scale, hn::ConvertTo(df, q));
            if constexpr (F::kInt8.minima) w = hn::Add(w, half.minimum);
            hn::Store(w, df, out + 32 * (k + i) + kLanes * v);
          }
        }
      }
    }
    for (PackedSource<F>& src : panels) src.Next();
  }
}

// f32 activations times weights that are not quantised.
template <class F>
void RunFloat(const MatJob& job, int64_t begin, int64_t end, std::span<uint8_t> scratch) {
  constexpr int kTile = ActTile(ActKind::kF32);
  alignas(64) float acc[kTile * 32];
  ForEachGroup(job, begin, end, [&](const RowGroup& group, int64_t first, int64_t last) HWY_ATTR {
    const Epilogue epilogue(job, group.slice);
    for (int64_t pair = first; pair < last; ++pair) {
      const PanelPair panels(job, group.slice, pair);
      if (group.rows > StreamRows(ActKind::kF32)) {
        FloatGroup(job, group, panels, epilogue, scratch, WidenPair<F>);
        continue;
      }
      // Both panels at once: the sums of one panel are too few to hide the latency of the multiply-add.
      const int tile = static_cast<int>(group.rows);
      const float* x = reinterpret_cast<const float*>(job.x.data + static_cast<size_t>(group.row_begin) * job.x.row_bytes());
      for (int j = 0; j < tile;) {
        j += WithSubTile<kStreamSubTile>(
            tile - j, [&]<int T>() HWY_ATTR { StreamMicro<F, T>(panels.p0, panels.p1, x + j, tile, job.w.cols, acc + 32 * j); });
      }
      for (int j = 0; j < tile; ++j) epilogue.Row(acc + 32 * j, group.row_begin + j, panels.col, panels.n);
    }
  });
}

// Any activations times block-quantised weights.
template <class F>
void RunQuantised(const MatJob& job, int64_t begin, int64_t end, std::span<uint8_t> scratch) {
  if (job.x.format.kind == ActKind::kInt8) {
    RunInt8<F>(job, begin, end, scratch);
#if TALLY_AMX
  } else if (job.x.format.kind == ActKind::kBF16) {
    RunDecodedAmx<F>(job, begin, end, scratch);
#endif
  } else {
    RunWidened(job, begin, end, scratch, DequantisePair<F>);
  }
}

template <class F>
ExecutedCost QuantisedExecuted(ActKind kind, int64_t cols) {
  const uint64_t blocks = static_cast<uint64_t>(cols / kInt8Block);
  if (kind == ActKind::kInt8) {
    const ExecutedCost block = Int8BlockCost<F>();
    return {.products = block.products * blocks, .scaling = block.scaling * blocks, .widening = 0};
  }
  // Of a weight: the product, and the offset or the minimum.
  constexpr uint64_t kFlops = 1 + (F::kInt8.offset != 0 || F::kInt8.minima ? 1 : 0);
  return {.products = 0, .scaling = 0, .widening = kInt8Block * kFlops * blocks};
}

template <class F>
FormatKernels QuantisedKernels() {
  return {RunQuantised<F>, EmbedQuantised<F>, QuantisedExecuted<F>};
}

inline ExecutedCost NoneExecuted(ActKind, int64_t) { return {}; }

template <class F>
FormatKernels FloatKernels() {
  return {RunFloat<F>, EmbedFloats<F>, NoneExecuted};
}

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#endif  // include guard
