// What one op costs: arithmetic by class and type, and bytes by kind. The definitions are DESIGN's ledger chapter:
// add, subtract, multiply, compare, max, min count 1, fused multiply-add 2; exp, tanh, sqrt, rsqrt, divide, erf, log,
// sin, cos count 1 in `special`; negation, abs, shifts, conversions and table look-ups count 0.
#pragma once

#include <array>
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
  kCommunication
};
inline constexpr int kWorkClasses = 11;
inline constexpr std::array<std::string_view, kWorkClasses> kWorkClassNames = {
    "linear", "attention",     "norm",     "softmax",  "rope",         "activation",
    "router", "residual/bias", "quantise", "sampling", "communication"};

enum class Arith : uint8_t { kF32, kBF16, kInt8 };
inline constexpr int kAriths = 3;
inline constexpr std::array<std::string_view, kAriths> kArithNames = {"f32", "bf16", "int8"};

enum class ByteKind : uint8_t { kWeightsStored, kWeightsPacked, kKvRead, kKvWritten, kActivationsRead, kActivationsWritten };
inline constexpr int kByteKinds = 6;
inline constexpr std::array<std::string_view, kByteKinds> kByteKindNames = {
    "weights stored", "weights packed", "KV read", "KV written", "activations read", "activations written"};

struct Cost {
  std::array<std::array<uint64_t, kAriths>, kWorkClasses> flops{};  // additions, multiplications, comparisons
  std::array<uint64_t, kWorkClasses> special{};                     // exp, divide, sqrt and their like
  std::array<uint64_t, kByteKinds> bytes{};

  void AddFlops(WorkClass c, uint64_t n, Arith a = Arith::kF32) { flops[static_cast<int>(c)][static_cast<int>(a)] += n; }
  void AddSpecial(WorkClass c, uint64_t n) { special[static_cast<int>(c)] += n; }
  void AddBytes(ByteKind k, uint64_t n) { bytes[static_cast<int>(k)] += n; }

  uint64_t Flops(WorkClass c) const {
    uint64_t sum = 0;
    for (uint64_t n : flops[static_cast<int>(c)]) sum += n;
    return sum;
  }
  uint64_t Special(WorkClass c) const { return special[static_cast<int>(c)]; }
  uint64_t Bytes(ByteKind k) const { return bytes[static_cast<int>(k)]; }
  uint64_t TotalFlops() const {  // every class, `special` not included
    uint64_t sum = 0;
    for (int c = 0; c < kWorkClasses; ++c) sum += Flops(static_cast<WorkClass>(c));
    return sum;
  }

  Cost& operator+=(const Cost& o) {
    for (int c = 0; c < kWorkClasses; ++c) {
      for (int a = 0; a < kAriths; ++a) flops[c][a] += o.flops[c][a];
      special[c] += o.special[c];
    }
    for (int k = 0; k < kByteKinds; ++k) bytes[k] += o.bytes[k];
    return *this;
  }
  bool operator==(const Cost&) const = default;
};

// Index of a weight (a stored tensor, or the gate or up half of one that interleaves both) in the ledger's table.
using WeightId = uint32_t;
inline constexpr WeightId kNoWeight = UINT32_MAX;

// Rows [row_begin, row_end) of slice `slice` (an expert; 0 where there are none) of a weight were read.
struct WeightTouch {
  WeightId id = kNoWeight;
  uint32_t slice = 0;
  uint32_t row_begin = 0;
  uint32_t row_end = 0;
  uint32_t uses = 1;  // rows of activations that it was read for: of an expert, the tokens that chose it
};
using WeightTouches = std::vector<WeightTouch>;

}  // namespace tally
