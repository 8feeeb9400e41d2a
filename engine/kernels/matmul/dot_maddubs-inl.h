// SPDX-License-Identifier: Apache-2.0
// int8 products by instructions like maddubs, which multiply bytes and add pairs in 16 bits. The sums are then widened to 32 bits.
//
// Narrow weights are stored as u8 = q + offset. Sums in 16 bits start at the i16 corrections. They are widened once per block, or
// once per half if halves have their own scales. They may wrap on the way; the final sum(q_w q_x) fits (PairOffset, act_pack.h).
//
// Wide weights multiply |w| by x with the sign of w, and widen at every step: 128 * 127 * 2 < 2^15. Many rows use decoded weights
// with a mask m, which is -1 where w < 0: |w| (x ^ m) = w x + |w| m, so that the sum starts at minus the sum of |w| m. Flipping bits
// runs on more units of a processor than changing a sign. |w| (x ^ m) >= -128 * 128.
//
// AVX2 with a dot product of bytes (ByteDot) sums in 32 bits, as dot_vnni-inl.h does, for blocks with one scale.
// Included by int8-inl.h only, for targets without a dot product of their own.
HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {

// Calls fn.template operator()<dot>() with the dot product of bytes in use, one of those that the build has (cmake/targets.cmake).
template <class F, class Fn>
HWY_INLINE void WithByteDot(const Fn& fn) {
#if HWY_TARGET == HWY_AVX2
  if constexpr (kParts<F> == 1) {
    [[maybe_unused]] const ByteDot dot = CurrentByteDot();
#if TALLY_VEX_DOT
    if (dot == ByteDot::kAvxVnni) return fn.template operator()<ByteDot::kAvxVnni>();
#endif
#if TALLY_EVEX_DOT
    if (dot == ByteDot::kAvx512) return fn.template operator()<ByteDot::kAvx512>();
#endif
  }
#endif
  fn.template operator()<ByteDot::kNone>();
}

// sum += the products of 4 u8 and 4 i8 in each lane.
template <ByteDot kDot>
HWY_INLINE void AddByteProducts(VU8 w, hn::Vec<DI8> x, VI& sum) {
#if HWY_TARGET == HWY_AVX2
  if constexpr (kDot == ByteDot::kAvxVnni) asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum.raw) : "x"(w.raw), "x"(x.raw));
  if constexpr (kDot == ByteDot::kAvx512) asm("%{evex%} vpdpbusd %2, %1, %0" : "+x"(sum.raw) : "x"(w.raw), "x"(x.raw));
#else
  (void)w, (void)x, (void)sum;
#endif
}

// Tokens per microkernel call, limited by the registers for their sums.
template <class F, ByteDot kDot>
inline constexpr int kInt8SubTile = kDot != ByteDot::kNone ? 6
                                    : kLanes >= 16         ? 4
                                    : F::kWide             ? 3
                                                           : 6;

// FLOPs per output of a block of 32 k, beyond the useful 64 of the products. Scaling is 3 unless stated: the product of the
// scales 1, the fused multiply-add 2. Each minimum adds 2 to it.
//   byte dot product   as dot_vnni-inl.h
//   wide               products 16   each of 8 steps takes 10 for the useful 8: 4 products, 2 adds; widening 2 products, 2 adds
//   narrow, 1 piece    products  3   widening once: 2 products, 1 add
//   narrow, 2 pieces   products  7   widening twice: 3 each; the sum of the pieces 1
//   narrow, 2 parts    products  0   scaling 10: widening each part with its scale 3 + 3, the sum of the parts 1, then 3
template <class F>
ExecutedCost Int8BlockCost() {
  constexpr uint64_t kMinimaFlops = 2 * kMinima<F>;
  bool dot = false;
  WithByteDot<F>([&]<ByteDot kDot>() { dot = kDot != ByteDot::kNone; });
  if (TALLY_ARM) dot = CurrentByteDot() != ByteDot::kNone;
  if (dot) return {.products = 0, .scaling = (kParts<F> == 1 ? 3u : 3u + 3u) + kMinimaFlops};
  if (F::kWide) return {.products = 2 * 8, .scaling = 3 + kMinimaFlops};
  if (kParts<F> == 1) return {.products = F::kPieces == 1 ? 3 : 3 + 3 + 1, .scaling = 3 + kMinimaFlops};
  return {.products = 0, .scaling = 3 + 3 + 1 + 3 + kMinimaFlops};
}

// Compiler barrier. Without it GCC keeps the sums in registers across the loop and spills.
HWY_INLINE void KeepInMemory() {
#if HWY_COMPILER_GCC || HWY_COMPILER_CLANG
  asm volatile("" ::: "memory");
#endif
}

// Vectors of rows that share each broadcast activation.
inline constexpr int kDotVecs = kPanelVecs >= 2 ? 2 : 1;

// Adds the products of u8 weights and a block's activations (at x, of T tokens) to 16-bit sums of pairs, for kSteps steps from
// kFirst on. Each of a lane's two sums gets 2 * kSteps products. weights(k, i): step k of vector i.
template <int kFirst, int kSteps, int T, class WeightFn>
HWY_INLINE void NarrowDot(const WeightFn& weights, const uint8_t* HWY_RESTRICT x, size_t step,
                          hn::Vec<DI16> (&sum)[T][kDotVecs]) {
  HWY_UNROLL(8) for (int k = kFirst; k < kFirst + kSteps; ++k) {
    VU8 w[kDotVecs];
    HWY_UNROLL(2) for (int i = 0; i < kDotVecs; ++i) w[i] = weights(k, i);
    HWY_UNROLL(8) for (int j = 0; j < T; ++j) {
      const auto a = hn::BitCast(DI8(), Broadcast4(x + static_cast<size_t>(k) * step + 4 * j));
      HWY_UNROLL(2) for (int i = 0; i < kDotVecs; ++i) {
        sum[j][i] = hn::Add(sum[j][i], hn::SatWidenMulPairwiseAdd(DI16(), w[i], a));
        Pin(sum[j][i]);
      }
    }
  }
}

// d += sum of |w| * (x with the sign of w) over a block, for weights of 8 bits in vectors v on of `src`.
template <int T, class Src>
HWY_INLINE void WideDot(const Src& src, int v, const uint8_t* HWY_RESTRICT x, size_t step, VI (&d)[T][kDotVecs]) {
  const DI di;
  const DI16 di16;
  const auto ones = hn::Set(di16, 1);
  HWY_UNROLL(8) for (int k = 0; k < 8; ++k) {
    VU8 magnitude[kDotVecs];
    hn::Vec<DI8> sign[kDotVecs];
    HWY_UNROLL(2) for (int i = 0; i < kDotVecs; ++i) {
      magnitude[i] = src.Magnitude(k, v + i);
      sign[i] = src.Sign(k, v + i);
    }
    HWY_UNROLL(8) for (int j = 0; j < T; ++j) {
      const auto a = hn::BitCast(DI8(), Broadcast4(x + static_cast<size_t>(k) * step + 4 * j));
      HWY_UNROLL(2) for (int i = 0; i < kDotVecs; ++i) {
        const auto pairs = hn::SatWidenMulPairwiseAdd(di16, magnitude[i], Src::WithSign(sign[i], a));
        d[j][i] = hn::Add(d[j][i], hn::WidenMulPairwiseAdd(di, pairs, ones));
        Pin(d[j][i]);
      }
    }
  }
}

// Adds the products of piece kPart of a block to d: summed in 16 bits, then widened and multiplied by the part's scale (one part:
// 1).
template <class F, int kPart, class Src, int T>
HWY_INLINE void PartDot(const Src& src, int v, const uint8_t* HWY_RESTRICT x, size_t step, VI (&d)[T][kDotVecs]) {
  constexpr int kSteps = 8 / F::kPieces;
  hn::Vec<DI16> sum[T][kDotVecs];
  HWY_UNROLL(8) for (int j = 0; j < T; ++j) {
    sum[j][0] = hn::BitCast(DI16(), StartSum<F>(x + kPairCorrectionsAt<F> * step + 4 * j, step, kPart));
    if constexpr (kDotVecs == 2) sum[j][1] = sum[j][0];
  }
  NarrowDot<kPart * kSteps, kSteps, T>([&](int k, int i) HWY_ATTR { return src.Step(k, v + i); }, x, step, sum);
  hn::Vec<DI16> scale[kDotVecs];
  HWY_UNROLL(2) for (int i = 0; i < kDotVecs; ++i) {
    if constexpr (kParts<F> == 1) {
      scale[i] = hn::Set(DI16(), 1);
    } else {  // in both 16-bit halves of a lane
      const VU s = hn::BitCast(DU(), src.PartScale(kPart, v + i));
      scale[i] = hn::BitCast(DI16(), hn::Or(hn::And(s, hn::Set(DU(), 0xffff)), hn::ShiftLeft<16>(s)));
    }
  }
  HWY_UNROLL(8) for (int j = 0; j < T; ++j) {
    HWY_UNROLL(2) for (int i = 0; i < kDotVecs; ++i) {
      const VI wide = hn::WidenMulPairwiseAdd(DI(), sum[j][i], scale[i]);
      d[j][i] = kPart == 0 ? wide : hn::Add(d[j][i], wide);
    }
  }
}

// d = sum of q_w q_x over a block, for T tokens and kDotVecs vectors from v on. With two parts, each part's sum is multiplied by
// its scale.
template <class F, ByteDot kDot, class Src, int T>
HWY_INLINE void BlockDot(const Src& src, int v, const uint8_t* HWY_RESTRICT x, size_t step, VI (&d)[T][kDotVecs]) {
  if constexpr (kDot != ByteDot::kNone) {
    HWY_UNROLL(8) for (int j = 0; j < T; ++j) {
      HWY_UNROLL(2) for (int i = 0; i < kDotVecs; ++i) d[j][i] = StartSum<F>(x + kCorrectionsAt * step + 4 * j, step, 0);
    }
    HWY_UNROLL(8) for (int k = 0; k < 8; ++k) {
      VU8 w[kDotVecs];
      HWY_UNROLL(2) for (int i = 0; i < kDotVecs; ++i) w[i] = src.Step(k, v + i);
      HWY_UNROLL(8) for (int j = 0; j < T; ++j) {
        const auto a = hn::BitCast(DI8(), Broadcast4(x + static_cast<size_t>(k) * step + 4 * j));
        HWY_UNROLL(2) for (int i = 0; i < kDotVecs; ++i) AddByteProducts<kDot>(w[i], a, d[j][i]);
      }
    }
  } else if constexpr (F::kWide) {
    static_assert(kParts<F> == 1);
    VI start[kDotVecs];
    HWY_UNROLL(2) for (int i = 0; i < kDotVecs; ++i) start[i] = src.NegativeSum(v + i);
    HWY_UNROLL(8) for (int j = 0; j < T; ++j) HWY_UNROLL(2) for (int i = 0; i < kDotVecs; ++i) d[j][i] = start[i];
    WideDot<T>(src, v, x, step, d);
  } else {
    PartDot<F, 0>(src, v, x, step, d);
    if constexpr (F::kPieces == 2) PartDot<F, 1>(src, v, x, step, d);
  }
}

// Adds the products of one panel and T rows of a tile over `blocks` blocks to 16 columns of acc [T][32]. acc stays in memory
// (first-level cache), since the integer sums use the registers.
template <class F, ByteDot kDot, class Src, int T>
HWY_NOINLINE void Int8MicroPanel(Src src, const uint8_t* HWY_RESTRICT a, int tile, int64_t blocks, float* HWY_RESTRICT acc) {
  const DF df;
  const size_t step = static_cast<size_t>(tile) * 4;
  for (int64_t b = 0; b < blocks; ++b, a += kBlockWords<F> * step) {
    src.template Begin<(T > 4)>();
    HWY_UNROLL(8) for (int v = 0; v < kPanelVecs; v += kDotVecs) {
      VI d[T][kDotVecs];
      BlockDot<F, kDot>(src, v, a, step, d);
      BlockScales<F> w[kDotVecs];
      HWY_UNROLL(2) for (int i = 0; i < kDotVecs; ++i) w[i].Read(src, v + i);
      HWY_UNROLL(8) for (int j = 0; j < T; ++j) {
        const VF xs = hn::BitCast(df, Broadcast4(a + kScalesAt * step + 4 * j));
        HWY_UNROLL(2) for (int i = 0; i < kDotVecs; ++i) {
          float* to = acc + 32 * j + (v + i) * kLanes;
          const uint8_t* corrections = a + kCorrectionsAt * step + 4 * j;
          hn::StoreU(w[i].Accumulate(d[j][i], xs, corrections, step, hn::LoadU(df, to)), df, to);
        }
      }
    }
    KeepInMemory();
    src.Next();
  }
}

// One panel times a whole tile, in sub-tiles that fit the registers.
template <class F, ByteDot kDot, class Src>
HWY_INLINE void Int8TilePanel(const Src& src, const uint8_t* a, int tile, int64_t blocks, float* acc) {
  for (int j = 0; j < tile;) {
    j += WithSubTile<kInt8SubTile<F, kDot>>(
        tile - j, [&]<int T>() HWY_ATTR { Int8MicroPanel<F, kDot, Src, T>(src, a + 4 * j, tile, blocks, acc + 32 * j); });
  }
}

// Few rows: one panel as packed, times `rows` rows whose tiles follow each other from a on. acc: [rows][32].
template <class F>
HWY_INLINE void StreamInt8Panel(const uint8_t* panel, const uint8_t* a, size_t row_bytes, int64_t rows, int64_t blocks,
                                float* acc) {
  constexpr int kTile = ActTile(ActKind::kInt8);
  WithByteDot<F>([&]<ByteDot kDot>() HWY_ATTR {
    for (int64_t r = 0; r < rows; r += kTile) {  // a panel stays in the second-level cache from tile to tile
      Int8TilePanel<F, kDot>(PackedSource<F>{F::At(panel, 0)}, a + static_cast<size_t>(r) * row_bytes,
                             static_cast<int>(std::min<int64_t>(kTile, rows - r)), blocks, acc + 32 * r);
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();
