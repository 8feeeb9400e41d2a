// SPDX-License-Identifier: Apache-2.0
// A view of a dense row-major matrix [rows, cols]; owns nothing and checks nothing.
#pragma once

#include <cstdint>
#include <type_traits>

namespace tally {

template <class T>
struct Mat {
  T* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;  // elements from a row to the next

  Mat() = default;
  Mat(T* d, int64_t r, int64_t c) : data(d), rows(r), cols(c), stride(c) {}
  Mat(T* d, int64_t r, int64_t c, int64_t s) : data(d), rows(r), cols(c), stride(s) {}
  template <class U>
  requires(!std::is_same_v<U, T> && std::is_same_v<const U, T>) Mat(const Mat<U>& m)  // NOLINT: U to const U
      : data(m.data), rows(m.rows), cols(m.cols), stride(m.stride) {}

  T* Row(int64_t r) const { return data + r * stride; }
  bool empty() const { return data == nullptr; }
  Mat Rows(int64_t begin, int64_t count) const { return {data + begin * stride, count, cols, stride}; }
  Mat Cols(int64_t begin, int64_t count) const { return {data + begin, rows, count, stride}; }
};

}  // namespace tally
