// SPDX-License-Identifier: Apache-2.0
// Counts what the process allocates, by standing before glibc's malloc. In one source file of a program only.
#pragma once

#include <malloc.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "tests/support/sanitizers.h"

#if defined(__GLIBC__) && !defined(TALLY_SHADOW_MEMORY)
#define TALLY_COUNTS_ALLOCATIONS 1

namespace tally {

struct Allocations {
  static inline std::atomic<int64_t> held{0}, most{0};  // bytes now, and at the most since Begin
  static inline std::atomic<size_t> largest{0};         // single request since Begin

  static void Begin() {
    most = held.load();
    largest = 0;
  }
  static void* Took(void* p, size_t asked) {
    if (asked > largest) largest = asked;
    if (p == nullptr) return p;
    const int64_t now = held += static_cast<int64_t>(malloc_usable_size(p));
    if (now > most) most = now;
    return p;
  }
  static void Gave(void* p) {
    if (p != nullptr) held -= static_cast<int64_t>(malloc_usable_size(p));
  }
};

}  // namespace tally

extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
void __libc_free(void*);

void* malloc(size_t n) { return tally::Allocations::Took(__libc_malloc(n), n); }
void* calloc(size_t n, size_t each) { return tally::Allocations::Took(__libc_calloc(n, each), n * each); }
void* realloc(void* p, size_t n) {
  tally::Allocations::Gave(p);
  return tally::Allocations::Took(__libc_realloc(p, n), n);
}
void* memalign(size_t alignment, size_t n) { return tally::Allocations::Took(__libc_memalign(alignment, n), n); }
void* aligned_alloc(size_t alignment, size_t n) { return memalign(alignment, n); }
int posix_memalign(void** out, size_t alignment, size_t n) {
  *out = memalign(alignment, n);
  return *out == nullptr ? ENOMEM : 0;
}
void free(void* p) {
  tally::Allocations::Gave(p);
  __libc_free(p);
}
}
#endif

namespace tally {

// What is allocated from here on: bytes at the most, and in one request. 0 where nothing is counted.
class AllocationPeak {
 public:
#if defined(TALLY_COUNTS_ALLOCATIONS)
  AllocationPeak() : before_(Allocations::held) { Allocations::Begin(); }
  int64_t Bytes() const { return Allocations::most - before_; }
  int64_t Largest() const { return static_cast<int64_t>(Allocations::largest); }

 private:
  int64_t before_;
#else
  AllocationPeak() {}
  int64_t Bytes() const { return 0; }
  int64_t Largest() const { return 0; }
#endif
};

}  // namespace tally
