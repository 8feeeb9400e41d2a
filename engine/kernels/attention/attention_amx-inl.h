// SPDX-License-Identifier: Apache-2.0
// Attention by AMX: products of bf16 tiles, for the caches that OnTiles() names.
//
// amx_products-inl.h has the order of sums. Lanes that a row does not see have the probability 0 there, and adding such steps changes no
// sum. So a row's bits do not depend on its company.
//
// A block's keys and values are unpacked once and then multiplied by the tile's queries, kAmxChunk at a time.
#include "engine/kernels/attention/amx_formats-inl.h"
#include "engine/kernels/attention/amx_products-inl.h"
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

// Writes 2^(s by - max) of `steps` steps of 32 scores in their place. Returns their sum by lanes.
template <class F>
HWY_INLINE VF AmxProbabilities(float* s, int64_t steps, VF by, VF max) {
  VF sum = hn::Zero(kF32);
  for (int64_t i = 0; i < steps; ++i, s += 32) {
    const VF x = Exp2OfNegative(hn::MulSub(hn::LoadU(kF32, s), by, max));
    const VF y = Exp2OfNegative(hn::MulSub(hn::LoadU(kF32, s + 16), by, max));
    sum = hn::Add(hn::Add(sum, x), y);
    F::Probability(x, y, reinterpret_cast<uint8_t*>(s));
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
  using V = KvVectors<Format>;
  static constexpr int kParts = F::kParts;
  static constexpr int64_t kRowBytes = kKvBlock * 4,
                           kStepBytes = kAmxStep * 4;  // of scores, and of the probabilities in their place

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
    FetchFirst();
    RunRanges([&](const float* q, int64_t i) HWY_ATTR { StoreQuery(q, i); }, [&]() HWY_ATTR { Block(); });
  }

 private:
  // The softmax of up to 16 queries i + k, k in [first, end), of a chunk, from the scores in rows k of p. Their lanes are lanes_[k].
  struct SoftmaxOf {
    int64_t i, first, end;
    PositionRange steps;
    float* p;
  };

  uint8_t* QueryTiles(int64_t query) const {
    return reinterpret_cast<uint8_t*>(w_.q) + query / 16 * kParts * key_steps_ * kAmxTile;
  }

  HWY_INLINE void StoreQuery(const float* q, int64_t i) {
    uint8_t* to = QueryTiles(i) + i % 16 * 64;
    for (int64_t d = 0; d < k_dim_; d += kAmxStep, to += kAmxTile) {
      const VF x = hn::LoadU(kF32, q + d), y = hn::LoadU(kF32, q + d + kLanes);
      const VU hi = ToBF16(x, y);
      StoreWords(hi, to);
      if constexpr (kParts > 1) {
        const hn::Half<hn::Repartition<uint16_t, KvFloats>> half;
        const VU a = hn::PromoteTo(kKvWords, hn::LowerHalf(half, hn::BitCast(hn::Repartition<uint16_t, KvFloats>(), hi))),
                 b = hn::PromoteTo(kKvWords, hn::UpperHalf(half, hn::BitCast(hn::Repartition<uint16_t, KvFloats>(), hi)));
        StoreWords(ToBF16(hn::Sub(x, LowF32(a)), hn::Sub(y, LowF32(b))), to + key_steps_ * kAmxTile);
      }
    }
  }

  // Cache lines of a share.
  struct Piece {
    const uint8_t* at = nullptr;
    int64_t lines = 0;
  };
  static Piece PieceOf(const uint8_t* share, size_t begin, size_t end) {
    return {share + begin, static_cast<int64_t>(end - begin + 63) / 64};
  }
  Piece KeysOf(const uint8_t* share, PositionRange lanes) const {
    const PositionRange steps = Steps(lanes);
    return PieceOf(share, V::KeyAt(layout_, steps.begin * kAmxStep), V::KeyAt(layout_, steps.end * kAmxStep));
  }
  Piece ValuesOf(const uint8_t* share, PositionRange lanes) const {
    return PieceOf(share, V::ValueAt(layout_, lanes.begin), V::ValueAt(layout_, lanes.end));
  }
  // Sets what Fetch() prefetches during the current block: bytes that are read soon and no others, since a short sequence fills only a
  // small part of its blocks.
  void SetPieces(Piece first, Piece second) {
    pieces_[0] = first;
    pieces_[1] = second;
    fetched_ = 0;
    due_ = 0;
  }
  // Prefetches further lines of the pieces into the second cache, spread over a block's work.
  HWY_INLINE void Fetch(float lines) {
    if (!fetch_) return;
    due_ += lines;
    const int64_t first = pieces_[0].lines, end = std::min(static_cast<int64_t>(due_), first + pieces_[1].lines);
    for (; fetched_ < end; ++fetched_) {
      const int64_t i = fetched_ < first ? fetched_ : fetched_ - first;
      __builtin_prefetch(pieces_[fetched_ < first ? 0 : 1].at + 64 * i, 0, 2);
    }
  }
  // Lines for each of so many calls that together fetch `percent` of a piece.
  float Share(int piece, int percent, int64_t calls) const {
    return static_cast<float>(percent * pieces_[piece].lines) / static_cast<float>(100 * calls);
  }

  // Prefetches the first keys, to be called before the queries are split.
  void FetchFirst() const {
    constexpr int64_t kMost = 64;
    const int64_t block = any_.begin / kKvBlock;
    const uint8_t* const first = op_.tables[op_.rows[row_].table].blocks[block];
    if (slice_ > 0 || first == nullptr) return;
    const Piece keys = KeysOf(first + share_offset_, Within(any_, block * kKvBlock, kKvBlock));
    for (int64_t i = 0; i < std::min(keys.lines, kMost); ++i) __builtin_prefetch(keys.at + 64 * i, 0, 2);
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
    bool equal;
    const PositionRange hull = Hull(equal);
    const bool whole = equal && queries_ >= 2 * kAmxChunk;
    fetch_ = !whole;
    const PositionRange next = Within(any_, following_.block * kKvBlock, kKvBlock);
    const Piece keys_next = following_.share != nullptr ? KeysOf(following_.share, next) : Piece();
    if (whole) {
      SetPieces(keys_next, following_.share != nullptr ? ValuesOf(following_.share, next) : Piece());
    } else {
      SetPieces(ValuesOf(share_, hull), keys_next);
    }
    if constexpr (!F::kDirect) {
      if (queries_ <= 16 && equal) return FewBlock(hull);
    }
    const RightTiles keys = Keys(Steps(hull));
    RightTiles values = {};
    bool finite = true;
    int64_t i = 0;
    if (whole) {
      i = queries_ / kAmxChunk * kAmxChunk;
      values = WholeChunks(i / kAmxChunk, hull, keys);
    }
    for (; i < queries_; i += kAmxChunk) {
      const int64_t n = std::min(kAmxChunk, queries_ - i);
      const PositionRange steps = Steps(ChunkLanes(i, n));
      if (steps.empty()) continue;
      Shape(n);
      const float lines = Share(0, F::kDirect ? 60 : 20, ProductCalls<kParts>(n, 2 * steps.size(), key_steps_));
      Scores(i, n, steps, keys, w_.p, [&]() HWY_ATTR { Fetch(lines); });
      for (int64_t k = 0; k < n; k += 16) Softmax({i, k, std::min(k + 16, n), steps, w_.p}, Share(0, F::kDirect ? 40 : 20, n));
      MergeSums(i, n);
      if (values.base == nullptr) values = Values(hull, !equal, finite);
      if (finite) {
        const float of_values = Share(1, F::kDirect ? 100 : 20, ProductCalls<kParts>(n, cols_, steps.size()));
        AddValues(n, steps, values, w_.p, [&]() HWY_ATTR { Fetch(of_values); });
        for (int64_t k = 0; k < n; ++k) MergeQuery(i, k);
      } else {  // some value is no number, and some rows must not see it
        for (int64_t k = 0, row = 0; k < n; k = row) {
          while (row < n && (i + row) / group_ == (i + k) / group_) ++row;
          if (lanes_[k].empty()) continue;
          bool also_finite;
          AddValues(n, steps, Values(lanes_[k], true, also_finite, steps), w_.p, []() {});
          for (int64_t q = k; q < row; ++q) MergeQuery(i, q);
        }
      }
      fetch_ = false;
    }
  }

  void MergeSums(int64_t i, int64_t n) {
    HWY_NAMESPACE::MergeSums(n, w_.max + i, w_.sum + i, w_.range_max + i, w_.range_sum + i, w_.a + i, w_.b + i);
  }

  // Chunks of queries that all see `lanes`. While tiles are multiplied, vectors do the softmax of the chunk before: in turn i the products
  // of chunk i - 1 with values and of chunk i + 1 with keys, and the softmax of chunk i. Returns the tiles of the values.
  HWY_NOINLINE RightTiles WholeChunks(int64_t chunks, PositionRange lanes, const RightTiles& keys) {
    const PositionRange steps = Steps(lanes);
    std::fill_n(lanes_, kAmxChunk, lanes);
    Shape(kAmxChunk);
    const int64_t score_calls = ProductCalls<kParts>(kAmxChunk, 2 * steps.size(), key_steps_),
                  value_calls = ProductCalls<kParts>(kAmxChunk, cols_, steps.size());
    const auto p = [&](int64_t chunk) { return w_.p + chunk % 2 * kAmxChunk * kKvBlock; };
    Scores(0, kAmxChunk, steps, keys, p(0), []() {});
    bool finite;
    const RightTiles values = Values(lanes, false, finite);
    fetch_ = true;
    const int64_t calls = chunks * value_calls + (chunks - 1) * score_calls;
    const float lines = Share(0, 100, calls) + Share(1, 100, calls);
    const auto aside = [&]() HWY_ATTR {
      Fetch(lines);
      Aside();
    };
    for (int64_t i = 0; i <= chunks; ++i) {
      const bool is_first = i == 0, is_last = i + 1 >= chunks;
      aside_ = {.of = {i * kAmxChunk, i < chunks ? 0 : kAmxChunk, 16, steps, p(i)},
                .part = 0,
                .merge = kMergeParts,
                .parts = kSoftmaxParts + kMergeParts,
                .calls = std::max<int64_t>(1, (is_first ? 0 : value_calls) + (is_last ? 0 : score_calls)),
                .due = 0};
      if (!is_first) {
        AddValues(kAmxChunk, steps, values, p(i - 1), aside);
        aside_.merge = 0;
      }
      if (!is_last) {
        Scores((i + 1) * kAmxChunk, kAmxChunk, steps, keys, p(i + 1), aside);
      }
      while (AsidePart()) {
      }
    }
    fetch_ = false;
    return values;
  }
  // What vectors do in a turn of WholeChunks: merging the outputs of the chunk before, once they are there, and the softmax of 32 queries,
  // 16 after 16: maxima of 4 rows each, rows, sums.
  static constexpr int64_t kMergeParts = 8, kSoftmaxParts = 2 * (4 + 16 + 1);
  struct AsideWork {
    SoftmaxOf of;
    int64_t part;   // of the 16 queries in progress
    int64_t merge;  // the next to be merged
    int64_t parts, calls, due;
  };
  HWY_INLINE void Aside() {
    for (aside_.due += aside_.parts; aside_.due >= aside_.calls; aside_.due -= aside_.calls) {
      if (!AsidePart()) return;
    }
  }
  // False if nothing is left that can be done now.
  HWY_INLINE bool AsidePart() {
    SoftmaxOf& of = aside_.of;
    if (aside_.merge < kMergeParts) {
      const int64_t n = kAmxChunk / kMergeParts, from = n * aside_.merge++;
      for (int64_t k = from; k < from + n; ++k) MergeQuery(of.i - kAmxChunk, k);
      return true;
    }
    if (of.first == kAmxChunk) return false;
    const int64_t part = aside_.part++;
    if (HWY_LIKELY(4 <= part && part < 20)) {
      SoftmaxRow(of, of.first + part - 4);
    } else if (part < 4) {
      SoftmaxMaxima(of, of.first + 4 * part, of.first + 4 * (part + 1));
      if (part == 3) EndMaxima(of);
    } else {
      SoftmaxSums(of);
      MergeSums(of.i + of.first, 16);
      of.first += 16, of.end += 16;
      aside_.part = 0;
    }
    return true;
  }

  // Keys and values are split just before they are multiplied, so that they stay in the first cache.
  HWY_INLINE void FewBlock(PositionRange lanes) {
    const int64_t n = queries_;
    std::fill_n(lanes_, n, lanes);
    Shape(n);
    FewScores(Steps(lanes));
    Softmax({0, 0, n, Steps(lanes), w_.p}, Share(0, 20, n));
    MergeSums(0, n);
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
      const float lines = Share(0, 60, 2 * steps.size() * key_steps_);
      for (int64_t g = 2 * steps.begin; g < 2 * steps.end; ++g) {
        for (int64_t s = 0; s < key_steps_; ++s) {
          Fetch(lines);
          F::Keys(layout_, share_, g, s, keys_ + g * tiles + s * kAmxTile, part);
        }
      }
      return {keys_, tiles, kAmxTile, part, 64};
    }
  }
  // Scores of queries [i, i + n) with the steps of positions. each(): called often.
  template <class Each>
  HWY_NOINLINE void Scores(int64_t i, int64_t n, PositionRange steps, RightTiles keys, float* p, const Each& each) {
    keys.base += 2 * steps.begin * keys.col;
    TileProducts<kParts>(n, QueryLeft(i), keys, 2 * steps.size(), key_steps_, p + steps.begin * kAmxStep, kRowBytes, each);
  }
  // Of all queries, which are at most 16.
  HWY_NOINLINE void FewScores(PositionRange steps) {
    const float lines = Share(0, 80, 2 * steps.size() * key_steps_);
    OneRowMade<kParts>(QueryLeft(0), 2 * steps.size(), key_steps_, w_.p + steps.begin * kAmxStep, kRowBytes, keys_,
                       [&](int64_t c, int64_t groups, int64_t s, uint8_t* to) HWY_ATTR {
                         for (int64_t g = 2 * steps.begin + c, j = 0; j < groups; ++j, ++g, to += kParts * kAmxTile) {
                           Fetch(lines);
                           F::Keys(layout_, share_, g, s, to, kAmxTile);
                         }
                       });
  }
  LeftTiles QueryLeft(int64_t i) const {
    const int64_t part = key_steps_ * kAmxTile;
    return {QueryTiles(i), kAmxTile, part, kParts * part, 64};
  }

  // Probabilities in place of the scores.
  void Softmax(const SoftmaxOf& of, float lines) {
    SoftmaxMaxima(of, of.first, of.end);
    EndMaxima(of);
    for (int64_t k = of.first; k < of.end; ++k) {
      Fetch(lines);
      SoftmaxRow(of, k);
    }
    SoftmaxSums(of);
  }
  static float* Scores(const SoftmaxOf& of, int64_t k) { return of.p + k * kKvBlock + of.steps.begin * kAmxStep; }
  VF ByLog2E() const { return hn::Set(kF32, (change_ ? 1.0f : op_.scale) * 1.44269504f); }

  // Of rows k, k in [from, end): the maxima by lanes; of.first + 16 rows or all have been before EndMaxima.
  HWY_NOINLINE void SoftmaxMaxima(const SoftmaxOf& of, int64_t from, int64_t end) {
    const int64_t n = of.steps.size();
    for (int64_t k = from; k < end; ++k) {
      float* const s = Scores(of, k);
      Edges(of.i + k, lanes_[k], of.steps, s - of.steps.begin * kAmxStep);
      VF m0 = hn::LoadU(kF32, s), m1 = hn::LoadU(kF32, s + 16);
      for (int64_t j = 1; j < n; ++j) {
        m0 = hn::Max(m0, hn::LoadU(kF32, s + 32 * j));
        m1 = hn::Max(m1, hn::LoadU(kF32, s + 32 * j + 16));
      }
      hn::Store(hn::Max(m0, m1), kF32, by_row_ + 16 * (k - of.first));
    }
  }
  HWY_NOINLINE void EndMaxima(const SoftmaxOf& of) {
    const VF max = ReduceRows(by_row_, of.end - of.first, [](VF x, VF y) HWY_ATTR { return hn::Max(x, y); });
    hn::StoreU(change_ ? max : hn::Mul(max, hn::Set(kF32, op_.scale)), kF32, w_.max + of.i + of.first);
    hn::Store(hn::Mul(max, ByLog2E()), kF32, max2_);
  }
  HWY_NOINLINE void SoftmaxRow(const SoftmaxOf& of, int64_t k) {
    const VF by = ByLog2E(), m = hn::Set(kF32, max2_[k - of.first]);
    const int64_t n = of.steps.size();
    const VF sum = n == kAmxBlockSteps ? AmxProbabilities<F>(Scores(of, k), kAmxBlockSteps, by, m)
                                       : AmxProbabilities<F>(Scores(of, k), n, by, m);
    hn::Store(sum, kF32, by_row_ + 16 * (k - of.first));
  }
  HWY_NOINLINE void SoftmaxSums(const SoftmaxOf& of) {
    const VF sum = ReduceRows(by_row_, of.end - of.first, [](VF x, VF y) HWY_ATTR { return hn::Add(x, y); });
    hn::StoreU(sum, kF32, w_.sum + of.i + of.first);
    for (int64_t k = of.first; k < of.end; ++k) {
      if (!lanes_[k].empty()) continue;  // merging this changes nothing
      w_.max[of.i + k] = w_.range_max[of.i + k];
      w_.sum[of.i + k] = 0;
      std::memset(Scores(of, k), 0, static_cast<size_t>(of.steps.size() * kStepBytes));
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
        for (int64_t s = steps.begin; s < steps.end; ++s) CopyValues(v, {lanes, s * kAmxStep}, sum);
      }
    } else {
      const int64_t part = kAmxBlockSteps * step;
      right = {values_, kAmxTile, cols_ * kAmxTile, part, 64};
      const float lines = Share(1, 80, 2 * steps.size());
      for (int64_t s = steps.begin; s < steps.end; ++s) {
        const StepLanes of{lanes, s * kAmxStep};
        const ValueTiles to{values_ + s * right.step, kAmxTile, part, 0, cols_};
        for (int64_t half = 0; half < 16; half += 8) {
          Fetch(lines);
          check ? F::template Values<true>(layout_, share_, of, half, 8, to, sum)
                : F::template Values<false>(layout_, share_, of, half, 8, to, sum);
        }
      }
    }
    finite = !check || hn::AllFalse(kF32, hn::IsNaN(sum));
    return right;
  }
  HWY_NOINLINE void CopyValues(const uint8_t* v, const StepLanes& step, VF& sum) {
    VF s = sum;
    for (int64_t i = 0; i < kAmxStep; i += 2) {
      const VU mask = step.Pair(i);
      const int64_t at = (step.base + i) / 2 * v_padded_;
      const uint32_t* const from = reinterpret_cast<const uint32_t*>(v) + at;
      uint32_t* const to = reinterpret_cast<uint32_t*>(values_) + at;
      for (int64_t d = 0; d < v_padded_; d += kLanes) {
        const VU x = hn::And(hn::LoadU(kKvWords, from + d), mask);
        s = NotFinite(x, s);
        hn::Store(x, kKvWords, to + d);
      }
    }
    sum = s;
  }

  // o of n queries = their probabilities times the values of the steps. each(): called often.
  template <class Each>
  HWY_NOINLINE void AddValues(int64_t n, PositionRange steps, RightTiles values, const float* p, const Each& each) {
    values.base += steps.begin * values.step;
    TileProducts<kParts>(n, ProbabilityLeft(steps, p), values, cols_, steps.size(), w_.o, v_padded_ * 4, each);
  }
  // Of all queries, which are at most 16 and see the same lanes.
  HWY_NOINLINE void AddFewValues(PositionRange lanes) {
    const PositionRange steps = Steps(lanes);
    const float lines = Share(1, 100, steps.size() * cols_);
    VF unused = hn::Zero(kF32);
    OneRowMade<kParts>(
        ProbabilityLeft(steps, w_.p), cols_, steps.size(), w_.o, v_padded_ * 4, keys_,
        [&](int64_t c, int64_t n, int64_t s, uint8_t* to) HWY_ATTR {
          const StepLanes of{lanes, (steps.begin + s) * kAmxStep};
          for (int64_t row = 0; row < 16; row += 4) {
            Fetch(lines * static_cast<float>(n) / 4);
            F::template Values<false>(layout_, share_, of, row, 4, {to, kParts * kAmxTile, kAmxTile, c, n}, unused);
          }
        });
  }
  static LeftTiles ProbabilityLeft(PositionRange steps, const float* p) {
    return {reinterpret_cast<const uint8_t*>(p + steps.begin * kAmxStep), kStepBytes, 64, 16 * kRowBytes, kRowBytes};
  }

  const int64_t key_steps_, cols_;
  const bool change_;
  uint8_t *const keys_, *const values_;  // split
  PositionRange lanes_[kAmxChunk];
  int64_t shaped_ = 0;  // rows that the tiles' shapes are for
  Piece pieces_[2];
  int64_t fetched_ = 0;  // lines of the pieces
  float due_ = 0;
  bool fetch_ = false;
  alignas(64) float by_row_[16 * 16] = {}, max2_[16] = {};  // of the softmax in progress: by lanes of each row; maxima
  AsideWork aside_ = {};
};

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#endif  // TALLY_AMX

#endif  // include guard
