// SPDX-License-Identifier: Apache-2.0
// Random tensors as a file would hold them, and what their values are by the formats' own definitions
// (engine/kernels/formats), with no help from the packing code.
#pragma once

#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "engine/base/float16.h"
#include "engine/kernels/formats/fp8.h"
#include "engine/kernels/formats/mxfp4.h"
#include "engine/kernels/formats/weight_format.h"

namespace tally {

inline void PutHalf(uint16_t v, uint8_t* p) { std::memcpy(p, &v, sizeof(v)); }
inline uint16_t GetHalf(const uint8_t* p) {
  uint16_t v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}

// Where a quantised block has its floating-point numbers: an E8M0 scale, one f16, two (the second for minima), or one f32.
struct ScaleField {
  size_t at = 0, bytes = 2;
  float most = 1;  // of the integers that they multiply
  bool f32 = false;
  size_t halves() const { return f32 ? 0 : bytes / 2; }
};
inline ScaleField ScaleOf(DType t) {
  switch (t) {
    case DType::kMXFP4: return {0, 1};
    case DType::kQ4_1:
    case DType::kQ5_1: return {0, 4};
    case DType::kQ2_K: return {80, 4, 15};
    case DType::kQ3_K: return {108, 2, 32};
    case DType::kQ4_K:
    case DType::kQ5_K: return {0, 4, 63};
    case DType::kQ6_K: return {208, 2, 128};
    case DType::kQ8_K:
    case DType::kFP8: return {0, 4, 1, true};
    case DType::kIQ4_XS: return {0, 2, 32};
    default: return {};
  }
}

// Of the codes of an FP8 block.
inline void RemoveNaNs(uint8_t* block) {
  for (uint8_t* code = block + 4; code < block + 132; ++code) *code = (*code & 0x7f) == 0x7f ? *code ^ 1 : *code;
}

// Any bits but NaN, whose payload no format promises. Integers of 8 bits include -128, E8M0 scales the subnormal 0 and 254.
inline std::vector<uint8_t> RandomStored(DType t, uint64_t elements, std::mt19937_64& rng) {
  const DTypeInfo info = GetDTypeInfo(t);
  std::vector<uint8_t> bytes(elements / info.block_size * info.block_bytes);
  for (uint8_t& b : bytes) b = static_cast<uint8_t>(rng());
  const auto fix_half = [](uint8_t* p, uint16_t exponent) {
    if ((GetHalf(p) & exponent) == exponent) PutHalf(static_cast<uint16_t>(GetHalf(p) & ~(exponent & -exponent)), p);
  };
  const ScaleField scale = ScaleOf(t);
  for (size_t i = 0; i + info.block_bytes <= bytes.size(); i += info.block_bytes) {
    uint8_t* p = bytes.data() + i;
    if (!info.quantised) {
      if (info.block_bytes == 1) continue;  // U8: any bits
      fix_half(t == DType::kF32 ? p + 2 : p, t == DType::kF16 ? 0x7c00 : 0x7f80);
    } else if (scale.f32) {
      fix_half(p + scale.at + 2, 0x7f80);
    } else if (scale.bytes >= 2) {
      for (size_t h = 0; h < scale.halves(); ++h) fix_half(p + scale.at + 2 * h, 0x7c00);
    } else if (p[scale.at] == 255) {
      p[scale.at] = 0;
    }
    if (t == DType::kFP8) RemoveNaNs(p);
    if (info.quantised && i % 3 == 0) p[scale.at == 0 ? scale.bytes + rng() % 16 : rng() % 16] = 0x80;
  }
  return bytes;
}

// Block by block, by the format's own definition.
inline std::vector<float> DecodeStored(DType t, const uint8_t* p, uint64_t elements) {
  std::vector<float> out(elements);
  FormatOf(t).decode(p, static_cast<int64_t>(elements / GetDTypeInfo(t).block_size), out.data());
  return out;
}

// Hugging Face's MXFP4: byte j of a block holds element 2j in its low and 2j + 1 in its high nibble.
inline std::vector<float> DecodeHfMxfp4(const uint8_t* blocks, const uint8_t* scales, uint64_t elements) {
  std::vector<float> out(elements);
  for (uint64_t i = 0; i < elements; ++i) {
    const int code = (blocks[i / 2] >> (i % 2 * 4)) & 15;
    out[i] = E8M0ToF32(scales[i / 32]) * (0.5f * static_cast<float>(kE2M1Doubled[code]));
  }
  return out;
}

inline bool SameBits(const float* a, const float* b, size_t n) { return std::memcmp(a, b, n * sizeof(float)) == 0; }

}  // namespace tally
