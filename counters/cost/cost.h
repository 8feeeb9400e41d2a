// SPDX-License-Identifier: Apache-2.0
// The cost of an op: operations by class and type, bytes by kind. Counting rules (docs/accounting.md has the reports):
// add, subtract, multiply, compare, max, min count 1, fused multiply-add 2; exp, tanh, sqrt, rsqrt, divide, erf, log,
// sin, cos count 1 in `special`; negation, abs, shifts, conversions and table look-ups count 0.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace tally {

enum class WorkClass : uint8_t {
  kLinear,
  kAttention,
  kNorm,
  kSoftmax,
  kRope,
  kActivation,
  kRouter,
  kResidualBias,
  kQuantize,
  kSampling,
  kCommunication,
  kRecurrence  // products with the state of a recurrent layer
};
inline constexpr int kWorkClasses = 12;
inline constexpr std::array<std::string_view, kWorkClasses> kWorkClassNames = {
    "linear", "attention",     "norm",     "softmax",  "rope",          "activation",
    "router", "residual/bias", "quantise", "sampling", "communication", "recurrence"};

enum class Arith : uint8_t { kF32, kBF16, kInt8 };
inline constexpr int kAriths = 3;
inline constexpr std::array<std::string_view, kAriths> kArithNames = {"f32", "bf16", "int8"};

enum class ByteKind : uint8_t {
  kWeightsStored,
  kWeightsPacked,
  kKvRead,
  kKvWritten,
  kActivationsRead,
  kActivationsWritten,
  kStateRead,  // of recurrent layers
  kStateWritten,
  kSent,  // to other processes that run the model, once for each that receives; class communication
  kReceived,
  kWeightsDisk  // experts that were not in memory, whole records
};
inline constexpr int kByteKinds = 11;
inline constexpr std::array<std::string_view, kByteKinds> kByteKindNames = {
    "weights stored", "weights packed", "KV read", "KV written", "activations read", "activations written",
    "state read",     "state written",  "sent",    "received",   "weights from disk"};

// What a step moves between memory and the cores, without activations.
inline constexpr std::array kMovedBytes = {ByteKind::kWeightsPacked, ByteKind::kKvRead, ByteKind::kKvWritten,
                                           ByteKind::kStateRead, ByteKind::kStateWritten};

// Only non-zero entries are copied and added, since an op has few of them.
class Cost {
  static constexpr size_t kSpecialFrom = kWorkClasses * kAriths, kBytesFrom = kSpecialFrom + kWorkClasses;

 public:
  static constexpr size_t kEntries = kBytesFrom + kByteKinds;

  Cost() = default;
  Cost(const Cost& o) { *this = o; }  // NOLINT
  Cost& operator=(const Cost& o) {
    used_ = o.used_;
    for (uint64_t left = used_; left != 0; left &= left - 1) values_[Lowest(left)] = o.values_[Lowest(left)];
    return *this;
  }

  void AddFlops(WorkClass c, uint64_t n, Arith a = Arith::kF32) { AddEntry(FlopsAt(c, a), n); }
  void AddSpecial(WorkClass c, uint64_t n) { AddEntry(SpecialAt(c), n); }
  void AddBytes(ByteKind k, uint64_t n) { AddEntry(BytesAt(k), n); }

  // FLOPs exclude `special` (exp, divide, sqrt, ...).
  uint64_t Flops(WorkClass c, Arith a) const { return Get(FlopsAt(c, a)); }
  uint64_t Flops(WorkClass c) const { return Sum(FlopsAt(c, Arith::kF32), kAriths); }
  uint64_t Special(WorkClass c) const { return Get(SpecialAt(c)); }
  uint64_t Bytes(ByteKind k) const { return Get(BytesAt(k)); }
  uint64_t MovedBytes() const {
    uint64_t sum = 0;
    for (const ByteKind k : kMovedBytes) sum += Bytes(k);
    return sum;
  }
  uint64_t TotalFlops() const { return Sum(0, kSpecialFrom); }
  uint64_t TotalSpecial() const { return Sum(kSpecialFrom, kWorkClasses); }
  uint64_t TotalBytes() const { return Sum(kBytesFrom, kByteKinds); }

  Cost& operator+=(const Cost& o) {
    for (uint64_t left = o.used_ & ~used_; left != 0; left &= left - 1) values_[Lowest(left)] = 0;
    for (uint64_t left = o.used_; left != 0; left &= left - 1) values_[Lowest(left)] += o.values_[Lowest(left)];
    used_ |= o.used_;
    return *this;
  }
  void AddTimes(const Cost& o, uint64_t n) {
    for (uint64_t left = o.used_; left != 0; left &= left - 1) AddEntry(Lowest(left), n * o.values_[Lowest(left)]);
  }
  // Entries by number, in [0, kEntries), for arithmetic that is the same for all of them. Calls fn(entry, value) for those in use.
  template <class Fn>
  void ForEachEntry(const Fn& fn) const {
    for (uint64_t left = used_; left != 0; left &= left - 1) fn(Lowest(left), values_[Lowest(left)]);
  }
  void AddEntry(size_t entry, uint64_t n) {
    if (n == 0) return;
    const uint64_t bit = uint64_t{1} << entry;
    values_[entry] = (used_ & bit) != 0 ? values_[entry] + n : n;
    used_ |= bit;
  }
  bool operator==(const Cost& o) const {
    if (used_ != o.used_) return false;
    for (uint64_t left = used_; left != 0; left &= left - 1) {
      if (values_[Lowest(left)] != o.values_[Lowest(left)]) return false;
    }
    return true;
  }

 private:
  static_assert(kEntries <= 64);
  static constexpr size_t FlopsAt(WorkClass c, Arith a) { return static_cast<size_t>(c) * kAriths + static_cast<size_t>(a); }
  static constexpr size_t SpecialAt(WorkClass c) { return kSpecialFrom + static_cast<size_t>(c); }
  static constexpr size_t BytesAt(ByteKind k) { return kBytesFrom + static_cast<size_t>(k); }
  static size_t Lowest(uint64_t bits) { return static_cast<size_t>(std::countr_zero(bits)); }

  uint64_t Get(size_t at) const { return (used_ >> at & 1) != 0 ? values_[at] : 0; }
  uint64_t Sum(size_t first, size_t count) const {
    uint64_t sum = 0;
    for (uint64_t left = used_ & (((uint64_t{1} << count) - 1) << first); left != 0; left &= left - 1) {
      sum += values_[Lowest(left)];
    }
    return sum;
  }

  uint64_t used_ = 0;                        // bit i set: entry i is non-zero; entries whose bit is clear are unspecified
  std::array<uint64_t, kEntries> values_{};  // FLOPs by class and type, special by class, bytes by kind
};

// Index of a weight (a stored tensor, or the gate or up half of one that interleaves both) in the ledger's table.
using WeightId = uint32_t;
inline constexpr WeightId kNoWeight = UINT32_MAX;

// Rows [row_begin, row_end) of slice `slice` (an expert; 0 for weights without experts) of a weight were read.
struct WeightTouch {
  WeightId id = kNoWeight;
  uint32_t slice = 0;
  uint32_t row_begin = 0;
  uint32_t row_end = 0;
  uint32_t uses = 1;  // matrix products: activation rows multiplied by this slice (expert: the tokens routed to it); other ops: 1
  const int32_t* rows =
      nullptr;  // [uses]: the rows of the step that chose the slice, until the op's next run; null: all its rows
};
using WeightTouches = std::vector<WeightTouch>;

// An op's cost is linear in its amounts: cost = sum over amounts of amount x unit cost. Amounts that an op does not use are 0.
enum class Amount : uint8_t {
  // Once per run of the op.
  kCalls,   // 1, or 0 if the op has no rows
  kSlices,  // slices of the weights that are read (experts); embedding table: distinct rows
  kPanels,  // embedding table: distinct panels read; row-major table: distinct rows
  // Sums over rows.
  kRows,
  kVisible,  // attention: positions that a row sees
  kLanes,    // attention: positions in groups of 16 (32 on matrix tiles) with a visible one
  kJoins,    // attention: blocks of positions after the first one of a row
  kRanges,   // attention: ranges of blocks of which a row sees some positions
  // Recurrent layers use places that they do not need otherwise.
  kRuns = kLanes,     // sequences in the step; the first row of a sequence counts 1
  kReplayed = kJoins  // earlier positions that a run replays; counted with its first row
};
inline constexpr size_t kAmounts = 8;
inline constexpr size_t kFirstRowAmount = static_cast<size_t>(Amount::kRows);

class CostAmounts {
 public:
  uint64_t& operator[](Amount a) { return values_[static_cast<size_t>(a)]; }
  uint64_t operator[](Amount a) const { return values_[static_cast<size_t>(a)]; }
  uint64_t& operator[](size_t i) { return values_[i]; }
  uint64_t operator[](size_t i) const { return values_[i]; }
  CostAmounts& operator+=(const CostAmounts& o) {
    for (size_t i = 0; i < kAmounts; ++i) values_[i] += o.values_[i];
    return *this;
  }
  bool operator==(const CostAmounts&) const = default;

 private:
  std::array<uint64_t, kAmounts> values_{};
};

}  // namespace tally
