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
constexpr ExecutedCost Int8BlockCost() {
  return {.products = 0, .scaling = (kParts<F> == 1 ? 3u : 3u + 3u) + 2u * kMinima<F>};
}

// P panels times a tile of T rows. acc: [T][32] f32; the 16 columns of panel p start at 16 p.
template <class F, class Src, int P, int T>
HWY_NOINLINE void Int8Micro(const Src* sources, const uint8_t* HWY_RESTRICT a, int64_t blocks, float* HWY_RESTRICT acc,
                            const uint8_t* far) {
  static_assert(kPanelVecs == 1);
  const DF df;
  const DI di;
  Src src[P];
  VF f[P][T];
  HWY_UNROLL(2) for (int p = 0; p < P; ++p) {
    src[p] = sources[p];
    HWY_UNROLL(8) for (int j = 0; j < T; ++j) f[p][j] = hn::Zero(df);
  }
  constexpr size_t step = 4 * T;
  // Two chains of sums if the halves have scales of their own, or if there are too few sums to hide the latency of the dot product.
  constexpr bool kTwoChains = kParts<F> == 2 || P * T <= 2;
  for (int64_t b = 0; b < blocks; ++b, a += kBlockWords<F> * step) {
    HWY_UNROLL(2) for (int p = 0; p < P; ++p) src[p].Prefetch();
    if (far != nullptr) PrefetchFar(far + 64 * b);
    VI d[P][T], e[P][T];
    HWY_UNROLL(2) for (int p = 0; p < P; ++p) {
      HWY_UNROLL(8) for (int j = 0; j < T; ++j) {
        d[p][j] = StartSum<F>(a + kCorrectionsAt * step + 4 * j, step, 0);
        e[p][j] = kParts<F> == 2 ? StartSum<F>(a + kCorrectionsAt * step + 4 * j, step, 1) : hn::Zero(di);
      }
    }
    HWY_UNROLL(4) for (int c = 0; c < 4; ++c) {
      VU8 lo[P], hi[P];
      HWY_UNROLL(2) for (int p = 0; p < P; ++p) src[p].Steps(c, 0, lo[p], hi[p]);
      HWY_UNROLL(8) for (int j = 0; j < T; ++j) {
        const auto x = hn::BitCast(DI8(), Broadcast4(a + StepOf<F>(c, 0) * step + 4 * j));
        HWY_UNROLL(2) for (int p = 0; p < P; ++p) d[p][j] = hn::SumOfMulQuadAccumulate(di, lo[p], x, d[p][j]);
      }
      HWY_UNROLL(8) for (int j = 0; j < T; ++j) {
        const auto x = hn::BitCast(DI8(), Broadcast4(a + StepOf<F>(c, 1) * step + 4 * j));
        HWY_UNROLL(2) for (int p = 0; p < P; ++p) {
          VI& sum = kTwoChains ? e[p][j] : d[p][j];
          sum = hn::SumOfMulQuadAccumulate(di, hi[p], x, sum);
        }
      }
    }
    BlockScales<F> w[P];
    HWY_UNROLL(2) for (int p = 0; p < P; ++p) w[p].Read(src[p], 0);
    HWY_UNROLL(8) for (int j = 0; j < T; ++j) {
      const VF xs = hn::BitCast(df, Broadcast4(a + kScalesAt * step + 4 * j));
      HWY_UNROLL(2) for (int p = 0; p < P; ++p) {
        if constexpr (kParts<F> == 2) {
          d[p][j] = hn::Mul(d[p][j], src[p].PartScale(0, 0));
          e[p][j] = hn::Mul(e[p][j], src[p].PartScale(1, 0));
        }
        const VI sum = kTwoChains ? hn::Add(d[p][j], e[p][j]) : d[p][j];
        f[p][j] = w[p].Accumulate(sum, xs, a + kCorrectionsAt * step + 4 * j, step, f[p][j]);
      }
    }
    HWY_UNROLL(2) for (int p = 0; p < P; ++p) src[p].Next();
  }
  HWY_UNROLL(8) for (int j = 0; j < T; ++j) {
    HWY_UNROLL(2) for (int p = 0; p < P; ++p) hn::StoreU(f[p][j], df, acc + 32 * j + kPanelRows * p);
  }
}

// A whole tile of `tile` rows (<= 6). acc: [tile][32]; the panels' columns are written.
template <class F, int P, class Src>
HWY_INLINE void Int8Tile(const Src (&sources)[P], const uint8_t* a, int tile, int64_t blocks, float* acc, const uint8_t* far) {
  WithSubTile<kInt8SubTile<F>>(tile, [&]<int T>() HWY_ATTR { Int8Micro<F, Src, P, T>(sources, a, blocks, acc, far); });
}

// Few rows: one panel as packed. acc: [rows][32].
template <class F>
HWY_INLINE void StreamInt8Panel(const uint8_t* panel, const uint8_t* a, int rows, int64_t blocks, float* acc) {
  const PackedSource<F> one[] = {{F::At(panel, 0)}};
  Int8Tile<F>(one, a, rows, blocks, acc, nullptr);
}

// Many rows: two panels, decoded once.
template <class F>
void RunInt8Group(const MatJob& job, const RowGroup& group, const PanelPair& panels, const Epilogue& epilogue,
                  std::span<uint8_t> scratch) {
  constexpr int kTile = ActTile(ActKind::kInt8);
  const int64_t blocks = job.w.cols / kInt8Block;
  const size_t row_bytes = job.x.row_bytes();
  alignas(64) float acc[kTile * 32];
  uint8_t* q0 = scratch.data();
  uint8_t* q1 = q0 + blocks * 512;
  float* s0 = reinterpret_cast<float*>(q1 + blocks * 512);
  float* s1 = s0 + blocks * kPanelRows * F::kScaleWords;
  DecodePanel<F>(panels.p0, 0, blocks, q0, s0);
  DecodePanel<F>(panels.p1, 0, blocks, q1, s1);
  const DecodedSource<F> both[] = {{q0, s0}, {q1, s1}};
  for (int64_t r = 0; r < group.rows; r += kTile) {
    const int tile = static_cast<int>(std::min<int64_t>(kTile, group.rows - r));
    const uint8_t* a = job.x.data + static_cast<size_t>(group.row_begin + r) * row_bytes;
    // Prefetches the next pair of panels, one line per block.
    const size_t fetched = static_cast<size_t>(r / kTile) * static_cast<size_t>(blocks) * 64;
    Int8Tile<F>(both, a, tile, blocks, acc, panels.NextAt(job, fetched));
    for (int j = 0; j < tile; ++j) epilogue.Row(acc + 32 * j, group.row_begin + r + j, panels.col, panels.n);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();
