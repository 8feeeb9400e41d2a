// SPDX-License-Identifier: Apache-2.0
#include "engine/weights/records.h"

#include <algorithm>

namespace tally {

std::vector<ExpertRecords> ExpertRecordsOf(const WeightPlan& plan) {
  std::vector<ExpertRecords> layers;
  for (const PlannedWeight& w : plan.weights) {
    if (!InRecords(w.role)) continue;
    auto at = std::ranges::find(layers, w.layer, &ExpertRecords::layer);
    if (at == layers.end()) {
      at = layers.emplace(at);
      at->layer = w.layer;
      at->experts = w.view.slices;
    }
    at->parts.push_back({w.view.id, at->bytes + w.lead});
    at->bytes += w.view.slice_stride;
  }
  std::ranges::sort(layers, {}, &ExpertRecords::layer);
  return layers;
}

// Layers take one more in turn. All layers of a model that we know have as many experts; where one has fewer, it is full earlier.
std::vector<int64_t> SlotsIn(const std::vector<ExpertRecords>& layers, uint64_t bytes) {
  std::vector<int64_t> slots(layers.size());
  for (bool more = true; more;) {
    more = false;
    uint64_t round = 0;  // one more of every layer that is not full
    int64_t rounds = INT64_MAX;
    for (size_t i = 0; i < layers.size(); ++i) {
      if (slots[i] == layers[i].experts) continue;
      round += layers[i].bytes;
      rounds = std::min(rounds, layers[i].experts - slots[i]);
    }
    if (round == 0) break;
    rounds = std::min(rounds, static_cast<int64_t>(bytes / round));
    for (size_t i = 0; i < layers.size(); ++i) {
      if (slots[i] < layers[i].experts) slots[i] += rounds;
    }
    bytes -= static_cast<uint64_t>(rounds) * round;
    more = rounds > 0;
    for (size_t i = 0; !more && i < layers.size(); ++i) {  // less than a round is left
      if (slots[i] == layers[i].experts || layers[i].bytes > bytes) continue;
      ++slots[i];
      bytes -= layers[i].bytes;
    }
  }
  return slots;
}

uint64_t SlotBytes(const std::vector<ExpertRecords>& layers, const std::vector<int64_t>& slots) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < layers.size(); ++i) bytes += static_cast<uint64_t>(slots[i]) * layers[i].bytes;
  return bytes;
}

}  // namespace tally
