// SPDX-License-Identifier: Apache-2.0
// The rounds of a measurement, and which of them count; internal to the studies.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/studies/speed.h"
#include "engine/studies/speed_roofs.h"

namespace tally {

class Rounds {
 public:
  // `least` and `most`: of the round's roofs, in any unit.
  void Add(double least, double most) { steady_.push_back(most <= kMostMoved * least); }

  int32_t count() const { return static_cast<int32_t>(steady_.size()); }
  int32_t kept() const { return static_cast<int32_t>(std::count(steady_.begin(), steady_.end(), true)); }

  // The value of each round kept; of all where none is.
  template <class Value>
  auto Of(const Value& value) const {
    std::vector<decltype(value(size_t{0}))> values;
    for (size_t i = 0; i < steady_.size(); ++i) {
      if (steady_[i] || kept() == 0) values.push_back(value(i));
    }
    return values;
  }
  template <class Value>
  double MedianOf(const Value& value) const {
    return Median(Of(value));
  }
  template <class Value>
  SpeedRate RateOf(const Value& value) const {
    const std::vector<double> values = Of(value);
    if (values.empty()) return {};
    const auto [least, most] = std::minmax_element(values.begin(), values.end());
    return {Median(values), *least, *most};
  }

 private:
  static constexpr double kMostMoved = 1.1;
  std::vector<bool> steady_;
};

}  // namespace tally
