// SPDX-License-Identifier: Apache-2.0
#include "engine/app/json.h"

#include "engine/machine/machine.h"

namespace tally::app {

Json MemoryJson(const Engine& engine) {
  const MemoryPlan& plan = engine.memory_plan();
  return {{"packed_weights", plan.packed_weights},
          {"kv", plan.kv},
          {"scratch", plan.scratch},
          {"planned", plan.total()},
          {"peak_resident", PeakResidentBytes()}};
}

}  // namespace tally::app
