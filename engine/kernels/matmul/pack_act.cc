// PackActOp: the scalar reference. Quantising counts, per block of 32: 32 compares for the maximum, 32 multiplies, 32 adds for
// the correction where the weight type needs one, two divides and one multiply (the scale).
//
// The Highway kernel's packs are equal bit for bit.
#include <array>
#include <cmath>
#include <cstring>

#include "engine/base/float16.h"
#include "engine/kernels/matmul/matmul.h"
#include "engine/kernels/matmul/pack_act_hwy.h"
#include "engine/kernels/scalar.h"

namespace tally {
namespace {

int64_t Tiles(const RowGroup& g, ActKind kind) { return (g.rows + ActTile(kind) - 1) / ActTile(kind); }

int64_t TotalTiles(const ActPack& pack) {
  int64_t n = 0;
  for (const RowGroup& g : pack.groups) n += Tiles(g, pack.format.kind);
  return n;
}

template <class T>
void Store(uint8_t* p, T v) {
  std::memcpy(p, &v, sizeof(v));
}

template <class S>
void PackRowReference(const ActPack& pack, const float* x, uint8_t* tile, int64_t rows, int64_t j) {
  const int64_t cols = pack.cols;
  switch (pack.format.kind) {
    case ActKind::kF32:
      for (int64_t k = 0; k < cols; ++k) Store(tile + (k * rows + j) * 4, x[k]);
      return;
    case ActKind::kBF16:
      for (int64_t k = 0; k < (cols + 1) / 2 * 2; ++k) {
        Store(tile + ((k / 2) * rows + j) * 4 + (k % 2) * 2, k < cols ? F32ToBF16(x[k]) : uint16_t{0});
      }
      return;
    case ActKind::kInt8:
      for (int64_t kb = 0; kb < cols / 32; ++kb) {
        uint8_t* block = tile + kb * 40 * rows;
        S amax(0.0f);
        bool finite = true;
        for (int i = 0; i < 32; ++i) {
          const float v = x[32 * kb + i];
          finite = finite && std::isfinite(v);
          amax = Max(amax, Abs(S(v)));
        }
        const S inverse = finite && ToF32(amax) > 0 ? S(127.0f) / amax : S(0.0f);
        const S scale = amax / S(127.0f) * S(pack.format.scale_mul);
        S sum(0.0f);
        for (int i = 0; i < 32; ++i) {
          const S scaled = finite ? S(x[32 * kb + i]) * inverse : S(0.0f);
          const float q = std::nearbyint(ToF32(scaled));
          if (pack.format.offset != 0) sum = sum + S(q);
          Store(block + ((i / 4) * rows + j) * 4 + i % 4, static_cast<int8_t>(q));
        }
        Store(block + 32 * rows + 4 * j, finite ? ToF32(scale) : std::nanf(""));
        Store(block + 36 * rows + 4 * j, -pack.format.offset * static_cast<int32_t>(ToF32(sum)));
      }
      return;
  }
}

template <class RowFn>
void ForEachTile(const PackActOp& op, int64_t begin, int64_t end, const RowFn& pack_row) {
  int64_t first = 0;  // tile index of the group's first tile
  for (const RowGroup& g : op.pack.groups) {
    const int64_t tiles = Tiles(g, op.pack.format.kind), size = ActTile(op.pack.format.kind);
    for (int64_t t = std::max(begin, first); t < std::min(end, first + tiles); ++t) {
      const int64_t r0 = (t - first) * size, rows = std::min(size, g.rows - r0);
      uint8_t* tile = op.pack.data + static_cast<size_t>(g.row_begin + r0) * op.pack.row_bytes();
      for (int64_t j = 0; j < rows; ++j) {
        const int64_t row = g.row_begin + r0 + j;
        pack_row(op.x.Row(op.row_index.empty() ? row : op.row_index[static_cast<size_t>(row)]), tile, rows, j);
      }
    }
    first += tiles;
    if (first >= end) break;
  }
}

TaskPlan Plan(const PackActOp& op, int) { return {.tasks = TotalTiles(op.pack), .chunk = 0, .scratch_bytes = 0}; }

}  // namespace

Status PackActOp::Validate() const {
  if (x.cols != pack.cols) return InternalError("activations of another width");
  if (pack.format.kind == ActKind::kInt8 && pack.cols % 32 != 0)
    return InternalError("int8 packing needs a multiple of 32 columns");
  if (row_index.empty() ? x.rows < pack.rows : static_cast<int64_t>(row_index.size()) != pack.rows) {
    return InternalError("rows do not fit");
  }
  for (int32_t r : row_index) {
    if (r < 0 || r >= x.rows) return InternalError("row index out of range");
  }
  int64_t next = 0;
  for (const RowGroup& g : pack.groups) {
    if (g.row_begin != next || g.rows < 0) return InternalError("row groups do not follow on");
    next += g.rows;
  }
  return next == pack.rows ? Status() : InternalError("row groups do not cover the pack");
}

Cost PackActOp::Useful() const {
  Cost c;
  const uint64_t n = static_cast<uint64_t>(pack.rows), cols = static_cast<uint64_t>(pack.cols);
  if (pack.format.kind == ActKind::kInt8) {
    c.AddFlops(WorkClass::kQuantize, n * ((pack.format.offset != 0 ? 3 : 2) * cols + cols / 32));
    c.AddSpecial(WorkClass::kQuantize, n * 2 * (cols / 32));
  }
  c.AddBytes(ByteKind::kActivationsRead, n * cols * 4);
  c.AddBytes(ByteKind::kActivationsWritten, n * pack.row_bytes());
  return c;
}

template <>
std::span<const Kernel<PackActOp>> Kernels<PackActOp>() {
  static constexpr std::array<Kernel<PackActOp>, 2> kTable = {{
      {"hwy", [](const PackActOp&) -> const char* { return nullptr; }, Plan,
       [](const PackActOp& op, int64_t b, int64_t e, std::span<uint8_t>) {
         ForEachTile(op, b, e,
                     [&](const float* x, uint8_t* tile, int64_t rows, int64_t j) { PackRowHwy(op.pack, x, tile, rows, j); });
       },
       [](const PackActOp& op) { return op.Useful(); }},
      {"ref", [](const PackActOp&) -> const char* { return nullptr; }, Plan,
       [](const PackActOp& op, int64_t b, int64_t e, std::span<uint8_t>) {
         ForEachTile(op, b, e, [&](const float* x, uint8_t* tile, int64_t rows, int64_t j) {
           PackRowReference<float>(op.pack, x, tile, rows, j);
         });
       },
       [](const PackActOp& op) { return op.Useful(); }},
  }};
  return kTable;
}

}  // namespace tally
