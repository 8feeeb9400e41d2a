// SPDX-License-Identifier: Apache-2.0
// Attention by AMX: products of bf16 tiles, for the caches that OnTiles() names.
//
// A number is the sum of kParts bf16: of an f16 cache two, hi (to nearest) and what is left, which is exact for a key or value; of a bf16
// cache one. A sum of products takes 32 steps at a time (elements of d, or positions), each as hi lo, hi hi, lo hi (query or probability
// first; lo lo, below 2^-16 of the product, is left out), or hi hi alone; amx-inl.h has the order within 32. Lanes that a row does not see
// have the probability 0 there, and adding such steps changes no sum. So a row's bits do not depend on its company.
//
// A block's keys and values are split once and then multiplied by the tile's queries, kAmxChunk at a time.
#include "engine/kernels/amx-inl.h"
#include "engine/kernels/attention/ranges-inl.h"

#if defined(TALLY_ATTENTION_AMX_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TALLY_ATTENTION_AMX_INL_H
#undef TALLY_ATTENTION_AMX_INL_H
#else
#define TALLY_ATTENTION_AMX_INL_H
#endif

#if TALLY_AMX

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {

constexpr int64_t kAmxTile = 1024, kAmxStep = 32, kAmxBlockSteps = kKvBlock / kAmxStep;

// Right tiles: of column group c, step s and part p at base + c * col + s * step + p * part; rows `row` bytes apart.
struct RightTiles {
  const uint8_t* base;
  int64_t col, step, part, row;
};

// Left tiles: of step s and part p at base + s * kAmxTile + p * part, of the second 16 rows `second` further.
struct LeftTiles {
  const uint8_t* base;
  int64_t part, second;
};

// Shapes for TileProducts: sums in tiles 0 to 3, left ones in 4 and 5, right ones in 6 and 7.
HWY_INLINE void ShapeProducts(int64_t rows) {
  TileShapes shapes;
  const int64_t first = std::min<int64_t>(rows, 16), second = rows > 16 ? rows - 16 : rows;
  for (int t : {0, 1, 4}) shapes.Set(t, first, 64);
  for (int t : {2, 3, 5}) shapes.Set(t, second, 64);
  for (int t : {6, 7}) shapes.Set(t, 16, 64);
  Tiles::Shape(shapes);
}

// Two left tiles (rows 0 to 15, 16 to 31) times kCols <= 2 groups of 16 columns, all steps. out: rows `out_bytes` apart.
template <int kParts, int kCols>
HWY_INLINE void TwoRows(const LeftTiles& l, const RightTiles& r, int64_t steps, float* out, int64_t out_bytes) {
  TileZero<0>();
  TileZero<2>();
  if constexpr (kCols > 1) TileZero<1>(), TileZero<3>();
  const uint8_t *a = l.base, *b = r.base;
  for (int64_t s = 0; s < steps; ++s, a += kAmxTile, b += r.step) {
    TileLoad<4>(a, 64);
    TileLoad<5>(a + l.second, 64);
    if constexpr (kParts > 1) {
      TileLoad<6>(b + r.part, r.row);
      TileDotBF16<0, 4, 6>();
      TileDotBF16<2, 5, 6>();
      if constexpr (kCols > 1) {
        TileLoad<7>(b + r.part + r.col, r.row);
        TileDotBF16<1, 4, 7>();
        TileDotBF16<3, 5, 7>();
      }
    }
    TileLoad<6>(b, r.row);
    TileDotBF16<0, 4, 6>();
    TileDotBF16<2, 5, 6>();
    if constexpr (kCols > 1) {
      TileLoad<7>(b + r.col, r.row);
      TileDotBF16<1, 4, 7>();
      TileDotBF16<3, 5, 7>();
    }
    if constexpr (kParts > 1) {
      TileLoad<4>(a + l.part, 64);
      TileLoad<5>(a + l.part + l.second, 64);
      TileDotBF16<0, 4, 6>();
      TileDotBF16<2, 5, 6>();
      if constexpr (kCols > 1) {
        TileDotBF16<1, 4, 7>();
        TileDotBF16<3, 5, 7>();
      }
    }
  }
  float* const second = out + 16 * (out_bytes / 4);
  TileStore<0>(out, out_bytes);
  TileStore<2>(second, out_bytes);
  if constexpr (kCols > 1) TileStore<1>(out + 16, out_bytes), TileStore<3>(second + 16, out_bytes);
}

template <int kParts, int kSums, int kRight>
HWY_INLINE void OneRowStep(const uint8_t* b, const RightTiles& r) {
  if constexpr (kParts > 1) {
    TileLoad<kRight>(b + r.part, r.row);
    TileDotBF16<kSums, 4, kRight>();
  }
  TileLoad<kRight>(b, r.row);
  TileDotBF16<kSums, 4, kRight>();
  if constexpr (kParts > 1) TileDotBF16<kSums, 5, kRight>();
}

// One left tile times kCols <= 4 groups of columns: what is left of two, at the same order of sums.
template <int kParts, int kCols>
HWY_INLINE void OneRow(const LeftTiles& l, const RightTiles& r, int64_t steps, float* out, int64_t out_bytes) {
  TileZero<0>();
  if constexpr (kCols > 1) TileZero<1>();
  if constexpr (kCols > 2) TileZero<2>(), TileZero<3>();
  const uint8_t *a = l.base, *b = r.base;
  for (int64_t s = 0; s < steps; ++s, a += kAmxTile, b += r.step) {
    TileLoad<4>(a, 64);
    if constexpr (kParts > 1) TileLoad<5>(a + l.part, 64);
    OneRowStep<kParts, 0, 6>(b, r);
    if constexpr (kCols > 1) OneRowStep<kParts, 1, 7>(b + r.col, r);
    if constexpr (kCols > 2) {
      OneRowStep<kParts, 2, 6>(b + 2 * r.col, r);
      OneRowStep<kParts, 3, 7>(b + 3 * r.col, r);
    }
  }
  TileStore<0>(out, out_bytes);
  if constexpr (kCols > 1) TileStore<1>(out + 16, out_bytes);
  if constexpr (kCols > 2) TileStore<2>(out + 32, out_bytes), TileStore<3>(out + 48, out_bytes);
}

// `rows` rows, as ShapeProducts was told, times `cols` groups of 16 columns. each(): called before every few products.
template <int kParts, class Each>
HWY_INLINE void TileProducts(int64_t rows, const LeftTiles& l, RightTiles r, int64_t cols, int64_t steps, float* out,
                             int64_t out_bytes, const Each& each) {
  const auto next = [&](int64_t n) HWY_ATTR {
    r.base += n * r.col;
    out += 16 * n;
    cols -= n;
  };
  if (rows > 16) {
    for (; cols >= 2; next(2)) {
      each();
      TwoRows<kParts, 2>(l, r, steps, out, out_bytes);
    }
    if (cols > 0) TwoRows<kParts, 1>(l, r, steps, out, out_bytes);
    return;
  }
  for (; cols >= 4; next(4)) {
    each();
    OneRow<kParts, 4>(l, r, steps, out, out_bytes);
  }
  if (cols >= 2) {
    each();
    OneRow<kParts, 2>(l, r, steps, out, out_bytes);
    next(2);
  }
  if (cols > 0) OneRow<kParts, 1>(l, r, steps, out, out_bytes);
}

using VU = hn::Vec<KvWords>;
HWY_INLINE VU HighHalf(VU x) { return hn::And(x, hn::Set(kKvWords, 0xffff0000u)); }
// Two vectors of bf16 as words of pairs, from their bits in the high halves. What is in the low halves of `first` goes.
HWY_INLINE VU PairWords(VU first, VU second) { return hn::Or(hn::ShiftRight<16>(first), HighHalf(second)); }

// x = hi + lo, each as words of the pairs of `first` and `second`. hi is rounded to nearest, ties away from zero; lo towards zero, which is
// exact if they have 11 bits.
HWY_INLINE void SplitPairs(VF first, VF second, VU& hi, VU& lo) {
  const VU half = hn::Set(kKvWords, 0x8000u);
  const VU a = HighHalf(hn::Add(hn::BitCast(kKvWords, first), half)), b = HighHalf(hn::Add(hn::BitCast(kKvWords, second), half));
  hi = hn::Or(hn::ShiftRight<16>(a), b);
  lo = PairWords(hn::BitCast(kKvWords, hn::Sub(first, hn::BitCast(kF32, a))),
                 hn::BitCast(kKvWords, hn::Sub(second, hn::BitCast(kF32, b))));
}
// Bits of x >= 0 rounded to bf16, to nearest even, in the high half.
HWY_INLINE VU RoundedBits(VF x) {
  const VU bits = hn::BitCast(kKvWords, x);
  const VU odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(kKvWords, 1));
  return hn::Add(bits, hn::Add(odd, hn::Set(kKvWords, 0x7fff)));
}

// The formats. kDirect: keys and values lie in the cache as tiles, pairs of positions as neighbours (2 i, 2 i + 1). Else they are split
// into tiles of pairs (i, i + 16) of 32 positions.
template <class Format>
struct AmxFormat;

template <>
struct AmxFormat<KvF16> {
  static constexpr int kParts = 2;
  static constexpr bool kDirect = false;
};
template <>
struct AmxFormat<KvBF16> {
  static constexpr int kParts = 1;
  static constexpr bool kDirect = true;
};

// exp(s - max) of `steps` steps of 32 scores times `scale`, as probabilities of the row of a left tile at `to`. Returns their sum.
template <int kParts>
HWY_INLINE float AmxSoftmax(const float* HWY_RESTRICT s, int64_t steps, float scale, uint8_t* HWY_RESTRICT to, float& max) {
  const VF by = hn::Set(kF32, scale);
  VF m0 = hn::Set(kF32, -std::numeric_limits<float>::infinity()), m1 = m0;
  for (int64_t i = 0; i < steps; ++i) {
    m0 = hn::Max(m0, hn::Mul(hn::LoadU(kF32, s + 32 * i), by));
    m1 = hn::Max(m1, hn::Mul(hn::LoadU(kF32, s + 32 * i + 16), by));
  }
  max = hn::ReduceMax(kF32, hn::Max(m0, m1));
  const VF all = hn::Set(kF32, max);
  VF sum = hn::Zero(kF32);
  for (int64_t i = 0; i < steps; ++i, to += kAmxTile) {
    const VF x = ExpOfNegative(hn::Sub(hn::Mul(hn::LoadU(kF32, s + 32 * i), by), all));
    const VF y = ExpOfNegative(hn::Sub(hn::Mul(hn::LoadU(kF32, s + 32 * i + 16), by), all));
    sum = hn::Add(hn::Add(sum, x), y);
    if constexpr (kParts > 1) {
      VU hi, lo;
      SplitPairs(x, y, hi, lo);
      hn::Store(hi, kKvWords, reinterpret_cast<uint32_t*>(to));
      hn::Store(lo, kKvWords, reinterpret_cast<uint32_t*>(to + kAmxBlockSteps * kAmxTile));
    } else {
      const hn::Rebind<uint16_t, KvFloats> d16;
      uint16_t* const out = reinterpret_cast<uint16_t*>(to);
      hn::Store(hn::TruncateTo(d16, hn::ShiftRight<16>(RoundedBits(x))), d16, out);
      hn::Store(hn::TruncateTo(d16, hn::ShiftRight<16>(RoundedBits(y))), d16, out + 16);
    }
  }
  return hn::ReduceSum(kF32, sum);
}

// into = into a + o b. Zeros of either sign in o give the same.
HWY_INLINE void MergeTileOutputs(int64_t padded, const float* HWY_RESTRICT o, float a, float b, float* HWY_RESTRICT into) {
  const VF x = hn::Set(kF32, a), y = hn::Set(kF32, b), zero = hn::Zero(kF32);
  for (int64_t d = 0; d < padded; d += kLanes) {
    hn::StoreU(hn::MulAdd(hn::LoadU(kF32, into + d), x, hn::MulAdd(hn::LoadU(kF32, o + d), y, zero)), kF32, into + d);
  }
}

template <class Format>
class AmxRun : RangeRun {
  using F = AmxFormat<Format>;
  static constexpr int kParts = F::kParts;
  static constexpr int64_t kLeftTile = kParts * kAmxBlockSteps * kAmxTile;  // of probabilities

 public:
  AmxRun(const AttentionOp& op, int64_t row, int64_t rows, const TaskShare& share, const AttentionScratch& work)
      : RangeRun(op, row, rows, share, static_cast<int64_t>(Format::HeadBytes(op.layout)), work),
        key_steps_(k_dim_ / kAmxStep),
        cols_(v_padded_ / 16),
        change_(op.softcap != 0 || !op.slopes.empty()),
        values_(reinterpret_cast<uint8_t*>(work.edge)) {}

  void Run() {
    const Tiles tiles;
    RunRanges([&](const float* q, int64_t i) HWY_ATTR { StoreQuery(q, i); }, [&]() HWY_ATTR { Block(); });
  }

 private:
  uint8_t* QueryTiles(int64_t query) const {
    return reinterpret_cast<uint8_t*>(w_.q) + query / 16 * kParts * key_steps_ * kAmxTile;
  }

  HWY_INLINE void StoreQuery(const float* q, int64_t i) {
    const hn::Rebind<hwy::bfloat16_t, KvFloats> dbf;
    uint8_t* const to = QueryTiles(i) + i % 16 * 64;
    for (int64_t d = 0; d < k_dim_; d += kLanes) {
      const VF x = hn::LoadU(kF32, q + d);
      const auto hi = NarrowToBF16(x);
      hwy::bfloat16_t* const at = reinterpret_cast<hwy::bfloat16_t*>(to + d / kAmxStep * kAmxTile) + d % kAmxStep;
      hn::StoreU(hi, dbf, at);
      if constexpr (kParts > 1)
        hn::StoreU(NarrowToBF16(hn::Sub(x, hn::PromoteTo(kF32, hi))), dbf, at + key_steps_ * kAmxTile / 2);
    }
  }

  // Prefetches `lines` lines, which follow those of the last call at some distance. Only the first queries of a tile do.
  HWY_INLINE void Fetch(int64_t lines) {
    if (!fetch_) return;
    const Ahead ahead = AheadOf(static_cast<size_t>(fetched_), kAmxAhead);
    for (int64_t i = 0; i < 64 * lines; i += 64) ahead.Line(i);
    fetched_ = std::min(fetched_ + 64 * lines, share_bytes_);
  }

  static PositionRange Steps(PositionRange lanes) { return {lanes.begin / kAmxStep, (lanes.end + kAmxStep - 1) / kAmxStep}; }
  // The lanes of the current block from the first to the last one that a row of [first, end) sees; `equal`: they all see these.
  PositionRange Hull(int64_t first, int64_t end, bool& equal) const {
    PositionRange hull{kKvBlock, 0};
    equal = true;
    for (int64_t r = first; r < end; ++r) {
      const PositionRange lanes = Lanes(r);
      equal = equal && (r == first || (lanes.begin == hull.begin && lanes.end == hull.end));
      if (!lanes.empty()) hull = {std::min(hull.begin, lanes.begin), std::max(hull.end, lanes.end)};
    }
    return hull;
  }

  HWY_NOINLINE void Block() {
    fetched_ = 0;
    fetch_ = true;
    bool equal, unused;
    const PositionRange hull = Hull(0, rows_, equal);
    const RightTiles keys = Keys(Steps(hull));
    RightTiles values = {};
    bool finite = true;
    for (int64_t i = 0; i < queries_; i += kAmxChunk) {
      const int64_t n = std::min(kAmxChunk, queries_ - i);
      const int64_t first = i / group_, end = (i + n - 1) / group_ + 1;
      const PositionRange steps = Steps(Hull(first, end, unused));
      if (steps.empty()) continue;
      if (n != shaped_) ShapeProducts(n);
      shaped_ = n;
      Scores(i, n, steps, keys);
      for (int64_t k = 0; k < n; ++k) Softmax(i, k, steps);
      MergeSums(n, w_.max + i, w_.sum + i, w_.range_max + i, w_.range_sum + i, w_.a + i, w_.b + i);
      if (values.base == nullptr) values = Values(hull, !equal, finite);
      if (finite) {
        AddValues(n, steps, values);
        for (int64_t k = 0; k < n; ++k) MergeQuery(i, k);
      } else {  // some value is no number, and some rows must not see it
        for (int64_t r = first; r < end; ++r) {
          if (Lanes(r).empty()) continue;
          bool also_finite;
          AddValues(n, steps, Values(Lanes(r), true, also_finite, steps));
          for (int64_t k = 0; k < n; ++k) {
            if ((i + k) / group_ == r) MergeQuery(i, k);
          }
        }
      }
      fetch_ = false;
    }
  }

  HWY_INLINE void MergeQuery(int64_t i, int64_t k) {
    if (Lanes((i + k) / group_).empty()) return;
    MergeTileOutputs(v_padded_, At(w_.o, k), w_.a[i + k], w_.b[i + k], At(w_.range_o, i + k));
  }

  // The tiles of the keys of steps of positions: a column group is 16 positions.
  HWY_INLINE RightTiles Keys(PositionRange steps) {
    const int64_t tiles = key_steps_ * kAmxTile;
    if constexpr (F::kDirect) {
      return {share_ + Format::KeyAt(layout_, 0, 0), tiles, kAmxTile, 0, 64};
    } else {
      uint8_t* const to = reinterpret_cast<uint8_t*>(w_.unpacked);
      const int64_t part = kKvBlock / 16 * tiles;
      for (int64_t g = 2 * steps.begin; g < 2 * steps.end; ++g) SplitKeys(g, to + g * tiles, part);
      return {to, tiles, kAmxTile, part, 64};
    }
  }
  HWY_NOINLINE void SplitKeys(int64_t group, uint8_t* HWY_RESTRICT to, int64_t part) {
    const hwy::float16_t* HWY_RESTRICT k =
        reinterpret_cast<const hwy::float16_t*>(share_ + Format::KeyAt(layout_, group * 16, 0));
    for (int64_t d = 0; d < k_dim_; d += 2, k += 32, to += 64) {
      if (d % 8 == 0) Fetch(3);
      VU hi, lo;
      SplitPairs(Widen(k), Widen(k + 16), hi, lo);
      hn::Store(hi, kKvWords, reinterpret_cast<uint32_t*>(to));
      hn::Store(lo, kKvWords, reinterpret_cast<uint32_t*>(to + part));
    }
  }

  // Scores of queries [i, i + n) with the steps of positions.
  HWY_NOINLINE void Scores(int64_t i, int64_t n, PositionRange steps, RightTiles keys) {
    const int64_t part = key_steps_ * kAmxTile;
    keys.base += 2 * steps.begin * keys.col;
    const int64_t lines = F::kDirect ? 16 * key_steps_ * (n > 16 ? 2 : 4) : 12;
    TileProducts<kParts>(n, {QueryTiles(i), part, kParts * part}, keys, 2 * steps.size(), key_steps_,
                         w_.p + steps.begin * kAmxStep, kKvBlock * 4, [&]() HWY_ATTR { Fetch(lines); });
  }

  // Probabilities of query i + k, from the scores in row k.
  HWY_NOINLINE void Softmax(int64_t i, int64_t k, PositionRange steps) {
    const int64_t r = (i + k) / group_;
    const PositionRange lanes = Lanes(r);
    uint8_t* const to = reinterpret_cast<uint8_t*>(w_.factors) + k / 16 * kLeftTile + k % 16 * 64 + steps.begin * kAmxTile;
    float* const s = w_.p + k * kKvBlock;
    float& max = w_.max[i + k];
    if (lanes.empty()) {  // merging this changes nothing
      max = w_.range_max[i + k];
      w_.sum[i + k] = 0;
      for (int64_t p = 0; p < kParts; ++p) {
        for (int64_t t = 0; t < steps.size(); ++t) std::memset(to + (p * kAmxBlockSteps + t) * kAmxTile, 0, 64);
      }
      return;
    }
    Fetch(2);
    float scale = op_.scale;
    if (change_ || lanes.begin > steps.begin * kAmxStep || lanes.end < steps.end * kAmxStep) {
      ScaleAndMask(i + k, lanes, steps, s);
      scale = 1;
    }
    const float* const from = s + steps.begin * kAmxStep;
    w_.sum[i + k] = steps.size() == kAmxBlockSteps ? AmxSoftmax<kParts>(from, kAmxBlockSteps, scale, to, max)
                                                   : AmxSoftmax<kParts>(from, steps.size(), scale, to, max);
  }
  HWY_NOINLINE void ScaleAndMask(int64_t query, PositionRange lanes, PositionRange steps, float* s) const {
    const int64_t from = steps.begin * kAmxStep, to = steps.end * kAmxStep;
    const VF by = hn::Set(kF32, op_.scale);
    for (int64_t j = from; j < to; j += kLanes) hn::StoreU(hn::Mul(hn::LoadU(kF32, s + j), by), kF32, s + j);
    if (change_) {
      const float slope = op_.slopes.empty() ? 0 : op_.slopes[static_cast<size_t>(first_head_ + query % group_)];
      ChangeScores(s + from, to - from, op_.softcap, slope, base_ + from - op_.rows[row_ + query / group_].position);
    }
    for (int64_t j = from; j < lanes.begin; ++j) s[j] = -std::numeric_limits<float>::infinity();
    for (int64_t j = lanes.end; j < to; ++j) s[j] = -std::numeric_limits<float>::infinity();
  }

  RightTiles Values(PositionRange lanes, bool check, bool& finite) { return Values(lanes, check, finite, Steps(lanes)); }
  // The tiles of the values of `lanes`, zeros in the other lanes of `steps`: a column group is 16 dimensions. check: sets `finite`.
  RightTiles Values(PositionRange lanes, bool check, bool& finite, PositionRange steps) {
    const int64_t row = v_padded_ * 4, step = kAmxStep / 2 * row;
    VF sum = hn::Zero(kF32);  // of zeros, or NaN
    RightTiles right;
    if constexpr (F::kDirect) {
      const uint8_t* const v = share_ + Format::ValueAt(layout_, 0, 0);
      right = {v, 64, step, 0, row};
      if (check || lanes.begin > steps.begin * kAmxStep || lanes.end < steps.end * kAmxStep) {
        right.base = values_;
        for (int64_t s = steps.begin; s < steps.end; ++s) CopyValues(v, lanes, s, sum);
      }
    } else {
      const int64_t part = kAmxBlockSteps * step;
      right = {values_, kAmxTile, cols_ * kAmxTile, part, 64};
      for (int64_t s = steps.begin; s < steps.end; ++s) {
        check ? SplitValues<true>(lanes, s, part, sum) : SplitValues<false>(lanes, s, part, sum);
      }
    }
    finite = !check || hn::AllFalse(kF32, hn::IsNaN(sum));
    return right;
  }
  HWY_NOINLINE void CopyValues(const uint8_t* v, PositionRange lanes, int64_t step, VF& sum) {
    const VF zero = hn::Zero(kF32);
    VF s = sum;
    for (int64_t n = 16 * step; n < 16 * step + 16; ++n) {
      const bool first = lanes.begin <= 2 * n && 2 * n < lanes.end, second = lanes.begin <= 2 * n + 1 && 2 * n + 1 < lanes.end;
      const VU mask = hn::Set(kKvWords, (first ? 0x0000ffffu : 0) | (second ? 0xffff0000u : 0));
      const uint32_t* const from = reinterpret_cast<const uint32_t*>(v) + n * v_padded_;
      uint32_t* const to = reinterpret_cast<uint32_t*>(values_) + n * v_padded_;
      for (int64_t d = 0; d < v_padded_; d += kLanes) {
        const VU x = hn::And(hn::LoadU(kKvWords, from + d), mask);
        s = hn::MulAdd(hn::BitCast(kF32, HighHalf(x)), zero, s);
        s = hn::MulAdd(hn::BitCast(kF32, hn::ShiftLeft<16>(x)), zero, s);
        hn::Store(x, kKvWords, to + d);
      }
    }
    sum = s;
  }
  template <bool kCheck>
  HWY_NOINLINE void SplitValues(PositionRange lanes, int64_t step, int64_t part, VF& sum) {
    const VF zero = hn::Zero(kF32);
    VF sums = sum;
    uint8_t* const tiles = values_ + step * cols_ * kAmxTile;
    for (int64_t i = 0; i < 16; ++i) {
      const int64_t lane = step * kAmxStep + i;
      const bool first = lanes.begin <= lane && lane < lanes.end, second = lanes.begin <= lane + 16 && lane + 16 < lanes.end;
      const hwy::float16_t* v = reinterpret_cast<const hwy::float16_t*>(share_ + Format::ValueAt(layout_, lane, 0));
      uint8_t* HWY_RESTRICT to = tiles + i * 64;
      Fetch(cols_);
      for (int64_t c = 0; c < cols_; ++c, to += kAmxTile, v += 16) {
        const VF x = first ? Widen(v) : zero, y = second ? Widen(v + 16 * v_padded_) : zero;
        if constexpr (kCheck) sums = hn::MulAdd(x, zero, hn::MulAdd(y, zero, sums));
        VU hi, lo;
        SplitPairs(x, y, hi, lo);
        hn::Store(hi, kKvWords, reinterpret_cast<uint32_t*>(to));
        hn::Store(lo, kKvWords, reinterpret_cast<uint32_t*>(to + part));
      }
    }
    sum = sums;
  }

  // o of n queries = their probabilities times the values of the steps.
  HWY_NOINLINE void AddValues(int64_t n, PositionRange steps, RightTiles values) {
    const uint8_t* const p = reinterpret_cast<const uint8_t*>(w_.factors) + steps.begin * kAmxTile;
    values.base += steps.begin * values.step;
    const int64_t lines = F::kDirect ? 64 * (n > 16 ? 2 : 4) : 16;
    TileProducts<kParts>(n, {p, kAmxBlockSteps * kAmxTile, kLeftTile}, values, cols_, steps.size(), w_.o, v_padded_ * 4,
                         [&]() HWY_ATTR { Fetch(lines); });
  }

  static constexpr int64_t kAmxAhead = 8192;

  const int64_t key_steps_, cols_;
  const bool change_;
  uint8_t* const values_;
  int64_t shaped_ = 0;   // rows that the tiles' shapes are for
  int64_t fetched_ = 0;  // bytes of the share whose successors at kAmxAhead were prefetched
  bool fetch_ = false;
};

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#endif  // TALLY_AMX

#endif  // include guard
