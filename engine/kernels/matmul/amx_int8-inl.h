// SPDX-License-Identifier: Apache-2.0
// int8 products of many rows by AMX, of formats with one scale a block. A block of a panel and a tile of up to 16 rows are one tile
// product; its sums are stored and scaled as dot_vnni-inl.h does. The integers are exact: the bits are those of every target with a
// fused multiply-add. Included by decoded-inl.h only.
//
// While tiles are multiplied, the processor's 512-bit f32 arithmetic runs once a cycle, so that scaling takes longer than the products.
// Nothing waits for a product: two or four tiles of sums are in use in turn. A tile is stored just before it takes its next block, and
// its sums are scaled one block later.
HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {

// Tiles 0 to 3: sums. 4 and 5: activations. 6 and 7: weights.
HWY_INLINE void ShapeInt8(int64_t rows) {
  TileShapes shapes;
  for (int t : {0, 1, 2, 3}) shapes.Set(t, rows, 64);
  for (int t : {4, 5}) shapes.Set(t, rows, kInt8Block);
  for (int t : {6, 7}) shapes.Set(t, 8, 64);
  Tiles::Shape(shapes);
}

using AmxSums = int32_t[kAmxRows][kPanelRows];

// Starts the product of a block.
template <int S>
HWY_INLINE void AmxIssue(const uint8_t* a, const uint8_t* q) {
  constexpr int kLeft = 4 + S % 2, kRight = 6 + S % 2;
  TileLoad<kLeft>(a, kInt8Block);
  TileLoad<kRight>(q, 64);
  TileZero<S>();
  TileDotInt8<S, kLeft, kRight>();
}

// The f32 numbers of a decoded block.
template <class F, bool kAddExponents>
struct AmxScales {
  VF scale, minimum;

  HWY_INLINE explicit AmxScales(const float* s) {
    const DF df;
    scale = hn::Load(df, s);
    if constexpr (kAddExponents) {
      scale = hn::BitCast(df, hn::Sub(hn::BitCast(DI(), scale), hn::Set(DI(), 127 << 23)));
    }
    if constexpr (kMinima<F> == 1) minimum = hn::Load(df, s + kPanelRows * kMinimumWord<F>);
  }
  // The product with the scale of an activation.
  HWY_INLINE VF Times(const float* x) const {
    const DF df;
    if constexpr (kAddExponents) {
      return hn::BitCast(df, hn::Add(hn::BitCast(DI(), scale), Broadcast4(reinterpret_cast<const uint8_t*>(x))));
    }
    return hn::Mul(scale, hn::Set(df, *x));
  }
};

// Adds rows J to R - 1 of a block. x: [kAmxFactors][16]. A recursion, since GCC unrolls loops after it has decided which arrays are
// registers. between(): called after the fourth row, so that tiles' instructions stand among the others.
template <class F, int R, bool kAddExponents, int J = 0, class Between>
HWY_INLINE void AmxScale(const AmxSums& sums, const float* x, const AmxScales<F, kAddExponents>& w, VF (&acc)[R],
                         const Between& between) {
  if constexpr (J == 4) between();
  const DF df;
  acc[J] = hn::MulAdd(hn::ConvertTo(df, hn::Load(DI(), sums[J])), w.Times(x + J), acc[J]);
  if constexpr (kMinima<F> == 1) acc[J] = hn::MulAdd(w.minimum, hn::Set(df, x[kPanelRows + J]), acc[J]);
  if constexpr (J + 1 < R) AmxScale<F, R, kAddExponents, J + 1>(sums, x, w, acc, between);
}

template <class F>
inline constexpr size_t kAmxScaleFloats = static_cast<size_t>(kPanelRows* F::kScaleWords);

// Numbers of a row of activations that a block is scaled by.
template <class F>
inline constexpr int kAmxFactors = 1 + kMinima<F>;

// Copies those of a tile: [blocks][kAmxFactors][16], zeros where there are no rows.
template <class F>
void CopyFactors(const uint8_t* a, size_t rows, int64_t blocks, float* HWY_RESTRICT x) {
  const DF df;
  for (int64_t b = 0; b < blocks; ++b, a += rows * 4 * kBlockWords<F>, x += kPanelRows * kAmxFactors<F>) {
    HWY_UNROLL(2) for (size_t i = 0; i < kAmxFactors<F>; ++i) {
      hn::Store(hn::LoadN(df, reinterpret_cast<const float*>(a + 4 * (kScalesAt + i) * rows), rows), df, x + kPanelRows * i);
    }
  }
}

// A tile of R rows or fewer times decoded panels, which follow each other. out: [pairs of panels][16][32]. lines: where the rows' outputs
// will be written. far: bytes needed later, or null.
template <class F, int R, bool kAddExponents>
HWY_NOINLINE void AmxInt8Tile(const uint8_t* const a, size_t a_step, const float* const factors, const uint8_t* q, const float* s,
                              int64_t blocks, int64_t panels, float* HWY_RESTRICT out, const float* const* lines,
                              const uint8_t* far) {
  constexpr int kFlight = kAddExponents ? 4 : 2;  // blocks
  // Sums of neighbouring blocks lie in two pages, at the place of the weights: 8 % faster than side by side in one (Q8_0).
  constexpr size_t kPage = 4096;
  alignas(64) uint8_t room[4 * kPage];
  uint8_t* const ring = room + ((reinterpret_cast<uintptr_t>(q) + 512 - reinterpret_cast<uintptr_t>(room)) & (kPage - 1));
  const auto sums = [ring](int64_t n) HWY_ATTR { return reinterpret_cast<AmxSums*>(ring + kPage * (n & 1) + 512 * (n & 7)); };
  VF acc[R];
  HWY_UNROLL(16) for (int j = 0; j < R; ++j) acc[j] = hn::Zero(DF());
  const int64_t total = blocks * panels;  // even, as panels are
  const uint8_t* left = a;
  const float* x = factors;
  const size_t far_step = far == nullptr ? 0 : 64;
  if (far == nullptr) far = a;
  int64_t to_issue = blocks, to_scale = blocks, next = kPanelRows, line = 0;
#define TALLY_AMX_ISSUE(S) \
  PrefetchFar(far);        \
  AmxIssue<S>(left, q);    \
  far += far_step;         \
  q += 512;                \
  left += a_step;          \
  if (--to_issue == 0) left = a, to_issue = blocks
#define TALLY_AMX_STEP(S)                                                                                   \
  if constexpr (S < kFlight) {                                                                              \
    TileStore<S % kFlight>(sums(n - kFlight), 64);                                                          \
    const auto between = [&]() HWY_ATTR {                                                                   \
      if (n < total) {                                                                                      \
        TALLY_AMX_ISSUE(S % kFlight);                                                                       \
      }                                                                                                     \
    };                                                                                                      \
    AmxScale<F, R, kAddExponents>(*sums(n - kFlight - 1), x, AmxScales<F, kAddExponents>(s), acc, between); \
    x += kPanelRows * kAmxFactors<F>;                                                                       \
    s += kAmxScaleFloats<F>;                                                                                \
    if (--to_scale == 0) {                                                                                  \
      HWY_UNROLL(16) for (int j = 0; j < R; ++j) {                                                          \
        hn::Store(acc[j], DF(), out + 32 * j);                                                              \
        acc[j] = hn::Zero(DF());                                                                            \
      }                                                                                                     \
      HWY_UNROLL(16) for (int j = 0; j < R; ++j) __builtin_prefetch(lines[j] + line, 1, 2);                 \
      line += kPanelRows;                                                                                   \
      out += next;                                                                                          \
      next = 32 * kAmxRows - next;                                                                          \
      x = factors;                                                                                          \
      to_scale = blocks;                                                                                    \
    }                                                                                                       \
    if (++n > total + kFlight) break;                                                                       \
  }
  TALLY_AMX_ISSUE(0);
  TALLY_AMX_ISSUE(1);
  if (kFlight == 4 && total > 2) {
    TALLY_AMX_ISSUE(2 % kFlight);
    TALLY_AMX_ISSUE(3 % kFlight);
  }
  TileStore<0>(sums(0), 64);
  if (total > kFlight) {
    TALLY_AMX_ISSUE(0);
  }
  for (int64_t n = kFlight + 1;;) {  // of the block whose products start; that of kFlight + 1 before is scaled
    TALLY_AMX_STEP(1)
    TALLY_AMX_STEP(2)
    TALLY_AMX_STEP(3)
    TALLY_AMX_STEP(0)
  }
#undef TALLY_AMX_STEP
#undef TALLY_AMX_ISSUE
}

// Many rows: some pairs of panels are decoded, and each tile of rows, which stays in the first-level cache, passes all of them.
template <class F>
void RunAmxInt8Group(const MatJob& job, const RowGroup& group, int64_t first, int64_t last, std::span<uint8_t> scratch,
                     DecodeTiles decode) {
  constexpr bool kPowersOf2 = F::kAddsExponents;
  const Epilogue epilogue(job, group.slice);
  const int64_t blocks = job.w.cols / kInt8Block, most = AmxInt8Pairs(job);
  const size_t row_bytes = job.x.row_bytes(), panel_bytes = job.w.panel_stride;
  alignas(64) float out[kAmxInt8GroupPairs * kAmxRows * 32];
  uint8_t* const q = scratch.data();
  float* const s = reinterpret_cast<float*>(q + 2 * most * blocks * 512);
  float* const factors = s + 2 * most * blocks * static_cast<int64_t>(kAmxScaleFloats<F>);
  BitsRange x_scales;
  if constexpr (kPowersOf2) x_scales = ActScales<F>(job, group);
  const Tiles tiles;
  for (int64_t p0 = first; p0 < last; p0 += most) {
    const int64_t pairs = std::min(most, last - p0);
    for (int64_t p = 0; p < pairs; ++p) {
      const PanelPair panels(job, group.slice, p0 + p);
      uint8_t* const to = q + 2 * p * blocks * 512;
      float* const scales = s + 2 * p * blocks * static_cast<int64_t>(kAmxScaleFloats<F>);
      decode(panels.p0, blocks, to, scales);
      decode(panels.p1, blocks, to + blocks * 512, scales + blocks * static_cast<int64_t>(kAmxScaleFloats<F>));
    }
    bool add_exponents = false;
    if constexpr (kPowersOf2) add_exponents = ScalesAreNormal(s, 2 * pairs * blocks * kPanelRows, x_scales);
    // The next panels are prefetched, a line for each block.
    const PanelPair last_pair(job, group.slice, p0 + pairs - 1);
    const int64_t first_col = PanelPair(job, group.slice, p0).col;
    const size_t next_bytes = static_cast<size_t>(pairs) * panel_bytes;
    for (int64_t r = 0; r < group.rows; r += kAmxRows) {
      const int64_t rows = std::min<int64_t>(kAmxRows, group.rows - r);
      if (r == 0 || rows < kAmxRows) ShapeInt8(rows);
      const uint8_t* const a = job.x.data + static_cast<size_t>(group.row_begin + r) * row_bytes;
      const size_t fetched = static_cast<size_t>(r / kAmxRows * 2 * pairs * blocks) * 64;
      const uint8_t* far = nullptr;
      if (fetched < 2 * next_bytes) {
        far = !job.gated             ? last_pair.p1 + panel_bytes + fetched
              : fetched < next_bytes ? last_pair.p0 + panel_bytes + fetched
                                     : last_pair.p1 + panel_bytes + (fetched - next_bytes);
      }
      const float* lines[kAmxRows];
      for (int64_t j = 0; j < kAmxRows; ++j) lines[j] = epilogue.Line(group.row_begin + r + std::min(j, rows - 1), first_col);
      CopyFactors<F>(a, static_cast<size_t>(rows), blocks, factors);
      const auto run = [&]<bool kAddExponents>() HWY_ATTR {
        if (rows > 8) {
          AmxInt8Tile<F, 16, kAddExponents>(a, static_cast<size_t>(rows) * 4 * kBlockWords<F>, factors, q, s, blocks, 2 * pairs,
                                            out, lines, far);
        } else {
          AmxInt8Tile<F, 8, kAddExponents>(a, static_cast<size_t>(rows) * 4 * kBlockWords<F>, factors, q, s, blocks, 2 * pairs,
                                           out, lines, far);
        }
      };
      if constexpr (kPowersOf2) {
        if (add_exponents) run.template operator()<true>();
      }
      if (!add_exponents) run.template operator()<false>();
      for (int64_t j = 0; j < rows; ++j) {
        for (int64_t p = 0; p < pairs; ++p) {
          const PanelPair panels(job, group.slice, p0 + p);
          epilogue.Row(out + (p * kAmxRows + j) * 32, group.row_begin + r + j, panels.col, panels.n);
        }
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();
