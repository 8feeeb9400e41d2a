// SPDX-License-Identifier: Apache-2.0
// Helpers for the Validate() of ops. A wrong shape is a defect of the graph, so it is an internal error.
#pragma once

#include <cstdint>
#include <string>

#include "engine/base/mat.h"
#include "engine/base/status.h"

namespace tally {

// Ok if `m` is a [rows, cols] view with data and rows that do not overlap; else an error that names it.
template <class T>
Status CheckShape(const char* name, const Mat<T>& m, int64_t rows, int64_t cols) {
  if (m.rows != rows || m.cols != cols) {
    return InternalError(std::string(name) + " is [" + std::to_string(m.rows) + ", " + std::to_string(m.cols) + "], expected [" +
                         std::to_string(rows) + ", " + std::to_string(cols) + "]");
  }
  if (rows > 0 && cols > 0 && m.data == nullptr) return InternalError(std::string(name) + " has no data");
  if (rows > 1 && m.stride < cols) {
    return InternalError(std::string(name) + " has a row stride of " + std::to_string(m.stride) + ", less than its " +
                         std::to_string(cols) + " columns");
  }
  return {};
}

}  // namespace tally
