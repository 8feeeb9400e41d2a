// The weight formats' blocks: against ggml's bytes where the vectors are at hand, against their definitions, and at the edges.

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "engine/kernels/formats/mxfp4.h"
#include "engine/kernels/formats/q4_0.h"
#include "engine/kernels/formats/q5_0.h"
#include "engine/kernels/formats/q6_k.h"
#include "engine/kernels/formats/q8_0.h"

namespace tally {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity(), kNaN = std::numeric_limits<float>::quiet_NaN(),
                kMax = std::numeric_limits<float>::max(), kTiny = std::numeric_limits<float>::denorm_min();

template <class F>
using Values = std::array<float, GetDTypeInfo(F::kType).block_size>;

template <class F>
Values<F> Decoded(const typename F::Block& b) {
  Values<F> out;
  F::Decode(b, out.data());
  return out;
}

// Encoded and decoded.
template <class F>
Values<F> There(const Values<F>& x) {
  typename F::Block b;
  F::Encode(x.data(), nullptr, b);
  return Decoded<F>(b);
}

template <class T>
std::vector<T> ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  std::vector<T> out(bytes.size() / sizeof(T));
  std::memcpy(out.data(), bytes.data(), out.size() * sizeof(T));
  return out;
}

// Files of ggml's own quantiser, without importance weights.
template <class F>
void ExpectGgmlBytes(const std::string& format) {
  using Block = typename F::Block;
  constexpr size_t kBlock = std::tuple_size_v<Values<F>>;
  const std::string stem = std::string(TALLY_SOURCE_DIR) + "/../shared/quant-vectors/" + format + "_64_noim_";
  if (!std::filesystem::exists(stem + "input.bin")) GTEST_SKIP() << stem << "input.bin is absent";
  const auto input = ReadFile<float>(stem + "input.bin");
  const auto expected = ReadFile<Block>(stem + "expected.bin");
  ASSERT_EQ(input.size(), expected.size() * kBlock);
  ASSERT_GE(expected.size(), 4u);
  for (size_t i = 0; i < expected.size(); ++i) {
    Block b;
    F::Encode(&input[i * kBlock], nullptr, b);
    EXPECT_EQ(std::memcmp(&b, &expected[i], sizeof(Block)), 0) << "block " << i;
  }
}

// ggml's own blocks decode to values as near to its input as the format can come, and ours are no worse: both by the sum of squares.
TEST(Q6_K, ErrorIsNotAboveGgmls) {
  const std::string stem = std::string(TALLY_SOURCE_DIR) + "/../shared/quant-vectors/q6_k_512_noim_";
  if (!std::filesystem::exists(stem + "input.bin")) GTEST_SKIP() << stem << "input.bin is absent";
  const auto input = ReadFile<float>(stem + "input.bin");
  const auto ggml = ReadFile<BlockQ6_K>(stem + "expected.bin");
  ASSERT_EQ(input.size(), ggml.size() * 256);
  ASSERT_GE(ggml.size(), 2u);
  double squares = 0, theirs = 0, ours = 0;
  for (size_t i = 0; i < input.size(); i += 256) {
    Values<FormatQ6_K> x;
    std::copy_n(&input[i], 256, x.begin());
    const Values<FormatQ6_K> a = Decoded<FormatQ6_K>(ggml[i / 256]), b = There<FormatQ6_K>(x);
    for (size_t k = 0; k < 256; ++k) {
      const auto square = [](double v) { return v * v; };
      squares += square(x[k]);
      theirs += square(static_cast<double>(x[k]) - static_cast<double>(a[k]));
      ours += square(static_cast<double>(x[k]) - static_cast<double>(b[k]));
    }
  }
  EXPECT_LT(theirs, 1e-3 * squares) << "their bytes decode to something else";
  EXPECT_LE(ours, 1.02 * theirs);
  std::printf("Q6_K: error %.3g of the values, ggml's %.3g\n", std::sqrt(ours / squares), std::sqrt(theirs / squares));
}

// ggml-quants.c: q = (ql nibble) | (qh pair << 4), y = d * scale * (q - 32); elements 0, 32, 64 and 96 of each 128 share byte 0 of qh.
TEST(Q6_K, DecodesByDefinition) {
  BlockQ6_K b{};
  b.d = F32ToF16(0.25f);
  for (int s = 0; s < 16; ++s) b.scales[s] = static_cast<int8_t>(s == 3 ? -128 : 5 * s - 37);
  std::mt19937 random(3);
  for (uint8_t& q : b.ql) q = static_cast<uint8_t>(random());
  for (uint8_t& q : b.qh) q = static_cast<uint8_t>(random());
  const Values<FormatQ6_K> x = Decoded<FormatQ6_K>(b);
  for (int half = 0; half < 2; ++half) {
    const uint8_t *ql = b.ql + 64 * half, *qh = b.qh + 32 * half;
    for (int i = 0; i < 32; ++i) {
      const int q[4] = {(ql[i] & 15) | (qh[i] & 3) << 4, (ql[i + 32] & 15) | (qh[i] >> 2 & 3) << 4,
                        ql[i] >> 4 | (qh[i] >> 4 & 3) << 4, ql[i + 32] >> 4 | qh[i] >> 6 << 4};
      for (int n = 0; n < 4; ++n) {
        const int scale = b.scales[8 * half + 2 * n + i / 16];
        EXPECT_EQ(x[static_cast<size_t>(128 * half + 32 * n + i)], 0.25f * static_cast<float>(scale * (q[n] - 32)));
      }
    }
  }
}

// The bytes of a panel, as q6_k.h describes them.
TEST(Q6_K, PanelBytesStandWhereTheLayoutSays) {
  std::mt19937 random(6);
  std::vector<BlockQ6_K> stored(16 * 2);
  for (BlockQ6_K& b : stored) {
    for (size_t i = 0; i < sizeof(b); ++i) reinterpret_cast<uint8_t*>(&b)[i] = static_cast<uint8_t>(random());
  }
  std::vector<uint8_t> panel(PanelBytes(DType::kQ6_K, 512));
  ASSERT_EQ(panel.size(), sizeof(BlockQ6_K) * stored.size());
  FormatOf(DType::kQ6_K)
      .pack(512, 16, {.data = reinterpret_cast<uint8_t*>(stored.data()), .stride = 2 * sizeof(BlockQ6_K)}, panel.data());
  for (size_t row = 0; row < 16; ++row) {
    for (size_t k = 0; k < 512; ++k) {
      const BlockQ6_K& b = stored[2 * row + k / 256];
      const size_t part = k % 256 / 32, half = k % 32 / 16, step = k % 16 / 4, lane = 4 * row + k % 4;
      const uint8_t *block = &panel[k / 256 * 3360], *p = block + 32 + 416 * part;
      EXPECT_EQ(std::memcmp(block + 2 * row, &b.d, 2), 0);
      EXPECT_EQ(static_cast<int8_t>(p[16 * half + row]), b.scales[k % 256 / 16]);
      const int low = p[32 + 64 * step + lane] >> 4 * half & 15, high = p[288 + 64 * half + lane] >> 2 * step & 3;
      EXPECT_EQ((low | high << 4) - 32, FormatQ6_K::Quant(b, static_cast<int>(k % 256)));
    }
  }
}

TEST(Q8_0, GgmlBytes) { ExpectGgmlBytes<FormatQ8_0>("q8_0"); }
TEST(Q4_0, GgmlBytes) { ExpectGgmlBytes<FormatQ4_0>("q4_0"); }
TEST(Q5_0, GgmlBytes) { ExpectGgmlBytes<FormatQ5_0>("q5_0"); }

TEST(Q8_0, DecodesByDefinition) {
  BlockQ8_0 b{.d = F32ToF16(0.375f), .qs = {}};
  for (int i = 0; i < 32; ++i) b.qs[i] = static_cast<int8_t>(i * 8 - 128);
  const Values<FormatQ8_0> x = Decoded<FormatQ8_0>(b);
  for (int i = 0; i < 32; ++i) EXPECT_EQ(x[i], 0.375f * static_cast<float>(i * 8 - 128));
}

TEST(Q4_0, DecodesByDefinition) {
  BlockQ4_0 b{.d = F32ToF16(-2.5f), .qs = {}};
  for (int j = 0; j < 16; ++j) b.qs[j] = static_cast<uint8_t>(j | (15 - j) << 4);
  const Values<FormatQ4_0> x = Decoded<FormatQ4_0>(b);
  for (int j = 0; j < 16; ++j) {
    EXPECT_EQ(x[j], -2.5f * static_cast<float>(j - 8));
    EXPECT_EQ(x[j + 16], -2.5f * static_cast<float>(7 - j));
  }
}

// OCP Microscaling Formats v1.0, table of E2M1 values.
TEST(MXFP4, DecodesByDefinition) {
  const float kE2M1[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  for (int e = 0; e < 255; ++e) {
    BlockMXFP4 b{.e = static_cast<uint8_t>(e), .qs = {}};
    for (int j = 0; j < 16; ++j) b.qs[j] = static_cast<uint8_t>(j | (15 - j) << 4);
    const Values<FormatMXFP4> x = Decoded<FormatMXFP4>(b);
    for (int j = 0; j < 16; ++j) {
      const double magnitude = std::ldexp(static_cast<double>(kE2M1[j % 8]), e - 127);
      EXPECT_EQ(x[j], static_cast<float>(j < 8 ? magnitude : -magnitude)) << e;
      EXPECT_EQ(x[31 - j], x[j]) << e;
    }
  }
  for (const float x : Decoded<FormatMXFP4>(BlockMXFP4{.e = kE8M0NaN, .qs = {}})) EXPECT_TRUE(std::isnan(x));
}

// What a format can hold is held exactly, and is what encoding what was decoded gives again.
TEST(Blocks, ValuesOfTheFormatStay) {
  Values<FormatQ8_0> eighths, codes;
  for (int i = 0; i < 32; ++i) eighths[i] = static_cast<float>(i - 16) * 8 - (i == 0 ? -1 : 0);  // -127, -120 .. 120
  EXPECT_EQ(There<FormatQ8_0>(eighths), eighths);
  for (int i = 0; i < 32; ++i) codes[i] = 0.25f * static_cast<float>(i % 16 - 8);
  EXPECT_EQ(There<FormatQ4_0>(codes), codes);
  for (int i = 0; i < 32; ++i) codes[i] = 0.125f * static_cast<float>(kE2M1Doubled[i % 16]);
  EXPECT_EQ(There<FormatMXFP4>(codes), codes);
  const Values<FormatQ8_0> zero{};
  EXPECT_EQ(There<FormatQ8_0>(zero), zero);
  EXPECT_EQ(There<FormatQ4_0>(zero), zero);
  EXPECT_EQ(There<FormatMXFP4>(zero), zero);
  Values<FormatQ6_K> sixths;  // scales of -128 and less, each 16 values with the largest that their scale has
  for (int i = 0; i < 256; ++i) sixths[i] = 0.125f * static_cast<float>(i / 16 * 8 - 128) * static_cast<float>(i % 16 * 4 - 32);
  EXPECT_EQ(There<FormatQ6_K>(sixths), sixths);
  EXPECT_EQ(There<FormatQ6_K>({}), Values<FormatQ6_K>{});
}

template <class F>
void ExpectErrorWithin(float part, float scale, std::mt19937& random) {
  Values<F> x;
  float amax = 0;
  std::normal_distribution<float> normal(0, scale);
  for (float& v : x) v = normal(random), amax = std::max(amax, std::fabs(v));
  const Values<F> y = There<F>(x);
  for (size_t i = 0; i < x.size(); ++i) EXPECT_LE(std::fabs(x[i] - y[i]), part * amax) << x[i] << " became " << y[i];
}

TEST(Blocks, ErrorsStayWithinAStep) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 200; ++round) {
    const float scale = std::ldexp(1.0f, static_cast<int>(random() % 10) - 2);  // scales stay normal in f16
    ExpectErrorWithin<FormatQ8_0>(0.5f / 127 + 1e-3f, scale, random);           // half a step, and the scale's own rounding
    ExpectErrorWithin<FormatQ4_0>(1.0f / 8 + 1e-3f, scale, random);             // 7 steps to one side, 8 to the other
    ExpectErrorWithin<FormatMXFP4>(0.25f + 1e-6f, scale, random);               // up to 8 goes to 6
  }
}

template <class F>
void ExpectEdges() {
  for (const float bad : {kInf, -kInf, kNaN, -kNaN}) {
    for (const int at : {0, 15, 16, 31}) {
      for (const float others : {0.0f, 1.0f, kMax}) {
        Values<F> x;
        x.fill(others);
        x[static_cast<size_t>(at)] = bad;
        for (const float y : There<F>(x)) EXPECT_TRUE(std::isnan(y)) << bad << " at " << at;
      }
    }
  }
  // So small that 1 / scale overflows, or so large that the scale does.
  for (const float value : {kTiny, 1e-44f, 1e-40f, 1e-38f, 3e38f, kMax}) {
    for (const float sign : {1.0f, -1.0f}) {
      Values<F> x{};
      x[3] = sign * value;
      x[20] = sign * value / 2;
      const Values<F> y = There<F>(x);  // the sanitizers look on
      if (value < 1) {
        EXPECT_LE(std::fabs(y[3]), 2e-38f);
      }
    }
  }
}

TEST(Q8_0, Edges) { ExpectEdges<FormatQ8_0>(); }
TEST(Q4_0, Edges) { ExpectEdges<FormatQ4_0>(); }
TEST(Q6_K, Edges) { ExpectEdges<FormatQ6_K>(); }
TEST(MXFP4, Edges) {
  ExpectEdges<FormatMXFP4>();
  Values<FormatMXFP4> x{};
  x[0] = kMax;  // the largest exponent there is: nothing overflows
  EXPECT_EQ(There<FormatMXFP4>(x)[0], std::ldexp(6.0f, 125));
  x[0] = std::ldexp(1.0f, -126);
  EXPECT_EQ(There<FormatMXFP4>(x)[0], x[0]);
}

// The bytes of a panel, as the formats' headers describe them.
TEST(Panels, BytesStandWhereTheLayoutSays) {
  std::mt19937 random(5);
  for (const DType t : {DType::kQ8_0, DType::kQ4_0, DType::kMXFP4}) {
    const size_t block = GetDTypeInfo(t).block_bytes, scale = t == DType::kMXFP4 ? 1 : 2, steps = (block - scale) / 4;
    std::vector<uint8_t> stored(16 * 2 * block), panel(PanelBytes(t, 64));
    ASSERT_EQ(panel.size(), stored.size());
    for (uint8_t& b : stored) b = static_cast<uint8_t>(random());
    FormatOf(t).pack(64, 16, {.data = stored.data(), .stride = 2 * block}, panel.data());
    const uint8_t flip = t == DType::kQ8_0 ? 0x80 : 0;
    for (size_t row = 0; row < 16; ++row) {
      for (size_t b = 0; b < 2; ++b) {
        const uint8_t *from = &stored[(2 * row + b) * block], *to = &panel[16 * b * block];
        for (size_t i = 0; i < scale; ++i) EXPECT_EQ(to[row * scale + i], from[i]) << DTypeName(t);
        for (size_t i = 0; i < 4 * steps; ++i) {
          EXPECT_EQ(to[16 * scale + i / 4 * 64 + row * 4 + i % 4], from[scale + i] ^ flip) << DTypeName(t);
        }
      }
    }
  }
}

// Types that no matrix has are no formats, and none is guessed for them.
TEST(WeightFormats, AreThoseOfTheListAndNoOthers) {
  for (const DType t : kWeightTypes) {
    const WeightFormat* f = FindWeightFormat(t);
    ASSERT_NE(f, nullptr) << DTypeName(t);
    size_t row = 0;
    for (const uint8_t bytes : f->strips) row += bytes;
    EXPECT_EQ(f->panel_block_bytes, 16 * row) << DTypeName(t);
    EXPECT_EQ(PanelBytes(t, 256), 16 * *StoredBytes(t, 256)) << DTypeName(t);  // packed is as large as stored
    EXPECT_EQ(f->act == ActKind::kInt8, GetDTypeInfo(t).quantised);
  }
  for (const DType t : {DType::kF64, DType::kI8, DType::kU8, DType::kBOOL}) {
    EXPECT_FALSE(IsWeightType(t));
    EXPECT_EQ(FindWeightFormat(t), nullptr) << DTypeName(t);
    EXPECT_EQ(PanelBytes(t, 64), 0u);
    EXPECT_EQ(ActFormatFor(t, ActKind::kInt8), ActFormat{.kind = ActKind::kInt8});
  }
}

}  // namespace
}  // namespace tally
