// SPDX-License-Identifier: Apache-2.0
// The slices of all weights, numbered one after another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "counters/cost/cost.h"
#include "counters/cost/site.h"

namespace tally {

class WeightSlices {
 public:
  struct Weight {
    size_t first = 0;  // number of its first slice
    uint32_t slices = 0;
    uint64_t rows = 0, cols = 0;  // of a slice
  };

  WeightSlices() = default;
  explicit WeightSlices(const std::vector<WeightInfo>& weights) {
    for (const WeightInfo& w : weights) {
      weights_.push_back({count_, w.slices, w.rows, w.cols});
      count_ += w.slices;
    }
  }
  size_t count() const { return count_; }
  const std::vector<Weight>& weights() const { return weights_; }
  // Null: there is no such weight.
  const Weight* Find(WeightId id) const { return id < weights_.size() ? &weights_[id] : nullptr; }
  // Null: there is no such weight, slice or row.
  const Weight* Find(const WeightTouch& t) const {
    const Weight* w = Find(t.id);
    return w != nullptr && t.slice < w->slices && t.row_begin <= t.row_end && t.row_end <= w->rows ? w : nullptr;
  }

 private:
  std::vector<Weight> weights_;
  size_t count_ = 0;
};

}  // namespace tally
