// What an op and a kernel are.
//
// An op is a plain struct of views and parameters with
//   Status Validate() const;                    shapes and ranges, checked when they change
//   CostAmounts Amounts() const;                what its costs are linear in, of this run (counters/cost/cost.h)
//   Cost Useful(const CostAmounts&) const;      what the mathematics needs for such amounts; a function of them and of the op's fixed
//                                               parts: weights, formats, widths
//   void Touches(WeightTouches&) const;         which weight rows it reads (appends)
//   Mat<const float> Output() const;            what a tap sees (empty: nothing)
//   void Describe(OpDescription&) const;        its operands and parameters by name (counters/cost/op_description.h)
//   static constexpr std::string_view kName;
// An op whose row amounts depend on the row (attention) has Amounts(phases, phase) too: of the rows of that phase. An op that is charged
// in parts has kParts, and Useful(amounts, part).
//
// A kernel computes output tasks [begin, end) of an op; it knows nothing of clocks, ledgers, threads or allocation. Tasks
// write disjoint outputs and never share a reduction, so any split of the tasks gives the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "counters/cost/cost.h"
#include "counters/cost/op_description.h"
#include "counters/cost/site.h"
#include "engine/base/mat.h"
#include "engine/base/status.h"
#include "engine/kernels/weight_view.h"

namespace tally {

struct TaskPlan {
  int64_t tasks = 0;
  int64_t chunk = 0;         // 0: each thread takes one contiguous share; n: n tasks at a time (Team::Run)
  size_t scratch_bytes = 0;  // per thread, 64-byte aligned
};

template <class Op>
concept InParts = requires {
  Op::kParts;
};
template <class Op>
concept HasRowAmounts = requires(const Op& op, std::span<const Phase> phases) {
  op.Amounts(phases, Phase::kDecode);
};

template <class Op>
struct Kernel {
  using Executed = std::conditional_t<InParts<Op>, Cost (*)(const Op&, const CostAmounts&, size_t part),
                                      Cost (*)(const Op&, const CostAmounts&)>;

  std::string_view name;                  // "hwy", "ref", "blas"
  const char* (*unsupported)(const Op&);  // nullptr: can run it; else why not, in a few words
  TaskPlan (*plan)(const Op&, int threads);
  void (*run)(const Op&, int64_t begin, int64_t end, std::span<uint8_t> scratch);
  Executed executed;  // what it really does: padding, masked lanes, (de)quantisation included; linear in the amounts like Useful
};

// The kernels of an op, in order of preference: Highway, the scalar reference, then those that run only by name.
template <class Op>
std::span<const Kernel<Op>> Kernels();

template <class Op>
constexpr size_t PartsOf() {
  if constexpr (InParts<Op>) return Op::kParts;
  return 1;
}
template <class Op>
Cost UsefulOf(const Op& op, const CostAmounts& amounts, [[maybe_unused]] size_t part) {
  if constexpr (InParts<Op>) {
    return op.Useful(amounts, part);
  } else {
    return op.Useful(amounts);
  }
}
template <class Op>
Cost ExecutedOf(const Kernel<Op>& kernel, const Op& op, const CostAmounts& amounts, [[maybe_unused]] size_t part) {
  if constexpr (InParts<Op>) {
    return kernel.executed(op, amounts, part);
  } else {
    return kernel.executed(op, amounts);
  }
}

// The costs of all parts of a run.
template <class Op>
Cost TotalUseful(const Op& op) {
  Cost sum;
  for (size_t part = 0; part < PartsOf<Op>(); ++part) sum += UsefulOf(op, op.Amounts(), part);
  return sum;
}
template <class Op>
Cost TotalExecuted(const Kernel<Op>& kernel, const Op& op) {
  Cost sum;
  for (size_t part = 0; part < PartsOf<Op>(); ++part) sum += ExecutedOf(kernel, op, op.Amounts(), part);
  return sum;
}

// The amounts of an op that reads its weights once and treats all rows alike.
inline CostAmounts RowAmounts(int64_t rows) {
  CostAmounts n;
  n[Amount::kCalls] = rows > 0 ? 1 : 0;
  n[Amount::kRows] = static_cast<uint64_t>(rows);
  return n;
}

// The Highway target that "hwy" kernels run on now, e.g. "AVX3_ZEN4"; whether it has a bf16 dot product.
std::string_view HwyTargetName();
bool HwyTargetHasBf16Dot();

}  // namespace tally
