// SPDX-License-Identifier: Apache-2.0
// What a product of few rows reads from memory first.
#pragma once

#include <cstdint>
#include <span>

#include "engine/kernels/matmul/matmul.h"

namespace tally {

// The weights that a thread reads first that does tasks [task, task + tasks), `chunk` at a time. Empty: they are not one stream, as with
// many rows or with experts.
std::span<const uint8_t> StreamOf(const MatMulOp& op, int64_t task, int64_t tasks, int64_t chunk);
std::span<const uint8_t> StreamOf(const GatedMatMulOp& op, int64_t task, int64_t tasks, int64_t chunk);
template <class Op>
std::span<const uint8_t> StreamOf(const Op&, int64_t, int64_t, int64_t) {
  return {};
}

}  // namespace tally
