// SPDX-License-Identifier: Apache-2.0
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

#include "engine/kernels/formats/fp8.h"
#include "engine/kernels/formats/iq4_nl.h"
#include "engine/kernels/formats/iq4_xs.h"
#include "engine/kernels/formats/mxfp4.h"
#include "engine/kernels/formats/q2_k.h"
#include "engine/kernels/formats/q3_k.h"
#include "engine/kernels/formats/q4_0.h"
#include "engine/kernels/formats/q4_1.h"
#include "engine/kernels/formats/q4_k.h"
#include "engine/kernels/formats/q5_0.h"
#include "engine/kernels/formats/q5_1.h"
#include "engine/kernels/formats/q5_k.h"
#include "engine/kernels/formats/q6_k.h"
#include "engine/kernels/formats/q8_0.h"
#include "engine/kernels/formats/q8_k.h"
#include "engine/kernels/op.h"
#include "tests/support/stored_weights.h"

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

// ggml's own blocks decode to values as near to its input as the format can come (`within`, of the values), and ours are no worse: by
// the sum of squares.
template <class F>
void ExpectErrorNotAboveGgmls(const std::string& files, double within) {
  using Block = typename F::Block;
  constexpr size_t kBlock = std::tuple_size_v<Values<F>>;
  const std::string stem = std::string(TALLY_SOURCE_DIR) + "/../shared/quant-vectors/" + files + "_noim_";
  if (!std::filesystem::exists(stem + "input.bin")) GTEST_SKIP() << stem << "input.bin is absent";
  const auto input = ReadFile<float>(stem + "input.bin");
  const auto ggml = ReadFile<Block>(stem + "expected.bin");
  ASSERT_EQ(input.size(), ggml.size() * kBlock);
  ASSERT_GE(ggml.size(), 2u);
  double squares = 0, theirs = 0, ours = 0;
  for (size_t i = 0; i < input.size(); i += kBlock) {
    Values<F> x;
    std::copy_n(&input[i], kBlock, x.begin());
    const Values<F> a = Decoded<F>(ggml[i / kBlock]), b = There<F>(x);
    for (size_t k = 0; k < kBlock; ++k) {
      const auto square = [](double v) { return v * v; };
      squares += square(x[k]);
      theirs += square(static_cast<double>(x[k]) - static_cast<double>(a[k]));
      ours += square(static_cast<double>(x[k]) - static_cast<double>(b[k]));
    }
  }
  EXPECT_LT(theirs, within * within * squares) << "their bytes decode to something else";
  EXPECT_LE(ours, 1.02 * theirs);
  std::printf("%s: error %.3g of the values, ggml's %.3g\n", files.c_str(), std::sqrt(ours / squares),
              std::sqrt(theirs / squares));
}

TEST(IQ4_NL, ErrorIsNotAboveGgmls) { ExpectErrorNotAboveGgmls<FormatIQ4_NL>("iq4_nl_64", 0.1); }
TEST(Q2_K, ErrorIsNotAboveGgmls) { ExpectErrorNotAboveGgmls<FormatQ2_K>("q2_k_512", 0.4); }
TEST(Q3_K, ErrorIsNotAboveGgmls) { ExpectErrorNotAboveGgmls<FormatQ3_K>("q3_k_512", 0.2); }
TEST(Q4_K, ErrorIsNotAboveGgmls) { ExpectErrorNotAboveGgmls<FormatQ4_K>("q4_k_512", 0.1); }
TEST(Q5_K, ErrorIsNotAboveGgmls) { ExpectErrorNotAboveGgmls<FormatQ5_K>("q5_k_512", 0.05); }
TEST(Q6_K, ErrorIsNotAboveGgmls) { ExpectErrorNotAboveGgmls<FormatQ6_K>("q6_k_512", 0.03); }

// scaling_multiplies against what the kernels say that they execute: a multiply is one FLOP, an fma two. Adding two halves is the one
// FLOP that is no multiply.
TEST(Formats, ScalingMultipliesAreThoseOfTheKernels) {
  if (!HwyTargetHasInt8Dot() || HwyTargetName() == "AVX2_VNNI") GTEST_SKIP() << "other instructions scale here";
  int compared = 0;
  for (const DType type : kWeightTypes) {
    const WeightFormat& f = FormatOf(type);
    if (f.act != ActKind::kInt8) continue;
    constexpr int64_t kCols = 512;
    const uint64_t blocks = kCols / kInt8Block, fmas = 1 + static_cast<uint64_t>(f.int8.minimum_sums());
    // The kernels are charged as if scales that are powers of two were multiplied.
    const uint64_t multiplies = static_cast<uint64_t>(f.scaling_multiplies()) + (f.powers_of_2 ? 1 : 0);
    const ExecutedCost executed = f.kernels().executed(ActKind::kInt8, kCols);
    EXPECT_EQ(executed.scaling, blocks * (multiplies + fmas + (f.int8.sums > 1 ? 1 : 0))) << DTypeName(type);
    EXPECT_EQ(executed.products, 0u) << DTypeName(type);
    ++compared;
  }
  EXPECT_GT(compared, 10);
}

// A block of random bits, its floating-point numbers of a moderate size.
template <class F>
typename F::Block RandomBlock(std::mt19937& random) {
  typename F::Block b;
  uint8_t* bytes = reinterpret_cast<uint8_t*>(&b);
  for (size_t i = 0; i < sizeof(b); ++i) bytes[i] = static_cast<uint8_t>(random());
  const ScaleField scale = ScaleOf(F::kType);
  std::uniform_real_distribution<float> size(-2.0f, 2.0f);
  for (size_t h = 0; h < scale.halves(); ++h) PutHalf(F32ToF16(size(random)), bytes + scale.at + 2 * h);
  if (scale.f32) b = {}, F::Encode(Values<F>{1, -2, 3.5f}.data(), nullptr, b);
  return b;
}

// value(block, i): element i by the definition in ggml-quants.c (dequantize_row_*), in its own order of operations.
template <class F, class Definition>
void ExpectDefinition(const Definition& value) {
  std::mt19937 random(3);
  for (int round = 0; round < 20; ++round) {
    const typename F::Block b = RandomBlock<F>(random);
    const Values<F> x = Decoded<F>(b);
    for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(x[i], value(b, i)) << "element " << i;
  }
}
float Half(uint16_t bits) { return F16ToF32(bits); }

TEST(Q4_1, DecodesByDefinition) {
  ExpectDefinition<FormatQ4_1>([](const BlockQ4_1& b, size_t i) {
    const int q = i < 16 ? b.qs[i] & 15 : b.qs[i - 16] >> 4;
    return static_cast<float>(q) * Half(b.d) + Half(b.m);
  });
}
TEST(Q5_0, DecodesByDefinition) {
  ExpectDefinition<FormatQ5_0>([](const BlockQ5_0& b, size_t i) {
    uint32_t high;
    std::memcpy(&high, b.qh, 4);
    const int q = static_cast<int>((i < 16 ? b.qs[i] & 15u : b.qs[i - 16] >> 4) | (high >> i & 1) << 4);
    return static_cast<float>(q - 16) * Half(b.d);
  });
}
TEST(Q5_1, DecodesByDefinition) {
  ExpectDefinition<FormatQ5_1>([](const BlockQ5_1& b, size_t i) {
    uint32_t high;
    std::memcpy(&high, b.qh, 4);
    const int q = static_cast<int>((i < 16 ? b.qs[i] & 15u : b.qs[i - 16] >> 4) | (high >> i & 1) << 4);
    return static_cast<float>(q) * Half(b.d) + Half(b.m);
  });
}
TEST(Q2_K, DecodesByDefinition) {
  ExpectDefinition<FormatQ2_K>([](const BlockQ2_K& b, size_t i) {
    const uint8_t scale = b.scales[i / 16];
    const int q = b.qs[32 * (i / 128) + i % 32] >> (2 * (i % 128 / 32)) & 3;
    return Half(b.d) * static_cast<float>(scale & 15) * static_cast<float>(q) - Half(b.dmin) * static_cast<float>(scale >> 4);
  });
}
// The 12 bytes unpack as four words (aux) with masks, 8 bits a scale.
TEST(Q3_K, DecodesByDefinition) {
  ExpectDefinition<FormatQ3_K>([](const BlockQ3_K& b, size_t i) {
    uint32_t in[3], aux[4];
    std::memcpy(in, b.scales, 12);
    constexpr uint32_t kLow = 0x0f0f0f0f, kPair = 0x03030303;
    aux[0] = (in[0] & kLow) | (in[2] & kPair) << 4;
    aux[1] = (in[1] & kLow) | (in[2] >> 2 & kPair) << 4;
    aux[2] = (in[0] >> 4 & kLow) | (in[2] >> 4 & kPair) << 4;
    aux[3] = (in[1] >> 4 & kLow) | (in[2] >> 6 & kPair) << 4;
    const int scale = static_cast<int>(aux[i / 16 / 4] >> 8 * (i / 16 % 4) & 255) - 32;
    const int q = (b.qs[32 * (i / 128) + i % 32] >> (2 * (i % 128 / 32)) & 3) - ((b.hmask[i % 32] & 1 << i / 32) != 0 ? 0 : 4);
    return Half(b.d) * static_cast<float>(scale) * static_cast<float>(q);
  });
}
void ScaleAndMinimum(const uint8_t* s, size_t j, int& scale, int& minimum) {
  scale = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
  minimum = j < 4 ? s[j + 4] & 63 : s[j + 4] >> 4 | (s[j] >> 6) << 4;
}
TEST(Q4_K, DecodesByDefinition) {
  ExpectDefinition<FormatQ4_K>([](const BlockQ4_K& b, size_t i) {
    int scale, minimum;
    ScaleAndMinimum(b.scales, i / 32, scale, minimum);
    const uint8_t byte = b.qs[32 * (i / 64) + i % 32];
    const int q = i % 64 < 32 ? byte & 15 : byte >> 4;
    return Half(b.d) * static_cast<float>(scale) * static_cast<float>(q) - Half(b.dmin) * static_cast<float>(minimum);
  });
}
TEST(Q5_K, DecodesByDefinition) {
  ExpectDefinition<FormatQ5_K>([](const BlockQ5_K& b, size_t i) {
    int scale, minimum;
    ScaleAndMinimum(b.scales, i / 32, scale, minimum);
    const uint8_t byte = b.qs[32 * (i / 64) + i % 32];
    const int q = (i % 64 < 32 ? byte & 15 : byte >> 4) + ((b.qh[i % 32] & 1 << i / 32) != 0 ? 16 : 0);
    return Half(b.d) * static_cast<float>(scale) * static_cast<float>(q) - Half(b.dmin) * static_cast<float>(minimum);
  });
}
// Elements 0, 32, 64 and 96 of each 128 share byte 0 of qh.
TEST(Q6_K, DecodesByDefinition) {
  ExpectDefinition<FormatQ6_K>([](const BlockQ6_K& b, size_t i) {
    const uint8_t *ql = b.ql + 64 * (i / 128), *qh = b.qh + 32 * (i / 128);
    const size_t l = i % 32, n = i % 128 / 32;
    const int q[4] = {(ql[l] & 15) | (qh[l] & 3) << 4, (ql[l + 32] & 15) | (qh[l] >> 2 & 3) << 4,
                      ql[l] >> 4 | (qh[l] >> 4 & 3) << 4, ql[l + 32] >> 4 | qh[l] >> 6 << 4};
    return Half(b.d) * static_cast<float>(b.scales[8 * (i / 128) + 2 * n + l / 16]) * static_cast<float>(q[n] - 32);
  });
}
TEST(Q8_K, DecodesByDefinition) {
  ExpectDefinition<FormatQ8_K>([](const BlockQ8_K& b, size_t i) { return b.d * static_cast<float>(b.qs[i]); });
}
constexpr int kIq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
TEST(IQ4_NL, DecodesByDefinition) {
  ExpectDefinition<FormatIQ4_NL>([](const BlockIQ4_NL& b, size_t i) {
    return Half(b.d) * static_cast<float>(kIq4[i < 16 ? b.qs[i] & 15 : b.qs[i - 16] >> 4]);
  });
}
TEST(IQ4_XS, DecodesByDefinition) {
  ExpectDefinition<FormatIQ4_XS>([](const BlockIQ4_XS& b, size_t i) {
    const size_t part = i / 32, l = i % 32;
    const int high = b.scales_h[0] | b.scales_h[1] << 8;
    const int scale = ((b.scales_l[part / 2] >> 4 * (part % 2) & 15) | (high >> 2 * part & 3) << 4) - 32;
    const uint8_t* qs = b.qs + 16 * part;
    return Half(b.d) * static_cast<float>(scale) * static_cast<float>(kIq4[l < 16 ? qs[l] & 15 : qs[l - 16] >> 4]);
  });
}

// The bytes of a panel, as integer_format.h describes them: the head in strips of 2, 2 and single bytes, then planes.
template <class F>
void ExpectPanelBytes() {
  constexpr IntegerShape kS = F::kShape;
  constexpr size_t kHead = kS.head, kElements = kS.elements, kBits = kS.bits, kBlock = 16 * (kHead + kElements / 8 * kBits);
  std::mt19937 random(6);
  std::vector<typename F::Block> stored(16 * 2);
  for (auto& b : stored) b = RandomBlock<F>(random);
  std::vector<uint8_t> panel(PanelBytes(F::kType, 2 * kElements));
  ASSERT_EQ(panel.size(), 2 * kBlock);
  FormatOf(F::kType).pack(2 * kElements, 16,
                          {.data = reinterpret_cast<uint8_t*>(stored.data()), .stride = 2 * sizeof(typename F::Block)},
                          panel.data());
  for (size_t row = 0; row < 16; ++row) {
    for (size_t k = 0; k < 2 * kElements; ++k) {
      const auto& b = stored[2 * row + k / kElements];
      const uint8_t *block = &panel[k / kElements * kBlock], *planes = block + 16 * kHead + k % kElements / 32 * 64 * kBits;
      uint8_t head[kHead];
      F::Head(b, head);
      const size_t halves = kS.minima ? 2 : 1;
      for (size_t h = 0; h < halves; ++h) ASSERT_EQ(std::memcmp(block + 32 * h + 2 * row, head + 2 * h, 2), 0);
      for (size_t i = 2 * halves; i < kHead; ++i) ASSERT_EQ(block[16 * i + row], head[i]);
      const size_t step = k % 32 / 4, lane = 4 * row + k % 4;
      int q = 0;
      size_t strip = 0;
      const size_t low = kBits >= 4 ? 4 : 0;  // bits of the nibbles
      if (kBits == 2 || kBits == 3 || kBits == 6) q |= (planes[64 * (step / 4) + lane] >> 2 * (step % 4) & 3) << low, strip = 2;
      if (kBits == 3 || kBits == 5) q |= (planes[64 * strip + lane] >> step & 1) << (low + strip), ++strip;
      if (kBits >= 4) q |= planes[64 * (strip + step % 4) + lane] >> 4 * (step / 4) & 15;
      ASSERT_EQ(q, F::Code(b, static_cast<int>(k % kElements))) << DTypeName(F::kType) << " k " << k;
    }
  }
}
TEST(Panels, OfIntegersStandWhereTheLayoutSays) {
  ExpectPanelBytes<FormatQ4_1>();
  ExpectPanelBytes<FormatQ5_0>();
  ExpectPanelBytes<FormatQ5_1>();
  ExpectPanelBytes<FormatQ2_K>();
  ExpectPanelBytes<FormatQ3_K>();
  ExpectPanelBytes<FormatQ4_K>();
  ExpectPanelBytes<FormatQ5_K>();
  ExpectPanelBytes<FormatQ6_K>();
  ExpectPanelBytes<FormatIQ4_NL>();
  ExpectPanelBytes<FormatIQ4_XS>();
}

TEST(Q8_0, GgmlBytes) { ExpectGgmlBytes<FormatQ8_0>("q8_0"); }
TEST(Q4_0, GgmlBytes) { ExpectGgmlBytes<FormatQ4_0>("q4_0"); }
TEST(Q4_1, GgmlBytes) { ExpectGgmlBytes<FormatQ4_1>("q4_1"); }
TEST(Q5_0, GgmlBytes) { ExpectGgmlBytes<FormatQ5_0>("q5_0"); }
TEST(Q5_1, GgmlBytes) { ExpectGgmlBytes<FormatQ5_1>("q5_1"); }

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

// IQ4_NL searches for the scale with the least sum of squares, so a single value may be far off. The scale that gives the value of
// largest magnitude the level -127 is among those tried. The scale chosen is then rounded to f16, which adds at most 2^-11 |x|.
void ExpectNoWorseThanThePlainScale(float deviation, std::mt19937& random) {
  Values<FormatIQ4_NL> x;
  std::normal_distribution<float> normal(0, deviation);
  for (float& v : x) v = normal(random);
  const Values<FormatIQ4_NL> y = There<FormatIQ4_NL>(x);
  const double plain = static_cast<double>(Extreme(x.data(), 32)) / -127;
  double squares = 0, error = 0, plain_error = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double v = static_cast<double>(x[i]);
    double nearest = INFINITY;
    for (const int8_t level : kIq4Values) nearest = std::min(nearest, std::fabs(v - plain * level));
    squares += v * v;
    error += (v - static_cast<double>(y[i])) * (v - static_cast<double>(y[i]));
    plain_error += nearest * nearest;
  }
  EXPECT_LE(std::sqrt(error), std::sqrt(plain_error) + (0x1p-11 + 1e-5) * std::sqrt(squares));
}

TEST(Blocks, ErrorsStayWithinAStep) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 200; ++round) {
    const float scale = std::ldexp(1.0f, static_cast<int>(random() % 10) - 2);  // scales stay normal in f16
    ExpectErrorWithin<FormatQ8_0>(0.5f / 127 + 1e-3f, scale, random);           // half a step, and the scale's own rounding
    ExpectErrorWithin<FormatQ4_0>(1.0f / 8 + 1e-3f, scale, random);             // 7 steps to one side, 8 to the other
    // Half a step of at most twice the largest value; rounding to f16 moves the minimum by 2^-11 of it, the steps' sum by twice that.
    ExpectErrorWithin<FormatQ4_1>(1.0f / 15 + 1.5e-3f, scale, random);
    ExpectErrorWithin<FormatQ5_1>(1.0f / 31 + 1.5e-3f, scale, random);
    ExpectErrorWithin<FormatQ5_0>(1.0f / 16 + 1e-3f, scale, random);
    ExpectErrorWithin<FormatQ8_K>(0.5f / 127 + 1e-6f, scale, random);
    ExpectErrorWithin<FormatMXFP4>(0.25f + 1e-6f, scale, random);  // up to 8 goes to 6
    ExpectNoWorseThanThePlainScale(scale, random);
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
TEST(Q4_1, Edges) { ExpectEdges<FormatQ4_1>(); }
TEST(Q5_0, Edges) { ExpectEdges<FormatQ5_0>(); }
TEST(Q5_1, Edges) { ExpectEdges<FormatQ5_1>(); }
TEST(Q2_K, Edges) { ExpectEdges<FormatQ2_K>(); }
TEST(Q3_K, Edges) { ExpectEdges<FormatQ3_K>(); }
TEST(Q4_K, Edges) { ExpectEdges<FormatQ4_K>(); }
TEST(Q5_K, Edges) { ExpectEdges<FormatQ5_K>(); }
TEST(Q6_K, Edges) { ExpectEdges<FormatQ6_K>(); }
TEST(Q8_K, Edges) { ExpectEdges<FormatQ8_K>(); }
TEST(IQ4_NL, Edges) { ExpectEdges<FormatIQ4_NL>(); }
TEST(IQ4_XS, Edges) { ExpectEdges<FormatIQ4_XS>(); }
TEST(MXFP4, Edges) {
  ExpectEdges<FormatMXFP4>();
  Values<FormatMXFP4> x{};
  x[0] = kMax;  // the largest exponent there is: nothing overflows
  EXPECT_EQ(There<FormatMXFP4>(x)[0], std::ldexp(6.0f, 125));
  x[0] = std::ldexp(1.0f, -126);
  EXPECT_EQ(There<FormatMXFP4>(x)[0], x[0]);
}

// OCP 8-bit Floating Point Specification v1.0, table 1: bias 7, no infinity, S.1111.111 is NaN.
TEST(FP8, DecodesByDefinition) {
  for (int code = 0; code < 256; ++code) {
    const int exponent = code >> 3 & 15, mantissa = code & 7;
    const float sign = code < 128 ? 1 : -1;
    const float want = exponent == 0 ? std::ldexp(static_cast<float>(mantissa) / 8, -6)
                                     : std::ldexp(1 + static_cast<float>(mantissa) / 8, exponent - 7);
    const float got = E4M3ToF32(static_cast<uint8_t>(code));
    if ((code & 127) == 127) {
      EXPECT_TRUE(std::isnan(got));
      EXPECT_EQ(F32ToE4M3(kNaN), 0x7f);
      continue;
    }
    EXPECT_EQ(got, sign * want) << code;
    EXPECT_EQ(std::signbit(got), code >= 128) << code;
    EXPECT_EQ(F32ToE4M3(got), code);
    EXPECT_EQ(BF16ToF32(F32ToBF16(got)), got) << "not exact in bf16";
  }
  EXPECT_EQ(E4M3ToF32(0x7e), 448.0f);
  EXPECT_EQ(E4M3ToF32(0x01), 0x1p-9f);
}

// To the nearest, ties to the even code; beyond the largest, the largest.
TEST(FP8, EncodesToTheNearest) {
  for (int code = 0; code < 126; ++code) {
    const float low = E4M3ToF32(static_cast<uint8_t>(code)), high = E4M3ToF32(static_cast<uint8_t>(code + 1)),
                middle = (low + high) / 2;
    EXPECT_EQ(F32ToE4M3(std::nextafter(middle, 0.0f)), code);
    EXPECT_EQ(F32ToE4M3(middle), code + code % 2);
    EXPECT_EQ(F32ToE4M3(-std::nextafter(middle, kInf)), code + 1 + 128);
  }
  EXPECT_EQ(F32ToE4M3(kInf), 0x7e);
  EXPECT_EQ(F32ToE4M3(-500), 0xfe);
  Values<FormatFP8> x{};
  EXPECT_EQ(There<FormatFP8>(x), x);
  x[5] = 7, x[100] = -3.5f;
  const Values<FormatFP8> y = There<FormatFP8>(x);
  EXPECT_FLOAT_EQ(y[5], 7);
  EXPECT_FLOAT_EQ(y[100], -3.5f);
  x[9] = kInf;
  for (const float v : There<FormatFP8>(x)) EXPECT_TRUE(std::isnan(v));
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
    if (t != DType::kQ8_K) {  // packed is as large as stored; Q8_K's sums are not packed
      EXPECT_EQ(PanelBytes(t, 256), 16 * *StoredBytes(t, 256)) << DTypeName(t);
    }
    EXPECT_EQ(f->act == ActKind::kInt8, GetDTypeInfo(t).quantised && t != DType::kFP8);
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
