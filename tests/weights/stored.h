// Random tensors as a file would hold them, and what their values are by the formats' own definitions
// (quant_blocks.h), with no help from the packing code.
#pragma once

#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "engine/base/dtype.h"
#include "engine/base/float16.h"
#include "engine/base/quant_blocks.h"

namespace tally {

inline constexpr DType kMatrixTypes[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0, DType::kMXFP4};

inline void PutHalf(uint16_t v, uint8_t* p) { std::memcpy(p, &v, sizeof(v)); }
inline uint16_t GetHalf(const uint8_t* p) {
  uint16_t v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}

// Any bits but NaN, whose payload no format promises. Q8_0 quants include -128, MXFP4 scales the subnormal 0
// and 254.
inline std::vector<uint8_t> RandomStored(DType t, uint64_t elements, std::mt19937_64& rng) {
  const DTypeInfo info = GetDTypeInfo(t);
  std::vector<uint8_t> bytes(elements / info.block_size * info.block_bytes);
  for (uint8_t& b : bytes) b = static_cast<uint8_t>(rng());
  const auto fix_half = [](uint8_t* p, uint16_t exponent) {
    if ((GetHalf(p) & exponent) == exponent) PutHalf(static_cast<uint16_t>(GetHalf(p) & ~(exponent & -exponent)), p);
  };
  for (size_t i = 0; i + info.block_bytes <= bytes.size(); i += info.block_bytes) {
    uint8_t* p = bytes.data() + i;
    switch (t) {
      case DType::kF32: fix_half(p + 2, 0x7f80); break;
      case DType::kBF16: fix_half(p, 0x7f80); break;
      case DType::kF16:
      case DType::kQ8_0:
      case DType::kQ4_0: fix_half(p, 0x7c00); break;
      case DType::kMXFP4:
        if (p[0] == 255) p[0] = 0;
        break;
      default: break;
    }
    if (t == DType::kQ8_0 && i % 3 == 0) p[2 + rng() % 32] = 0x80;
  }
  return bytes;
}

// Element by element, exact.
inline std::vector<float> DecodeStored(DType t, const uint8_t* p, uint64_t elements) {
  std::vector<float> out(elements);
  for (uint64_t i = 0; i < elements; i += GetDTypeInfo(t).block_size, p += GetDTypeInfo(t).block_bytes) {
    switch (t) {
      case DType::kF32: std::memcpy(&out[i], p, 4); break;
      case DType::kF16: out[i] = F16ToF32(GetHalf(p)); break;
      case DType::kBF16: out[i] = BF16ToF32(GetHalf(p)); break;
      case DType::kQ8_0: {
        BlockQ8_0 b;
        std::memcpy(&b, p, sizeof(b));
        Decode(b, &out[i]);
        break;
      }
      case DType::kQ4_0: {
        BlockQ4_0 b;
        std::memcpy(&b, p, sizeof(b));
        Decode(b, &out[i]);
        break;
      }
      case DType::kMXFP4: {
        BlockMXFP4 b;
        std::memcpy(&b, p, sizeof(b));
        Decode(b, &out[i]);
        break;
      }
      default: break;
    }
  }
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
