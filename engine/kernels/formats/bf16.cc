// SPDX-License-Identifier: Apache-2.0
// BF16 weights times f32 or bf16 activations.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/formats/bf16.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep

#include "engine/kernels/formats/bf16.h"
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

void RunBF16(const MatJob& job, int64_t begin, int64_t end, std::span<uint8_t> scratch) {
  if (job.x.format.kind == ActKind::kBF16) {
    RunBF16Dot(job, begin, end);
  } else {
    RunFloat<VectorBF16>(job, begin, end, scratch);
  }
}

// The last pair of an odd K contains a zero.
ExecutedCost ExecutedBF16(ActKind kind, int64_t cols) {
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
