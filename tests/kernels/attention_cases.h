// SPDX-License-Identifier: Apache-2.0
// What the tests of attention run: shapes, sequences in a cache, and attention in double precision.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/float16.h"
#include "engine/kernels/attention/attention.h"
#include "engine/kernels/attention/attention_internal.h"
#include "engine/kernels/attention/attention_ref.h"
#include "engine/kernels/kv_store/kv_store.h"
#include "tests/kernels/harness.h"

namespace tally::attention_cases {

struct Shape {
  int64_t heads = 4, kv_heads = 2, dim = 16, window = 0;
  bool sinks = false;
  KvType type = KvType::kF32;
  int64_t v_dim = dim;
  bool shared = false;
  int64_t chunk = 0;
  float softcap = 0;
  bool alibi = false;

  KvLayout layout() const { return {type, kv_heads, dim, v_dim, shared}; }
  // The first position that position i sees.
  int64_t First(int64_t i) const {
    return std::max(window > 0 ? std::max<int64_t>(0, i - window + 1) : 0, chunk > 0 ? i / chunk * chunk : 0);
  }
  std::string Trace() const {
    return "heads " + std::to_string(heads) + " on " + std::to_string(kv_heads) + ", dim " + std::to_string(dim) + " and " +
           std::to_string(v_dim) + (shared ? " shared" : "") + ", window " + std::to_string(window) + ", chunk " +
           std::to_string(chunk) + ", soft cap " + std::to_string(softcap) + (alibi ? ", alibi" : "") +
           (sinks ? ", sinks, " : ", ") + std::string(kKvTypeNames[static_cast<size_t>(type)]);
  }
};

// Sequences whose keys and values are in blocks. Every block ends at an inaccessible page and starts as NaNs throughout,
// padding included: a masked lane that entered the arithmetic would show. Blocks wholly below `first_needed` are absent.
class Cache {
 public:
  Cache(const Shape& shape, const std::vector<int64_t>& lengths, const std::vector<int64_t>& first_needed = {}) : shape_(shape) {
    for (size_t s = 0; s < lengths.size(); ++s) {
      pointers_.emplace_back();
      for (int64_t p = 0; p < lengths[s]; p += kKvBlock) {
        if (!first_needed.empty() && p + kKvBlock <= first_needed[s]) {
          pointers_.back().push_back(nullptr);
          continue;
        }
        blocks_.push_back(std::make_unique<EdgeArray<uint8_t>>(shape.layout().BlockBytes()));
        std::memset(blocks_.back()->data(), 0xFF, blocks_.back()->size());
        pointers_.back().push_back(blocks_.back()->data());
      }
    }
    for (const auto& p : pointers_) tables_.push_back({p.data(), static_cast<int64_t>(p.size())});
  }
  std::span<const KvTable> tables() const { return tables_; }

  void Store(std::span<const KvRow> rows, Mat<const float> k, Mat<const float> v, std::string_view kernel = "ref") {
    KvStoreOp op;
    op.k = k, op.v = shape_.shared ? Mat<const float>() : v, op.layout = shape_.layout();
    op.rows = rows, op.tables = tables_;
    ASSERT_TRUE(op.Validate().ok()) << op.Validate().message();
    RunShuffled(KernelNamed<KvStoreOp>(kernel), op, 5);
  }
  float K(KvRow at, int64_t head, int64_t d) const { return shape_.layout().Key(Block(at), head, at.position % kKvBlock, d); }
  float V(KvRow at, int64_t head, int64_t d) const { return shape_.layout().Value(Block(at), head, at.position % kKvBlock, d); }

 private:
  const uint8_t* Block(KvRow at) const { return tables_[at.table].blocks[at.position / kKvBlock]; }
  Shape shape_;
  std::vector<std::unique_ptr<EdgeArray<uint8_t>>> blocks_;
  std::vector<std::vector<uint8_t*>> pointers_;
  std::vector<KvTable> tables_;
};

// Queries, keys and values of the whole of some sequences, position by position.
struct Problem {
  Shape shape;
  std::vector<int64_t> lengths;
  std::vector<KvRow> rows;  // all positions of sequence 0, then of 1, ..
  AlignedBuffer<float> q, k, v, sinks;
  std::vector<float> slopes;

  Problem(const Shape& s, std::vector<int64_t> len, Random& random) : shape(s), lengths(std::move(len)) {
    for (size_t i = 0; i < lengths.size(); ++i) {
      for (int64_t p = 0; p < lengths[i]; ++p) rows.push_back({static_cast<int32_t>(i), static_cast<int32_t>(p)});
    }
    const size_t n = rows.size();
    EXPECT_TRUE(q.Resize(n * s.heads * s.dim) && k.Resize(n * s.kv_heads * s.dim) && v.Resize(n * s.kv_heads * s.v_dim));
    EXPECT_TRUE(sinks.Resize(s.heads));
    random.Fill(q.data(), q.size());
    random.Fill(k.data(), k.size());
    random.Fill(v.data(), v.size());
    random.Fill(sinks.data(), sinks.size());
    for (int64_t h = 0; s.alibi && h < s.heads; ++h) slopes.push_back(0.3f / static_cast<float>(h + 1));
  }
  Mat<const float> K() const { return {k.data(), static_cast<int64_t>(rows.size()), shape.kv_heads * shape.dim}; }
  Mat<const float> V() const { return {v.data(), static_cast<int64_t>(rows.size()), shape.kv_heads * shape.v_dim}; }
  int64_t IndexOf(KvRow at) const {
    int64_t first = 0;
    for (int32_t t = 0; t < at.table; ++t) first += lengths[t];
    return first + at.position;
  }
  AttentionOp Op(const Cache& cache, std::span<const KvRow> of, Mat<const float> queries, Mat<float> out) const {
    AttentionOp op;
    op.q = queries, op.out = out, op.rows = of, op.tables = cache.tables();
    op.heads = shape.heads, op.window = shape.window, op.layout = shape.layout();
    op.scale = 1.0f / std::sqrt(static_cast<float>(shape.dim));
    op.chunk = shape.chunk, op.softcap = shape.softcap, op.slopes = slopes;
    if (shape.sinks) op.sinks = VectorView(sinks.data(), shape.heads, 3);
    return op;
  }
  // The outputs of rows `of`, by `kernel`, as row i of `out` for row i of `of`. Rows of q and out have gaps.
  void Attend(const Cache& cache, std::span<const KvRow> of, std::string_view kernel, EdgeMat<float>& out, uint64_t seed) const {
    EdgeMat<float> queries(static_cast<int64_t>(of.size()), shape.heads * shape.dim, 3);
    for (size_t i = 0; i < of.size(); ++i) {
      std::memcpy(queries.Row(i), q.data() + IndexOf(of[i]) * shape.heads * shape.dim, sizeof(float) * shape.heads * shape.dim);
    }
    const AttentionOp op = Op(cache, of, queries.view(), out.view());
    ASSERT_TRUE(op.Validate().ok()) << op.Validate().message();
    const Kernel<AttentionOp>& kern = KernelNamed<AttentionOp>(kernel);
    ExpectAtLeast(TotalExecuted(kern, op), TotalUseful(op));
    RunShuffled(kern, op, seed);
    out.ExpectGapsUntouched();
  }
};

// The keys and values of a KV head of a sequence up to some position, as stored: [positions, dim] and [positions, v_dim].
struct Stored {
  Stored(const Shape& s, const Cache& cache, int32_t table, int64_t kv, int64_t from, int64_t until) : first(from) {
    for (KvRow at{table, static_cast<int32_t>(from)}; at.position < until; ++at.position) {
      for (int64_t d = 0; d < s.dim; ++d) k.push_back(cache.K(at, kv, d));
      for (int64_t d = 0; d < s.v_dim; ++d) v.push_back(cache.V(at, kv, d));
    }
  }
  int64_t first;
  std::vector<float> k, v;
};

// Attention of one row in double precision, from the elements as stored, and how far an f32 evaluation in blocks may be off.
// `stored`: of each KV head of the row's sequence.
inline void InDouble(const Problem& p, std::span<const Stored> stored, KvRow at, std::vector<double>& out,
                     std::vector<double>& tolerance) {
  const Shape& s = p.shape;
  constexpr double kUnit = 0x1p-24;
  const float* q = p.q.data() + p.IndexOf(at) * s.heads * s.dim;
  const double scale = 1.0f / std::sqrt(static_cast<float>(s.dim));
  // What the cache's type rounds: q, v, and p, whose rounding is in the tolerance; on matrix tiles q, k and v of q8_0 to bf16.
  const KvLayout layout = s.layout();
  const bool tiles = OnTiles(layout) && s.type == KvType::kQ8_0;
  std::vector<double> rounded_q(q, q + s.heads * s.dim);
  for (int64_t h = 0; h < s.heads; ++h) {
    for (int64_t d = 0; d < s.dim; ++d) {
      if (layout.KeyArith() == Arith::kBF16 || tiles) rounded_q[h * s.dim + d] = AsBF16(q[h * s.dim + d]);
      if (layout.KeyArith() != Arith::kInt8 || d % 32 != 0 || tiles) continue;
      int8_t integers[32];
      const int64_t n = std::min<int64_t>(32, s.dim - d);
      const double unit = QuantiseQuery<float>(q + h * s.dim + d, n, integers);
      for (int64_t i = 0; i < n; ++i) rounded_q[h * s.dim + d + i] = unit * integers[i];
    }
  }
  const bool round_v = layout.ValueArith() == Arith::kBF16;
  out.assign(s.heads * s.v_dim, 0);
  tolerance.assign(s.heads * s.v_dim, 0);
  for (int64_t h = 0; h < s.heads; ++h) {
    const int64_t kv = h / (s.heads / s.kv_heads);
    std::vector<double> score, absolute(s.v_dim), values(s.v_dim);
    const int64_t first = std::min<int64_t>(s.First(at.position), at.from), last = std::max(at.position, at.until - 1);
    double max = -INFINITY, min = INFINITY, score_error = 0;
    for (int32_t j = static_cast<int32_t>(first); j <= last; ++j) {
      double dot = 0, size = 0;
      const float* keys = stored[kv].k.data() + (j - stored[kv].first) * s.dim;
      for (int64_t d = 0; d < s.dim; ++d) {
        const float k = keys[d];
        const double term = rounded_q[h * s.dim + d] * (tiles ? AsBF16(k) : k);
        dot += term, size += std::fabs(term);
      }
      double value = dot * scale;
      if (s.softcap != 0) value = s.softcap * std::tanh(value / s.softcap);  // does not enlarge an error
      if (s.alibi) value += p.slopes[h] * static_cast<double>(j - at.position);
      score.push_back(value);
      max = std::max(max, score.back()), min = std::min(min, score.back());
      score_error = std::max(score_error, static_cast<double>(s.dim + 2) * kUnit * size * scale);
      if (s.softcap != 0) score_error += 8 * kUnit * s.softcap;
      if (s.alibi) score_error = std::max(score_error, score_error + 2 * kUnit * std::fabs(value));
    }
    if (s.sinks) max = std::max(max, static_cast<double>(p.sinks[h])), min = std::min(min, static_cast<double>(p.sinks[h]));
    double sum = s.sinks ? std::exp(p.sinks[h] - max) : 0;
    for (size_t j = 0; j < score.size(); ++j) {
      const double e = std::exp(score[j] - max);
      sum += e;
      const float* of_position = stored[kv].v.data() + (first + static_cast<int64_t>(j) - stored[kv].first) * s.v_dim;
      for (int64_t d = 0; d < s.v_dim; ++d) {
        const double x = round_v ? AsBF16(of_position[d]) : of_position[d];
        out[h * s.v_dim + d] += e * x, absolute[d] += e * std::fabs(x), values[d] += std::fabs(x);
      }
    }
    // A p is off by its score's error, the rounding of s - m and 2 ulp of exp; sums by a rounding a term of a block, and some a
    // block joined; both in numerator and denominator. Twice that where there is no fused multiply-add. A p below the smallest
    // normal float may count as 0.
    const double blocks = last / kKvBlock - first / kKvBlock + 1;
    const double relative = 2 * score_error + (max - min + 4 + std::min<double>(kKvBlock, score.size()) + 6 * blocks) * kUnit;
    for (int64_t d = 0; d < s.v_dim; ++d) {
      out[h * s.v_dim + d] /= sum;
      tolerance[h * s.v_dim + d] = (4 * relative + (round_v ? 0x1.01p-8 : 0)) * absolute[d] / sum + 0x1p-126 * values[d];
    }
  }
}

// What rows `of` should give on the current target, and how far off it may be.
class InDoubles {
 public:
  InDoubles(const Problem& p, const Cache& cache, std::span<const KvRow> of)
      : v_dim_(p.shape.v_dim), of_(of.begin(), of.end()), want_(of.size()), tolerance_(of.size()) {
    for (int32_t table = 0; table < static_cast<int32_t>(p.lengths.size()); ++table) {
      int64_t from = p.lengths[table], until = 0;
      for (const KvRow& at : of) {
        if (at.table != table) continue;
        from = std::min({from, p.shape.First(at.position), static_cast<int64_t>(at.from)});
        until = std::max({until, at.position + int64_t{1}, static_cast<int64_t>(at.until)});
      }
      std::vector<Stored> stored;
      for (int64_t kv = 0; kv < p.shape.kv_heads; ++kv) stored.emplace_back(p.shape, cache, table, kv, from, until);
      for (size_t i = 0; i < of.size(); ++i) {
        if (of[i].table == table) InDouble(p, stored, of[i], want_[i], tolerance_[i]);
      }
    }
  }
  void ExpectNear(Mat<const float> got) const {
    for (size_t i = 0; i < of_.size(); ++i) {
      for (int64_t c = 0; c < got.cols; ++c) {
        ASSERT_LE(std::fabs(got.Row(i)[c] - want_[i][c]), tolerance_[i][c])
            << "row " << i << " (sequence " << of_[i].table << ", position " << of_[i].position << "), head " << c / v_dim_
            << ", d " << c % v_dim_ << ": got " << got.Row(i)[c] << ", expected " << want_[i][c];
      }
    }
  }

 private:
  int64_t v_dim_;
  std::vector<KvRow> of_;
  std::vector<std::vector<double>> want_, tolerance_;
};

inline const std::vector<Shape>& Shapes() {
  static const std::vector<Shape> shapes = {
      {1, 1, 1, 0, false, KvType::kF32},
      {3, 1, 12, 0, true, KvType::kF16},
      {8, 1, 16, 5, false, KvType::kF32},
      {12, 1, 64, 0, true, KvType::kF32},
      {12, 12, 64, 0, false, KvType::kF16},
      {6, 2, 80, 130, true, KvType::kF16},
      {16, 2, 64, 128, true, KvType::kF16},
      {8, 2, 128, 0, false, KvType::kF16},
      {5, 5, 17, 1, true, KvType::kF32},
      {48, 1, 20, 129, false, KvType::kF16},
      {4, 4, 64, 300, false, KvType::kF32},
      {24, 2, 33, 64, true, KvType::kF16},
      {16, 1, 72, 0, false, KvType::kF16, 40},
      {4, 2, 20, 50, true, KvType::kF32, 70},  // values of other widths than keys
      {10, 1, 36, 0, false, KvType::kF32, 24, true},
      {17, 1, 84, 0, false, KvType::kF16, 70, true},  // shared values
      {4, 2, 20, 0, false, KvType::kF32, 20, false, 100},
      {6, 2, 32, 0, true, KvType::kF16, 32, false, 129},
      {4, 1, 40, 0, false, KvType::kF32, 40, false, 0, 1.5f},
      {12, 4, 24, 70, true, KvType::kF16, 24, false, 0, 3},
      {5, 5, 18, 0, false, KvType::kF32, 18, false, 0, 0, true},
      {9, 3, 64, 90, false, KvType::kF16, 64, false, 0, 2, true},
      {5, 1, 96, 70, true, KvType::kF16, 48},  // matrix tiles where there are: odd groups of 16 dimensions
      {64, 16, 32, 0, false, KvType::kF16},    // large tiles
      {6, 2, 64, 0, true, KvType::kBF16},
      {8, 1, 128, 40, false, KvType::kBF16, 80},
      {9, 3, 32, 0, false, KvType::kBF16, 64, false, 100, 2, true},
      {6, 2, 80, 130, true, KvType::kBF16},
      {12, 12, 17, 0, false, KvType::kBF16, 33},
      {17, 1, 84, 0, false, KvType::kBF16, 70, true},
      {8, 2, 64, 0, true, KvType::kQ8_0},
      {6, 2, 80, 130, true, KvType::kQ8_0},  // begun blocks of 32
      {4, 2, 20, 50, true, KvType::kQ8_0, 70},
      {17, 1, 84, 0, false, KvType::kQ8_0, 70, true},
      {48, 1, 20, 129, false, KvType::kQ8_0},
      {16, 1, 32, 0, true, KvType::kBF16},       // two tasks a KV head
      {7, 1, 64, 130, true, KvType::kQ8_0, 48},  // half of the values' last block
      {15, 1, 32, 0, false, KvType::kQ8_0},      // tasks of seven and eight heads
      {9, 3, 32, 0, false, KvType::kQ8_0, 64, false, 100, 2, true},
      {64, 16, 32, 0, false, KvType::kQ8_0},
  };
  return shapes;
}

// Rows around the ends of groups of 16 and of blocks, in rising order.
inline std::vector<KvRow> SomeRows(const Problem& p, Random& random) {
  std::vector<KvRow> rows;
  for (size_t s = 0; s < p.lengths.size(); ++s) {
    int64_t at = 0;
    while (at < p.lengths[s]) {
      rows.push_back({static_cast<int32_t>(s), static_cast<int32_t>(at)});
      const bool edge = at % kKvBlock < 2 || at % kKvBlock > kKvBlock - 4 || at % 16 == 15;
      at += edge || random.Below(3) == 0 ? 1 : random.Between(1, 9);
    }
  }
  return rows;
}

}  // namespace tally::attention_cases
