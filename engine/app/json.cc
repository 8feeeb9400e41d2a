// SPDX-License-Identifier: Apache-2.0
#include "engine/app/json.h"

#include "engine/app/console.h"
#include "engine/machine/machine.h"

namespace tally::app {

void PrintJson(const Json& document) { Print(JsonText(document) + "\n"); }

Json NotRunJson(const books::NotRun& n) {
  return {{"tensors", n.tensors}, {"parameters", n.parameters}, {"bytes", n.bytes}, {"names", n.names}};
}

Json ParametersJson(const books::RunFigures& f) {
  return {{"total", f.parameters.total},
          {"total_as_stored", f.parameters.total + f.head_copy},
          {"touched", Number(f.touched_per_decode_step)},
          {"touched_in_run", f.touched_in_run},
          {"active", {{"all", f.parameters.active_all}, {"head", f.parameters.active_head}, {"none", f.parameters.active_none}}}};
}

Json MemoryJson(const Engine& engine) {
  const MemoryPlan& plan = engine.memory_plan();
  return {{"packed_weights", plan.packed_weights},
          {"kv", plan.kv},
          {"scratch", plan.scratch},
          {"planned", plan.total()},
          {"peak_resident", PeakResidentBytes()}};
}

}  // namespace tally::app
