// SPDX-License-Identifier: Apache-2.0
// Gathers rows of a table: widens each row to f32, scales it, and stores it or adds it to the output.
#include "engine/kernels/formats/vectors-inl.h"
#include "engine/kernels/lanes-inl.h"

#if defined(TALLY_KERNELS_EMBED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TALLY_KERNELS_EMBED_INL_H_
#undef TALLY_KERNELS_EMBED_INL_H_
#else
#define TALLY_KERNELS_EMBED_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "engine/kernels/embed/embed.h"

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {

using EmbedD = hn::CappedTag<float, 32>;  // lanes are columns
using EmbedV = hn::Vec<EmbedD>;

template <class Tail>
HWY_INLINE void PutColumns(Tail tail, EmbedV v, const EmbedOp& op, float* out, size_t count) {
  const EmbedD d;
  if (op.scale != 1) v = hn::Mul(v, hn::Set(d, op.scale));
  if (op.add_to_out) v = hn::Add(LoadLanes(tail, d, out, count), v);
  StoreLanes(tail, v, d, out, count);
}

// Calls row(id, out) for tasks [begin, end).
template <class Row>
HWY_INLINE void EmbedRows(const EmbedOp& op, int64_t begin, int64_t end, const Row& row) {
  for (int64_t t = begin; t < end; ++t) row(op.ids[static_cast<size_t>(t)] + op.first_row, op.out.Row(t));
}

// F32, F16, BF16, 32 columns at a time. F::WidenColumns(d, bits) widens a vector of elements. A row of a panel consists of 4-byte
// words 64 bytes apart.
template <class F>
void EmbedFloats(const EmbedOp& op, int64_t begin, int64_t end) {
  using Bits = typename F::Bits;
  const WeightView& w = op.table;
  const bool panel = w.layout == WeightLayout::kPanel16;
  const int64_t rows = panel ? kPanelRows : 1;
  EmbedRows(op, begin, end, [&](int64_t row, float* out) HWY_ATTR {
    const uint8_t* block = w.Panel(0, row / rows) + 4 * (row % rows);
    for (int64_t k = 0; k < w.cols; k += 32) {
      const int64_t n = std::min<int64_t>(32, w.cols - k);
      const uint8_t* bytes = block + static_cast<size_t>(rows * k) * sizeof(Bits);
      HWY_ALIGN uint8_t words[32 * sizeof(Bits)];
      if (panel) {
        const size_t used = static_cast<size_t>(n) * sizeof(Bits);
        for (size_t at = 0; at < used; at += 4) std::memcpy(words + at, bytes + kPanelRows * at, 4);
        bytes = words;
      }
      const EmbedD d;
      ForLanes(d, n, [&](auto tail, int64_t i, size_t count) HWY_ATTR {
        const hn::Rebind<Bits, EmbedD> d_bits;
        const auto bits = LoadLanes(tail, d_bits, reinterpret_cast<const Bits*>(bytes) + i, count);
        PutColumns(tail, F::WidenColumns(d, bits), op, out + k + i, count);
      });
    }
  });
}

template <class F>
void EmbedQuantised(const EmbedOp& op, int64_t begin, int64_t end) {
  const WeightView& w = op.table;
  const bool panel = w.layout == WeightLayout::kPanel16, direct = !op.add_to_out && op.scale == 1;
  EmbedRows(op, begin, end, [&](int64_t row, float* out) HWY_ATTR {
    const uint8_t* block = panel ? w.Panel(0, row / kPanelRows) : w.Panel(0, row);
    for (int64_t k = 0; k < w.cols; k += F::kPanelCols, block += panel ? kPanelBlockBytes<F> : sizeof(typename F::Block)) {
      HWY_ALIGN uint8_t bytes[kPanelRowBytes<F>];
      HWY_ALIGN float values[F::kPanelCols];
      if (panel) GatherRow<F>(block, static_cast<size_t>(row % kPanelRows), bytes);
      F::Widen(panel ? bytes : block, panel, direct ? out + k : values);
      const EmbedD d;
      for (size_t i = 0; !direct && i < F::kPanelCols; i += hn::Lanes(d)) {
        PutColumns(std::false_type(), hn::Load(d, values + i), op, out + k + i, hn::Lanes(d));
      }
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#endif  // include guard
