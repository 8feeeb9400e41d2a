// SPDX-License-Identifier: Apache-2.0
// What kernel tests share: every Highway target in turn, a task runner that shuffles, arrays that end at a
// page nobody may touch, reproducible random fills, and comparison within a tolerance.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/base/aligned.h"
#include "engine/base/mat.h"
#include "engine/kernels/op.h"
#include "tests/support/targets.h"

namespace tally {

// Random numbers that are the same on every platform. A test's base seed is fixed, or TALLY_TEST_SEED of the
// environment; put `SCOPED_TRACE(random.Trace())` beside it so that a failure prints it.
class Random {
 public:
  explicit Random(uint64_t test_seed) : seed_(Environment(test_seed)), engine_(seed_) {}
  uint64_t seed() const { return seed_; }
  std::string Trace() const { return std::to_string(seed_) + " is the seed (TALLY_TEST_SEED sets another)"; }

  uint64_t Bits() { return engine_(); }
  uint64_t Below(uint64_t n) { return engine_() % n; }
  int64_t Between(int64_t lo, int64_t hi) { return lo + static_cast<int64_t>(Below(static_cast<uint64_t>(hi - lo + 1))); }
  float Uniform(float lo, float hi) {
    return static_cast<float>(lo + (static_cast<double>(hi) - lo) * (static_cast<double>(engine_() >> 11) * 0x1p-53));
  }
  float Normal() {  // sum of 12 uniforms of 21 bits each: close enough, and the same everywhere
    uint64_t sum = 0;
    for (int i = 0; i < 4; ++i) {
      const uint64_t bits = engine_();
      sum += (bits >> 43) + (bits >> 22 & 0x1FFFFF) + (bits >> 1 & 0x1FFFFF);
    }
    return static_cast<float>(static_cast<double>(sum) * 0x1p-21 - 6);
  }
  void Fill(float* p, int64_t n, float scale = 1, float offset = 0) {
    for (int64_t i = 0; i < n; ++i) p[i] = offset + scale * Normal();
  }
  template <class T>
  void Shuffle(std::vector<T>& v) {
    for (size_t i = v.size(); i > 1; --i) std::swap(v[i - 1], v[Below(i)]);
  }

 private:
  static uint64_t Environment(uint64_t fallback) {
    const char* text = std::getenv("TALLY_TEST_SEED");
    return text != nullptr ? std::strtoull(text, nullptr, 10) : fallback;
  }
  uint64_t seed_;
  std::mt19937_64 engine_;
};

// `n` elements whose last byte is the last before an inaccessible page: an over-read dies. Aligned to
// sizeof(T) only.
template <class T>
class EdgeArray {
 public:
  explicit EdgeArray(size_t n) : n_(n) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t bytes = (n * sizeof(T) + page - 1) / page * page;
    bytes_ = bytes + page;
    base_ = static_cast<uint8_t*>(mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (base_ == MAP_FAILED || mprotect(base_ + bytes, page, PROT_NONE) != 0) std::abort();
    data_ = reinterpret_cast<T*>(base_ + bytes) - n;
  }
  ~EdgeArray() { munmap(base_, bytes_); }
  EdgeArray(const EdgeArray&) = delete;
  EdgeArray& operator=(const EdgeArray&) = delete;
  T* data() const { return data_; }
  size_t size() const { return n_; }
  T& operator[](size_t i) const { return data_[i]; }
  std::span<T> span() const { return {data_, n_}; }

 private:
  uint8_t* base_ = nullptr;
  size_t bytes_ = 0, n_ = 0;
  T* data_ = nullptr;
};

// A matrix that ends at an inaccessible page, with `gap` elements between rows and before the first that
// nobody may write.
template <class T>
class EdgeMat {
 public:
  EdgeMat(int64_t rows, int64_t cols, int64_t gap = 0)
      : array_(static_cast<size_t>(rows * (cols + gap))), rows_(rows), cols_(cols), gap_(gap) {
    std::memset(array_.data(), kGap, array_.size() * sizeof(T));
  }
  Mat<T> view() const { return {array_.data() + gap_, rows_, cols_, cols_ + gap_}; }
  T* Row(int64_t r) const { return view().Row(r); }
  void Fill(Random& random, float scale = 1, float offset = 0) {
    for (int64_t r = 0; r < rows_; ++r) random.Fill(Row(r), cols_, scale, offset);
  }
  void CopyFrom(Mat<const T> m) {
    for (int64_t r = 0; r < rows_; ++r) std::memcpy(Row(r), m.Row(r), static_cast<size_t>(cols_) * sizeof(T));
  }
  void ExpectGapsUntouched() const {
    for (int64_t r = 0; r < rows_; ++r) {
      const uint8_t* bytes = reinterpret_cast<const uint8_t*>(Row(r) - gap_);
      for (size_t i = 0; i < static_cast<size_t>(gap_) * sizeof(T); ++i) {
        ASSERT_EQ(bytes[i], kGap) << "byte " << i << " of the gap before row " << r << " was written";
      }
    }
  }

 private:
  static constexpr int kGap = 0xA5;
  EdgeArray<T> array_;
  int64_t rows_, cols_, gap_;
};

// Runs all tasks of `op` as a hostile team would: in random chunks, in random order, with scratch that holds
// rubbish (NaNs) before each chunk, ends at an inaccessible page and has its guard bytes checked after it.
template <class Op>
void RunShuffled(const Kernel<Op>& kernel, const Op& op, uint64_t seed, int threads = 3) {
  ASSERT_EQ(kernel.unsupported(op), nullptr) << kernel.name << ": " << kernel.unsupported(op);
  Random random(seed);
  const TaskPlan plan = kernel.plan(op, threads);
  ASSERT_GE(plan.tasks, 0);
  std::vector<std::pair<int64_t, int64_t>> chunks;
  // As long as a team would make them, or up to all there are: so does a team of one.
  const int64_t share = plan.chunk > 0 ? plan.chunk : (plan.tasks + threads - 1) / threads;
  const int64_t longest = std::max<int64_t>(1, random.Below(2) == 0 ? share : plan.tasks);
  for (int64_t begin = 0; begin < plan.tasks;) {
    const int64_t end = std::min(plan.tasks, begin + random.Between(1, longest));
    chunks.emplace_back(begin, end);
    begin = end;
  }
  random.Shuffle(chunks);
  const size_t first = chunks.size();
  for (int64_t begin = plan.tasks; begin < plan.tasks + plan.later;) {
    const int64_t end = std::min(plan.tasks + plan.later, begin + random.Between(1, plan.later));
    chunks.emplace_back(begin, end);
    begin = end;
  }
  if (first > 0 && threads == 1) {  // a caller that works alone does all in one call
    chunks.assign(1, {0, plan.tasks + plan.later});
  } else {
    std::vector<std::pair<int64_t, int64_t>> later(chunks.begin() + static_cast<int64_t>(first), chunks.end());
    random.Shuffle(later);
    std::copy(later.begin(), later.end(), chunks.begin() + static_cast<int64_t>(first));
  }
  // The executor promises 64-byte alignment and whatever the kernel asked for: up to 63 bytes of slack before
  // the bad page.
  constexpr size_t kGuard = 256;
  const size_t bytes = (plan.scratch_bytes + 63) / 64 * 64;
  EdgeArray<uint8_t> memory(kGuard + bytes);
  uint8_t* scratch = memory.data() + kGuard;
  for (auto [begin, end] : chunks) {
    std::memset(memory.data(), 0x5C, kGuard);
    std::memset(scratch, 0xFF, bytes);
    kernel.run(op, begin, end, {scratch, plan.scratch_bytes});
    const auto all = [](const uint8_t* from, const uint8_t* to, uint8_t value) {
      return std::all_of(from, to, [value](uint8_t x) { return x == value; });
    };
    ASSERT_TRUE(all(memory.data(), scratch, 0x5C)) << "written before the scratch";
    ASSERT_TRUE(all(scratch + plan.scratch_bytes, scratch + bytes, 0xFF)) << "written beyond the scratch";
  }
}

// The kernel of an op by its name, which must exist.
template <class Op>
const Kernel<Op>& KernelNamed(std::string_view name) {
  for (const Kernel<Op>& k : Kernels<Op>()) {
    if (k.name == name) return k;
  }
  std::fprintf(stderr, "no kernel %s of %s\n", std::string(name).c_str(), std::string(Op::kName).c_str());
  std::abort();
}

// |got - want| in units of want's last place as a float (the least subnormal below the normal range); NaN
// equals NaN.
inline double UlpDistance(float got, double want) {
  if (std::isnan(want) || std::isnan(got)) return std::isnan(want) && std::isnan(got) ? 0 : HUGE_VAL;
  if (std::isinf(got) || std::isinf(want)) {
    if (static_cast<float>(want) == got) return 0;  // a value that rounds to infinity
    return HUGE_VAL;
  }
  const int exponent = want == 0 ? -149 : std::max(std::ilogb(want) - 23, -149);
  return std::fabs(static_cast<double>(got) - want) / std::ldexp(1.0, exponent);
}

// Every element within tolerance(row, col, want) of `want`; reports the first that is not. Equal bits and NaN
// pairs pass.
template <class Tolerance>
void ExpectClose(Mat<const float> got, Mat<const float> want, const Tolerance& tolerance) {
  ASSERT_EQ(got.rows, want.rows);
  ASSERT_EQ(got.cols, want.cols);
  for (int64_t r = 0; r < got.rows; ++r) {
    for (int64_t c = 0; c < got.cols; ++c) {
      const float g = got.Row(r)[c], w = want.Row(r)[c];
      if (g == w || (std::isnan(g) && std::isnan(w))) continue;
      const double allowed = tolerance(r, c, static_cast<double>(w));
      ASSERT_LE(std::fabs(static_cast<double>(g) - static_cast<double>(w)), allowed)
          << "at row " << r << ", column " << c << ": got " << g << ", expected " << w;
    }
  }
}

inline void ExpectSameBits(Mat<const float> got, Mat<const float> want) {
  ASSERT_EQ(got.rows, want.rows);
  ASSERT_EQ(got.cols, want.cols);
  for (int64_t r = 0; r < got.rows; ++r) {
    if (std::memcmp(got.Row(r), want.Row(r), static_cast<size_t>(got.cols) * sizeof(float)) == 0) continue;
    for (int64_t c = 0; c < got.cols; ++c) {
      ASSERT_EQ(std::bit_cast<uint32_t>(got.Row(r)[c]), std::bit_cast<uint32_t>(want.Row(r)[c]))
          << "at row " << r << ", column " << c << ": got " << got.Row(r)[c] << ", expected " << want.Row(r)[c];
    }
  }
}

// A [cols] f32 vector as a weight.
inline WeightView VectorView(const float* data, int64_t cols, WeightId id = 0) {
  WeightView w;
  w.id = id;
  w.rows = 1;
  w.cols = cols;
  w.slice_stride = static_cast<size_t>(cols) * 4;
  w.panel_stride = w.slice_stride;
  w.stored_row_bytes = static_cast<uint64_t>(cols) * 4;
  w.data = reinterpret_cast<const uint8_t*>(data);
  return w;
}

// Executed work is at least the useful work, in every column.
inline void ExpectAtLeast(const Cost& executed, const Cost& useful) {
  for (int c = 0; c < kWorkClasses; ++c) {
    EXPECT_GE(executed.Special(static_cast<WorkClass>(c)), useful.Special(static_cast<WorkClass>(c)))
        << "special, " << kWorkClassNames[c];
    EXPECT_GE(executed.Flops(static_cast<WorkClass>(c)), useful.Flops(static_cast<WorkClass>(c))) << kWorkClassNames[c];
  }
  for (int k = 0; k < kByteKinds; ++k)
    EXPECT_GE(executed.Bytes(static_cast<ByteKind>(k)), useful.Bytes(static_cast<ByteKind>(k))) << kByteKindNames[k];
}

}  // namespace tally
