// SPDX-License-Identifier: Apache-2.0
// Records: packed slices, one behind the other, which are read from disk in one go: those of one expert of a layer, or all matrices of a
// layer without experts.
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
    uint64_t offset = 0;  // of its first slice in the record; whole pages, or, in a plan with guards, with the slice's lead
  };
  int32_t layer = -1;
  std::vector<Part> parts;  // gate, up, down: those that the layer has
  int64_t experts = 0;      // that this process holds
  uint64_t bytes = 0;       // of a record; whole pages
  uint64_t guards = 0;      // of these, pages that are never written and take no memory
};

// Of all layers with experts, in the order of layers. Biases and the like are no part of records.
std::vector<ExpertRecords> ExpertRecordsOf(const WeightPlan& plan);
// Of the layers whose matrices are streamed, in the order of layers: each as if it had one expert, whose parts have all of their slices.
std::vector<ExpertRecords> LayerRecordsOf(const WeightPlan& plan);
// Slots of each layer's experts in `bytes` of memory, without guards: the same share of all layers' experts, and as many as fit.
std::vector<int64_t> SlotsIn(const std::vector<ExpertRecords>& layers, uint64_t bytes);
// Bytes of memory that so many slots take.
uint64_t SlotBytes(const std::vector<ExpertRecords>& layers, const std::vector<int64_t>& slots);

}  // namespace tally
