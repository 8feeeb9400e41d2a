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

// Bits of positive f32 numbers: their order is that of the numbers.
struct BitsRange {
  int32_t least = INT32_MAX, greatest = 0;

  void Add(VI v) {
    least = std::min(least, hn::ReduceMin(DI(), v));
    greatest = std::max(greatest, hn::ReduceMax(DI(), v));
  }
};

// The range of the scales of a group's activations.
template <class F>
BitsRange ActScales(const MatJob& job, const RowGroup& group) {
  const int64_t tile = TilingOf(job.x.format, group.rows).rows;
  const DI di;
  const VI one = hn::BitCast(di, hn::Set(DF(), 1.0f));
  VI least = one, greatest = one;
  for (int64_t r = 0; r < group.rows; r += tile) {
    const size_t rows = static_cast<size_t>(std::min(tile, group.rows - r)), step = 4 * rows;
    const uint8_t* a = job.x.data + static_cast<size_t>(group.row_begin + r) * job.x.row_bytes() + kScalesAt * step;
    for (int64_t b = 0; b < job.w.cols / kInt8Block; ++b, a += kBlockWords<F> * step) {
      const VI bits = hn::LoadNOr(one, di, reinterpret_cast<const int32_t*>(a), rows);
      least = hn::Min(least, bits);
      greatest = hn::Max(greatest, bits);
    }
  }
  BitsRange range;
  range.Add(least);
  range.Add(greatest);
  return range;
}

// Whether w * x is a normal number for all scales w, powers of two, of n words and x.
inline bool ScalesAreNormal(const float* words, int64_t n, BitsRange x) {
  BitsRange w;
  for (int64_t i = 0; i < n; i += kPanelRows) w.Add(hn::Load(DI(), reinterpret_cast<const int32_t*>(words) + i));
  constexpr int32_t kNormal = 1 << 23, kInfinity = 255 << 23;
  if (w.least < kNormal || w.greatest >= kInfinity || x.least < kNormal || x.greatest >= kInfinity) return false;
  const int32_t bias = 127;
  return (w.least >> 23) + (x.least >> 23) > bias && (w.greatest >> 23) + (x.greatest >> 23) < bias + 255;
}

// Many rows: two panels, decoded once.
template <class F>
void RunInt8Group(const MatJob& job, const RowGroup& group, int64_t first, int64_t last, std::span<uint8_t> scratch) {
  constexpr int kTile = ActTile(ActKind::kInt8);
  constexpr bool kPowersOf2 = requires { F::kPowersOf2; };
  const Epilogue epilogue(job, group.slice);
  const int64_t blocks = job.w.cols / kInt8Block;
  const size_t row_bytes = job.x.row_bytes();
  alignas(64) float acc[kTile * 32];
  uint8_t* q0 = scratch.data();
  uint8_t* q1 = q0 + blocks * 512;
  float* s0 = reinterpret_cast<float*>(q1 + blocks * 512);
  float* s1 = s0 + blocks * kPanelRows * F::kScaleWords;
  const DecodedSource<F> both[] = {{q0, s0}, {q1, s1}};
  BitsRange x_scales;
  if constexpr (kPowersOf2) x_scales = ActScales<F>(job, group);
  for (int64_t pair = first; pair < last; ++pair) {
    const PanelPair panels(job, group.slice, pair);
    DecodePanel<F>(panels.p0, 0, blocks, q0, s0);
    DecodePanel<F>(panels.p1, 0, blocks, q1, s1);
    bool add_exponents = false;
    if constexpr (kPowersOf2) add_exponents = ScalesAreNormal(s0, 2 * blocks * kPanelRows, x_scales);
    for (int64_t r = 0; r < group.rows; r += kTile) {
      const int tile = static_cast<int>(std::min<int64_t>(kTile, group.rows - r));
      const uint8_t* a = job.x.data + static_cast<size_t>(group.row_begin + r) * row_bytes;
      // Prefetches the next pair of panels, one line per block.
      const size_t fetched = static_cast<size_t>(r / kTile) * static_cast<size_t>(blocks) * 64;
      const uint8_t* far = panels.NextAt(job, fetched);
      if constexpr (kPowersOf2) {
        if (add_exponents) Int8Tile<F, true>(both, a, tile, blocks, acc, far);
      }
      if (!add_exponents) Int8Tile<F, false>(both, a, tile, blocks, acc, far);
      for (int j = 0; j < tile; ++j) epilogue.Row(acc + 32 * j, group.row_begin + r + j, panels.col, panels.n);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();
