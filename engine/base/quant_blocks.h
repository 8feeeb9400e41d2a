// Quantised blocks as GGUF stores them (ggml's published block formats; MXFP4: OCP Microscaling Formats v1.0, E2M1 with
// an E8M0 scale). Each has a scalar Decode; Encode is the field's usual round-to-nearest choice. No format can hold infinities or
// NaN among other values: a block with one gets a scale of NaN, so that it decodes to NaN and not to numbers that look sound.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "engine/base/float16.h"

namespace tally {

inline constexpr int kQuantBlock = 32;
inline constexpr uint16_t kF16NaN = 0x7e00;
inline constexpr uint8_t kE8M0NaN = 255;

struct BlockQ8_0 {  // x[i] = d * qs[i]
  uint16_t d;       // f16 bits
  int8_t qs[32];
};
static_assert(sizeof(BlockQ8_0) == 34);

struct BlockQ4_0 {  // x[i] = d * (q[i] - 8); qs[j] holds element j in its low and element j + 16 in its high nibble
  uint16_t d;       // f16 bits
  uint8_t qs[16];
};
static_assert(sizeof(BlockQ4_0) == 18);

struct BlockMXFP4 {  // x[i] = 2^(e - 127) * kE2M1[q[i]]; nibbles as in Q4_0
  uint8_t e;         // E8M0 scale; 255 (kE8M0NaN) is NaN
  uint8_t qs[16];
};
static_assert(sizeof(BlockMXFP4) == 17);

// Twice the value of each E2M1 code, so that all are integers: 0 .5 1 1.5 2 3 4 6 and their negatives.
inline constexpr int8_t kE2M1Doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// 2^(e - 127) as f32: e = 0 gives the subnormal 2^-127, e = 255 NaN.
inline float E8M0ToF32(uint8_t e) {
  if (e == 0) return std::bit_cast<float>(0x00400000u);
  if (e == kE8M0NaN) return std::bit_cast<float>(0x7fc00000u);
  return std::bit_cast<float>(static_cast<uint32_t>(e) << 23);
}

inline int Nibble(const uint8_t (&qs)[16], int i) { return i < 16 ? qs[i] & 15 : qs[i - 16] >> 4; }

inline void Decode(const BlockQ8_0& b, float* out) {
  const float d = F16ToF32(b.d);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(b.qs[i]);
}

inline void Decode(const BlockQ4_0& b, float* out) {
  const float d = F16ToF32(b.d);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(Nibble(b.qs, i) - 8);
}

inline void Decode(const BlockMXFP4& b, float* out) {
  const float half = 0.5f, d = E8M0ToF32(b.e);
  for (int i = 0; i < 32; ++i) out[i] = d * (half * static_cast<float>(kE2M1Doubled[Nibble(b.qs, i)]));
}

inline bool BlockIsFinite(const float* x) {
  return std::all_of(x, x + kQuantBlock, [](float v) { return std::isfinite(v); });
}

// 0 where 1 / d overflows: d, a scale, is then 0 in f16, and so are the values.
inline float InverseScale(float d) { return std::isfinite(1.0f / d) ? 1.0f / d : 0.0f; }

// A scale beyond the largest f16 (values beyond 8e6) becomes infinite.
inline void Encode(const float* x, BlockQ8_0& b) {
  if (!BlockIsFinite(x)) {
    b = BlockQ8_0{.d = kF16NaN, .qs = {}};
    return;
  }
  float amax = 0;
  for (int i = 0; i < 32; ++i) amax = std::max(amax, std::fabs(x[i]));
  const float d = amax / 127.0f, id = InverseScale(d);
  b.d = F32ToF16(d);
  for (int i = 0; i < 32; ++i) b.qs[i] = static_cast<int8_t>(std::clamp(std::lround(x[i] * id), -127L, 127L));
}

inline void Encode(const float* x, BlockQ4_0& b) {
  if (!BlockIsFinite(x)) {
    b = BlockQ4_0{.d = kF16NaN, .qs = {}};
    return;
  }
  float extreme = 0;  // the signed value of largest magnitude maps to -8
  for (int i = 0; i < 32; ++i) {
    if (std::fabs(x[i]) > std::fabs(extreme)) extreme = x[i];
  }
  const float d = extreme / -8.0f, id = InverseScale(d);
  b.d = F32ToF16(d);
  for (int i = 0; i < 16; ++i) {
    const int lo = std::min(15, static_cast<int>(x[i] * id + 8.5f)), hi = std::min(15, static_cast<int>(x[i + 16] * id + 8.5f));
    b.qs[i] = static_cast<uint8_t>(lo | hi << 4);
  }
}

inline void Encode(const float* x, BlockMXFP4& b) {
  if (!BlockIsFinite(x)) {
    b = BlockMXFP4{.e = kE8M0NaN, .qs = {}};
    return;
  }
  float amax = 0;
  for (int i = 0; i < 32; ++i) amax = std::max(amax, std::fabs(x[i]));
  // OCP: the shared exponent is floor(log2(amax)) - 2, E2M1's largest exponent being 2.
  const int e = amax > 0 ? std::clamp(std::ilogb(amax) - 2 + 127, 0, 254) : 0;
  b.e = static_cast<uint8_t>(e);
  const float d = E8M0ToF32(b.e);
  auto code = [&](float v) {
    int best = 0;
    float best_error = INFINITY;
    for (int c = 0; c < 16; ++c) {
      const float error = std::fabs(v - d * 0.5f * static_cast<float>(kE2M1Doubled[c]));
      if (error < best_error) best = c, best_error = error;
    }
    return best;
  };
  for (int i = 0; i < 16; ++i) b.qs[i] = static_cast<uint8_t>(code(x[i]) | code(x[i + 16]) << 4);
}

}  // namespace tally
