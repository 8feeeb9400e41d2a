// SPDX-License-Identifier: Apache-2.0
// BF16 weights times f32 or bf16 activations.
#ifndef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/formats/bf16.cc"
#endif
#include "hwy/foreach_target.h"  // IWYU pragma: keep

#include "engine/base/amx.h"
#include "engine/base/byte_dot.h"
#include "engine/kernels/formats/bf16.h"
#include "engine/kernels/matmul/amx_bf16-inl.h"
#include "engine/kernels/matmul/bf16_arm-inl.h"
#include "engine/kernels/matmul/float-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {

// Panels of a microkernel for many rows: both panels of the pair on 16-lane targets, else one. Few rows take one panel
// (StreamPanels).
inline constexpr int kBf16Panels = kLanes >= 16 ? 2 : 1;
inline constexpr int kBf16SubTile = kLanes >= 16 ? 12 : (kLanes == 8 ? 4 : 2);

// P panels times T rows of a tile; p1 is unused if P is 1. x: [pairs][tile] u32 of two bf16, from the first of the T rows on.
template <int P, int T>
HWY_NOINLINE void Bf16Micro(const uint8_t* HWY_RESTRICT p0, const uint8_t* HWY_RESTRICT p1, const uint8_t* HWY_RESTRICT x,
                            int tile, int64_t pairs, float* HWY_RESTRICT acc, const uint8_t* far) {
  const DF df;
  const DU du;
  constexpr int kVecs = P * kPanelVecs;
  VF f[T][kVecs];
  HWY_UNROLL(12) for (int j = 0; j < T; ++j) HWY_UNROLL(16) for (int v = 0; v < kVecs; ++v) f[j][v] = hn::Zero(df);
  for (int64_t k = 0; k < pairs; ++k, p0 += 64, p1 += 64, x += 4 * tile) {
    if (far != nullptr) {
      if (k % 4 == 0) PrefetchFar(far + 16 * k);
    } else {
      PrefetchStream(p0);
      if constexpr (P == 2) PrefetchStream(p1);
    }
    VU w[kVecs];
    HWY_UNROLL(16) for (int v = 0; v < kVecs; ++v) {
      w[v] = hn::LoadU(du, reinterpret_cast<const uint32_t*>(v < kPanelVecs ? p0 : p1) + kLanes * (v % kPanelVecs));
    }
    HWY_UNROLL(12) for (int j = 0; j < T; ++j) {
      const VU b = hn::BitCast(du, Broadcast4(x + 4 * j));
      HWY_UNROLL(16) for (int v = 0; v < kVecs; ++v) f[j][v] = DotPair(w[v], b, f[j][v]);
    }
  }
  HWY_UNROLL(12) for (int j = 0; j < T; ++j) {
    HWY_UNROLL(16) for (int v = 0; v < kVecs; ++v) hn::StoreU(f[j][v], df, acc + 32 * j + kLanes * v);
  }
}

// Few rows, one panel. acc: [rows][32]; 16 columns are written.
HWY_INLINE void StreamBf16Panel(const uint8_t* panel, const uint8_t* x, int rows, int64_t pairs, float* acc) {
  for (int j = 0; j < rows;) {
    j += WithSubTile<kBf16SubTile>(
        rows - j, [&]<int T>() HWY_ATTR { Bf16Micro<1, T>(panel, panel, x + 4 * j, rows, pairs, acc + 32 * j, nullptr); });
  }
}

void RunBF16Dot(const MatJob& job, int64_t begin, int64_t end) {
  constexpr int kTile = ActTile(ActKind::kBF16);
  alignas(64) float acc[kTile * 32];
  const size_t row_bytes = job.x.row_bytes();
  const int64_t pairs_of_k = (job.w.cols + 1) / 2;
  ForEachGroup(job, begin, end, [&](const RowGroup& group, int64_t first, int64_t last) HWY_ATTR {
    const uint8_t* rows = job.x.data + static_cast<size_t>(group.row_begin) * row_bytes;
    if (group.rows <= StreamRows(ActKind::kBF16)) {
      StreamPanels<StreamRows(ActKind::kBF16)>(job, group, first, last, [&](const uint8_t* panel, float* to) HWY_ATTR {
        StreamBf16Panel(panel, rows, static_cast<int>(group.rows), pairs_of_k, to);
      });
      return;
    }
    const Epilogue epilogue(job, group.slice);
    for (int64_t pair = first; pair < last; ++pair) {
      const PanelPair panels(job, group.slice, pair);
      for (int64_t r = 0; r < group.rows; r += kTile) {
        const int tile = static_cast<int>(std::min<int64_t>(kTile, group.rows - r));
        const uint8_t* x = rows + static_cast<size_t>(r) * row_bytes;
        const uint8_t* far = panels.NextAt(job, static_cast<size_t>(r / kTile * pairs_of_k) * 16);
        for (int j = 0; j < tile;) {
          j += WithSubTile<kBf16SubTile>(tile - j, [&]<int T>() HWY_ATTR {
            Bf16Micro<kBf16Panels, T>(panels.p0, panels.p1, x + 4 * j, tile, pairs_of_k, acc + 32 * j, far);
            if constexpr (kBf16Panels == 1) {
              Bf16Micro<1, T>(panels.p1, panels.p1, x + 4 * j, tile, pairs_of_k, acc + 32 * j + kPanelRows, far);
            }
          });
        }
        for (int j = 0; j < tile; ++j) epilogue.Row(acc + 32 * j, group.row_begin + r + j, panels.col, panels.n);
      }
    }
  });
}

#if TALLY_AMX

// Panels are tiles as packed. Only the last tile of a K that is no multiple of 32 is copied.
struct AmxPanels {
  static constexpr int64_t kPiece = 256;
  static constexpr bool kScaled = false;
  static constexpr size_t kBuffer = 2 * kPiece * 32;

  static PairTiles Pair(const uint8_t* p0, const uint8_t* p1, int64_t k, int64_t n, uint8_t* buffer) {
    const PairTiles there{p0 + k * 32, p1 + k * 32, 64, 1024};
    if (n % 32 == 0) return there;
    const size_t bytes = static_cast<size_t>((n + 1) / 2 * 64), all = static_cast<size_t>((n + 31) / 32 * 1024);
    const PairTiles copy{buffer, buffer + kBuffer / 2, 64, 1024};
    for (const auto& [from, to] : {std::pair{there.b0, buffer}, {there.b1, buffer + kBuffer / 2}}) {
      std::memcpy(to, from, bytes);
      std::memset(to + bytes, 0, all - bytes);
    }
    return copy;
  }
};

// At most 16 rows. Two panels at once, since each product of a single panel would wait for the one before. acc: [rows][32].
HWY_NOINLINE void AmxStreamPair(const PanelPair& panels, const uint8_t* x, int64_t rows, int64_t cols, float* acc) {
  constexpr int64_t kRow = 32 * sizeof(float);
  const uint8_t *b0 = panels.p0, *b1 = panels.p1;
  TileZero<0>();
  TileZero<1>();
  int64_t k = 0;
  for (; k + 32 <= cols; k += 32, b0 += 1024, b1 += 1024, x += 64 * rows) {
    HWY_UNROLL(16) for (int i = 0; i < 16; ++i) {
      hwy::Prefetch(b0 + 1024 + 64 * i);
      hwy::Prefetch(b1 + 1024 + 64 * i);
    }
    TileLoad<4>(x, 64);
    TileLoad<6>(b0, 64);
    TileDotBF16<0, 4, 6>();
    TileLoad<7>(b1, 64);
    TileDotBF16<1, 4, 7>();
  }
  if (k < cols) {
    alignas(64) uint8_t padded[2][1024] = {};
    const size_t bytes = static_cast<size_t>((cols - k + 1) / 2 * 64);
    std::memcpy(padded[0], b0, bytes);
    std::memcpy(padded[1], b1, bytes);
    TileLoad<4>(x, 64);
    TileLoad<6>(padded[0], 64);
    TileDotBF16<0, 4, 6>();
    TileLoad<7>(padded[1], 64);
    TileDotBF16<1, 4, 7>();
  }
  TileStore<0>(acc, kRow);
  TileStore<1>(acc + kPanelRows, kRow);
}

void RunBF16Amx(const MatJob& job, int64_t begin, int64_t end, std::span<uint8_t> scratch) {
  RunAmxBf16<AmxPanels>(job, begin, end, scratch,
                        [&](const RowGroup& group, const uint8_t* x, int64_t first, int64_t last) HWY_ATTR {
                          const Epilogue epilogue(job, group.slice);
                          alignas(64) float acc[kAmxRows * 32];
                          for (int64_t pair = first; pair < last; ++pair) {
                            const PanelPair panels(job, group.slice, pair);
                            AmxStreamPair(panels, x, group.rows, job.w.cols, acc);
                            for (int64_t r = 0; r < group.rows; ++r)
                              epilogue.Row(acc + 32 * r, group.row_begin + r, panels.col, panels.n);
                          }
                        });
}

#endif  // TALLY_AMX

void RunBF16(const MatJob& job, int64_t begin, int64_t end, std::span<uint8_t> scratch) {
#if TALLY_AMX
  if (job.x.format.amx) return RunBF16Amx(job, begin, end, scratch);
#endif
#if TALLY_ARM
  if (job.x.format.kind == ActKind::kBF16 && CurrentByteDot() == ByteDot::kSmmla) return RunBf16Arm(job, begin, end, scratch);
#endif
  if (job.x.format.kind == ActKind::kBF16) {
    RunBF16Dot(job, begin, end);
  } else {
    RunFloat<VectorBF16>(job, begin, end, scratch);
  }
}

// The last pair of an odd K contains a zero, AMX's last tile up to 31.
ExecutedCost ExecutedBF16(ActKind kind, int64_t cols) {
#if TALLY_AMX
  if (kind == ActKind::kBF16 && AmxInUse()) return {.products = 2 * static_cast<uint64_t>((cols + 31) / 32 * 32 - cols)};
#endif
  return {.products = kind == ActKind::kBF16 ? 2 * static_cast<uint64_t>(cols % 2) : 0, .scaling = 0, .widening = 0};
}

FormatKernels KernelsBF16() { return {RunBF16, EmbedFloats<VectorBF16>, ExecutedBF16}; }

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tally {
HWY_EXPORT(KernelsBF16);
extern const WeightFormat kWeightFormatBF16;
constinit const WeightFormat kWeightFormatBF16 = MakePlain<FormatBF16>([] { return HWY_DYNAMIC_DISPATCH(KernelsBF16)(); });
}  // namespace tally
#endif
