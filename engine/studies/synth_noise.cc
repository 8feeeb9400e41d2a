#include "engine/studies/synth_noise.h"

#include <algorithm>
#include <cstring>

#include "engine/base/float16.h"
#include "engine/base/mix.h"
#include "engine/base/quant_blocks.h"

namespace tally {
namespace {

constexpr uint64_t kQuantisedBlocks = 524287;  // 2^19 - 1, prime: more blocks than any of the matrices has rows
constexpr uint64_t kPlainElements = 4194301;   // the largest prime below 2^22
static_assert(kQuantisedBlocks * kQuantBlock > kPlainElements);

// Sum of four uniform 16-bit numbers, centred and scaled to deviation 1: bell-shaped, within 3.5 of 0, exact everywhere.
float Noise(uint64_t seed, uint64_t i) {
  const uint64_t bits = SplitMix64(seed + i * 0x632be59bd9b4e019u);
  const uint64_t sum = (bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48);
  constexpr float kMean = 131070.0f, kDeviation = 37837.22f;  // 4 * 65535 / 2, sqrt(4 * (65536^2 - 1) / 12)
  return (static_cast<float>(sum) - kMean) / kDeviation;
}

template <class Block>
void EncodeBlocks(uint64_t seed, float deviation, std::vector<uint8_t>& out) {
  out.resize(kQuantisedBlocks * sizeof(Block));
  for (uint64_t b = 0; b < kQuantisedBlocks; ++b) {
    float x[kQuantBlock];
    for (int i = 0; i < kQuantBlock; ++i) x[i] = Noise(seed, b * kQuantBlock + static_cast<uint64_t>(i)) * deviation;
    Block block;
    Encode(x, block);
    std::memcpy(out.data() + b * sizeof(Block), &block, sizeof(Block));
  }
}

template <class T, class Convert>
void EncodePlain(uint64_t seed, float deviation, Convert convert, std::vector<uint8_t>& out) {
  out.resize(kPlainElements * sizeof(T));
  for (uint64_t i = 0; i < kPlainElements; ++i) {
    const T x = convert(Noise(seed, i) * deviation);
    std::memcpy(out.data() + i * sizeof(T), &x, sizeof(T));
  }
}

}  // namespace

const std::vector<uint8_t>& NoisePools::Pool(DType type, float deviation) {
  std::vector<uint8_t>& pool = pools_[{type, deviation}];
  if (!pool.empty()) return pool;
  const uint64_t seed = SplitMix64(seed_ ^ SplitMix64(static_cast<uint64_t>(type)));
  switch (type) {
    case DType::kQ8_0: EncodeBlocks<BlockQ8_0>(seed, deviation, pool); break;
    case DType::kQ4_0: EncodeBlocks<BlockQ4_0>(seed, deviation, pool); break;
    case DType::kMXFP4: EncodeBlocks<BlockMXFP4>(seed, deviation, pool); break;
    case DType::kF16: EncodePlain<uint16_t>(seed, deviation, F32ToF16, pool); break;
    case DType::kBF16: EncodePlain<uint16_t>(seed, deviation, F32ToBF16, pool); break;
    default:
      EncodePlain<float>(
          seed, deviation, [](float x) { return x; }, pool);
      break;
  }
  return pool;
}

void NoisePools::Fill(uint64_t tensor, DType type, float deviation, uint64_t offset, std::span<uint8_t> out) {
  const std::vector<uint8_t>& pool = Pool(type, deviation);
  const uint64_t block_bytes = GetDTypeInfo(type).block_bytes, blocks = pool.size() / block_bytes;
  const uint64_t phase = SplitMix64(seed_ + 0x100000001b3u * (tensor + 1)) % blocks * block_bytes;
  uint64_t at = (phase + offset) % pool.size();
  while (!out.empty()) {
    const size_t n = std::min<size_t>(out.size(), pool.size() - at);
    std::memcpy(out.data(), pool.data() + at, n);
    out = out.subspan(n);
    at = 0;
  }
}

}  // namespace tally
