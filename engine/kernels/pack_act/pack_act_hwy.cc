// SPDX-License-Identifier: Apache-2.0
#ifndef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/pack_act/pack_act_hwy.cc"
#endif
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "engine/base/float16.h"
#include "engine/kernels/pack_act/pack_act_hwy.h"
#include "hwy/cache_control.h"

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Adds the lanes whose numbers are equal modulo 4.
template <class D>
HWY_INLINE auto FourSums(D d, hn::Vec<D> v) {
  if constexpr (HWY_MAX_LANES_D(D) > 4) {
    const hn::Half<D> half;
    return FourSums(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  } else {
    return v;
  }
}

// x of a block that has NaN or infinity.
constexpr float kZeros[kInt8Block] = {};

void PackInt8(const ActPack& pack, const float* HWY_RESTRICT x, uint8_t* HWY_RESTRICT tile, int64_t rows, int64_t j,
              int64_t run) {
  const hn::CappedTag<float, 16> df;
  const hn::RebindToSigned<decltype(df)> di;
  const hn::RebindToUnsigned<decltype(df)> du;
  const hn::Rebind<uint8_t, decltype(df)> du8;
  constexpr int kN = static_cast<int>(HWY_MAX_LANES_D(decltype(df)));
  constexpr int64_t kAhead = 1024;  // elements that are prefetched: another core may have made them
  const int parts = pack.format.sums;
  const int32_t offset = pack.format.offset, pair_offset = PairOffset(pack.format);
  const bool minima = pack.format.minima;
  const float scale_mul = pack.format.scale_mul;
  // Adding it rounds to an integer, which the low bits then are.
  const auto magic = hn::Set(df, 12582912.0f);
  const auto magic_bits = hn::BitCast(di, magic);
  for (int64_t kb = 0; kb < pack.cols / kInt8Block; ++kb, x += kInt8Block, tile += Int8BlockBytes(parts) * rows) {
    for (int i = 0; i < 32; i += 16) hwy::Prefetch(x + kAhead + i);
    // Magnitudes as integers: NaN and infinity are the greatest.
    auto greatest = hn::Zero(di);
    HWY_UNROLL(8) for (int i = 0; i < 32; i += kN) {
      greatest = hn::Max(greatest, hn::BitCast(di, hn::Abs(hn::LoadU(df, x + i))));
    }
    const float amax = std::bit_cast<float>(hn::ReduceMax(di, greatest));
    const bool finite = amax < std::numeric_limits<float>::infinity(), nothing = amax < kSmallestAmax;
    const float scale = !finite ? std::nanf("") : nothing ? 0.0f : amax / 127.0f * scale_mul;
    const auto factor = hn::Set(df, finite && !nothing ? 127.0f / amax : 0.0f);
    const float* const from = finite ? x : kZeros;
    alignas(32) uint8_t q[32];
    hn::Vec<decltype(di)> sum[2] = {hn::Zero(di), hn::Zero(di)};  // of each half
    HWY_UNROLL(8) for (int i = 0; i < 32; i += kN) {
      const auto n = hn::Add(hn::Mul(hn::LoadU(df, from + i), factor), magic);
      sum[i / 16] = hn::Add(sum[i / 16], hn::Sub(hn::BitCast(di, n), magic_bits));
      hn::StoreU(hn::TruncateTo(du8, hn::BitCast(du, n)), du8, q + i);
    }
    if (run == kInt8Block || rows == 1) {
      std::memcpy(tile + 32 * j, q, 32);
    } else if (run == 8) {
      for (int s = 0; s < 4; ++s) std::memcpy(tile + (s * rows + j) * 8, q + 8 * s, 8);
    } else {
      for (int s = 0; s < 8; ++s) std::memcpy(tile + (s * rows + j) * 4, q + 4 * s, 4);
    }
    std::memcpy(tile + 32 * rows + 4 * j, &scale, 4);
    if (parts == 1) sum[0] = hn::Add(sum[0], sum[1]);
    for (int part = 0; part < parts; ++part) {
      HWY_ALIGN int32_t four[4];
      hn::Store(FourSums(di, sum[part]), hn::CappedTag<int32_t, 4>(), four);
      const int32_t first = four[0] + four[1], second = four[2] + four[3], sum_q = first + second;
      int32_t correction = -offset * sum_q;
      if (minima) correction = std::bit_cast<int32_t>(scale * static_cast<float>(sum_q));
      const int16_t halves[2] = {static_cast<int16_t>(-pair_offset * first), static_cast<int16_t>(-pair_offset * second)};
      std::memcpy(tile + (36 + 4 * part) * rows + 4 * j, &correction, 4);
      std::memcpy(tile + (36 + 4 * (parts + part)) * rows + 4 * j, halves, 4);
    }
  }
}

// Rounds to nearest even and keeps NaN quiet, as F32ToBF16 does.
void PackBF16(const ActPack& pack, const float* HWY_RESTRICT x, uint8_t* HWY_RESTRICT tile, int64_t rows, int64_t j,
              int64_t run) {
  const hn::ScalableTag<float> df;
  const hn::RebindToUnsigned<decltype(df)> du;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(df));
  const bool by_row = run == 64;
  HWY_ALIGN uint32_t bits[HWY_MAX_BYTES / 4] = {};
  int64_t k = 0;
  for (; k + lanes <= pack.cols; k += lanes) {
    const auto v = hn::LoadU(df, x + k);
    const auto u = hn::BitCast(du, v);
    const auto odd = hn::And(hn::ShiftRight<16>(u), hn::Set(du, 1));
    const auto rounded = hn::ShiftRight<16>(hn::Add(u, hn::Add(odd, hn::Set(du, 0x7fffu))));
    const auto quiet = hn::Or(hn::ShiftRight<16>(u), hn::Set(du, 0x40u));
    const auto result = hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(v)), quiet, rounded);
    if (by_row) {
      const hn::Rebind<uint16_t, decltype(du)> du16;
      hn::StoreU(hn::DemoteTo(du16, result), du16, reinterpret_cast<uint16_t*>(tile + (k / 32 * rows + j) * 64 + k % 32 * 2));
      continue;
    }
    hn::Store(result, du, bits);
    for (int64_t i = 0; i < lanes; i += 2) {
      const uint32_t pair = bits[i] | bits[i + 1] << 16;
      std::memcpy(tile + (((k + i) / 2) * rows + j) * 4, &pair, 4);
    }
  }
  for (; k < pack.cols; k += 2) {
    const uint32_t pair = F32ToBF16(x[k]) | static_cast<uint32_t>(k + 1 < pack.cols ? F32ToBF16(x[k + 1]) : 0) << 16;
    std::memcpy(tile + (by_row ? (k / 32 * rows + j) * 64 + k % 32 * 2 : ((k / 2) * rows + j) * 4), &pair, 4);
  }
  if (by_row && k % 32 != 0) std::memset(tile + (k / 32 * rows + j) * 64 + k % 32 * 2, 0, static_cast<size_t>(32 - k % 32) * 2);
}

void PackRow(const ActPack& pack, const float* x, uint8_t* tile, int64_t rows, int64_t j, int64_t run) {
  switch (pack.format.kind) {
    case ActKind::kInt8: PackInt8(pack, x, tile, rows, j, run); return;
    case ActKind::kBF16: PackBF16(pack, x, tile, rows, j, run); return;
    case ActKind::kF32:
      if (rows == 1) {
        std::memcpy(tile, x, static_cast<size_t>(pack.cols) * 4);
      } else {
        for (int64_t k = 0; k < pack.cols; ++k) std::memcpy(tile + (k * rows + j) * 4, x + k, 4);
      }
      return;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tally {
HWY_EXPORT(PackRow);
void PackRowHwy(const ActPack& pack, const float* x, uint8_t* tile, int64_t rows, int64_t j, int64_t run) {
  HWY_DYNAMIC_DISPATCH(PackRow)(pack, x, tile, rows, j, run);
}
}  // namespace tally
#endif
