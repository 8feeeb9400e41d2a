// SPDX-License-Identifier: Apache-2.0
// Owned, 64-byte aligned, zero-filled buffers for activations and scratch (weights live in machine/machine.h's AnonymousMemory).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>

namespace tally {

template <class T>
class AlignedBuffer {
 public:
  // Grows (never shrinks) to at least `n` elements; contents are zeroed when memory is replaced. False: no memory.
  bool Resize(size_t n) {
    if (n <= capacity_) {
      size_ = n;
      return true;
    }
    if (n > (SIZE_MAX - 128) / sizeof(T)) return false;
    const size_t bytes = (n * sizeof(T) + 63) / 64 * 64;
    void* p = std::aligned_alloc(64, bytes);
    if (p == nullptr) return false;
    std::memset(p, 0, bytes);
    data_.reset(static_cast<T*>(p));
    size_ = capacity_ = n;
    return true;
  }

  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  size_t size() const { return size_; }
  T& operator[](size_t i) { return data_.get()[i]; }
  const T& operator[](size_t i) const { return data_.get()[i]; }
  std::span<T> span() { return {data_.get(), size_}; }

 private:
  struct Free {
    void operator()(T* p) const { std::free(p); }
  };
  std::unique_ptr<T[], Free> data_;
  size_t size_ = 0, capacity_ = 0;
};

}  // namespace tally
