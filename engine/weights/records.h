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
    uint64_t offset = 0;          // of its slice in the record; whole pages, or, in a plan with guards, with the slice's lead
  };
  int32_t layer = -1;
  std::vector<Part> parts;  // gate, up, down: those that the layer has
  int64_t experts = 0;      // that this process holds
  uint64_t bytes = 0;       // of a record; whole pages
};

// Of all layers with experts, in the order of layers. Biases and the like are no part of records.
std::vector<ExpertRecords> ExpertRecordsOf(const WeightPlan& plan);
// Slots of each layer's experts in `bytes` of memory: the same share of all layers' experts, and as many as fit.
std::vector<int64_t> SlotsIn(const std::vector<ExpertRecords>& layers, uint64_t bytes);
// Bytes of so many slots.
uint64_t SlotBytes(const std::vector<ExpertRecords>& layers, const std::vector<int64_t>& slots);

}  // namespace tally
