// SPDX-License-Identifier: Apache-2.0
// The set of weight rows that a step touched, and the union of these sets since Reset.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "counters/cost/cost.h"
#include "counters/ledger/weight_slices.h"
#include "engine/base/export.h"

namespace tally {

struct RowRange {
  uint64_t begin = 0, end = 0;
  bool operator==(const RowRange&) const = default;
};

class TouchSet {
 public:
  TouchSet() = default;
  explicit TouchSet(WeightSlices weights) : weights_(std::move(weights)), slices_(weights_.count()) {}
  // Begins a step with an empty set.
  void BeginStep() {
    ++step_;
    parameters_ = 0;
  }
  TALLY_API void Touch(const WeightTouch& touch);

  uint64_t parameters() const { return parameters_; }  // elements touched in the step
  TALLY_API uint64_t parameters_ever() const;          // in any step
  uint64_t bad() const { return bad_; }                // touches since Reset of weights, slices or rows that do not exist

  // In the current step. A weight or slice that does not exist counts as untouched.
  TALLY_API uint64_t touched(WeightId id) const;                              // elements
  TALLY_API uint32_t slices(WeightId id) const;                               // slices with a touched row
  TALLY_API uint64_t uses(WeightId id, uint32_t slice) const;                 // sum of WeightTouch::uses
  TALLY_API std::vector<RowRange> ranges(WeightId id, uint32_t slice) const;  // ascending, disjoint, adjacent ranges merged

 private:
  struct Slice {
    uint64_t step = 0;                // the last step that touched it; rows and uses are of that step
    uint64_t rows = 0, uses = 0;      // distinct rows touched
    bool whole_ever = false;          // some touch covered all rows
    std::vector<uint64_t> row_steps;  // the last step with a partial touch of each row; empty before the first such touch
  };
  const Slice* Find(WeightId id, uint32_t slice) const;  // null: not touched in the step

  WeightSlices weights_;
  std::vector<Slice> slices_;
  uint64_t step_ = 1;
  uint64_t parameters_ = 0, bad_ = 0;
};

}  // namespace tally
