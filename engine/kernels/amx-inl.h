// SPDX-License-Identifier: Apache-2.0
// AMX: the tile registers of Intel's processors, by inline assembly, for the target AVX3_DL where HwyTargetHasAmx(). Highway has no
// names for them, and GCC 12's intrinsics lose stores before a load. Intel SDM volume 1, chapter 18, and volume 2.
#include "hwy/highway.h"

#if defined(TALLY_KERNELS_AMX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TALLY_KERNELS_AMX_INL_H_
#undef TALLY_KERNELS_AMX_INL_H_
#else
#define TALLY_KERNELS_AMX_INL_H_
#endif

#undef TALLY_AMX
#define TALLY_AMX (HWY_TARGET == HWY_AVX3_DL && HWY_ARCH_X86_64)

#if TALLY_AMX

#include <cstddef>
#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {

// The shapes of the eight tiles, as ldtilecfg reads them.
struct alignas(64) TileShapes {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t bytes[16] = {};  // of a row
  uint8_t rows[16] = {};

  void Set(int tile, int64_t n, int row_bytes) {
    rows[tile] = static_cast<uint8_t>(n);
    bytes[tile] = static_cast<uint16_t>(row_bytes);
  }
};

// While it lives, the thread has tiles: nothing in them survives Shape().
class Tiles {
 public:
  Tiles() = default;
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;
  ~Tiles() { asm volatile("tilerelease" ::: "memory"); }

  static void Shape(const TileShapes& shapes) { asm volatile("ldtilecfg %0" ::"m"(shapes) : "memory"); }
};

template <int kTile>
HWY_INLINE void TileZero() {
  asm volatile("tilezero %%tmm%c0" ::"i"(kTile));
}
// Rows `stride` bytes apart.
template <int kTile>
HWY_INLINE void TileLoad(const void* p, int64_t stride) {
  asm volatile("tileloadd (%1,%2,1), %%tmm%c0" ::"i"(kTile), "r"(p), "r"(stride) : "memory");
}
template <int kTile>
HWY_INLINE void TileStore(void* p, int64_t stride) {
  asm volatile("tilestored %%tmm%c0, (%1,%2,1)" ::"i"(kTile), "r"(p), "r"(stride) : "memory");
}
// Sums += left x right, where row i of the right tile has elements 2i and 2i + 1 of each column. For each 32 elements of k: the
// products of even k are summed by fused multiply-adds from 0, in order, and so are those of odd k; then sum += even + odd.
// Denormals are zeros; rounding is to nearest whatever the thread's mode.
template <int kSums, int kLeft, int kRight>
HWY_INLINE void TileDotBF16() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSums), "i"(kLeft), "i"(kRight));
}
// Sums of i32 += left (i8) x right (i8), where row i of the right tile has elements 4i to 4i + 3 of each column.
template <int kSums, int kLeft, int kRight>
HWY_INLINE void TileDotInt8() {
  asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSums), "i"(kLeft), "i"(kRight));
}

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#endif  // TALLY_AMX

#endif  // include guard
