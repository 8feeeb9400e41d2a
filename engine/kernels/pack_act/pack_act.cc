// SPDX-License-Identifier: Apache-2.0
// PackActOp: checks, costs and row order. The arithmetic is in pack_act_ref.h and pack_act_hwy.cc.
#include "engine/kernels/pack_act/pack_act.h"

#include <array>

#include "engine/kernels/describe.h"
#include "engine/kernels/pack_act/pack_act_hwy.h"
#include "engine/kernels/pack_act/pack_act_ref.h"
#include "engine/kernels/validate.h"

namespace tally {
namespace {

int64_t Tiles(const RowGroup& g, const ActFormat& format) {
  const int64_t size = TilingOf(format, g.rows).rows;
  return (g.rows + size - 1) / size;
}

int64_t TotalTiles(const ActPack& pack) {
  int64_t n = 0;
  for (const RowGroup& g : pack.groups) n += Tiles(g, pack.format);
  return n;
}

template <class RowFn>
void ForEachTile(const PackActOp& op, int64_t begin, int64_t end, const RowFn& pack_row) {
  int64_t first = 0;  // tile index of the group's first tile
  for (const RowGroup& g : op.pack.groups) {
    const ActTiling tiling = TilingOf(op.pack.format, g.rows);
    const int64_t tiles = Tiles(g, op.pack.format), size = tiling.rows;
    for (int64_t t = std::max(begin, first); t < std::min(end, first + tiles); ++t) {
      const int64_t r0 = (t - first) * size, rows = std::min(size, g.rows - r0);
      uint8_t* tile = op.pack.data + static_cast<size_t>(g.row_begin + r0) * op.pack.row_bytes();
      for (int64_t j = 0; j < rows; ++j) {
        const int64_t row = g.row_begin + r0 + j;
        pack_row(op.x.Row(op.row_index.empty() ? row : op.row_index[static_cast<size_t>(row)]), tile, rows, j, tiling.run);
      }
    }
    first += tiles;
    if (first >= end) break;
  }
}

// Quantising. Per element: a compare for the maximum, a multiply, and an add for the correction if the weight type needs one. Per block:
// two divides, a multiply (the scale) and one for each sum that minima need.
Cost Executed(const PackActOp& op, const CostAmounts& amounts) {
  Cost c = op.Useful(amounts);
  if (op.pack.format.kind != ActKind::kInt8) return c;
  const uint64_t n = amounts[Amount::kRows], cols = static_cast<uint64_t>(op.pack.cols);
  const ActFormat& format = op.pack.format;
  const uint64_t summed = format.offset != 0 || format.minima ? 1 : 0,
                 products = 1 + static_cast<uint64_t>(format.minimum_sums());
  c.AddFlops(WorkClass::kQuantize, n * ((2 + summed) * cols + products * (cols / kInt8Block)));
  c.AddSpecial(WorkClass::kQuantize, n * 2 * (cols / kInt8Block));
  return c;
}

TaskPlan Plan(const PackActOp& op, int) { return {.tasks = TotalTiles(op.pack), .chunk = 0, .scratch_bytes = 0}; }

}  // namespace

Status PackActOp::Validate() const {
  if (x.cols != pack.cols) return InternalError("activations of another width");
  TALLY_RETURN_IF_ERROR(CheckShape("activations", x, x.rows, x.cols));
  if (pack.data == nullptr && pack.rows > 0) return InternalError("a pack without memory");
  if (pack.format.kind == ActKind::kInt8 && pack.cols % kInt8Block != 0)
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

Cost PackActOp::Useful(const CostAmounts& amounts) const {
  Cost c;
  const uint64_t n = amounts[Amount::kRows], cols = static_cast<uint64_t>(pack.cols);
  c.AddBytes(ByteKind::kActivationsRead, n * cols * 4);
  c.AddBytes(ByteKind::kActivationsWritten, n * pack.row_bytes());
  return c;
}

void PackActOp::Describe(OpDescription& d) const {
  d.Add("x", kIn, "f32", Shape(x));
  DescribePack(pack, kOut, "pack", d);
  d.Set("offset", int64_t{pack.format.offset});
  d.Set("scale_mul", static_cast<double>(pack.format.scale_mul));
  if (!row_index.empty()) d.Set("row_index", List(row_index));
}

template <>
std::span<const Kernel<PackActOp>> Kernels<PackActOp>() {
  static constexpr std::array<Kernel<PackActOp>, 2> kTable = {{
      {"hwy", [](const PackActOp&) -> const char* { return nullptr; }, Plan,
       [](const PackActOp& op, int64_t b, int64_t e, std::span<uint8_t>) {
         ForEachTile(op, b, e, [&](const float* x, uint8_t* tile, int64_t rows, int64_t j, int64_t run) {
           PackRowHwy(op.pack, x, tile, rows, j, run);
         });
       },
       Executed},
      {"ref", [](const PackActOp&) -> const char* { return nullptr; }, Plan,
       [](const PackActOp& op, int64_t b, int64_t e, std::span<uint8_t>) {
         ForEachTile(op, b, e, [&](const float* x, uint8_t* tile, int64_t rows, int64_t j, int64_t run) {
           PackRowReference<float>(op.pack, x, tile, rows, j, run);
         });
       },
       Executed},
  }};
  return kTable;
}

}  // namespace tally
