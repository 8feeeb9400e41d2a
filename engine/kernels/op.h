// What an op and a kernel are.
//
// An op is a plain struct of views and parameters with
//   Status Validate() const;                    shapes and ranges, checked before every run
//   Cost Useful() const;                        what the mathematics needs (counters/cost/cost.h)
//   void Touches(WeightTouches&) const;         which weight rows it reads (appends)
//   bool CostKey(OpKey&) const;                 what its costs and touches depend on; false: on more than a key holds
//   Mat<const float> Output() const;            what a tap sees (empty: nothing)
//   void Describe(OpDescription&) const;        its operands and parameters by name (counters/cost/op_description.h)
//   static constexpr std::string_view kName;
// and, where a key does not say all,
//   CostAmounts Amounts() const;                its costs are linear in these:
//   Cost Useful(const CostAmounts&) const;      of any amounts, for equal keys the same
//   bool Slices(std::vector<SliceUse>&) const;  true: of weights by slice it touches these alike, all of the slice (appends)
//   static constexpr bool kTouchesRows = true;  which rows it touches is its data's choice
// A kernel computes output tasks [begin, end) of an op; it knows nothing of clocks, ledgers, threads or allocation. Tasks
// write disjoint outputs and never share a reduction, so any split of the tasks gives the same bits.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "counters/cost/cost.h"
#include "counters/cost/op_description.h"
#include "engine/base/mat.h"
#include "engine/base/status.h"
#include "engine/kernels/weight_view.h"

namespace tally {

struct TaskPlan {
  int64_t tasks = 0;
  int64_t chunk = 0;         // 0: each thread takes one contiguous share; n: n tasks at a time (Team::Run)
  size_t scratch_bytes = 0;  // per thread, 64-byte aligned
};

// Two ops of one kind with equal keys (and amounts) have equal costs, useful and executed (by one kernel), and equal touches (but for
// the slices and rows that the op names).
using OpKey = std::array<uint64_t, 7>;

template <class Op>
struct Kernel {
  std::string_view name;                  // "hwy", "ref", "blas"
  const char* (*unsupported)(const Op&);  // nullptr: can run it; else why not, in a few words
  TaskPlan (*plan)(const Op&, int threads);
  void (*run)(const Op&, int64_t begin, int64_t end, std::span<uint8_t> scratch);
  Cost (*executed)(const Op&);  // what it really does: padding, masked lanes, (de)quantisation included
  Cost (*executed_at)(const Op&, const CostAmounts&) = nullptr;  // the same of other amounts: of ops that have them
};

template <class Op>
concept HasAmounts = requires(const Op& op) {
  op.Amounts();
};
template <class Op>
concept TouchesRows = requires {
  requires Op::kTouchesRows;
};
template <class Op>
concept TouchesSlices = requires(const Op& op, std::vector<SliceUse>& slices) {
  op.Slices(slices);
};

// The kernels of an op, in order of preference: Highway, the scalar reference, then those that run only by name.
template <class Op>
std::span<const Kernel<Op>> Kernels();

// The Highway target that "hwy" kernels run on now, e.g. "AVX3_ZEN4"; whether it has a bf16 dot product.
std::string_view HwyTargetName();
bool HwyTargetHasBf16Dot();

}  // namespace tally
