// SPDX-License-Identifier: Apache-2.0
#include "engine/studies/synth_noise.h"

#include <algorithm>
#include <cstring>

#include "engine/base/mix.h"
#include "engine/kernels/formats/weight_format.h"

namespace tally {
namespace {

// Elements, or blocks where quantised: primes, so that rows of a matrix do not repeat one another before as many rows.
constexpr uint64_t kPlainElements = 4194301;  // the largest below 2^22
constexpr uint64_t kBlocks = 524287;          // 2^19 - 1: of 32 elements, more than any of the matrices has rows
constexpr uint64_t kLongBlocks = 131071;      // 2^17 - 1: of more elements
uint64_t PoolBlocks(const DTypeInfo& type) {
  return !type.quantised ? kPlainElements : type.block_size <= 32 ? kBlocks : kLongBlocks;
}
// Drawn together, when a tensor first reads one of them.
uint64_t ChunkBlocks(const DTypeInfo& type) { return 16384 / type.block_size; }

// Sum of four uniform 16-bit numbers, centred and scaled to deviation 1: bell-shaped, within 3.5 of 0, exact everywhere.
float Noise(uint64_t seed, uint64_t i) {
  const uint64_t bits = SplitMix64(seed + i * 0x632be59bd9b4e019u);
  const uint64_t sum = (bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48);
  constexpr float kMean = 131070.0f, kDeviation = 37837.22f;  // 4 * 65535 / 2, sqrt(4 * (65536^2 - 1) / 12)
  return (static_cast<float>(sum) - kMean) / kDeviation;
}

}  // namespace

void NoisePools::Draw(DType type, float deviation, uint64_t chunk, std::vector<uint8_t>& bytes) const {
  const uint64_t seed = SplitMix64(seed_ ^ SplitMix64(static_cast<uint64_t>(type)));
  const DTypeInfo info = GetDTypeInfo(type);
  const uint64_t begin = chunk * ChunkBlocks(info), end = std::min(begin + ChunkBlocks(info), PoolBlocks(info));
  const WeightFormat& format = FormatOf(type);
  bytes.resize((end - begin) * info.block_bytes);
  std::vector<float> x(info.block_size);
  for (uint64_t b = begin; b < end; ++b) {
    for (uint64_t i = 0; i < info.block_size; ++i) x[i] = Noise(seed, b * info.block_size + i) * deviation;
    format.encode(x.data(), nullptr, 1, bytes.data() + (b - begin) * info.block_bytes);
  }
}

const std::vector<uint8_t>& NoisePools::Chunk(DType type, float deviation, uint64_t chunk) {
  const std::lock_guard lock(mutex_);
  std::vector<std::vector<uint8_t>>& chunks = pools_[{type, deviation}];
  const DTypeInfo info = GetDTypeInfo(type);
  if (chunks.empty()) chunks.resize((PoolBlocks(info) + ChunkBlocks(info) - 1) / ChunkBlocks(info));
  if (chunks[chunk].empty()) Draw(type, deviation, chunk, chunks[chunk]);
  return chunks[chunk];
}

void NoisePools::Fill(uint64_t tensor, DType type, float deviation, uint64_t offset, std::span<uint8_t> out) {
  const DTypeInfo info = GetDTypeInfo(type);
  const uint64_t blocks = PoolBlocks(info), pool_bytes = blocks * info.block_bytes,
                 chunk_bytes = ChunkBlocks(info) * info.block_bytes;
  const uint64_t phase = SplitMix64(seed_ + 0x100000001b3u * (tensor + 1)) % blocks * info.block_bytes;
  uint64_t at = (phase + offset) % pool_bytes;
  while (!out.empty()) {
    const std::vector<uint8_t>& chunk = Chunk(type, deviation, at / chunk_bytes);
    const uint64_t begin = at % chunk_bytes;
    const size_t n = std::min<size_t>(out.size(), chunk.size() - begin);
    std::memcpy(out.data(), chunk.data() + begin, n);
    out = out.subspan(n);
    at = (at + n) % pool_bytes;
  }
}

}  // namespace tally
