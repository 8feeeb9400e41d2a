// SPDX-License-Identifier: Apache-2.0
// The least EngineOptions::weights_budget that runs a checkpoint, with as few experts in memory as there may be; 0: all is always there.
#pragma once

#include <cstdint>
#include <string>

#include "engine/api/tally.h"

namespace tally {

inline uint64_t SmallestBudget(const std::string& path, EngineOptions options) {
  const auto plan = [&](uint64_t budget) {
    options.weights_budget = budget;
    return PlanModel(path, options).value();
  };
  uint64_t most = plan(1 << 20).all_weights, least = 0;
  if (most == 0 || !plan(most - 1).streams()) return 0;
  for (--most; most - least > 1;) {
    const uint64_t middle = least + (most - least) / 2;
    (plan(middle).streams() ? most : least) = middle;
  }
  return most;
}

}  // namespace tally
