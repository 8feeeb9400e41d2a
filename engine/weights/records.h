// SPDX-License-Identifier: Apache-2.0
// Records of experts: the packed slices of one expert of a layer, one behind the other, which are read from disk in one go.
#pragma once

#include <cstdint>
#include <vector>

#include "counters/cost/cost.h"
#include "engine/weights/plan.h"

namespace tally {

// The records of a layer, all alike.
struct ExpertRecords {
  struct Part {
    WeightId weight = kNoWeight;  // index in WeightPlan::weights
    uint64_t offset = 0;          // of its slice in the record; whole pages
  };
  int32_t layer = -1;
  std::vector<Part> parts;  // gate, up, down: those that the layer has
  int64_t experts = 0;      // that this process holds
  uint64_t bytes = 0;       // of a record; whole pages
};

// Of all layers with experts, in the order of layers. Biases and the like are no part of records.
std::vector<ExpertRecords> ExpertRecordsOf(const WeightPlan& plan);
// The weights of records: kExpertGate, kExpertUp, kExpertDown.
bool InRecords(Role role);

}  // namespace tally
