// SPDX-License-Identifier: Apache-2.0
#include "engine/base/digest.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

#include <algorithm>
#include <bit>
#include <cstring>

namespace tally {
namespace {

// FIPS 180-4, 4.2.2: the first 32 bits of the fractions of the cube roots of the first 64 primes.
constexpr std::array<uint32_t, 64> kRoots = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01,
    0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc,
    0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
    0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08,
    0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
    0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

using Sha256Function = void (*)(std::array<uint32_t, 8>& state, const uint8_t* bytes);

uint32_t BigEndian(const uint8_t* bytes) {
  uint32_t word;
  std::memcpy(&word, bytes, 4);
  return __builtin_bswap32(word);
}

void Sha256Block(std::array<uint32_t, 8>& state, const uint8_t* bytes) {
  std::array<uint32_t, 64> w;
  for (size_t t = 0; t < 16; ++t) w[t] = BigEndian(bytes + 4 * t);
  for (size_t t = 16; t < 64; ++t) {
    const uint32_t s0 = std::rotr(w[t - 15], 7) ^ std::rotr(w[t - 15], 18) ^ (w[t - 15] >> 3);
    const uint32_t s1 = std::rotr(w[t - 2], 17) ^ std::rotr(w[t - 2], 19) ^ (w[t - 2] >> 10);
    w[t] = w[t - 16] + s0 + w[t - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (size_t t = 0; t < 64; ++t) {
    const uint32_t sum1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25), chosen = (e & f) ^ (~e & g);
    const uint32_t t1 = h + sum1 + chosen + kRoots[t] + w[t];
    const uint32_t sum0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22), majority = (a & b) ^ (a & c) ^ (b & c);
    h = g;
    g = f;
    f = e;
    e = d + t1;
    d = c;
    c = b;
    b = a;
    a = t1 + sum0 + majority;
  }
  const std::array<uint32_t, 8> after = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < 8; ++i) state[i] += after[i];
}

#if defined(__x86_64__)
bool HasShaInstructions() {
  uint32_t a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & bit_SSSE3) == 0 || (c & bit_SSE4_1) == 0) return false;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & bit_SHA) != 0;
}

// The same with the processor's instructions: two rounds each, of the words (a, b, e, f) and (c, d, g, h) with f and h lowest.
__attribute__((target("sha,sse4.1,ssse3"))) void Sha256BlockX86(std::array<uint32_t, 8>& state, const uint8_t* bytes) {
  const auto word = [&](size_t i) __attribute__((target("sha,sse4.1,ssse3"))) { return static_cast<int>(state[i]); };
  const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  const __m128i before0 = _mm_set_epi32(word(0), word(1), word(4), word(5));
  const __m128i before1 = _mm_set_epi32(word(2), word(3), word(6), word(7));
  __m128i s0 = before0, s1 = before1, w[4];
  for (size_t i = 0; i < 16; ++i) {  // four rounds, and their four words
    __m128i& now = w[i % 4];
    if (i < 4) {
      now = _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes) + i), big_endian);
    } else {
      const __m128i &last = w[(i + 3) % 4], seven = _mm_alignr_epi8(last, w[(i + 2) % 4], 4);
      now = _mm_sha256msg2_epu32(_mm_add_epi32(_mm_sha256msg1_epu32(now, w[(i + 1) % 4]), seven), last);
    }
    const __m128i sum = _mm_add_epi32(now, _mm_loadu_si128(reinterpret_cast<const __m128i*>(kRoots.data()) + i));
    s1 = _mm_sha256rnds2_epu32(s1, s0, sum);
    s0 = _mm_sha256rnds2_epu32(s0, s1, _mm_shuffle_epi32(sum, 0x0e));
  }
  alignas(16) std::array<uint32_t, 4> abef, cdgh;
  _mm_store_si128(reinterpret_cast<__m128i*>(abef.data()), _mm_add_epi32(s0, before0));
  _mm_store_si128(reinterpret_cast<__m128i*>(cdgh.data()), _mm_add_epi32(s1, before1));
  state = {abef[3], abef[2], cdgh[3], cdgh[2], abef[1], abef[0], cdgh[1], cdgh[0]};
}
#endif

Sha256Function BestSha256() {
#if defined(__x86_64__)
  static const bool instructions = HasShaInstructions();
  if (instructions) return Sha256BlockX86;
#endif
  return Sha256Block;
}

void Sha1Block(std::array<uint32_t, 8>& state, const uint8_t* bytes) {
  std::array<uint32_t, 80> w;
  for (size_t t = 0; t < 16; ++t) w[t] = BigEndian(bytes + 4 * t);
  for (size_t t = 16; t < 80; ++t) w[t] = std::rotl(w[t - 3] ^ w[t - 8] ^ w[t - 14] ^ w[t - 16], 1);
  uint32_t a = state[0], b = state[1], c = state[2], d = state[3], e = state[4];
  for (size_t t = 0; t < 80; ++t) {
    uint32_t f = b ^ c ^ d, k = t < 40 ? 0x6ed9eba1 : 0xca62c1d6;
    if (t < 20) {
      f = (b & c) ^ (~b & d);
      k = 0x5a827999;
    } else if (t >= 40 && t < 60) {
      f = (b & c) ^ (b & d) ^ (c & d);
      k = 0x8f1bbcdc;
    }
    const uint32_t next = std::rotl(a, 5) + f + e + k + w[t];
    e = d;
    d = c;
    c = std::rotl(b, 30);
    b = a;
    a = next;
  }
  const std::array<uint32_t, 5> after = {a, b, c, d, e};
  for (size_t i = 0; i < 5; ++i) state[i] += after[i];
}

}  // namespace

Digest::Digest(bool sha256) : sha256_(sha256), block_(sha256 ? BestSha256() : Sha1Block) {
  static_assert(std::endian::native == std::endian::little);
  state_ = sha256 ? std::array<uint32_t, 8>{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                            0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19}
                  : std::array<uint32_t, 8>{0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
}

Digest Digest::Sha256() { return Digest(true); }
Digest Digest::PortableSha256() {
  Digest digest(true);
  digest.block_ = Sha256Block;
  return digest;
}
Digest Digest::Sha1() { return Digest(false); }

Digest Digest::GitBlob(uint64_t size) {
  Digest digest(false);
  const std::string head = "blob " + std::to_string(size) + '\0';
  digest.Add({reinterpret_cast<const uint8_t*>(head.data()), head.size()});
  return digest;
}

Digest Digest::Like(std::string_view digest, uint64_t size) { return digest.size() == 64 ? Sha256() : GitBlob(size); }

void Digest::Add(std::span<const uint8_t> bytes) {
  size_t used = bytes_ % 64;
  bytes_ += bytes.size();
  while (!bytes.empty()) {
    if (used == 0 && bytes.size() >= 64) {
      block_(state_, bytes.data());
      bytes = bytes.subspan(64);
      continue;
    }
    const size_t n = std::min(bytes.size(), 64 - used);
    std::memcpy(rest_.data() + used, bytes.data(), n);
    bytes = bytes.subspan(n);
    used = (used + n) % 64;
    if (used == 0) block_(state_, rest_.data());
  }
}

std::string Digest::Hex() const {
  Digest last = *this;
  std::array<uint8_t, 72> tail{0x80};  // a one bit, zeros up to 8 bytes before the end of a block, the length in bits
  const size_t zeros = (119 - bytes_ % 64) % 64;
  for (size_t i = 0; i < 8; ++i) tail[1 + zeros + i] = static_cast<uint8_t>((bytes_ * 8) >> (56 - 8 * i));
  last.Add({tail.data(), zeros + 9});
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (size_t i = 0; i < (sha256_ ? 8u : 5u); ++i) {
    for (int shift = 28; shift >= 0; shift -= 4) hex += kDigits[(last.state_[i] >> shift) & 15];
  }
  return hex;
}

}  // namespace tally
