// SPDX-License-Identifier: Apache-2.0
// KvStoreOp and AttentionOp: the reference against double precision, every Highway target against it, bits that do not
// depend on how a prompt is cut or what shares a batch, and exact charges.
#include "engine/kernels/attention/attention.h"

#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "engine/base/float16.h"
#include "engine/kernels/attention/attention_internal.h"
#include "engine/kernels/attention/attention_ref.h"
#include "engine/kernels/kv_store/kv_store.h"
#include "tests/kernels/attention_cases.h"
#include "tests/kernels/harness.h"
#include "tests/support/counting_scalar.h"

namespace tally {
namespace {

using attention_cases::Cache;
using attention_cases::InDoubles;
using attention_cases::Problem;
using attention_cases::Shape;
using attention_cases::Shapes;
using attention_cases::SomeRows;

TEST(KvStore, EveryTargetStoresWhatTheReferenceStores) {
  Random random(11);
  SCOPED_TRACE(random.Trace());
  ForEachTarget([&] {
    for (const Shape& shape : Shapes()) {
      SCOPED_TRACE(shape.Trace());
      Problem p(shape, {150, 3}, random);
      // Halves, their ties, subnormals, overflow to infinity, zeros of both signs.
      const float special[] = {
          0.0f,     -0.0f,    1.0f + 0x1p-11f, 1.0f + 3 * 0x1p-11f, 65519.9f, 65520.0f, -1e9f,        0x1p-14f,    0x1p-15f,
          0x1p-24f, 0x1p-25f, 0x1.8p-25f,      -0x1.4p-20f,         1e-30f,   INFINITY, 0x1.ffcp-15f, 0x1.ffep-15f};
      for (size_t i = 0; i < p.k.size(); i += 3) p.k[i] = special[random.Below(std::size(special))];
      for (size_t i = 1; i < p.v.size(); i += 3) p.v[i] = special[random.Below(std::size(special))];
      Cache want(shape, p.lengths), got(shape, p.lengths);
      want.Store(p.rows, p.K(), p.V(), "ref");
      got.Store(p.rows, p.K(), p.V(), "hwy");
      const size_t bytes = shape.layout().BlockBytes();
      for (size_t t = 0; t < 2; ++t) {
        for (int64_t b = 0; b < want.tables()[t].count; ++b) {
          ASSERT_EQ(std::memcmp(want.tables()[t].blocks[b], got.tables()[t].blocks[b], bytes), 0) << "block " << b;
        }
      }
    }
  });
}

TEST(KvStore, LayoutIsAsDocumented) {
  const Shape shape{2, 2, 20, 0, false, KvType::kF32};
  Cache cache(shape, {200});
  std::vector<float> k(40), v(40);
  for (int i = 0; i < 40; ++i) k[i] = static_cast<float>(i + 1), v[i] = static_cast<float>(-i - 1);
  const KvRow row{0, 128 + 37};
  cache.Store({&row, 1}, {k.data(), 1, 40}, {v.data(), 1, 40}, "hwy");
  const float* block = reinterpret_cast<const float*>(cache.tables()[0].blocks[1]);
  // Head 1 starts after 2 * 128 * 32 elements; lane 37 is lane 5 of group 2; d = 19 is element 39 of the row.
  const float* head = block + 2 * 128 * 32;
  EXPECT_EQ(head[2 * 32 * 16 + 19 * 16 + 5], 40.0f);
  EXPECT_EQ(head[128 * 32 + 37 * 32 + 19], -40.0f);
  EXPECT_EQ(block[2 * 32 * 16 + 0 * 16 + 5], 1.0f);
  int written = 0;
  for (int64_t i = 0; i < 2 * 2 * 128 * 32; ++i) written += !std::isnan(block[i]);
  EXPECT_EQ(written, 80) << "elements written, of 2 heads x 20 dimensions x K and V";
}

TEST(KvStore, UsefulByHand) {
  const Shape shape{8, 2, 12, 0, false, KvType::kF16};
  Random random(1);
  Problem p(shape, {5}, random);
  Cache cache(shape, p.lengths);
  KvStoreOp op;
  op.k = p.K(), op.v = p.V(), op.layout = shape.layout(), op.rows = p.rows, op.tables = cache.tables();
  Cost want;
  want.AddBytes(ByteKind::kKvWritten, 5 * 2 * 2 * 12 * 2);
  want.AddBytes(ByteKind::kActivationsRead, 5 * 2 * 2 * 12 * 4);
  EXPECT_EQ(TotalUseful(op), want);
  for (const auto& kernel : Kernels<KvStoreOp>()) EXPECT_EQ(TotalExecuted(kernel, op), want);
}

TEST(Attention, ReferenceAndEveryTargetAreSoftmaxAttention) {
  Random random(21);
  SCOPED_TRACE(random.Trace());
  for (const Shape& shape : Shapes()) {
    SCOPED_TRACE(shape.Trace());
    Problem p(shape, {290, 1, 40}, random);
    Cache cache(shape, p.lengths);
    cache.Store(p.rows, p.K(), p.V());
    const std::vector<KvRow> of = SomeRows(p, random);
    const auto try_kernel = [&](std::string_view kernel, const InDoubles& want) {
      EdgeMat<float> out(of.size(), shape.heads * shape.v_dim, 2);
      p.Attend(cache, of, kernel, out, random.Bits());
      want.ExpectNear(out.view());
    };
    UseAmx(false);
    const InDoubles without_tiles(p, cache, of);
    try_kernel("ref", without_tiles);
    ForEachTarget([&] {
      try_kernel("hwy", shape.type == KvType::kQ8_0 && OnTiles(shape.layout()) ? InDoubles(p, cache, of) : without_tiles);
    });
  }
}

// Spans within a block, over two blocks and wider than windows: the formula, in any company; rows outside of them keep their bits.
TEST(Attention, RowsOfASpanSeeOneAnother) {
  Random random(22);
  for (const Shape& shape : Shapes()) {
    SCOPED_TRACE(shape.Trace());
    Problem p(shape, {290, 40}, random);
    Cache cache(shape, p.lengths);
    cache.Store(p.rows, p.K(), p.V());
    const std::vector<KvRow> plain = p.rows;
    for (KvRow& r : p.rows) {
      const KvRow span = r.table == 1 ? KvRow{1, 0, 0, 40} : r.position < 28 ? KvRow{0, 0, 20, 28} : KvRow{0, 0, 101, 263};
      if (r.position >= span.from && r.position < span.until) r.from = span.from, r.until = span.until;
    }
    std::vector<KvRow> some = p.rows;
    random.Shuffle(some);
    some.resize(60);
    UseAmx(false);
    const InDoubles without_tiles(p, cache, some);
    ForEachTarget([&] {
      EdgeMat<float> all(330, shape.heads * shape.v_dim), causal(330, all.view().cols), few(60, all.view().cols);
      p.Attend(cache, p.rows, "hwy", all, random.Bits());
      p.Attend(cache, plain, "hwy", causal, random.Bits());
      p.Attend(cache, some, "hwy", few, random.Bits());
      (shape.type == KvType::kQ8_0 && OnTiles(shape.layout()) ? InDoubles(p, cache, some) : without_tiles).ExpectNear(few.view());
      for (size_t i = 0; i < 60; ++i) ExpectSameBits(few.view().Rows(i, 1), all.view().Rows(p.IndexOf(some[i]), 1));
      for (const auto& [at, n] : {std::pair{0, 20}, {28, 73}, {263, 27}})
        ExpectSameBits(all.view().Rows(at, n), causal.view().Rows(at, n));
    });
  }
}

TEST(Attention, LargeScoresNeitherOverflowNorVanish) {
  Random random(23);
  SCOPED_TRACE(random.Trace());
  for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kQ8_0}) {
    const Shape shape{4, 2, 32, 0, true, type};
    SCOPED_TRACE(shape.Trace());
    Problem p(shape, {270}, random);
    for (float& x : p.q.span()) x *= 30;
    for (float& x : p.sinks.span()) x *= 30;
    Cache cache(shape, p.lengths);
    cache.Store(p.rows, p.K(), p.V());
    ForEachTarget([&] {
      const InDoubles want(p, cache, p.rows);
      EdgeMat<float> out(p.rows.size(), shape.heads * shape.v_dim, 2);
      p.Attend(cache, p.rows, "hwy", out, random.Bits());
      want.ExpectNear(out.view());
    });
  }
}

TEST(Attention, DepthOfAThousandWithBlocksBelowTheWindowFreed) {
  Random random(24);
  SCOPED_TRACE(random.Trace());
  for (int64_t window : {int64_t{0}, int64_t{100}, int64_t{128}, int64_t{257}}) {
    for (KvType type : {KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kQ8_0}) {
      const Shape shape{8, 1, 64, window, true, type};
      SCOPED_TRACE(shape.Trace());
      Problem p(shape, {1000}, random);
      const std::span<const KvRow> last = std::span<const KvRow>(p.rows).last(3);
      const int64_t needed = shape.First(last[0].position), from = needed / kKvBlock * kKvBlock;
      Cache cache(shape, p.lengths, {needed});
      const int64_t n = 1000 - from;
      cache.Store(std::span<const KvRow>(p.rows).last(n), p.K().Rows(from, n), p.V().Rows(from, n));
      ForEachTarget([&] {
        const InDoubles want(p, cache, last);
        EdgeMat<float> out(3, shape.heads * shape.v_dim);
        p.Attend(cache, last, "hwy", out, random.Bits());
        want.ExpectNear(out.view());
      });
    }
  }
}

// A run of rows far apart: the blocks between, below the later row's window, may be gone.
TEST(Attention, BlocksThatNoRowSeesMayBeMissing) {
  Random random(27);
  SCOPED_TRACE(random.Trace());
  for (KvType type : {KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kQ8_0}) {
    const Shape shape{8, 1, 64, 16, false, type};
    Problem p(shape, {1000}, random);
    Cache cache(shape, p.lengths);
    cache.Store(p.rows, p.K(), p.V());
    std::vector<uint8_t*> blocks(cache.tables()[0].blocks, cache.tables()[0].blocks + cache.tables()[0].count);
    for (size_t b = 1; b + 1 < blocks.size(); ++b) blocks[b] = nullptr;
    const KvTable table{blocks.data(), static_cast<int64_t>(blocks.size())};
    const std::vector<KvRow> rows = {p.rows[10], p.rows[999]};
    EdgeMat<float> q(2, shape.heads * shape.dim), out(2, shape.heads * shape.v_dim);
    for (int i = 0; i < 2; ++i) {
      std::memcpy(q.Row(i), p.q.data() + rows[i].position * shape.heads * shape.dim, sizeof(float) * shape.heads * shape.dim);
    }
    AttentionOp op = p.Op(cache, rows, q.view(), out.view());
    op.tables = {&table, 1};
    ASSERT_TRUE(op.Validate().ok()) << op.Validate().message();
    ForEachTarget([&] {
      RunShuffled(KernelNamed<AttentionOp>("hwy"), op, 2);
      InDoubles(p, cache, rows).ExpectNear(out.view());
    });
  }
}

TEST(Attention, OnePositionWithASinkByHand) {
  // s = 0.5 * (2 * 1) = 1, sink = 1 - ln 3: out = v * e / (e + e/3) = 0.75 v.
  Shape shape{1, 1, 1, 0, true, KvType::kF32};
  Random random(1);
  Problem p(shape, {1}, random);
  p.q[0] = 2, p.k[0] = 1, p.v[0] = 8, p.sinks[0] = 1.0f - std::log(3.0f);
  Cache cache(shape, p.lengths);
  cache.Store(p.rows, p.K(), p.V());
  float out = 0;
  AttentionOp op = p.Op(cache, p.rows, {p.q.data(), 1, 1}, {&out, 1, 1});
  op.scale = 0.5f;
  for (const char* kernel : {"ref", "hwy"}) {
    RunShuffled(KernelNamed<AttentionOp>(kernel), op, 3);
    EXPECT_NEAR(out, 6.0f, 2e-6f) << kernel;
  }
}

// The same sequence row by row, in pieces, in one piece and beside others: the same bits.
TEST(Attention, BitsDoNotDependOnTheBatch) {
  Random random(31);
  SCOPED_TRACE(random.Trace());
  for (const Shape& shape : Shapes()) {
    SCOPED_TRACE(shape.Trace());
    const Problem p(shape, {275, 140}, random);
    const int64_t width = shape.heads * shape.v_dim, n = p.lengths[0];
    // Pieces of 13, row by row around the ends of a block and of some groups, and a long one over another block's end.
    std::vector<int64_t> cut = {0};
    for (int64_t at = 0; at < 150; cut.push_back(at)) {
      const bool single = at < 2 || at / 16 == 5 || std::abs(at - kKvBlock) < 4;
      at += single ? 1 : 13;
    }
    cut.push_back(n);
    // In any company: rows of both sequences in random order, and taking turns.
    std::vector<KvRow> shuffled = p.rows, turns;
    random.Shuffle(shuffled);
    shuffled.resize(150);
    for (int32_t i = 115; i < 275; ++i) {
      turns.push_back({0, i});
      if (i % 3 != 0 && i / 2 < 140) turns.push_back({1, i / 2});
    }
    ForEachTarget([&] {
      EdgeMat<float> want(p.rows.size(), width);
      Cache cache(shape, p.lengths);
      cache.Store(p.rows, p.K(), p.V(), "hwy");
      p.Attend(cache, p.rows, "hwy", want, random.Bits());
      // Each piece is stored just before it is attended to: lanes of the future are NaNs still.
      Cache growing(shape, p.lengths);
      for (size_t i = 0; i + 1 < cut.size(); ++i) {
        const int64_t begin = cut[i], count = cut[i + 1] - begin;
        SCOPED_TRACE("rows from " + std::to_string(begin) + ", " + std::to_string(count));
        const auto of = std::span<const KvRow>(p.rows).subspan(begin, count);
        growing.Store(of, p.K().Rows(begin, count), p.V().Rows(begin, count), "hwy");
        EdgeMat<float> out(count, width);
        p.Attend(growing, of, "hwy", out, random.Bits());
        ExpectSameBits(out.view(), want.view().Rows(begin, count));
      }
      for (const std::vector<KvRow>& of : {shuffled, turns}) {
        EdgeMat<float> out(of.size(), width);
        p.Attend(cache, of, "hwy", out, random.Bits());
        for (size_t i = 0; i < of.size(); ++i) ExpectSameBits(out.view().Rows(i, 1), want.view().Rows(p.IndexOf(of[i]), 1));
      }
    });
  }
}

// Few rows, whose positions are divided among tasks: the same bits as in one piece.
TEST(Attention, BitsDoNotDependOnSlicesOfPositions) {
  Random random(33);
  SCOPED_TRACE(random.Trace());
  for (const Shape& shape : {Shape{4, 1, 32, 0, true, KvType::kF32},
                             {4, 1, 32, 0, false, KvType::kBF16},
                             {6, 2, 40, 1500, true, KvType::kF16},
                             {10, 2, 64, 0, true, KvType::kF16},
                             {9, 1, 40, 0, false, KvType::kQ8_0, 24, true},
                             {3, 3, 32, 0, true, KvType::kQ8_0},
                             {2, 1, 16, 0, false, KvType::kBF16, 16, false, 1100}}) {
    SCOPED_TRACE(shape.Trace());
    Problem p(shape, {3300, 1030}, random);
    Cache cache(shape, p.lengths);
    cache.Store(p.rows, p.K(), p.V());
    const std::vector<std::vector<KvRow>> batches = {{{0, 3299}},
                                                     {{0, 1023}},
                                                     {{0, 5}},
                                                     {{0, 3297}, {0, 3298}, {0, 3299}},
                                                     {{0, 40}, {0, 2047}, {1, 1029}, {0, 2100}},
                                                     {{0, 1999, 990, 2100}, {0, 3}}};
    const int64_t ranges = 4, queries = 4 * shape.heads;
    EdgeArray<float> partials(queries * ranges * AttentionPartials::PartialFloats(shape.v_dim));
    ForEachTarget([&] {
      for (const std::vector<KvRow>& of : batches) {
        const int64_t n = static_cast<int64_t>(of.size());
        EdgeMat<float> q(n, shape.heads * shape.dim), want(n, shape.heads * shape.v_dim), got(n, shape.heads * shape.v_dim);
        q.Fill(random);
        const Kernel<AttentionOp>& kernel = KernelNamed<AttentionOp>("hwy");
        AttentionOp op = p.Op(cache, of, q.view(), want.view());
        RunShuffled(kernel, op, random.Bits());
        EXPECT_EQ(kernel.plan(op, 3).later, 0);
        op.partials = {partials.data(), queries, ranges};
        op.out = got.view();
        ASSERT_TRUE(op.Validate().ok()) << op.Validate().message();
        EXPECT_EQ(kernel.plan(op, 3).later, n * shape.heads);
        EXPECT_GE(kernel.plan(op, 3).tasks, ranges);
        for (const int threads : {1, 3}) {
          std::memset(partials.data(), 0xFF, partials.size() * sizeof(float));
          RunShuffled(kernel, op, random.Bits(), threads);
          ExpectSameBits(got.view(), want.view());
        }
        op.partials.queries = n * shape.heads - 1;
        EXPECT_EQ(kernel.plan(op, 3).later, 0) << "without room for all rows";
      }
    });
  }
}

TEST(Attention, NotANumberReachesTheRowsThatSeeItAndNoOthers) {
  Random random(41);
  SCOPED_TRACE(random.Trace());
  for (const auto& [in_k, type] : {std::pair(true, KvType::kF32),
                                   {false, KvType::kF32},
                                   {true, KvType::kF16},
                                   {false, KvType::kF16},
                                   {true, KvType::kBF16},
                                   {false, KvType::kBF16},
                                   {true, KvType::kQ8_0},
                                   {false, KvType::kQ8_0}}) {
    const Shape shape{8, 2, 32, 40, false, type};
    Problem p(shape, {200}, random);
    (in_k ? p.k : p.v)[70 * 64 + 5] = NAN;  // position 70, KV head 0
    Cache cache(shape, p.lengths);
    cache.Store(p.rows, p.K(), p.V());
    ForEachTarget([&] {
      EdgeMat<float> out(200, 256);
      p.Attend(cache, p.rows, "hwy", out, random.Bits());
      for (int i = 0; i < 200; ++i) {
        const bool sees = i >= 70 && i - 70 < 40;
        EXPECT_EQ(std::isnan(out.Row(i)[5]), sees) << "row " << i;
        EXPECT_FALSE(std::isnan(out.Row(i)[128])) << "row " << i << ", KV head 1";
      }
    });
  }
}

TEST(Attention, AQueryThatIsNoNumberSpoilsNoOther) {
  Random random(43);
  SCOPED_TRACE(random.Trace());
  for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kQ8_0}) {
    const Shape shape{8, 2, 32, 0, true, type};
    SCOPED_TRACE(shape.Trace());
    Problem p(shape, {200}, random);
    Cache cache(shape, p.lengths);
    cache.Store(p.rows, p.K(), p.V());
    ForEachTarget([&] {
      EdgeMat<float> want(200, 256), got(200, 256);
      p.Attend(cache, p.rows, "hwy", want, random.Bits());
      for (const float bad : {NAN, INFINITY}) {
        const float kept = std::exchange(p.q[(130 * 8 + 3) * 32 + 7], bad);
        p.Attend(cache, p.rows, "hwy", got, random.Bits());
        p.q[(130 * 8 + 3) * 32 + 7] = kept;
        for (int i = 0; i < 200; ++i) {
          for (int h = 0; h < 8; ++h) {
            const bool same = std::memcmp(got.Row(i) + 32 * h, want.Row(i) + 32 * h, 32 * sizeof(float)) == 0;
            ASSERT_EQ(same, i != 130 || h != 3) << "row " << i << ", head " << h << ", " << bad;
          }
        }
        EXPECT_TRUE(std::isnan(got.Row(130)[3 * 32])) << bad;
      }
    });
  }
}

TEST(Attention, ExecutedOnMatrixTilesByHand) {
  Random random(1);
  for (const KvType type : {KvType::kF16, KvType::kBF16, KvType::kQ8_0}) {
    const Shape shape{6, 2, 64, 3, false, type, 48};
    Problem p(shape, {40}, random);
    Cache cache(shape, p.lengths);
    EdgeMat<float> out(3, 6 * 48);
    const std::vector<KvRow> rows = {{0, 0}, {0, 31}, {0, 33}};  // one step of 32, one, two
    const AttentionOp op = p.Op(cache, rows, {p.q.data(), 3, 6 * 64}, out.view());
    ForEachTarget([&] {
      if (!OnTiles(shape.layout())) return;
      const uint64_t lanes = (1 + 1 + 2) * 32, products = type == KvType::kF16 ? 3 : 1;
      const Cost useful = TotalUseful(op), executed = TotalExecuted(KernelNamed<AttentionOp>("hwy"), op);
      EXPECT_EQ(executed.Flops(WorkClass::kAttention), products * 2 * 6 * lanes * (64 + 48));
      EXPECT_EQ(executed.Flops(WorkClass::kAttention, Arith::kBF16), executed.Flops(WorkClass::kAttention));
      // f16: a subtraction an element; q8_0: a multiply-add, and scales of two blocks of a key and of a value.
      EXPECT_EQ(executed.Flops(WorkClass::kQuantize), type == KvType::kF16    ? 3 * 6 * 64 + lanes * (6 + 2 * (64 + 48))
                                                      : type == KvType::kQ8_0 ? 2 * lanes * (2 * (64 + 48) + 2 * 2 + 8 * 2)
                                                                              : 0u);
      const auto by_type = AttentionByType(useful, executed);
      EXPECT_EQ(by_type[static_cast<size_t>(Arith::kBF16)], products * useful.Flops(WorkClass::kAttention));
      EXPECT_EQ(by_type[static_cast<size_t>(Arith::kF32)] + by_type[static_cast<size_t>(Arith::kInt8)], 0);
    });
  }
}

// Half of f32's work on tiles, and what executes nothing.
TEST(Attention, ByType) {
  Cost useful, executed;
  useful.AddFlops(WorkClass::kAttention, 1000);
  EXPECT_EQ(AttentionByType(useful, executed), (std::array<double, kAriths>{1000, 0, 0}));
  executed.AddFlops(WorkClass::kAttention, 600);
  executed.AddFlops(WorkClass::kAttention, 1800, Arith::kBF16);
  EXPECT_EQ(AttentionByType(useful, executed), (std::array<double, kAriths>{500, 1500, 0}));
  Cost mixed;
  mixed.AddFlops(WorkClass::kAttention, 500, Arith::kInt8);
  mixed.AddFlops(WorkClass::kAttention, 500, Arith::kBF16);
  EXPECT_EQ(AttentionByType(mixed, mixed), (std::array<double, kAriths>{0, 500, 500}));
}

TEST(Attention, UsefulByHand) {
  Random random(1);
  for (bool sinks : {false, true}) {
    const Shape shape{6, 2, 12, 3, sinks, KvType::kF16};
    Problem p(shape, {5}, random);
    Cache cache(shape, p.lengths);
    EdgeMat<float> out(5, 72);
    const AttentionOp op = p.Op(cache, p.rows, {p.q.data(), 5, 72}, out.view());
    const uint64_t visible = 1 + 2 + 3 + 3 + 3, sunk = sinks ? 5 * 6 : 0;
    Cost want;
    want.AddFlops(WorkClass::kAttention, 4 * visible * 12 * 6);
    want.AddFlops(WorkClass::kSoftmax, 4 * visible * 6 + 3 * sunk);
    want.AddSpecial(WorkClass::kSoftmax, visible * 6 + 5 * 72 + sunk);
    want.AddBytes(ByteKind::kKvRead, 2 * visible * 2 * 12 * 2);
    want.AddBytes(ByteKind::kActivationsRead, 5 * 72 * 4);
    want.AddBytes(ByteKind::kActivationsWritten, 5 * 72 * 4);
    if (sinks) {
      want.AddBytes(ByteKind::kWeightsStored, 24);
      want.AddBytes(ByteKind::kWeightsPacked, 24);
    }
    EXPECT_EQ(TotalUseful(op), want);

    // Highway: 16 lanes for every row (positions 0 .. 4 are of one group), dimensions padded to 16 in p.v.
    const Cost executed = TotalExecuted(KernelNamed<AttentionOp>("hwy"), op);
    EXPECT_EQ(executed.Flops(WorkClass::kAttention), 6 * 2 * (5 * 16 * 12 + visible * 16));
    EXPECT_EQ(executed.Bytes(ByteKind::kKvRead), 2 * 2 * (5 * 16 * 12 + visible * 16));

    WeightTouches touches;
    op.Touches(touches);
    ASSERT_EQ(touches.size(), sinks ? 1u : 0u);
    if (sinks) {
      EXPECT_EQ(touches[0].id, 3u);
      EXPECT_EQ(touches[0].row_begin, 0u);
      EXPECT_EQ(touches[0].row_end, 1u);
    }
  }
}

TEST(Attention, ReferenceDoesExactlyWhatIsCharged) {
  Random random(51);
  SCOPED_TRACE(random.Trace());
  for (const Shape& shape : Shapes()) {
    if (shape.heads * shape.dim > 800) continue;  // time
    SCOPED_TRACE(shape.Trace());
    Problem p(shape, {270, 20}, random);
    Cache cache(shape, p.lengths);
    cache.Store(p.rows, p.K(), p.V());
    const std::vector<KvRow> of = SomeRows(p, random);
    const int64_t n = of.size(), width = shape.heads * shape.dim;
    EdgeMat<float> out(n, shape.heads * shape.v_dim);
    const AttentionOp op = p.Op(cache, of, {p.q.data(), n, width}, out.view());
    auto count = [&](auto a, auto s, auto j, auto z) {
      using A = decltype(a);
      using J = decltype(j);
      std::vector<A> o(shape.v_dim);
      std::vector<J> total(2 * shape.v_dim);
      return CountOf([&] {
        for (int64_t r = 0; r < n; ++r) {
          for (int64_t h = 0; h < shape.heads; ++h) {
            AttendReference<A, decltype(s), J, decltype(z)>(op, r, h, o.data(), total.data());
          }
        }
      });
    };
    const OpCounts products = count(Counting(), 0.0f, 0.0f, 0.0f), softmax = count(0.0f, Counting(), 0.0f, 0.0f);
    const OpCounts joins = count(0.0f, 0.0f, Counting(), 0.0f), rounding = count(0.0f, 0.0f, 0.0f, Counting());
    const Cost useful = TotalUseful(op), executed = TotalExecuted(KernelNamed<AttentionOp>("ref"), op);
    EXPECT_EQ(products, (OpCounts{useful.Flops(WorkClass::kAttention), useful.Special(WorkClass::kAttention)}));
    EXPECT_EQ(softmax, (OpCounts{useful.Flops(WorkClass::kSoftmax), useful.Special(WorkClass::kSoftmax)}));
    EXPECT_EQ(executed.Flops(WorkClass::kAttention), products.flops);
    EXPECT_EQ(executed.Flops(WorkClass::kSoftmax), softmax.flops + joins.flops);
    EXPECT_EQ(executed.Special(WorkClass::kSoftmax), softmax.special + joins.special);
    EXPECT_EQ(executed.Flops(WorkClass::kQuantize), rounding.flops);
    EXPECT_EQ(executed.Special(WorkClass::kQuantize), rounding.special);
    const uint64_t keys = useful.Flops(WorkClass::kAttention) / static_cast<uint64_t>(shape.dim + shape.v_dim) * shape.dim;
    const KvLayout layout = shape.layout();
    const bool mixed = layout.KeyArith() != layout.ValueArith();
    EXPECT_EQ(useful.Flops(WorkClass::kAttention, layout.KeyArith()), mixed ? keys : products.flops);
    EXPECT_EQ(useful.Flops(WorkClass::kAttention, layout.ValueArith()), products.flops - (mixed ? keys : 0));
    EXPECT_EQ(useful.TotalFlops(), products.flops + softmax.flops) << "nothing in other classes";
  }
}

TEST(Attention, ValidateNamesWhatIsWrong) {
  Random random(1);
  const Shape shape{4, 2, 16, 0, true, KvType::kF32};
  Problem p(shape, {200}, random);
  Cache cache(shape, p.lengths), holes(shape, p.lengths, {128});
  EdgeMat<float> out(200, 64);
  const AttentionOp good = p.Op(cache, p.rows, {p.q.data(), 200, 64}, out.view());
  EXPECT_TRUE(good.Validate().ok()) << good.Validate().message();
  auto message = [&](auto change) {
    AttentionOp op = good;
    change(op);
    return op.Validate().message();
  };
  EXPECT_EQ(message([](AttentionOp& op) { op.heads = 5; }),
            "5 heads of 16 on 2 KV heads: expected all at least 1 and heads a multiple of KV heads");
  EXPECT_EQ(message([](AttentionOp& op) { op.q.cols = 60; }), "q is [200, 60], expected [200, 64]");
  EXPECT_EQ(message([](AttentionOp& op) { op.out.rows = 3; }), "out is [3, 64], expected [200, 64]");
  EXPECT_EQ(message([](AttentionOp& op) { op.window = -1; }), "window -1, chunk 0; expected 0 (none) or more");
  EXPECT_EQ(message([](AttentionOp& op) { op.sinks.cols = 3; }), "sinks hold 3 elements of F32; expected a vector of 4 F32");
  EXPECT_EQ(message([&](AttentionOp& op) { op.tables = {}; }), "row 0 names table 0 of 0");
  EXPECT_EQ(message([&](AttentionOp& op) { op.tables = holes.tables(); }), "row 0 needs KV block 0, which is not allocated");
  std::vector<KvRow> rows = p.rows;
  rows[7].position = 256;
  EXPECT_EQ(message([&](AttentionOp& op) { op.rows = rows; }), "row 7 has position 256, its sequence's table holds 256");
  rows[7].position = 150;  // the rows before do not vouch for this one's blocks
  EXPECT_EQ(message([&](AttentionOp& op) { op.rows = rows, op.window = 10, op.tables = holes.tables(); }),
            "row 0 needs KV block 0, which is not allocated");
  EXPECT_TRUE(message([&](AttentionOp& op) {
                op.rows = op.rows.last(20), op.window = 10, op.tables = holes.tables();
                op.q = op.q.Rows(0, 20), op.out = op.out.Rows(0, 20);
              }).empty());

  KvStoreOp store;
  store.k = p.K(), store.v = p.V(), store.layout = shape.layout(), store.rows = p.rows, store.tables = holes.tables();
  EXPECT_EQ(store.Validate().message(), "row 0 needs KV block 0, which is not allocated");
  store.tables = cache.tables();
  EXPECT_TRUE(store.Validate().ok());
  store.v.cols = 16;
  EXPECT_EQ(store.Validate().message(), "v is [200, 16], expected [200, 32]");
}

}  // namespace
}  // namespace tally
