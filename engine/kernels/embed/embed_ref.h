// SPDX-License-Identifier: Apache-2.0
// The scalar reference of EmbedOp. The Highway kernel gives the same bits, except for the payload of a NaN: both round at the same
// places (the product by a block's scale, EmbedOp::scale, the addition).
#pragma once

#include <cstdint>
#include <span>

#include "engine/kernels/embed/embed.h"
#include "engine/kernels/scalar.h"
#include "engine/kernels/unpack.h"

namespace tally {

// A task is one id. Scratch, if rows are scaled or added: the widened row.
template <class S>
void EmbedRef(const EmbedOp& op, int64_t begin, int64_t end, std::span<uint8_t> scratch) {
  for (int64_t t = begin; t < end; ++t) {
    const int64_t id = int64_t{op.ids[static_cast<size_t>(t)]} + op.first_row;
    float* out = op.out.Row(t);
    if (!op.add_to_out && op.scale == 1) {
      UnpackRow(op.table, 0, id, out);
      continue;
    }
    float* row = reinterpret_cast<float*>(scratch.data());
    UnpackRow(op.table, 0, id, row);
    for (int64_t i = 0; i < op.table.cols; ++i) {
      S x(row[i]);
      if (op.scale != 1) x = x * S(op.scale);
      out[i] = ToF32(op.add_to_out ? S(out[i]) + x : x);
    }
  }
}

}  // namespace tally
