// The scalar reference of EmbedOp. The Highway kernel gives the same bits: widening an element is exact or one
// rounding (a product by the scale), adding it another. Only what a NaN carries may differ.
#pragma once

#include <cstdint>
#include <span>

#include "engine/kernels/embed.h"
#include "engine/kernels/scalar.h"
#include "engine/kernels/unpack.h"

namespace tally {

// A task is one id. Scratch (only where rows are added): the widened row.
template <class S>
void EmbedRef(const EmbedOp& op, int64_t begin, int64_t end, std::span<uint8_t> scratch) {
  for (int64_t t = begin; t < end; ++t) {
    const int64_t id = op.ids[static_cast<size_t>(t)];
    float* out = op.out.Row(t);
    if (!op.add_to_out) {
      UnpackRow(op.table, 0, id, out);
      continue;
    }
    float* row = reinterpret_cast<float*>(scratch.data());
    UnpackRow(op.table, 0, id, row);
    for (int64_t i = 0; i < op.table.cols; ++i) out[i] = ToF32(S(out[i]) + S(row[i]));
  }
}

}  // namespace tally
