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

// Prefetches a tile into the first cache.
HWY_INLINE void FetchTile(const uint8_t* p, int64_t row) {
  HWY_UNROLL(16) for (int i = 0; i < 16; ++i) hwy::Prefetch(p + i * row);
}

// Two left tiles (rows 0 to 15, 16 to 31) times `pairs` times 2 groups of 16 columns, all steps. out: rows `out_bytes` apart. Each load
// stands two products or more before its use, and reads what the next step or pair of groups needs. Prefetches the right tiles of the next
// pair of groups. each(): called in every step.
template <int kParts, class Each>
HWY_INLINE void TwoRows(const LeftTiles& l, const RightTiles& r, int64_t pairs, int64_t steps, float* out, int64_t out_bytes,
                        const Each& each) {
  const int64_t first_part = kParts > 1 ? r.part : 0;
  const uint8_t *a = l.base, *b = r.base;
  TileLoad<4>(a, 64);
  TileLoad<6>(b + first_part, r.row);
  TileLoad<5>(a + l.second, 64);
  TileLoad<7>(b + first_part + r.col, r.row);
  for (int64_t pair = 0; pair < pairs; ++pair, out += 32) {
    TileZero<0>();
    TileZero<1>();
    TileZero<2>();
    TileZero<3>();
    for (int64_t s = 0; s < steps; ++s) {
      const uint8_t *a_next = a + kAmxTile, *b_next = b + r.step;
      if (s == steps - 1) {
        a_next = l.base;
        b_next = r.base + (pair + 1 < pairs ? 2 * (pair + 1) * r.col : 0);
      }
      const uint8_t* const later = b + 2 * r.col;
      each();
      if constexpr (kParts > 1) {
        TileDotBF16<0, 4, 6>();
        TileDotBF16<2, 5, 6>();
        TileLoad<6>(b, r.row);
        FetchTile(later + r.part, r.row);
        TileDotBF16<1, 4, 7>();
        TileDotBF16<3, 5, 7>();
        TileLoad<7>(b + r.col, r.row);
        FetchTile(later + r.part + r.col, r.row);
        TileDotBF16<0, 4, 6>();
        TileDotBF16<1, 4, 7>();
        TileLoad<4>(a + l.part, 64);
        FetchTile(later, r.row);
        TileDotBF16<2, 5, 6>();
        TileDotBF16<3, 5, 7>();
        TileLoad<5>(a + l.part + l.second, 64);
        FetchTile(later + r.col, r.row);
      } else {
        FetchTile(later, r.row);
        FetchTile(later + r.col, r.row);
      }
      TileDotBF16<0, 4, 6>();
      TileDotBF16<1, 4, 7>();
      TileLoad<4>(a_next, 64);
      TileDotBF16<2, 5, 6>();
      TileLoad<6>(b_next + first_part, r.row);
      TileDotBF16<3, 5, 7>();
      TileLoad<5>(a_next + l.second, 64);
      TileLoad<7>(b_next + first_part + r.col, r.row);
      a = a_next;
      b = b_next;
    }
    float* const second = out + 16 * (out_bytes / 4);
    TileStore<0>(out, out_bytes);
    TileStore<1>(out + 16, out_bytes);
    TileStore<2>(second, out_bytes);
    TileStore<3>(second + 16, out_bytes);
  }
}

// The same times one group of columns.
template <int kParts>
HWY_INLINE void TwoRowsOnce(const LeftTiles& l, const RightTiles& r, int64_t steps, float* out, int64_t out_bytes) {
  TileZero<0>();
  TileZero<2>();
  const uint8_t *a = l.base, *b = r.base;
  for (int64_t s = 0; s < steps; ++s, a += kAmxTile, b += r.step) {
    TileLoad<4>(a, 64);
    TileLoad<5>(a + l.second, 64);
    if constexpr (kParts > 1) {
      TileLoad<6>(b + r.part, r.row);
      TileDotBF16<0, 4, 6>();
      TileDotBF16<2, 5, 6>();
    }
    TileLoad<7>(b, r.row);
    TileDotBF16<0, 4, 7>();
    TileDotBF16<2, 5, 7>();
    if constexpr (kParts > 1) {
      TileLoad<4>(a + l.part, 64);
      TileLoad<5>(a + l.part + l.second, 64);
      TileDotBF16<0, 4, 7>();
      TileDotBF16<2, 5, 7>();
    }
  }
  TileStore<0>(out, out_bytes);
  TileStore<2>(out + 16 * (out_bytes / 4), out_bytes);
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

// One left tile times kCols <= 4 groups of columns, in the same order of sums. of(s): the right tiles of step s.
template <int kParts, int kCols, class Of>
HWY_INLINE void OneRow(const LeftTiles& l, const RightTiles& r, int64_t steps, float* out, int64_t out_bytes, const Of& of) {
  TileZero<0>();
  if constexpr (kCols > 1) TileZero<1>();
  if constexpr (kCols > 2) TileZero<2>(), TileZero<3>();
  const uint8_t* a = l.base;
  for (int64_t s = 0; s < steps; ++s, a += kAmxTile) {
    const uint8_t* const b = of(s);
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

constexpr int64_t OneRowCols(int64_t cols) { return cols >= 4 ? 4 : cols >= 2 ? 2 : 1; }
template <int kParts, class Of>
HWY_INLINE void OneRowOf(int64_t cols, const LeftTiles& l, const RightTiles& r, int64_t steps, float* out, int64_t out_bytes,
                         const Of& of) {
  switch (OneRowCols(cols)) {
    case 4: return OneRow<kParts, 4>(l, r, steps, out, out_bytes, of);
    case 2: return OneRow<kParts, 2>(l, r, steps, out, out_bytes, of);
    default: OneRow<kParts, 1>(l, r, steps, out, out_bytes, of);
  }
}

// Calls of `each` that TileProducts makes.
inline int64_t ProductSteps(int64_t rows, int64_t cols, int64_t steps) {
  return rows > 16 ? std::max<int64_t>(1, cols / 2 * steps) : steps * (cols / 4 + (cols % 4 + 1) / 2);
}
// `rows` rows, as ShapeProducts was told, times `cols` groups of 16 columns.
template <int kParts, class Each>
HWY_INLINE void TileProducts(int64_t rows, const LeftTiles& l, RightTiles r, int64_t cols, int64_t steps, float* out,
                             int64_t out_bytes, const Each& each) {
  if (rows > 16) {
    if (cols >= 2) TwoRows<kParts>(l, r, cols / 2, steps, out, out_bytes, each);
    if (cols % 2 == 0) return;
    r.base += (cols - 1) * r.col;
    return TwoRowsOnce<kParts>(l, r, steps, out + 16 * (cols - 1), out_bytes);
  }
  for (int64_t c = 0, n; c < cols; c += n) {
    n = OneRowCols(cols - c);
    OneRowOf<kParts>(n, l, r, steps, out + 16 * c, out_bytes, [&](int64_t s) HWY_ATTR {
      each();
      return r.base + c * r.col + s * r.step;
    });
  }
}

// One left tile times right tiles that are made a step before their use. buffers: two of kAmxBuffer bytes. make(c, n, s, to): the tiles
// of step s and column groups c to c + n, [n][kParts].
constexpr int64_t kAmxBuffer = 4 * 2 * kAmxTile;
template <int kParts, class Make>
HWY_INLINE void OneRowMade(const LeftTiles& l, int64_t cols, int64_t steps, float* out, int64_t out_bytes, uint8_t* buffers,
                           const Make& make) {
  const RightTiles r = {nullptr, kParts * kAmxTile, 0, kAmxTile, 64};
  int64_t at = 0;  // of the current step's buffer
  make(0, OneRowCols(cols), 0, buffers);
  for (int64_t c = 0, n; c < cols; c += n) {
    n = OneRowCols(cols - c);
    OneRowOf<kParts>(n, l, r, steps, out + 16 * c, out_bytes, [&](int64_t s) HWY_ATTR {
      const uint8_t* const now = buffers + at;
      at = kAmxBuffer - at;
      if (s + 1 < steps) {
        make(c, n, s + 1, buffers + at);
      } else if (c + n < cols) {
        make(c + n, OneRowCols(cols - c - n), 0, buffers + at);
      }
      return now;
    });
  }
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

// op over the 16 elements of each of 16 rows, in lane i of row i; `rows` of them count.
template <class Op>
HWY_INLINE VF ReduceRows(const float* in, int64_t rows, const Op& op) {
  const hn::Repartition<double, DF> d64;
  VF four[4] = {hn::Zero(kF32), hn::Zero(kF32), hn::Zero(kF32), hn::Zero(kF32)};
  HWY_UNROLL(4) for (int64_t i = 0; i < 4; ++i) {
    if (4 * i >= rows) break;
    const float* at = in + 64 * i;
    const VF a = hn::Load(kF32, at), b = hn::Load(kF32, at + 16), c = hn::Load(kF32, at + 32), d = hn::Load(kF32, at + 48);
    const VF ab = op(hn::InterleaveLower(kF32, a, b), hn::InterleaveUpper(kF32, a, b)),
             cd = op(hn::InterleaveLower(kF32, c, d), hn::InterleaveUpper(kF32, c, d));
    const auto x = hn::BitCast(d64, ab), y = hn::BitCast(d64, cd);
    four[i] = op(hn::BitCast(kF32, hn::InterleaveLower(d64, x, y)), hn::BitCast(kF32, hn::InterleaveUpper(d64, x, y)));
  }
  const VF x = op(hn::ConcatLowerLower(kF32, four[1], four[0]), hn::ConcatUpperUpper(kF32, four[1], four[0])),
           y = op(hn::ConcatLowerLower(kF32, four[3], four[2]), hn::ConcatUpperUpper(kF32, four[3], four[2]));
  return op(VF{_mm512_shuffle_f32x4(x.raw, y.raw, 0x88)}, VF{_mm512_shuffle_f32x4(x.raw, y.raw, 0xDD)});
}

// 2^x for x <= 0, and a little above. Otherwise as ExpOfNegative.
HWY_INLINE VF Exp2OfNegative(VF x) {
  const hn::RebindToSigned<DF> di;
  // The low bits of `shifted` are n + 127, n = round(x).
  const VF magic = hn::Set(kF32, 12582912.0f + 127.0f);
  x = hn::Max(hn::Set(kF32, -127.1f), x);  // the second argument where one is NaN
  const VF shifted = hn::Add(x, magic);
  const VF f = hn::Sub(x, hn::Sub(shifted, magic));
  return hn::Mul(Exp2OfFraction(f), hn::BitCast(kF32, hn::ShiftLeft<23>(hn::BitCast(di, shifted))));
}

// 2^(s by - max) of `steps` steps of 32 scores, as probabilities of the row of a left tile at `to`. Returns their sum by lanes.
template <int kParts>
HWY_INLINE VF AmxProbabilities(const float* HWY_RESTRICT s, int64_t steps, VF by, VF max, uint8_t* HWY_RESTRICT to) {
  VF sum = hn::Zero(kF32);
  for (int64_t i = 0; i < steps; ++i, to += kAmxTile) {
    const VF x = Exp2OfNegative(hn::MulSub(hn::LoadU(kF32, s + 32 * i), by, max));
    const VF y = Exp2OfNegative(hn::MulSub(hn::LoadU(kF32, s + 32 * i + 16), by, max));
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
  return sum;
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
        change_(op.softcap != 0 || !op.slopes.empty() || !(op.scale > 0)),
        keys_(reinterpret_cast<uint8_t*>(work.unpacked)),
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

  // Prefetches further lines of what follows at kFar into the second cache, spread over a block's work. Only the first queries of a tile do.
  HWY_INLINE void Fetch(float lines) {
    if (!fetch_) return;
    due_ += lines;
    const int64_t end = std::min(static_cast<int64_t>(due_), share_bytes_ / 64);
    const Ahead ahead = AheadOf(0, std::min(kFar, share_bytes_));
    for (; fetched_ < end; ++fetched_) ahead.FarLine(64 * fetched_);
  }
  // Lines for each of so many calls that together are `percent` of the share.
  float Share(int percent, int64_t calls) const {
    return static_cast<float>(percent * share_bytes_) / static_cast<float>(6400 * calls);
  }

  static PositionRange Steps(PositionRange lanes) { return {lanes.begin / kAmxStep, (lanes.end + kAmxStep - 1) / kAmxStep}; }
  // The lanes of the current block from the first to the last one that a row sees; `equal`: all rows see them.
  PositionRange Hull(bool& equal) const {
    PositionRange hull{kKvBlock, 0};
    for (int64_t r = 0; r < rows_; ++r) Extend(hull, Lanes(r));
    equal = true;
    for (int64_t r = 0; r < rows_; ++r) equal = equal && Lanes(r).begin == hull.begin && Lanes(r).end == hull.end;
    return hull;
  }
  // The same of queries [i, i + n); sets lanes_.
  PositionRange ChunkLanes(int64_t i, int64_t n) {
    PositionRange hull{kKvBlock, 0};
    int64_t row = i / group_, head = i % group_;
    PositionRange lanes = Lanes(row);
    Extend(hull, lanes);
    for (int64_t k = 0; k < n; ++k, ++head) {
      if (head == group_) {
        head = 0;
        lanes = Lanes(++row);
        Extend(hull, lanes);
      }
      lanes_[k] = lanes;
    }
    return hull;
  }
  static void Extend(PositionRange& hull, PositionRange lanes) {
    if (!lanes.empty()) hull = {std::min(hull.begin, lanes.begin), std::max(hull.end, lanes.end)};
  }

  HWY_NOINLINE void Block() {
    fetched_ = 0;
    due_ = 0;
    fetch_ = true;
    bool equal;
    const PositionRange hull = Hull(equal);
    if constexpr (!F::kDirect) {
      if (queries_ <= 16 && equal) return FewBlock(hull);
    }
    const RightTiles keys = Keys(Steps(hull));
    RightTiles values = {};
    bool finite = true;
    for (int64_t i = 0; i < queries_; i += kAmxChunk) {
      const int64_t n = std::min(kAmxChunk, queries_ - i);
      const PositionRange steps = Steps(ChunkLanes(i, n));
      if (steps.empty()) continue;
      Shape(n);
      Scores(i, n, steps, keys);
      for (int64_t k = 0; k < n; k += 16) Softmax(i, k, std::min(k + 16, n), steps, Share(F::kDirect ? 30 : 10, n));
      MergeSums(n, w_.max + i, w_.sum + i, w_.range_max + i, w_.range_sum + i, w_.a + i, w_.b + i);
      if (values.base == nullptr) values = Values(hull, !equal, finite);
      if (finite) {
        AddValues(n, steps, values);
        for (int64_t k = 0; k < n; ++k) MergeQuery(i, k);
      } else {  // some value is no number, and some rows must not see it
        for (int64_t k = 0, row = 0; k < n; k = row) {
          while (row < n && (i + row) / group_ == (i + k) / group_) ++row;
          if (lanes_[k].empty()) continue;
          bool also_finite;
          AddValues(n, steps, Values(lanes_[k], true, also_finite, steps));
          for (int64_t q = k; q < row; ++q) MergeQuery(i, q);
        }
      }
      fetch_ = false;
    }
  }

  // Keys and values are split just before they are multiplied, so that they stay in the first cache.
  HWY_INLINE void FewBlock(PositionRange lanes) {
    const int64_t n = queries_;
    std::fill_n(lanes_, n, lanes);
    Shape(n);
    FewScores(Steps(lanes));
    Softmax(0, 0, n, Steps(lanes), Share(10, n));
    MergeSums(n, w_.max, w_.sum, w_.range_max, w_.range_sum, w_.a, w_.b);
    AddFewValues(lanes);
    for (int64_t k = 0; k < n; ++k) MergeQuery(0, k);
  }
  HWY_INLINE void Shape(int64_t rows) {
    if (rows != shaped_) ShapeProducts(rows);
    shaped_ = rows;
  }

  HWY_INLINE void MergeQuery(int64_t i, int64_t k) {
    if (lanes_[k].empty()) return;
    MergeTileOutputs(v_padded_, At(w_.o, k), w_.a[i + k], w_.b[i + k], At(w_.range_o, i + k));
  }

  // The tiles of the keys of steps of positions: a column group is 16 positions.
  HWY_INLINE RightTiles Keys(PositionRange steps) {
    const int64_t tiles = key_steps_ * kAmxTile;
    if constexpr (F::kDirect) {
      return {share_ + Format::KeyAt(layout_, 0, 0), tiles, kAmxTile, 0, 64};
    } else {
      const int64_t part = kKvBlock / 16 * tiles;
      const float lines = Share(35, 2 * steps.size() * key_steps_);
      for (int64_t g = 2 * steps.begin; g < 2 * steps.end; ++g) {
        for (int64_t s = 0; s < key_steps_; ++s) {
          Fetch(lines);
          SplitKeys(g, s, keys_ + g * tiles + s * kAmxTile, part);
        }
      }
      return {keys_, tiles, kAmxTile, part, 64};
    }
  }
  // Step s of a group of 16 positions.
  HWY_INLINE void SplitKeys(int64_t group, int64_t s, uint8_t* HWY_RESTRICT to, int64_t part) {
    const hwy::float16_t* HWY_RESTRICT k =
        reinterpret_cast<const hwy::float16_t*>(share_ + Format::KeyAt(layout_, group * 16, s * kAmxStep));
    for (int64_t d = 0; d < kAmxStep; d += 2, k += 32, to += 64) {
      VU hi, lo;
      SplitPairs(Widen(k), Widen(k + 16), hi, lo);
      hn::Store(hi, kKvWords, reinterpret_cast<uint32_t*>(to));
      hn::Store(lo, kKvWords, reinterpret_cast<uint32_t*>(to + part));
    }
  }

  // Scores of queries [i, i + n) with the steps of positions.
  HWY_NOINLINE void Scores(int64_t i, int64_t n, PositionRange steps, RightTiles keys) {
    const LeftTiles left = QueryLeft(i);
    keys.base += 2 * steps.begin * keys.col;
    const float lines = Share(F::kDirect ? 35 : 10, ProductSteps(n, 2 * steps.size(), key_steps_));
    TileProducts<kParts>(n, left, keys, 2 * steps.size(), key_steps_, w_.p + steps.begin * kAmxStep, kKvBlock * 4,
                         [&]() HWY_ATTR { Fetch(lines); });
  }
  // Of all queries, which are at most 16.
  HWY_NOINLINE void FewScores(PositionRange steps) {
    const float lines = Share(45, 2 * steps.size() * key_steps_);
    OneRowMade<kParts>(QueryLeft(0), 2 * steps.size(), key_steps_, w_.p + steps.begin * kAmxStep, kKvBlock * 4, keys_,
                       [&](int64_t c, int64_t groups, int64_t s, uint8_t* to) HWY_ATTR {
                         for (int64_t g = 2 * steps.begin + c, j = 0; j < groups; ++j, ++g, to += kParts * kAmxTile) {
                           Fetch(lines);
                           SplitKeys(g, s, to, kAmxTile);
                         }
                       });
  }
  LeftTiles QueryLeft(int64_t i) const {
    const int64_t part = key_steps_ * kAmxTile;
    return {QueryTiles(i), part, kParts * part};
  }

  // Probabilities of queries i + k, k in [first, end) of one left tile, from the scores in rows k. Their lanes are lanes_[k].
  HWY_NOINLINE void Softmax(int64_t i, int64_t first, int64_t end, PositionRange steps, float lines) {
    constexpr float kLog2E = 1.44269504f;
    const int64_t begin = steps.begin * kAmxStep, n = steps.size();
    const VF by = hn::Set(kF32, (change_ ? 1.0f : op_.scale) * kLog2E);
    alignas(64) float rows[16 * 16] = {}, max2[16];
    for (int64_t k = first; k < end; ++k) {
      float* const s = w_.p + k * kKvBlock + begin;
      Edges(i + k, lanes_[k], steps, s - begin);
      VF m0 = hn::LoadU(kF32, s), m1 = hn::LoadU(kF32, s + 16);
      for (int64_t j = 1; j < n; ++j) {
        m0 = hn::Max(m0, hn::LoadU(kF32, s + 32 * j));
        m1 = hn::Max(m1, hn::LoadU(kF32, s + 32 * j + 16));
      }
      hn::Store(hn::Max(m0, m1), kF32, rows + 16 * (k - first));
    }
    const VF max = ReduceRows(rows, end - first, [](VF x, VF y) HWY_ATTR { return hn::Max(x, y); });
    hn::StoreU(change_ ? max : hn::Mul(max, hn::Set(kF32, op_.scale)), kF32, w_.max + i + first);
    hn::Store(hn::Mul(max, by), kF32, max2);
    uint8_t* to = reinterpret_cast<uint8_t*>(w_.factors) + first / 16 * kLeftTile + steps.begin * kAmxTile;
    for (int64_t k = first; k < end; ++k, to += 64) {
      Fetch(lines);
      const float* const s = w_.p + k * kKvBlock + begin;
      const VF m = hn::Set(kF32, max2[k - first]);
      const VF sum = n == kAmxBlockSteps ? AmxProbabilities<kParts>(s, kAmxBlockSteps, by, m, to)
                                         : AmxProbabilities<kParts>(s, n, by, m, to);
      hn::Store(sum, kF32, rows + 16 * (k - first));
    }
    const VF sum = ReduceRows(rows, end - first, [](VF x, VF y) HWY_ATTR { return hn::Add(x, y); });
    hn::StoreU(sum, kF32, w_.sum + i + first);
    for (int64_t k = first; k < end; ++k) {
      if (!lanes_[k].empty()) continue;  // merging this changes nothing
      w_.max[i + k] = w_.range_max[i + k];
      w_.sum[i + k] = 0;
      for (int64_t p = 0; p < kParts; ++p) {
        for (int64_t t = 0; t < n; ++t) std::memset(to + (k - end) * 64 + (p * kAmxBlockSteps + t) * kAmxTile, 0, 64);
      }
    }
  }
  // Scores that are more than products, and -infinity for lanes that the query does not see.
  HWY_INLINE void Edges(int64_t query, PositionRange lanes, PositionRange steps, float* s) const {
    if (change_ || lanes.begin > steps.begin * kAmxStep || lanes.end < steps.end * kAmxStep) ChangeRow(query, lanes, steps, s);
  }
  HWY_NOINLINE void ChangeRow(int64_t query, PositionRange lanes, PositionRange steps, float* s) const {
    const int64_t from = steps.begin * kAmxStep, to = steps.end * kAmxStep;
    if (change_) {
      const VF by = hn::Set(kF32, op_.scale);
      for (int64_t j = from; j < to; j += kLanes) hn::StoreU(hn::Mul(hn::LoadU(kF32, s + j), by), kF32, s + j);
      const float slope = op_.slopes.empty() ? 0 : op_.slopes[static_cast<size_t>(first_head_ + query % group_)];
      ChangeScores(s + from, to - from, op_.softcap, slope, base_ + from - op_.rows[row_ + query / group_].position);
    }
    for (int64_t j = from; j < std::min(lanes.begin, to); ++j) s[j] = -std::numeric_limits<float>::infinity();
    for (int64_t j = std::max(from, lanes.end); j < to; ++j) s[j] = -std::numeric_limits<float>::infinity();
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
      const float lines = Share(35, 2 * steps.size());
      for (int64_t s = steps.begin; s < steps.end; ++s) {
        uint8_t* const to = values_ + s * right.step;
        for (int64_t half = 0; half < 16; half += 8) {
          Fetch(lines);
          check ? SplitValues<true>(lanes, s, half, 8, 0, cols_, to, kAmxTile, part, sum)
                : SplitValues<false>(lanes, s, half, 8, 0, cols_, to, kAmxTile, part, sum);
        }
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
  // Rows [row, row + rows) of the tiles of a step and n column groups from c on, `col` bytes apart.
  template <bool kCheck>
  HWY_INLINE void SplitValues(PositionRange lanes, int64_t step, int64_t row, int64_t rows, int64_t c, int64_t n, uint8_t* tiles,
                              int64_t col, int64_t part, VF& sum) {
    const VF zero = hn::Zero(kF32);
    const bool whole = lanes.begin <= step * kAmxStep && (step + 1) * kAmxStep <= lanes.end;
    VF sums = sum;
    for (int64_t i = row; i < row + rows; ++i) {
      const int64_t lane = step * kAmxStep + i;
      const hwy::float16_t* v = reinterpret_cast<const hwy::float16_t*>(share_ + Format::ValueAt(layout_, lane, 16 * c));
      const hwy::float16_t* const end = v + 16 * n;
      uint8_t* HWY_RESTRICT to = tiles + i * 64;
      if (HWY_LIKELY(whole)) {
        for (; v < end; to += col, v += 16) SplitPair<kCheck>(Widen(v), Widen(v + 16 * v_padded_), to, part, sums);
        continue;
      }
      const bool first = lanes.begin <= lane && lane < lanes.end, second = lanes.begin <= lane + 16 && lane + 16 < lanes.end;
      for (; v < end; to += col, v += 16) {
        SplitPair<kCheck>(first ? Widen(v) : zero, second ? Widen(v + 16 * v_padded_) : zero, to, part, sums);
      }
    }
    sum = sums;
  }
  template <bool kCheck>
  static HWY_INLINE void SplitPair(VF x, VF y, uint8_t* HWY_RESTRICT to, int64_t part, VF& sum) {
    if constexpr (kCheck) sum = hn::MulAdd(x, hn::Zero(kF32), hn::MulAdd(y, hn::Zero(kF32), sum));
    VU hi, lo;
    SplitPairs(x, y, hi, lo);
    hn::Store(hi, kKvWords, reinterpret_cast<uint32_t*>(to));
    hn::Store(lo, kKvWords, reinterpret_cast<uint32_t*>(to + part));
  }

  // o of n queries = their probabilities times the values of the steps.
  HWY_NOINLINE void AddValues(int64_t n, PositionRange steps, RightTiles values) {
    values.base += steps.begin * values.step;
    const float lines = Share(F::kDirect ? 35 : 10, ProductSteps(n, cols_, steps.size()));
    TileProducts<kParts>(n, ProbabilityLeft(steps), values, cols_, steps.size(), w_.o, v_padded_ * 4,
                         [&]() HWY_ATTR { Fetch(lines); });
  }
  // Of all queries, which are at most 16 and see the same lanes.
  HWY_NOINLINE void AddFewValues(PositionRange lanes) {
    const PositionRange steps = Steps(lanes);
    const float lines = Share(45, steps.size() * cols_);
    VF unused = hn::Zero(kF32);
    OneRowMade<kParts>(ProbabilityLeft(steps), cols_, steps.size(), w_.o, v_padded_ * 4, values_,
                       [&](int64_t c, int64_t n, int64_t s, uint8_t* to) HWY_ATTR {
                         for (int64_t row = 0; row < 16; row += 4) {
                           Fetch(lines * static_cast<float>(n) / 4);
                           SplitValues<false>(lanes, steps.begin + s, row, 4, c, n, to, kParts * kAmxTile, kAmxTile, unused);
                         }
                       });
  }
  LeftTiles ProbabilityLeft(PositionRange steps) const {
    return {reinterpret_cast<const uint8_t*>(w_.factors) + steps.begin * kAmxTile, kAmxBlockSteps * kAmxTile, kLeftTile};
  }

  static constexpr int64_t kFar = 16384;

  const int64_t key_steps_, cols_;
  const bool change_;
  uint8_t *const keys_, *const values_;  // split
  PositionRange lanes_[kAmxChunk];
  int64_t shaped_ = 0;   // rows that the tiles' shapes are for
  int64_t fetched_ = 0;  // lines of the share whose successors at kFar were prefetched
  float due_ = 0;
  bool fetch_ = false;
};

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#endif  // TALLY_AMX

#endif  // include guard
