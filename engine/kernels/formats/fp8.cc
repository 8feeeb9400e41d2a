// SPDX-License-Identifier: Apache-2.0
// FP8 weights times bf16 or f32 activations.
//
// bf16: the codes are exact in bf16. Per block of 128 k, pairs of k alternate between two sums (DotPair), so that one row's chain of
// additions does not bound its speed; then acc = fma(scale, first + second, acc). By AMX: acc = fma(scale, four tile products, acc).
// f32: acc = fma(scale * code, x, acc), k in order.
#ifndef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/formats/fp8.cc"
#endif
#include "hwy/foreach_target.h"  // IWYU pragma: keep

#include "engine/base/amx.h"
#include "engine/kernels/formats/fp8.h"
#include "engine/kernels/matmul/amx_bf16-inl.h"
#include "engine/kernels/matmul/float-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {

inline constexpr int64_t kBlockCols = FormatFP8::kPanelCols;
inline constexpr size_t kBlockBytes = kPanelBlockBytes<FormatFP8>;
inline constexpr int kBlockSteps = FormatFP8::kSteps;
// Rows of a microkernel call: of one panel whose codes are widened in registers, and of two panels widened before.
inline constexpr int kFp8StreamTile = kLanes >= 16 ? 6 : (kLanes == 8 ? 2 : 1);
inline constexpr int kFp8SubTile = kLanes >= 16 ? 6 : (kLanes == 8 ? 2 : 1);

// One panel and T rows. x: [pairs][tile] of two bf16, from the first of the T rows on. acc: [T][32]; 16 columns are written.
template <int T>
HWY_NOINLINE void Fp8Stream(const uint8_t* HWY_RESTRICT panel, const uint8_t* HWY_RESTRICT x, int tile, int64_t blocks,
                            float* HWY_RESTRICT acc) {
  const DF df;
  const DU du;
  const E4M3Pairs pairs;
  VF total[T][kPanelVecs];
  HWY_UNROLL(6) for (int j = 0; j < T; ++j) HWY_UNROLL(4) for (int v = 0; v < kPanelVecs; ++v) total[j][v] = hn::Zero(df);
  for (int64_t b = 0; b < blocks; ++b, panel += kBlockBytes) {
    VF f[T][2][kPanelVecs];
    HWY_UNROLL(6) for (int j = 0; j < T; ++j) {
      HWY_UNROLL(4) for (int v = 0; v < kPanelVecs; ++v) f[j][0][v] = f[j][1][v] = hn::Zero(df);
    }
    const uint8_t* step = panel + kStepBytes;
    for (int s = 0; s < kBlockSteps; ++s, step += kStepBytes, x += 8 * tile) {
      PrefetchStream(step);
      HWY_UNROLL(4) for (int v = 0; v < kPanelVecs; ++v) {
        VU w[2];
        pairs.Widen(hn::LoadU(du, reinterpret_cast<const uint32_t*>(step) + kLanes * v), w[0], w[1]);
        HWY_UNROLL(6) for (int j = 0; j < T; ++j) {
          HWY_UNROLL(2) for (int h = 0; h < 2; ++h) {
            f[j][h][v] = DotPair(w[h], hn::BitCast(du, Broadcast4(x + 4 * (h * tile + j))), f[j][h][v]);
          }
        }
      }
    }
    HWY_UNROLL(4) for (int v = 0; v < kPanelVecs; ++v) {
      const VF scale = hn::LoadU(df, reinterpret_cast<const float*>(panel) + kLanes * v);
      HWY_UNROLL(6) for (int j = 0; j < T; ++j) total[j][v] = hn::MulAdd(scale, hn::Add(f[j][0][v], f[j][1][v]), total[j][v]);
    }
  }
  HWY_UNROLL(6) for (int j = 0; j < T; ++j) {
    HWY_UNROLL(4) for (int v = 0; v < kPanelVecs; ++v) hn::StoreU(total[j][v], df, acc + 32 * j + kLanes * v);
  }
}

// Widens block `b` of two panels to [64 pairs][32] of two bf16.
void WidenPairs(const uint8_t* p0, const uint8_t* p1, int64_t b, uint32_t* HWY_RESTRICT out) {
  const DU du;
  const E4M3Pairs pairs;
  const uint8_t* const panels[2] = {p0 + static_cast<size_t>(b) * kBlockBytes, p1 + static_cast<size_t>(b) * kBlockBytes};
  for (int s = 0; s < kBlockSteps; ++s) {
    for (int v = 0; v < 2 * kPanelVecs; ++v) {
      const uint8_t* step = panels[v / kPanelVecs] + kStepBytes * static_cast<size_t>(s + 1);
      VU first, second;
      pairs.Widen(hn::LoadU(du, reinterpret_cast<const uint32_t*>(step) + kLanes * (v % kPanelVecs)), first, second);
      hn::Store(first, du, out + 64 * s + kLanes * v);
      hn::Store(second, du, out + 64 * s + 32 + kLanes * v);
    }
  }
}

// Adds a block's products of T rows to acc [T][32]. w: [64 pairs][32]; scales: [32].
template <int T>
HWY_NOINLINE void Fp8Micro(const uint32_t* HWY_RESTRICT w, const float* HWY_RESTRICT scales, const uint8_t* HWY_RESTRICT x,
                           int tile, float* HWY_RESTRICT acc) {
  const DF df;
  const DU du;
  constexpr int kVecs = kLanes >= 16 ? 2 : kPanelVecs;
  VF f[T][2][kVecs];
  HWY_UNROLL(6) for (int j = 0; j < T; ++j) {
    HWY_UNROLL(4) for (int v = 0; v < kVecs; ++v) f[j][0][v] = f[j][1][v] = hn::Zero(df);
  }
  for (int s = 0; s < kBlockSteps; ++s, w += 64, x += 8 * tile) {
    HWY_UNROLL(2) for (int h = 0; h < 2; ++h) {
      VU wv[kVecs];
      HWY_UNROLL(4) for (int v = 0; v < kVecs; ++v) wv[v] = hn::Load(du, w + 32 * h + kLanes * v);
      HWY_UNROLL(6) for (int j = 0; j < T; ++j) {
        const VU b = hn::BitCast(du, Broadcast4(x + 4 * (h * tile + j)));
        HWY_UNROLL(4) for (int v = 0; v < kVecs; ++v) f[j][h][v] = DotPair(wv[v], b, f[j][h][v]);
      }
    }
  }
  HWY_UNROLL(6) for (int j = 0; j < T; ++j) {
    HWY_UNROLL(4) for (int v = 0; v < kVecs; ++v) {
      const VF scale = hn::Load(df, scales + kLanes * v), sum = hn::Add(f[j][0][v], f[j][1][v]);
      float* const to = acc + 32 * j + kLanes * v;
      hn::Store(hn::MulAdd(scale, sum, hn::Load(df, to)), df, to);
    }
  }
}

// Many rows: each block of the two panels is widened once. Scratch: a block, its scales, the sums of all rows.
void Fp8Group(const MatJob& job, const RowGroup& group, const PanelPair& panels, const Epilogue& epilogue,
              std::span<uint8_t> scratch) {
  constexpr int kTile = ActTile(ActKind::kBF16);
  uint32_t* const w = reinterpret_cast<uint32_t*>(scratch.data());
  float* const scales = reinterpret_cast<float*>(w + kBlockCols / 2 * 32);
  float* const acc = scales + 32;
  std::memset(acc, 0, static_cast<size_t>(group.rows) * 32 * sizeof(float));
  const size_t row_bytes = job.x.row_bytes();
  for (int64_t b = 0; b < job.w.cols / kBlockCols; ++b) {
    WidenPairs(panels.p0, panels.p1, b, w);
    std::memcpy(scales, panels.p0 + static_cast<size_t>(b) * kBlockBytes, kStepBytes);
    std::memcpy(scales + kPanelRows, panels.p1 + static_cast<size_t>(b) * kBlockBytes, kStepBytes);
    for (int64_t r = 0; r < group.rows; r += kTile) {
      const int tile = static_cast<int>(std::min<int64_t>(kTile, group.rows - r));
      const uint8_t* x =
          job.x.data + static_cast<size_t>(group.row_begin + r) * row_bytes + static_cast<size_t>(b * kBlockCols / 2 * tile) * 4;
      for (int j = 0; j < tile;) {
        j += WithSubTile<kFp8SubTile>(tile - j, [&]<int T>() HWY_ATTR {
          Fp8Micro<T>(w, scales, x + 4 * j, tile, acc + 32 * (r + j));
          if constexpr (kLanes < 16) {
            Fp8Micro<T>(w + kPanelRows, scales + kPanelRows, x + 4 * j, tile, acc + 32 * (r + j) + kPanelRows);
          }
        });
      }
    }
  }
  for (int64_t r = 0; r < group.rows; ++r) epilogue.Row(acc + 32 * r, group.row_begin + r, panels.col, panels.n);
}

// Widens k in [k0, k0 + n) of two panels, whole blocks, to [n][32] f32.
void WidenFp8(const uint8_t* p0, const uint8_t* p1, int64_t k0, int64_t n, float* HWY_RESTRICT out) {
  const DF df;
  const DU du;
  for (int64_t k = 0; k < n; k += 4) {
    const size_t at = static_cast<size_t>((k0 + k) / kBlockCols) * kBlockBytes;
    const size_t step = kStepBytes * static_cast<size_t>(1 + (k0 + k) % kBlockCols / 4);
    for (int v = 0; v < 2 * kPanelVecs; ++v) {
      const uint8_t* block = (v < kPanelVecs ? p0 : p1) + at;
      const VF scale = hn::LoadU(df, reinterpret_cast<const float*>(block) + kLanes * (v % kPanelVecs));
      const VU word = hn::LoadU(du, reinterpret_cast<const uint32_t*>(block + step) + kLanes * (v % kPanelVecs));
      const VU codes[4] = {word, hn::ShiftRight<16>(word), hn::ShiftRight<8>(word), hn::ShiftRight<24>(word)};
      HWY_UNROLL(4) for (int i = 0; i < 4; ++i) {
        hn::Store(hn::Mul(scale, WidenE4M3(df, codes[i])), df, out + 32 * (k + i) + kLanes * v);
      }
    }
  }
}

#if TALLY_AMX

struct AmxFp8 {
  static constexpr int64_t kPiece = kBlockCols;
  static constexpr bool kScaled = true;
  static constexpr size_t kBuffer = 2 * kBlockCols * 32;

  static PairTiles Pair(const uint8_t* p0, const uint8_t* p1, int64_t k, int64_t, uint8_t* buffer) {
    WidenPairs(p0, p1, k / kBlockCols, reinterpret_cast<uint32_t*>(buffer));
    return {buffer, buffer + 64, 128, 16 * 128};
  }
  static const float* Scales(const uint8_t* panel, int64_t k) {
    return reinterpret_cast<const float*>(panel + static_cast<size_t>(k / kBlockCols) * kBlockBytes);
  }
};

// At most 16 rows, one panel. Blocks are widened one ahead: a tile that is loaded right after its bytes were stored would wait for them.
// acc: [rows][32]; 16 columns are written.
HWY_NOINLINE void AmxStreamFp8(const uint8_t* panel, const uint8_t* x, int64_t rows, int64_t blocks, float* HWY_RESTRICT acc) {
  const DF df;
  const DU du;
  const E4M3Pairs pairs;
  alignas(64) uint32_t w[2][kBlockCols / 2][16];
  alignas(64) float sums[2][kAmxRows][16];
  const auto widen = [&](int64_t b) HWY_ATTR {
    const uint8_t* step = panel + static_cast<size_t>(b) * kBlockBytes + kStepBytes;
    for (int s = 0; s < kBlockSteps; ++s, step += kStepBytes) {
      hwy::Prefetch(step + 1024);
      VU first, second;
      pairs.Widen(hn::LoadU(du, reinterpret_cast<const uint32_t*>(step)), first, second);
      hn::Store(first, du, w[b % 2][2 * s]);
      hn::Store(second, du, w[b % 2][2 * s + 1]);
    }
  };
  const auto scale = [&](int64_t b) HWY_ATTR {
    const VF scales = hn::LoadU(df, AmxFp8::Scales(panel, b * kBlockCols));
    for (int64_t r = 0; r < rows; ++r) {
      float* const to = acc + 32 * r;
      hn::StoreU(hn::MulAdd(scales, hn::Load(df, sums[b % 2][r]), b == 0 ? hn::Zero(df) : hn::LoadU(df, to)), df, to);
    }
  };
  widen(0);
  for (int64_t b = 0; b < blocks; ++b) {
    if (b + 1 < blocks) widen(b + 1);
    TileZero<0>();
    for (int s = 0; s < kBlockCols / 32; ++s, x += 64 * rows) {
      TileLoad<4>(x, 64);
      TileLoad<6>(w[b % 2][16 * s], 64);
      TileDotBF16<0, 4, 6>();
    }
    TileStore<0>(sums[b % 2], 64);
    if (b > 0) scale(b - 1);
  }
  scale(blocks - 1);
}

void RunFP8Amx(const MatJob& job, int64_t begin, int64_t end, std::span<uint8_t> scratch) {
  RunAmxBf16<AmxFp8>(job, begin, end, scratch,
                     [&](const RowGroup& group, const uint8_t* x, int64_t first, int64_t last) HWY_ATTR {
                       StreamPanels<kAmxRows>(job, group, first, last, [&](const uint8_t* panel, float* to) HWY_ATTR {
                         AmxStreamFp8(panel, x, group.rows, job.w.cols / kBlockCols, to);
                       });
                     });
}

#endif  // TALLY_AMX

void RunFP8(const MatJob& job, int64_t begin, int64_t end, std::span<uint8_t> scratch) {
#if TALLY_AMX
  if (job.x.format.amx) return RunFP8Amx(job, begin, end, scratch);
#endif
  const ActKind kind = job.x.format.kind;
  const int64_t blocks = job.w.cols / kBlockCols;
  ForEachGroup(job, begin, end, [&](const RowGroup& group, int64_t first, int64_t last) HWY_ATTR {
    if (kind == ActKind::kBF16 && group.rows <= StreamRows(kind)) {
      const uint8_t* x = job.x.data + static_cast<size_t>(group.row_begin) * job.x.row_bytes();
      const int rows = static_cast<int>(group.rows);
      StreamPanels<StreamRows(ActKind::kBF16)>(job, group, first, last, [&](const uint8_t* panel, float* to) HWY_ATTR {
        for (int j = 0; j < rows;) {
          j += WithSubTile<kFp8StreamTile>(rows - j,
                                           [&]<int T>() HWY_ATTR { Fp8Stream<T>(panel, x + 4 * j, rows, blocks, to + 32 * j); });
        }
      });
      return;
    }
    const Epilogue epilogue(job, group.slice);
    for (int64_t pair = first; pair < last; ++pair) {
      const PanelPair panels(job, group.slice, pair);
      if (kind == ActKind::kBF16) {
        Fp8Group(job, group, panels, epilogue, scratch);
      } else {
        FloatGroup(job, group, panels, epilogue, scratch, WidenFp8);
      }
    }
  });
}

// bf16: per block a multiply-add, and without AMX the addition of the two sums. f32: the scale times each weight.
ExecutedCost ExecutedFP8(ActKind kind, int64_t cols) {
#if TALLY_AMX
  if (kind == ActKind::kBF16 && AmxInUse()) return {.scaling = 2 * static_cast<uint64_t>(cols / kBlockCols)};
#endif
  if (kind == ActKind::kBF16) return {.products = 0, .scaling = 3 * static_cast<uint64_t>(cols / kBlockCols), .widening = 0};
  return {.products = 0, .scaling = 0, .widening = static_cast<uint64_t>(cols)};
}

FormatKernels KernelsFP8() { return {RunFP8, EmbedQuantised<VectorFP8>, ExecutedFP8}; }

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tally {
HWY_EXPORT(KernelsFP8);
extern const WeightFormat kWeightFormatFP8;
constinit const WeightFormat kWeightFormatFP8 = {.act = FormatFP8::kAct,
                                                 .int8 = {},
                                                 .narrow = false,
                                                 .powers_of_2 = false,
                                                 .panel_cols = FormatFP8::kPanelCols,
                                                 .strips = FormatFP8::kStrips,
                                                 .panel_block_bytes = kPanelBlockBytes<FormatFP8>,
                                                 .decoded_block_bytes = 0,
                                                 .widening = FormatFP8::kWidening,
                                                 .decode = DecodeBlocks<FormatFP8>,
                                                 .encode = EncodeBlocks<FormatFP8>,
                                                 .pack = PackQuantised<FormatFP8>,
                                                 .unpack = UnpackQuantised<FormatFP8>,
                                                 .int8_terms = nullptr,
                                                 .kernels = [] { return HWY_DYNAMIC_DISPATCH(KernelsFP8)(); }};
}  // namespace tally
#endif
