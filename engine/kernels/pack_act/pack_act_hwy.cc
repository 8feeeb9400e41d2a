// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/pack_act/pack_act_hwy.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/base/float16.h"
#include "engine/kernels/pack_act/pack_act_hwy.h"

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void PackInt8(const ActPack& pack, const float* HWY_RESTRICT x, uint8_t* HWY_RESTRICT tile, int64_t rows, int64_t j,
              int64_t run) {
  const hn::CappedTag<float, 16> df;
  const hn::RebindToSigned<decltype(df)> di;
  const hn::Rebind<int8_t, decltype(df)> di8;
  constexpr int kN = static_cast<int>(HWY_MAX_LANES_D(decltype(df)));
  const int parts = pack.format.sums;
  for (int64_t kb = 0; kb < pack.cols / kInt8Block; ++kb, x += kInt8Block, tile += Int8BlockBytes(parts) * rows) {
    auto max = hn::Zero(df), bad = hn::Zero(df);
    HWY_UNROLL(8) for (int i = 0; i < 32; i += kN) {
      const auto v = hn::LoadU(df, x + i);
      max = hn::Max(max, hn::Abs(v));
      bad = hn::Add(bad, hn::Sub(v, v));  // 0, or NaN if v is not finite
    }
    const float amax = hn::ReduceMax(df, max);
    const bool finite = hn::ReduceSum(df, bad) == 0.0f;
    const bool nothing = amax < kSmallestAmax;
    const float inverse = finite && !nothing ? 127.0f / amax : 0.0f;
    const float scale = !finite ? std::nanf("") : nothing ? 0.0f : amax / 127.0f * pack.format.scale_mul;
    alignas(32) int8_t q[32];
    hn::Vec<decltype(di)> sum[2] = {hn::Zero(di), hn::Zero(di)};  // of each half
    const auto factor = hn::Set(df, inverse);
    HWY_UNROLL(8) for (int i = 0; i < 32; i += kN) {
      const auto scaled = hn::Mul(hn::LoadU(df, x + i), factor);
      const auto n = hn::NearestInt(finite ? scaled : hn::Zero(df));
      sum[i / 16] = hn::Add(sum[i / 16], n);
      hn::StoreU(hn::DemoteTo(di8, n), di8, q + i);
    }
    if (run == kInt8Block) {
      std::memcpy(tile + 32 * j, q, 32);
    } else if (run == 8) {
      for (int s = 0; s < 4; ++s) std::memcpy(tile + (s * rows + j) * 8, q + 8 * s, 8);
    } else {
      for (int s = 0; s < 8; ++s) std::memcpy(tile + (s * rows + j) * 4, q + 4 * s, 4);
    }
    std::memcpy(tile + 32 * rows + 4 * j, &scale, 4);
    if (parts == 1) sum[0] = hn::Add(sum[0], sum[1]);
    for (int part = 0; part < parts; ++part) {
      HWY_ALIGN int32_t lanes[kN];
      hn::Store(sum[part], di, lanes);
      int32_t pair[2] = {};
      HWY_UNROLL(32) for (int i = 0; i < kN; ++i) pair[i % 4 / 2] += lanes[i];
      const int32_t sum_q = pair[0] + pair[1];
      int32_t correction = -pack.format.offset * sum_q;
      if (pack.format.minima) {
        const float scaled = scale * static_cast<float>(sum_q);
        std::memcpy(&correction, &scaled, 4);
      }
      const int16_t halves[2] = {static_cast<int16_t>(-PairOffset(pack.format) * pair[0]),
                                 static_cast<int16_t>(-PairOffset(pack.format) * pair[1])};
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
