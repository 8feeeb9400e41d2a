// SPDX-License-Identifier: Apache-2.0
// int8 products by a u8 x s8 dot product: weights are q + offset, sums start at the activations' corrections. Included by
// int8-inl.h only, for targets that have one.
HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {

// FLOPs per output of a block of 32 k beyond the useful 2 * 32:
//   products 0  two chains cost no extra add: the join replaces the second chain's addition to zero
//   scaling  3  the product of the scales 1, the fused multiply-add 2
//            6  with two parts also the product of each with its scale 2, their sum 1
//           +2  for each minimum
template <class F>
ExecutedCost Int8BlockCost() {
  return {.products = 0, .scaling = (kParts<F> == 1 ? 3u : 3u + 3u) + 2u * kMinima<F>};
}

// Rows of activations of one microkernel call: a tile of T rows, and a second one of T2 rows (0: none).
template <int T, int T2>
struct ActTiles {
  const uint8_t* first;
  const uint8_t* second;

  // Word `i` of the block, in units of 4 bytes x the rows of a tile, of row j: < T of the first tile, else of the second.
  HWY_INLINE const uint8_t* At(size_t i, int j) const {
    return j < T ? first + i * 4 * T + 4 * j : second + i * 4 * T2 + 4 * (j - T);
  }
  HWY_INLINE size_t Step(int j) const { return j < T ? 4 * T : 4 * T2; }
  HWY_INLINE void Next(size_t words) {
    first += words * 4 * T;
    if constexpr (T2 > 0) second += words * 4 * T2;
  }
};

// P panels times the rows of `a`. acc: [T + T2][32] f32; the 16 columns of panel p start at 16 p. kAddExponents: the weights' scales
// are powers of two, and their products with the activations' scales are normal (ScalesAreNormal): the sum of the exponents has the
// bits of the product, and runs beside the dot products, which a multiply does not.
template <class F, class Src, int P, int T, int T2, bool kAddExponents>
HWY_NOINLINE void Int8Micro(const Src* sources, ActTiles<T, T2> a, int64_t blocks, float* HWY_RESTRICT acc, const uint8_t* far) {
  static_assert(kPanelVecs == 1);
  constexpr int kRows = T + T2;
  const DF df;
  const DI di;
  Src src[P];
  VF f[P][kRows];
  HWY_UNROLL(2) for (int p = 0; p < P; ++p) {
    src[p] = sources[p];
    HWY_UNROLL(12) for (int j = 0; j < kRows; ++j) f[p][j] = hn::Zero(df);
  }
  // Two chains of sums if the halves have scales of their own, or if there are too few sums to hide the latency of the dot product.
  constexpr bool kTwoChains = kParts<F> == 2 || P * kRows <= 2;
  for (int64_t b = 0; b < blocks; ++b, a.Next(kBlockWords<F>)) {
    HWY_UNROLL(2) for (int p = 0; p < P; ++p) src[p].template Begin<(kRows > 4)>();
    if (far != nullptr) PrefetchFar(far + 64 * b);
    // A panel as packed is read from front to back, its scales first.
    BlockScales<F> w[P];
    if constexpr (P == 1) w[0].Read(src[0], 0);
    VI d[P][kRows], e[P][kRows];
    HWY_UNROLL(2) for (int p = 0; p < P; ++p) {
      HWY_UNROLL(12) for (int j = 0; j < kRows; ++j) {
        d[p][j] = StartSum<F>(a.At(kCorrectionsAt, j), a.Step(j), 0);
        e[p][j] = kParts<F> == 2 ? StartSum<F>(a.At(kCorrectionsAt, j), a.Step(j), 1) : hn::Zero(di);
      }
    }
    HWY_UNROLL(4) for (int c = 0; c < 4; ++c) {
      VU8 lo[P], hi[P];
      HWY_UNROLL(2) for (int p = 0; p < P; ++p) src[p].Steps(c, 0, lo[p], hi[p]);
      HWY_UNROLL(12) for (int j = 0; j < kRows; ++j) {
        const auto x = hn::BitCast(DI8(), Broadcast4(a.At(StepOf<F>(c, 0), j)));
        HWY_UNROLL(2) for (int p = 0; p < P; ++p) d[p][j] = hn::SumOfMulQuadAccumulate(di, lo[p], x, d[p][j]);
      }
      HWY_UNROLL(12) for (int j = 0; j < kRows; ++j) {
        const auto x = hn::BitCast(DI8(), Broadcast4(a.At(StepOf<F>(c, 1), j)));
        HWY_UNROLL(2) for (int p = 0; p < P; ++p) {
          VI& sum = kTwoChains ? e[p][j] : d[p][j];
          sum = hn::SumOfMulQuadAccumulate(di, hi[p], x, sum);
        }
      }
    }
    if constexpr (P > 1) HWY_UNROLL(2) for (int p = 0; p < P; ++p) w[p].Read(src[p], 0);
    if constexpr (kAddExponents) {
      const VI one = hn::Set(di, 127 << 23);
      HWY_UNROLL(2) for (int p = 0; p < P; ++p) w[p].scale = hn::BitCast(df, hn::Sub(hn::BitCast(di, w[p].scale), one));
    }
    HWY_UNROLL(12) for (int j = 0; j < kRows; ++j) {
      const VF xs = hn::BitCast(df, Broadcast4(a.At(kScalesAt, j)));
      HWY_UNROLL(2) for (int p = 0; p < P; ++p) {
        if constexpr (kAddExponents) {
          const VF scale = hn::BitCast(df, hn::Add(hn::BitCast(di, w[p].scale), hn::BitCast(di, xs)));
          f[p][j] = hn::MulAdd(hn::ConvertTo(df, kTwoChains ? hn::Add(d[p][j], e[p][j]) : d[p][j]), scale, f[p][j]);
          continue;
        }
        if constexpr (kParts<F> == 2) {
          d[p][j] = hn::Mul(d[p][j], w[p].part[0]);
          e[p][j] = hn::Mul(e[p][j], w[p].part[1]);
        }
        const VI sum = kTwoChains ? hn::Add(d[p][j], e[p][j]) : d[p][j];
        f[p][j] = w[p].Accumulate(sum, xs, a.At(kCorrectionsAt, j), a.Step(j), f[p][j]);
      }
    }
    HWY_UNROLL(2) for (int p = 0; p < P; ++p) src[p].Next();
  }
  HWY_UNROLL(12) for (int j = 0; j < kRows; ++j) {
    HWY_UNROLL(2) for (int p = 0; p < P; ++p) hn::StoreU(f[p][j], df, acc + 32 * j + kPanelRows * p);
  }
}

// A whole tile of `tile` rows (<= 6). acc: [tile][32]; the panels' columns are written.
template <class F, bool kAddExponents, int P, class Src>
HWY_INLINE void Int8Tile(const Src (&sources)[P], const uint8_t* a, int tile, int64_t blocks, float* acc, const uint8_t* far) {
  WithSubTile<6>(tile, [&]<int T>() HWY_ATTR {
    Int8Micro<F, Src, P, T, 0, kAddExponents>(sources, ActTiles<T, 0>{a, nullptr}, blocks, acc, far);
  });
}

// Few rows: one panel as packed, times `rows` rows whose tiles follow each other from a on. acc: [rows][32].
template <class F>
HWY_INLINE void StreamInt8Panel(const uint8_t* panel, const uint8_t* a, size_t row_bytes, int64_t rows, int64_t blocks,
                                float* acc) {
  constexpr int kTile = ActTile(ActKind::kInt8);
  const PackedSource<F> one[] = {{F::At(panel, 0)}};
  // Two tiles at once read the panel once. With 6 + 6 rows that was slower.
  if (rows == kTile + 2) {
    return Int8Micro<F, PackedSource<F>, 1, kTile, 2, false>(one, ActTiles<kTile, 2>{a, a + kTile * row_bytes}, blocks, acc,
                                                             nullptr);
  }
  for (int64_t r = 0; r < rows; r += kTile) {  // a panel stays in the second-level cache from tile to tile
    Int8Tile<F, false>(one, a + static_cast<size_t>(r) * row_bytes, static_cast<int>(std::min<int64_t>(kTile, rows - r)), blocks,
                       acc + 32 * r, nullptr);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();
