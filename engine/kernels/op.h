// SPDX-License-Identifier: Apache-2.0
// Definitions of op and kernel.
//
// An op is a plain struct of views and parameters with
//   Status Validate() const;                    checks shapes and ranges; called when they change
//   CostAmounts Amounts() const;                amounts of this run (counters/cost/cost.h)
//   Cost Useful(const CostAmounts&) const;      cost of the mathematics; depends on the amounts and the op's weights, formats and
//                                               widths only
//   void Touches(WeightTouches&) const;         appends the weight rows that it reads
//   Mat<const float> Output() const;            the output that a tap gets (may be empty)
//   void Describe(OpDescription&) const;        operands and parameters by name (counters/cost/op_description.h)
//   static constexpr std::string_view kName;
// An op whose rows differ in their amounts (attention) also has AddRowAmounts(groups, amounts), which adds row i's to
// amounts[groups[i]]. An op whose ids are rows of a table has RowTouch(i), the touch of its i-th id, and
// StepRow(i), the row of the step that the id is of. An op that is charged in parts
// has kParts, and Useful(amounts, part).
//
// A kernel computes output tasks [begin, end) of an op. It does not use clocks, the ledger, threads or allocation. Tasks write
// disjoint outputs and share no reduction, so any split of the tasks gives the same bits. Later tasks (TaskPlan::later) may read what
// the first ones wrote.
#pragma once

#include <concepts>
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
  int64_t later = 0;         // tasks [tasks, tasks + later) start when all of [0, tasks) are done
};

template <class Op>
concept InParts = requires {
  Op::kParts;
};
template <class Op>
concept HasRowAmounts = requires(const Op& op, std::span<const uint32_t> groups, std::span<CostAmounts> amounts) {
  op.AddRowAmounts(groups, amounts);
};
template <class Op>
concept HasRowTouch = requires(const Op& op) {
  { op.RowTouch(size_t{0}) } -> std::same_as<WeightTouch>;
};

// Its Touches say which slices' rows of the step it is charged to; it reads none of them.
template <class Op>
concept TouchesNothing = requires {
  Op::kTouchesNothing;
};

template <class Op>
struct Kernel {
  using Executed = std::conditional_t<InParts<Op>, Cost (*)(const Op&, const CostAmounts&, size_t part),
                                      Cost (*)(const Op&, const CostAmounts&)>;

  std::string_view name;                  // "hwy", "ref", "blas"
  const char* (*unsupported)(const Op&);  // nullptr: can run the op; else the reason in a few words
  TaskPlan (*plan)(const Op&, int threads);
  void (*run)(const Op&, int64_t begin, int64_t end, std::span<uint8_t> scratch);
  Executed executed;  // cost of what it does, with padding, masked lanes and (de)quantisation; linear in the amounts
};

// The kernels of an op in order of preference: Highway, the scalar reference, then kernels that run only on request.
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

// The cost of a run, all parts.
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

// The amounts of an op whose cost is the same for every row.
inline CostAmounts RowAmounts(int64_t rows) {
  CostAmounts n;
  n[Amount::kCalls] = rows > 0 ? 1 : 0;
  n[Amount::kRows] = static_cast<uint64_t>(rows);
  return n;
}

// The current Highway target of "hwy" kernels, e.g. "AVX3_ZEN4", and whether they have dot products of bf16 and of bytes. "AMX" and
// "AVX2_VNNI" are Highway's AVX3_DL with matrix tiles and its AVX2 with dot products of bytes; for Arm's see ArmTargetName.
std::string_view HwyTargetName();
bool HwyTargetHasBf16Dot();
bool HwyTargetHasInt8Dot();
bool HwyTargetHasAmx();
bool HwyTargetHasSmmla();

}  // namespace tally
