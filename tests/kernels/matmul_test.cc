// SPDX-License-Identifier: Apache-2.0
// Matrix products: every weight type by every kind of activation, on every Highway target, against the scalar reference; one
// row, few rows and many must agree bit for bit.
#include "engine/kernels/matmul/matmul.h"
#include "engine/kernels/matmul/matmul_job.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "engine/base/float16.h"
#include "engine/kernels/formats/weight_format.h"
#include "engine/kernels/matmul/matmul_ref.h"
#include "engine/kernels/pack_act/act_rows.h"
#include "engine/kernels/pack_act/pack_act.h"
#include "engine/kernels/pack_act/pack_act_ref.h"
#include "engine/kernels/unpack.h"
#include "engine/weights/pack.h"
#include "tests/kernels/harness.h"
#include "tests/support/counting_scalar.h"
#include "tests/support/stored_weights.h"

namespace tally {
namespace {

bool HasFusedMultiplyAdd() {
  const std::string target(HwyTargetName());
  return target != "SSE4";
}

// A packed random weight that ends at an inaccessible page.
class Weight {
 public:
  // `quants`: sets the quants of a block instead of random ones; `scales`: the blocks' scales, in turn.
  using Quants = std::function<void(int64_t row, int64_t block, uint8_t* qs, size_t bytes)>;
  Weight(Random& random, DType dtype, int64_t slices, int64_t rows, int64_t cols, const Quants& quants = nullptr,
         const std::vector<uint16_t>& scales = {}) {
    const size_t row_bytes = static_cast<size_t>(*StoredBytes(dtype, static_cast<uint64_t>(cols)));
    std::vector<uint8_t> stored(row_bytes * static_cast<size_t>(rows));
    view_.id = 1;
    view_.dtype = dtype;
    view_.layout = WeightLayout::kPanel16;
    view_.slices = slices;
    view_.rows = rows;
    view_.cols = cols;
    view_.panel_stride = PanelBytes(dtype, cols);
    view_.slice_stride = view_.panel_stride * static_cast<size_t>(view_.panels());
    view_.stored_row_bytes = row_bytes;
    memory_ = std::make_unique<EdgeArray<uint8_t>>(view_.slice_stride * static_cast<size_t>(slices));
    view_.data = memory_->data();
    for (int64_t s = 0; s < slices; ++s) {
      Fill(random, dtype, stored);
      Override(dtype, cols, stored, quants, scales);
      PackRows(dtype, WeightLayout::kPanel16, rows, cols, 0, rows, stored.data(),
               memory_->data() + static_cast<size_t>(s) * view_.slice_stride);
    }
  }
  const WeightView& view() const { return view_; }

 private:
  // Random bits with scales of one size; -128 is among integers of 8 bits.
  static void Fill(Random& random, DType dtype, std::vector<uint8_t>& stored) {
    const DTypeInfo info = GetDTypeInfo(dtype);
    for (size_t i = 0; i < stored.size(); i += info.block_bytes) {
      if (info.quantised) {
        const ScaleField scale = ScaleOf(dtype);
        for (size_t b = 0; b < info.block_bytes; ++b) stored[i + b] = static_cast<uint8_t>(random.Bits());
        if (scale.bytes == 1) {
          stored[i + scale.at] = static_cast<uint8_t>(random.Between(118, 128));
        } else if (scale.f32) {
          Put(stored, i + scale.at, random.Uniform(-0.02f, 0.02f));
        }
        if (dtype == DType::kFP8) RemoveNaNs(stored.data() + i);
        for (size_t h = 0; h < scale.halves(); ++h) {
          Put(stored, i + scale.at + 2 * h, F32ToF16(random.Uniform(-0.02f, 0.02f) / scale.most));
        }
      } else {
        const float x = random.Normal();
        FormatOf(dtype).encode(&x, nullptr, 1, stored.data() + i);
      }
    }
  }
  static void Override(DType dtype, int64_t cols, std::vector<uint8_t>& stored, const Quants& quants,
                       const std::vector<uint16_t>& scales) {
    if (!GetDTypeInfo(dtype).quantised) return;
    const size_t bytes = GetDTypeInfo(dtype).block_bytes;
    const ScaleField scale = ScaleOf(dtype);
    const int64_t per_row = cols / GetDTypeInfo(dtype).block_size;
    for (size_t at = 0, i = 0; at < stored.size(); at += bytes, ++i) {
      uint8_t* block = stored.data() + at;
      if (!scales.empty()) {
        const uint16_t bits = scales[i % scales.size()];
        const float value = F16ToF32(bits);
        if (scale.f32) {
          std::memcpy(block + scale.at, &value, 4);
        } else {
          std::memcpy(block + scale.at, &bits, std::min<size_t>(scale.bytes, 2));
          if (scale.halves() == 2) std::memcpy(block + scale.at + 2, &scales[(i + 3) % scales.size()], 2);
        }
      }
      const int64_t b = static_cast<int64_t>(i);
      if (quants) quants(b / per_row, b % per_row, scale.at == 0 ? block + scale.bytes : block, bytes - scale.bytes);
    }
  }
  template <class T>
  static void Put(std::vector<uint8_t>& stored, size_t at, T v) {
    std::memcpy(stored.data() + at, &v, sizeof(v));
  }

  std::unique_ptr<EdgeArray<uint8_t>> memory_;
  WeightView view_;
};

// A pack of x by the reference packer.
class Packed {
 public:
  Packed(Mat<const float> x, ActFormat format, std::vector<RowGroup> groups) : groups_(std::move(groups)) {
    pack_.format = format;
    pack_.cols = x.cols;
    pack_.rows =
        std::accumulate(groups_.begin(), groups_.end(), int64_t{0}, [](int64_t n, const RowGroup& g) { return n + g.rows; });
    memory_.Resize(static_cast<size_t>(pack_.rows) * pack_.row_bytes() + 64);
    pack_.data = memory_.data();
    pack_.groups = groups_;
    const PackActOp op{.x = x, .row_index = {}, .pack = pack_};
    EXPECT_TRUE(op.Validate().ok()) << op.Validate().message();
    RunShuffled(KernelNamed<PackActOp>("ref"), op, 7);
  }
  const ActPack& pack() const { return pack_; }

 private:
  std::vector<RowGroup> groups_;
  AlignedBuffer<uint8_t> memory_;
  ActPack pack_;
};

std::vector<RowGroup> OneGroup(int64_t rows) { return {{.row_begin = 0, .rows = rows, .slice = 0}}; }

std::vector<ActKind> KindsFor(DType t) {
  std::vector<ActKind> kinds;
  for (const ActKind k : {ActKind::kF32, ActKind::kBF16, ActKind::kInt8}) {
    if (TakesActivations(t, k)) kinds.push_back(k);
  }
  return kinds;
}

std::vector<DType> QuantisedTypes() {
  std::vector<DType> types(kWeightTypes.begin(), kWeightTypes.end());
  std::erase_if(types, [](DType t) { return FormatOf(t).act != ActKind::kInt8; });
  return types;
}
// As near to `cols` as whole blocks come.
int64_t Whole(DType t, int64_t cols) {
  const int64_t block = GetDTypeInfo(t).block_size;
  return (cols + block - 1) / block * block;
}

// Sums in another order than the reference's.
bool OwnOrder(DType t, ActKind kind) { return kind == ActKind::kBF16 && (HwyTargetHasBf16Dot() || GetDTypeInfo(t).quantised); }

// matmul_ref.h's tolerance.
double Tolerance(const MatMulOp& op, const RowGroup& group, int64_t row, int64_t n) {
  const bool exact = HasFusedMultiplyAdd() && !OwnOrder(op.w.dtype, op.x.format.kind);
  if (exact) return 0;
  std::vector<float> w(static_cast<size_t>(op.w.cols));
  UnpackRow(op.w, group.slice, n, w.data());
  const PackedRow x(op.x, group, row - group.row_begin);
  double sum = op.bias.empty() ? 0 : std::fabs(op.bias.Vector(group.slice)[n]);
  if (op.x.format.kind == ActKind::kInt8) {
    Int8Terms terms;
    for (int64_t kb = 0; kb < op.w.cols / 32; ++kb) {
      FormatOf(op.w.dtype).int8_terms(op.w.Panel(group.slice, n / kPanelRows), static_cast<int>(n % kPanelRows), kb, terms);
      double products = 0;
      for (int64_t i = 0; i < 32; ++i) products += std::abs(terms.w[i] * x.Int8(32 * kb + i));
      sum += products * static_cast<double>(std::fabs(terms.scale * x.Scale(kb)));
      for (int part = 0; part < op.x.format.minimum_sums(); ++part) {
        sum += static_cast<double>(std::fabs(terms.minimum[part] * x.ScaledSum(kb, part)));
      }
    }
    return 2 * (static_cast<double>(op.w.cols) / 32 * (1 + op.x.format.minimum_sums()) + 2) * (0x1p-24 * sum + 0x1p-126);
  }
  for (int64_t k = 0; k < op.w.cols; ++k) {
    const double v = op.x.format.kind == ActKind::kF32 ? x.F32(k) : x.BF16(k);
    sum += std::fabs(v * static_cast<double>(w[static_cast<size_t>(k)]));
  }
  return 2 * (static_cast<double>(op.w.cols) + 2) * (0x1p-24 * sum + 0x1p-126);
}

struct Shape {
  int64_t rows, cols;
};

class MatMulTest : public testing::TestWithParam<DType> {
 protected:
  std::vector<Shape> Shapes() const {
    const int64_t block = GetDTypeInfo(GetParam()).block_size;
    if (block > 1)
      return {{16, block}, {33, 2 * block}, {48, 3 * block}, {17, Whole(GetParam(), 544)}, {100, Whole(GetParam(), 1056)}};
    return {{1, 1}, {16, 7}, {33, 64}, {48, 33}, {17, 519}, {100, 1030}};
  }
};

class QuantisedMatMulTest : public MatMulTest {};

TEST_P(MatMulTest, AgreesWithTheReference) {
  Random random(11);
  SCOPED_TRACE(random.Trace());
  for (const Shape& shape : Shapes()) {
    const Weight w(random, GetParam(), 1, shape.rows, shape.cols);
    EdgeArray<float> bias(static_cast<size_t>(shape.rows));
    random.Fill(bias.data(), shape.rows);
    for (ActKind kind : KindsFor(GetParam())) {
      for (int64_t n : {1, 2, 3, 4, 5, 6, 7, 8, 12, 13, 31}) {
        EdgeMat<float> x(n, shape.cols), got(n, shape.rows, 3), want(n, shape.rows);
        x.Fill(random);
        const Packed packed(x.view(), ActFormatFor(GetParam(), kind), OneGroup(n));
        MatMulOp op{.x = packed.pack(), .w = w.view(), .bias = {}, .out = got.view(), .out_row = {}};
        if (n % 2 == 1) op.bias = VectorView(bias.data(), shape.rows, 2);
        op.add_to_out = n % 3 == 0;
        constexpr ActivationKind kActivations[] = {ActivationKind::kGeluTanh, ActivationKind::kGeluErf, ActivationKind::kSilu,
                                                   ActivationKind::kRelu2, ActivationKind::kNone};
        if (!op.add_to_out) op.activation = kActivations[n % 5];
        ASSERT_TRUE(op.Validate().ok()) << op.Validate().message();
        MatMulOp ref = op;
        ref.out = want.view();
        EdgeMat<float> start(n, shape.rows);
        start.Fill(random);
        want.CopyFrom(start.view());
        RunShuffled(KernelNamed<MatMulOp>("ref"), ref, 3);
        SCOPED_TRACE(std::string(DTypeName(GetParam())) + " kind " + std::to_string(static_cast<int>(kind)) + " rows " +
                     std::to_string(n) + " of " + std::to_string(shape.rows) + "x" + std::to_string(shape.cols));
        ForEachTarget([&] {
          if (!TakesActivations(GetParam(), kind)) return;
          const Packed here(x.view(), ActFormatFor(GetParam(), kind), OneGroup(n));
          op.x = here.pack();
          got.CopyFrom(start.view());
          RunShuffled(KernelNamed<MatMulOp>("hwy"), op, 5);
          got.ExpectGapsUntouched();
          ExpectClose(Mat<const float>(got.view()), Mat<const float>(want.view()), [&](int64_t r, int64_t c, double v) {
            const double product = Tolerance(op, packed.pack().groups[0], r, c);
            if (op.activation == ActivationKind::kNone && product == 0) return 0.0;  // the same operations: the same bits
            const double slope = op.activation == ActivationKind::kRelu2 ? 2 * std::sqrt(v) + 1 : 1;
            return slope * product + (op.activation == ActivationKind::kNone ? 1e-7 : 2e-6) * (1 + std::fabs(v));
          });
          ExpectAtLeast(TotalExecuted(KernelNamed<MatMulOp>("hwy"), op), TotalUseful(op));
        });
      }
    }
  }
}

TEST_P(MatMulTest, OneRowFewRowsAndManyGiveTheSameBits) {
  Random random(12);
  SCOPED_TRACE(random.Trace());
  const int64_t cols = GetDTypeInfo(GetParam()).quantised ? Whole(GetParam(), 1088) : 1061, rows = 50, n = 40;
  const Weight w(random, GetParam(), 1, rows, cols);
  EdgeMat<float> x(n, cols);
  x.Fill(random);
  for (ActKind kind : KindsFor(GetParam())) {
    ForEachTarget([&] {
      if (!TakesActivations(GetParam(), kind)) return;
      const ActFormat format = ActFormatFor(GetParam(), kind);
      EdgeMat<float> all(n, rows);
      const Packed whole(x.view(), format, OneGroup(n));
      RunShuffled(KernelNamed<MatMulOp>("hwy"),
                  MatMulOp{.x = whole.pack(), .w = w.view(), .bias = {}, .out = all.view(), .out_row = {}}, 1);
      for (int64_t piece : {1, 2, 3, 4, 6, 7, 8, 12, 13}) {
        EdgeMat<float> cut(n, rows);
        for (int64_t r = 0; r < n; r += piece) {
          const int64_t m = std::min(piece, n - r);
          const Packed part(Mat<const float>(x.view()).Rows(r, m), format, OneGroup(m));
          RunShuffled(KernelNamed<MatMulOp>("hwy"),
                      MatMulOp{.x = part.pack(), .w = w.view(), .bias = {}, .out = cut.view().Rows(r, m), .out_row = {}}, 2);
        }
        SCOPED_TRACE("pieces of " + std::to_string(piece));
        ExpectSameBits(Mat<const float>(cut.view()), Mat<const float>(all.view()));
      }
    });
  }
}

TEST_P(MatMulTest, GroupsTakeTheirOwnSliceAndScatter) {
  Random random(13);
  SCOPED_TRACE(random.Trace());
  // 50 panels, the last one short: gate and up matrices stream in several runs, whatever the rows.
  const int64_t rows = 16 * 50 - 6, cols = Whole(GetParam(), 96), slices = 5;
  const Weight w(random, GetParam(), slices, rows, cols), up(random, GetParam(), slices, rows, cols);
  std::vector<float> bias(static_cast<size_t>(rows * slices)), up_bias(bias.size());
  random.Fill(bias.data(), rows * slices);
  random.Fill(up_bias.data(), rows * slices);
  auto vectors = [&](const std::vector<float>& v) {
    WeightView b = VectorView(v.data(), rows, 2);
    b.slices = slices;
    return b;
  };
  const std::vector<RowGroup> groups = {{0, 1, 4}, {1, 0, 3}, {1, 14, 0}, {15, 5, 2}, {20, 6, 1}, {26, 7, 4}};
  const int64_t n = 33;
  std::vector<int32_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  random.Shuffle(order);
  EdgeMat<float> x(n, cols);
  x.Fill(random);
  for (ActKind kind : KindsFor(GetParam())) {
    const Packed packed(x.view(), ActFormatFor(GetParam(), kind), groups);
    EdgeMat<float> got(n, rows), want(n, rows), gated_got(n, rows), gated_want(n, rows);
    MatMulOp op{.x = packed.pack(), .w = w.view(), .bias = vectors(bias), .out = want.view(), .out_row = order};
    GatedMatMulOp gated{.x = packed.pack(),
                        .gate = w.view(),
                        .up = up.view(),
                        .gate_bias = vectors(bias),
                        .up_bias = vectors(up_bias),
                        .activation = ActivationKind::kSwigluOai,
                        .out = gated_want.view()};
    ASSERT_TRUE(op.Validate().ok()) << op.Validate().message();
    ASSERT_TRUE(gated.Validate().ok()) << gated.Validate().message();
    RunShuffled(KernelNamed<MatMulOp>("ref"), op, 1);
    RunShuffled(KernelNamed<GatedMatMulOp>("ref"), gated, 1);
    ForEachTarget([&] {
      if (!TakesActivations(GetParam(), kind)) return;
      const Packed here(x.view(), ActFormatFor(GetParam(), kind), groups);
      op.x = gated.x = here.pack();
      op.out = got.view();
      gated.out = gated_got.view();
      RunShuffled(KernelNamed<MatMulOp>("hwy"), op, 2);
      RunShuffled(KernelNamed<GatedMatMulOp>("hwy"), gated, 2);
      for (const RowGroup& g : groups) {
        for (int64_t r = g.row_begin; r < g.row_begin + g.rows; ++r) {
          const int64_t to = order[static_cast<size_t>(r)];
          ExpectClose(Mat<const float>(got.view()).Rows(to, 1), Mat<const float>(want.view()).Rows(to, 1),
                      [&](int64_t, int64_t c, double) { return Tolerance(op, g, r, c); });
        }
      }
      const bool exact = HasFusedMultiplyAdd() && !OwnOrder(GetParam(), kind);
      ExpectClose(Mat<const float>(gated_got.view()), Mat<const float>(gated_want.view()),
                  [&](int64_t, int64_t, double v) { return (exact ? 2e-6 : 1e-4) * (1 + std::fabs(v)); });
    });
  }
}

// Every product as large as its type allows and of one sign or the other: sums in 16 bits must not saturate or wrap for good.
TEST_P(QuantisedMatMulTest, LargestProductsAreExact) {
  Random random(21);
  const int64_t rows = 64, cols = Whole(GetParam(), 128), n = 25;
  const std::vector<uint8_t> extremes =
      GetParam() == DType::kQ8_0 || GetParam() == DType::kQ8_K ? std::vector<uint8_t>{0x80, 0x7f, 0x81, 0x00}
      : GetParam() == DType::kMXFP4 ? std::vector<uint8_t>{0x77, 0xff, 0x7f, 0xf7}   // E2M1: 7 is 6, 15 is -6
                                    : std::vector<uint8_t>{0x00, 0xff, 0x0f, 0xf0};  // integer scales, too
  const Weight w(random, GetParam(), 1, rows, cols, [&](int64_t row, int64_t block, uint8_t* qs, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i) {
      const size_t kind = static_cast<size_t>(row) % 8;
      qs[i] = kind < 4 ? extremes[kind] : extremes[(i / (kind - 3) + static_cast<size_t>(block)) % 4];
    }
    if (GetParam() == DType::kQ6_K) std::memset(qs + 192, row / 8 % 2 == 0 ? 0x80 : 0x7f, 16);
  });
  EdgeMat<float> x(n, cols), got(n, rows), want(n, rows);
  for (int64_t r = 0; r < n; ++r) {
    for (int64_t k = 0; k < cols; ++k) x.Row(r)[k] = (r >> (k % 5)) % 2 == 0 ? 1.0f : -1.0f;  // q = +-127, in every pattern of 5
  }
  const Packed packed(x.view(), ActFormatFor(GetParam(), ActKind::kInt8), OneGroup(n));
  MatMulOp op{.x = packed.pack(), .w = w.view(), .bias = {}, .out = want.view(), .out_row = {}};
  RunShuffled(KernelNamed<MatMulOp>("ref"), op, 1);
  ForEachTarget([&] {
    for (int64_t piece : {n, int64_t{1}, int64_t{3}, int64_t{8}}) {
      for (int64_t r = 0; r < n; r += piece) {
        const int64_t m = std::min(piece, n - r);
        const Packed part(Mat<const float>(x.view()).Rows(r, m), ActFormatFor(GetParam(), ActKind::kInt8), OneGroup(m));
        RunShuffled(KernelNamed<MatMulOp>("hwy"),
                    MatMulOp{.x = part.pack(), .w = w.view(), .bias = {}, .out = got.view().Rows(r, m), .out_row = {}}, 2);
      }
      ExpectClose(Mat<const float>(got.view()), Mat<const float>(want.view()), [&](int64_t r, int64_t c, double) {
        return HasFusedMultiplyAdd() ? 0.0 : Tolerance(op, packed.pack().groups[0], r, c);
      });
    }
  });
}

// Scales at the ends of their types: E8M0 0 (2^-127, subnormal) and 255 (NaN); f16 subnormal, infinite and NaN.
TEST_P(QuantisedMatMulTest, OddScalesReachTheResultAsInTheReference) {
  Random random(22);
  const int64_t rows = 32, cols = Whole(GetParam(), 64), n = StreamRows(ActKind::kInt8) + 9;
  const std::vector<uint16_t> scales = GetParam() == DType::kMXFP4
                                           ? std::vector<uint16_t>{0, 1, 127, 254, 255, 126, 120, 2}
                                           : std::vector<uint16_t>{0, 1, 0x03ff, 0x7bff, 0x7c00, 0x7e00, 0x8001, 0xfc00};
  Weight w(random, GetParam(), 1, rows, cols, nullptr, scales);
  EdgeMat<float> x(n, cols), got(n, rows), want(n, rows);
  x.Fill(random);
  for (ActKind kind : KindsFor(GetParam())) {
    const Packed packed(x.view(), ActFormatFor(GetParam(), kind), OneGroup(n));
    MatMulOp op{.x = packed.pack(), .w = w.view(), .bias = {}, .out = want.view(), .out_row = {}};
    RunShuffled(KernelNamed<MatMulOp>("ref"), op, 1);
    ForEachTarget([&] {
      if (!TakesActivations(GetParam(), kind)) return;
      const Packed here(x.view(), ActFormatFor(GetParam(), kind), OneGroup(n));
      op.x = here.pack();
      op.out = got.view();
      RunShuffled(KernelNamed<MatMulOp>("hwy"), op, 2);
      ExpectClose(Mat<const float>(got.view()), Mat<const float>(want.view()), [&](int64_t r, int64_t c, double v) {
        return std::isfinite(v) ? Tolerance(op, packed.pack().groups[0], r, c) : 0.0;
      });
    });
  }
}

// Many rows add exponents where no product of two scales can be subnormal or infinite. Scales of activations here are about 2^-8.
TEST(MXFP4MatMul, ScalesAroundTheEndsOfNormalNumbers) {
  const int64_t rows = 32, cols = 96, n = StreamRows(ActKind::kInt8) + 9;
  for (const std::vector<uint16_t>& scales :
       std::vector<std::vector<uint16_t>>{{6, 7, 8}, {8, 9}, {9, 10, 11}, {12, 127}, {250, 254}}) {
    for (const float factor : {1.0f, 0x1p4f, 0x1p8f, 0x1p10f, 0.0f}) {
      Random random(23);
      Weight w(random, DType::kMXFP4, 1, rows, cols, nullptr, scales);
      EdgeMat<float> x(n, cols), got(n, rows), want(n, rows);
      x.Fill(random);
      for (int64_t r = 0; r < n; ++r) {
        for (int64_t k = 0; k < cols; ++k) x.view().Row(r)[k] *= r == 3 ? factor : 1.0f;
      }
      const Packed packed(x.view(), ActFormatFor(DType::kMXFP4, ActKind::kInt8), OneGroup(n));
      MatMulOp op{.x = packed.pack(), .w = w.view(), .bias = {}, .out = want.view(), .out_row = {}};
      RunShuffled(KernelNamed<MatMulOp>("ref"), op, 1);
      ForEachTarget([&] {
        if (!HasFusedMultiplyAdd()) return;  // another order of what is not finite
        const Packed here(x.view(), ActFormatFor(DType::kMXFP4, ActKind::kInt8), OneGroup(n));
        op.x = here.pack();
        op.out = got.view();
        RunShuffled(KernelNamed<MatMulOp>("hwy"), op, 2);
        ExpectClose(Mat<const float>(got.view()), Mat<const float>(want.view()), [](int64_t, int64_t, double) { return 0.0; });
      });
    }
  }
}

TEST_P(MatMulTest, NoRowsIsNothingToDo) {
  Random random(23);
  const int64_t cols = Whole(GetParam(), 64);
  const Weight w(random, GetParam(), 1, 40, cols);
  EdgeMat<float> x(1, cols), out(1, 40);
  x.Fill(random);
  for (ActKind kind : KindsFor(GetParam())) {
    const Packed packed(x.view(), ActFormatFor(GetParam(), kind), {{0, 0, 0}});
    const MatMulOp op{.x = packed.pack(), .w = w.view(), .bias = {}, .out = out.view(), .out_row = {}};
    ASSERT_TRUE(op.Validate().ok()) << op.Validate().message();
    for (const char* name : {"hwy", "ref"}) RunShuffled(KernelNamed<MatMulOp>(name), op, 1);
    EXPECT_EQ(TotalUseful(op).Bytes(ByteKind::kWeightsPacked), 0u);
  }
}

// What the reference does, counted, is what it is charged: useful work, and executed where integers are scaled block by block.
TEST_P(MatMulTest, ReferenceDoesWhatIsCharged) {
  Random random(24);
  for (const Shape& shape : Shapes()) {
    const Weight w(random, GetParam(), 3, shape.rows, shape.cols), up(random, GetParam(), 3, shape.rows, shape.cols);
    const std::vector<float> bias(static_cast<size_t>(shape.rows) * 3, 0.5f);
    WeightView b = VectorView(bias.data(), shape.rows, 2);
    b.slices = 3;
    EdgeMat<float> x(7, shape.cols), out(7, shape.rows);
    x.Fill(random);
    out.Fill(random);
    for (ActKind kind : KindsFor(GetParam())) {
      const Packed packed(x.view(), ActFormatFor(GetParam(), kind), {{0, 3, 1}, {3, 0, 0}, {3, 4, 2}});
      const auto expect = [&](const auto& op) {
        const MatJob job(op);
        std::vector<uint8_t> scratch(ReferenceScratchBytes(job));
        const OpCounts counted = CountOf([&] { MatJobReference<Counting>(job, 0, job.tasks(), scratch); });
        Cost useful = TotalUseful(op);
        uint64_t flops = useful.TotalFlops();
        if (kind == ActKind::kInt8) {  // of a block and output: a product of scales, a fused multiply-add, one for each minimum
          const ActFormat format = ActFormatFor(GetParam(), kind);
          flops += (3 + 2 * static_cast<uint64_t>(format.minimum_sums())) * 7 *
                   static_cast<uint64_t>(shape.rows * (shape.cols / 32)) * (job.gated ? 2 : 1);
          using Op = std::remove_cvref_t<decltype(op)>;
          EXPECT_EQ(TotalExecuted(KernelNamed<Op>("ref"), op).TotalFlops(), flops);
        }
        EXPECT_EQ(counted.flops, flops) << DTypeName(GetParam()) << " kind " << static_cast<int>(kind);
        EXPECT_EQ(counted.special, useful.TotalSpecial());
      };
      MatMulOp op{.x = packed.pack(), .w = w.view(), .bias = {}, .out = out.view(), .out_row = {}};
      expect(op);
      op.bias = b;
      op.add_to_out = true;
      expect(op);
      op.add_to_out = false;
      for (ActivationKind a : {ActivationKind::kGeluTanh, ActivationKind::kGeluErf, ActivationKind::kSilu}) {
        op.activation = a;
        expect(op);
      }
      GatedMatMulOp gated{
          .x = packed.pack(), .gate = w.view(), .up = up.view(), .gate_bias = {}, .up_bias = {}, .out = out.view()};
      for (ActivationKind a :
           {ActivationKind::kSilu, ActivationKind::kGeluTanh, ActivationKind::kSwigluOai, ActivationKind::kSwigluLimited}) {
        gated.activation = a;
        expect(gated);
      }
      gated.gate_bias = gated.up_bias = b;
      expect(gated);
    }
  }
}

TEST_P(MatMulTest, UsefulWorkByHand) {
  Random random(14);
  const int64_t cols = Whole(GetParam(), 64);
  const uint64_t k = static_cast<uint64_t>(cols);
  const Weight w(random, GetParam(), 3, 20, cols);
  const std::vector<float> bias(60);
  WeightView b = VectorView(bias.data(), 20, 2);
  b.slices = 3;
  EdgeMat<float> x(7, cols), out(7, 20);
  x.Fill(random);
  const ActKind kind = KindsFor(GetParam()).back();
  const Packed packed(x.view(), ActFormatFor(GetParam(), kind), {{0, 3, 1}, {3, 4, 2}});
  const MatMulOp op{.x = packed.pack(), .w = w.view(), .bias = b, .out = out.view(), .out_row = {}};
  const Cost c = TotalUseful(op);
  EXPECT_EQ(c.Flops(WorkClass::kLinear), 2u * 7 * 20 * k);
  EXPECT_EQ(c.Flops(WorkClass::kResidualBias), 7u * 20);
  EXPECT_EQ(c.Bytes(ByteKind::kWeightsStored), 2 * 20 * *StoredBytes(GetParam(), k) + 2 * 20 * 4 / 20 * 20);
  EXPECT_EQ(c.Bytes(ByteKind::kWeightsPacked), 2 * 2 * PanelBytes(GetParam(), cols) + 2 * 20 * 4);
  EXPECT_EQ(c.Bytes(ByteKind::kActivationsWritten), 7u * 20 * 4);
  WeightTouches touches;
  op.Touches(touches);
  ASSERT_EQ(touches.size(), 4u);
  EXPECT_EQ(touches[0].slice, 1u);
  EXPECT_EQ(touches[1].slice, 2u);
  EXPECT_EQ(touches[0].row_end, 20u);
  EXPECT_EQ(touches[2].row_end, 1u);
}

TEST_P(MatMulTest, OpenBlasIsClose) {
  Random random(15);
  SCOPED_TRACE(random.Trace());
  const int64_t rows = 300, cols = Whole(GetParam(), 128), n = 9;
  const Weight w(random, GetParam(), 1, rows, cols), up(random, GetParam(), 1, rows, cols);
  EdgeMat<float> x(n, cols), got(n, rows), want(n, rows);
  x.Fill(random);
  const Packed packed(x.view(), ActFormatFor(GetParam(), ActKind::kF32), OneGroup(n));
  MatMulOp op{.x = packed.pack(), .w = w.view(), .bias = {}, .out = got.view(), .out_row = {}};
  RunShuffled(KernelNamed<MatMulOp>("blas"), op, 1);
  op.out = want.view();
  RunShuffled(KernelNamed<MatMulOp>("ref"), op, 1);
  ExpectClose(Mat<const float>(got.view()), Mat<const float>(want.view()),
              [](int64_t, int64_t, double v) { return 1e-4 * (1 + std::fabs(v)); });
  GatedMatMulOp gated{.x = packed.pack(), .gate = w.view(), .up = up.view(), .gate_bias = {}, .up_bias = {}, .out = got.view()};
  RunShuffled(KernelNamed<GatedMatMulOp>("blas"), gated, 1);
  gated.out = want.view();
  RunShuffled(KernelNamed<GatedMatMulOp>("ref"), gated, 1);
  ExpectClose(Mat<const float>(got.view()), Mat<const float>(want.view()),
              [](int64_t, int64_t, double v) { return 1e-3 * (1 + std::fabs(v)); });
  const Packed other(x.view(), ActFormatFor(GetParam(), KindsFor(GetParam()).back()), OneGroup(n));
  op.x = other.pack();
  EXPECT_EQ(KernelNamed<MatMulOp>("blas").unsupported(op) == nullptr, KindsFor(GetParam()).back() == ActKind::kF32);
}

// FLOPs that a block of 32 k of one output row takes beyond the useful 64, by hand. Targets with a u8 x s8 dot product take none in the
// product; a product of scales and a fused multiply-add are 3. Without: narrow integers' 16-bit sums are widened by 2 products and
// a sum; of 8-bit integers each of 8 steps takes 4 products and 2 sums, widens with 2 and 1, and adds 1: 10, not 8.
struct ByHand {
  DType type;
  uint64_t dot_scaling, products, scaling;  // with a dot product; without one
  uint64_t widening;                        // of an element, where activations are f32
};
constexpr ByHand kByHand[] = {
    {DType::kQ8_0, 3, 16, 3, 2},  // the offset, the scale
    {DType::kQ4_0, 3, 3, 3, 2},
    {DType::kQ5_0, 3, 3, 3, 2},
    {DType::kMXFP4, 3, 3, 3, 2},
    // Halves of a block are multiplied by their scales (2) and added (1); or widened by them (3 each) and added.
    {DType::kQ6_K, 6, 0, 10, 2},
    {DType::kQ3_K, 6, 0, 10, 2},
    // A minimum takes 2; f32 activations have it instead of the offset.
    {DType::kQ4_1, 5, 3, 5, 2},
    {DType::kQ4_K, 5, 3, 5, 2},
    // Sums of 16 bits hold half a block: each half is widened (3), and they are added.
    {DType::kQ5_1, 5, 7, 5, 2},
    {DType::kQ5_K, 5, 7, 5, 2},
    {DType::kQ2_K, 10, 0, 14, 2},
    {DType::kQ8_K, 3, 16, 3, 2},
    {DType::kIQ4_NL, 3, 16, 3, 2},
    {DType::kIQ4_XS, 3, 16, 3, 2},
};

TEST(MatMulExecuted, FollowsTheTarget) {
  Random random(26);
  std::vector<DType> known;
  for (const ByHand& hand : kByHand) {
    known.push_back(hand.type);
    const int64_t rows = 32, cols = 512;  // whole pairs of panels: no padding
    const Weight w(random, hand.type, 3, rows, cols);
    EdgeMat<float> x(7, cols), out(7, rows);
    x.Fill(random);
    for (const ActKind kind : {ActKind::kF32, ActKind::kInt8}) {
      ForEachTarget([&] {
        const Packed packed(x.view(), ActFormatFor(hand.type, kind), {{0, 3, 1}, {3, 0, 0}, {3, 4, 2}});
        const MatMulOp op{.x = packed.pack(), .w = w.view(), .bias = {}, .out = out.view(), .out_row = {}};
        SCOPED_TRACE(std::string(DTypeName(hand.type)) + " on " + std::string(HwyTargetName()));
        const bool dot = HwyTargetName() == "AMX" || HwyTargetName() == "AVX3_DL" || HwyTargetName() == "AVX3_ZEN4" ||
                         HwyTargetName() == "NEON_DOT" || HwyTargetName() == "NEON_I8MM" ||
                         (HwyTargetName() == "AVX2_VNNI" && ActFormatFor(hand.type, kind).sums == 1);
        const uint64_t blocks = static_cast<uint64_t>(rows * (cols / 32)), products = dot ? 0 : hand.products,
                       scaling = dot ? hand.dot_scaling : hand.scaling;
        Cost want = TotalUseful(op);
        if (kind == ActKind::kInt8) {
          want.AddFlops(WorkClass::kLinear, 7 * blocks * products, Arith::kInt8);
          want.AddFlops(WorkClass::kQuantize, 7 * blocks * scaling);
        } else {
          want.AddFlops(WorkClass::kQuantize, 2 * 32 * blocks * hand.widening);  // two groups have rows
        }
        EXPECT_EQ(TotalExecuted(KernelNamed<MatMulOp>("hwy"), op), want);
      });
    }
  }
  EXPECT_EQ(known.size(), QuantisedTypes().size()) << "every quantised type has a line here";
}

std::string TypeName(const testing::TestParamInfo<DType>& info) { return std::string(DTypeName(info.param)); }
INSTANTIATE_TEST_SUITE_P(Types, MatMulTest, testing::ValuesIn(kWeightTypes), TypeName);
INSTANTIATE_TEST_SUITE_P(Types, QuantisedMatMulTest, testing::ValuesIn(QuantisedTypes()), TypeName);

TEST(PackActTest, EveryTargetGivesTheReferencesBits) {
  Random random(16);
  SCOPED_TRACE(random.Trace());
  for (ActKind kind : {ActKind::kF32, ActKind::kBF16, ActKind::kInt8}) {
    for (int64_t cols : {32, 96, 544, 33}) {
      if (kind == ActKind::kInt8 && cols % 32 != 0) continue;
      EdgeMat<float> x(23, cols);
      x.Fill(random);
      for (int64_t c = 0; c < cols && c < 32; ++c) x.Row(3)[c] = 0;                        // a block of zeros
      for (int64_t c = 0; c < cols && c < 32; ++c) x.Row(7)[c] = c % 2 == 0 ? 1e-38f : 0;  // too small to divide 127 by
      x.Row(4)[1] = std::nanf("");
      x.Row(5)[2] = INFINITY;
      for (int64_t c = 0; c < cols; ++c) x.Row(6)[c] = static_cast<float>(c % 5) * 0.5f - 1;  // ties
      const std::vector<int32_t> index = {4, 5, 6, 3, 22, 0, 1, 7, 3, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20};
      const std::vector<RowGroup> groups = {{0, 3, 0}, {3, 0, 1}, {3, 17, 2}};
      for (const DType t : {DType::kMXFP4, DType::kQ6_K, DType::kQ4_K, DType::kQ2_K}) {
        if (t != DType::kMXFP4 && kind != ActKind::kInt8) continue;
        for (const bool smmla : {false, true})
          for (const bool amx : {false, true}) {
            ActFormat format = kind == ActKind::kInt8 ? ActFormatFor(t, kind) : ActFormat{.kind = kind};
            if ((amx && kind == ActKind::kF32) || (smmla && (amx || kind != ActKind::kInt8))) continue;
            format.amx = amx;
            format.smmla = smmla;
            auto pack = [&](std::string_view kernel) {
              std::vector<uint8_t> bytes(20 * ActRowBytes(format, cols) + 64, 0xEE);
              const PackActOp op{.x = x.view(), .row_index = index, .pack = {format, 20, cols, bytes.data(), groups}};
              EXPECT_TRUE(op.Validate().ok()) << op.Validate().message();
              RunShuffled(KernelNamed<PackActOp>(kernel), op, 9);
              return bytes;
            };
            const std::vector<uint8_t> want = pack("ref");
            EXPECT_EQ(want.back(), 0xEE);
            ForEachTarget(
                [&] { EXPECT_EQ(pack("hwy"), want) << "kind " << static_cast<int>(kind) << " cols " << cols << " amx " << amx; });
          }
      }
    }
  }
}

TEST(PackActTest, ReferenceDoesWhatIsCharged) {
  Random random(25);
  EdgeMat<float> x(5, 96);
  x.Fill(random);
  const std::vector<RowGroup> groups = OneGroup(5);
  for (const ActFormat& format : {ActFormatFor(DType::kMXFP4, ActKind::kInt8), ActFormatFor(DType::kQ6_K, ActKind::kInt8),
                                  ActFormatFor(DType::kQ4_K, ActKind::kInt8), ActFormatFor(DType::kQ2_K, ActKind::kInt8),
                                  ActFormat{.kind = ActKind::kInt8}, ActFormat{.kind = ActKind::kBF16}, ActFormat{}}) {
    std::vector<uint8_t> bytes(5 * ActRowBytes(format, 96) + 64);
    const PackActOp op{.x = x.view(), .row_index = {}, .pack = {format, 5, 96, bytes.data(), groups}};
    const OpCounts counted = CountOf([&] {
      for (int64_t r = 0; r < 5; ++r) PackRowReference<Counting>(op.pack, x.Row(r), bytes.data(), 5, r);
    });
    const Cost executed = TotalExecuted(KernelNamed<PackActOp>("ref"), op);
    EXPECT_EQ(counted.flops, executed.TotalFlops());
    EXPECT_EQ(counted.special, executed.TotalSpecial());
    EXPECT_EQ(TotalUseful(op).TotalFlops(), 0u);  // quantising is how it is done, not what is asked for
  }
}

TEST(PackActTest, QuantisesToNearestWithinHalfAStep) {
  Random random(17);
  SCOPED_TRACE(random.Trace());
  EdgeMat<float> x(8, 64);
  x.Fill(random, 3);
  const Packed packed(x.view(), ActFormatFor(DType::kQ8_0, ActKind::kInt8), OneGroup(8));
  const Packed four_bits(x.view(), ActFormatFor(DType::kMXFP4, ActKind::kInt8), OneGroup(8));
  const Packed halves(x.view(), ActFormatFor(DType::kQ6_K, ActKind::kInt8), OneGroup(8));
  const Packed with_minima(x.view(), ActFormatFor(DType::kQ2_K, ActKind::kInt8), OneGroup(8));
  for (int64_t r = 0; r < 8; ++r) {
    const PackedRow row(packed.pack(), packed.pack().groups[0], r), nibbles(four_bits.pack(), four_bits.pack().groups[0], r);
    for (int64_t k = 0; k < 64; ++k) {
      EXPECT_NEAR(row.Int8(k) * row.Scale(k / 32), x.Row(r)[k], row.Scale(k / 32) * 0.5001);
    }
    for (int64_t kb = 0; kb < 2; ++kb) {
      int sum = 0;
      for (int64_t k = 32 * kb; k < 32 * kb + 32; ++k) sum += row.Int8(k);
      EXPECT_EQ(row.Correction(kb), -128 * sum);
      int low = 0;  // k % 4 < 2
      for (int64_t k = 32 * kb; k < 32 * kb + 32; ++k) low += k % 4 < 2 ? nibbles.Int8(k) : 0;
      EXPECT_EQ(nibbles.PairCorrection(kb, 0), -12 * low);
      EXPECT_EQ(nibbles.PairCorrection(kb, 1), -12 * (sum - low));
      const PackedRow parts(halves.pack(), halves.pack().groups[0], r);
      for (int part = 0; part < 2; ++part) {
        int pair[2] = {};
        for (int64_t k = 0; k < 16; ++k) pair[k % 4 / 2] += parts.Int8(32 * kb + 16 * part + k);
        EXPECT_EQ(parts.Correction(kb, part), -32 * (pair[0] + pair[1]));
        for (int half : {0, 1}) EXPECT_EQ(parts.PairCorrection(kb, half, part), -32 * pair[half]);
        const PackedRow minima(with_minima.pack(), with_minima.pack().groups[0], r);
        EXPECT_EQ(minima.ScaledSum(kb, part), minima.Scale(kb) * static_cast<float>(pair[0] + pair[1]));
      }
    }
  }
}

TEST(MatMulValidation, NamesWhatIsWrong) {
  Random random(18);
  const Weight w(random, DType::kQ8_0, 1, 16, 64);
  EdgeMat<float> x(2, 64), out(2, 16);
  x.Fill(random);
  const Packed packed(x.view(), ActFormatFor(DType::kQ4_0, ActKind::kInt8), OneGroup(2));
  MatMulOp op{.x = packed.pack(), .w = w.view(), .bias = {}, .out = out.view(), .out_row = {}};
  EXPECT_FALSE(op.Validate().ok());  // packed for another offset
  const Packed good(x.view(), ActFormatFor(DType::kQ8_0, ActKind::kInt8), OneGroup(2));
  op.x = good.pack();
  EXPECT_TRUE(op.Validate().ok());
  op.out = out.view().Cols(0, 15);
  EXPECT_FALSE(op.Validate().ok());
  const std::vector<int32_t> bad = {0, 2};
  op.out = out.view();
  op.out_row = bad;
  EXPECT_FALSE(op.Validate().ok());
  op.out_row = {};
  op.out.data = nullptr;
  EXPECT_FALSE(op.Validate().ok());
  op.out = out.view();
  op.w.panel_stride -= 1;
  EXPECT_FALSE(op.Validate().ok());
}

}  // namespace
}  // namespace tally
