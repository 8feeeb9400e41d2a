// SPDX-License-Identifier: Apache-2.0
#include "engine/weights/records.h"

#include <algorithm>

namespace tally {
namespace {

uint64_t BytesOf(const ExpertRecords& layer) { return layer.bytes - layer.guards; }

// `whole`: a record has all slices of its weights.
template <class Wanted>
std::vector<ExpertRecords> RecordsOf(const WeightPlan& plan, bool whole, const Wanted& wanted) {
  std::vector<ExpertRecords> layers;
  for (const PlannedWeight& w : plan.weights) {
    if (!wanted(w)) continue;
    auto at = std::ranges::find(layers, w.layer, &ExpertRecords::layer);
    if (at == layers.end()) {
      at = layers.emplace(at);
      at->layer = w.layer;
      at->experts = whole ? 1 : w.view.slices;
    }
    const uint64_t slices = whole ? static_cast<uint64_t>(w.view.slices) : 1;
    at->parts.push_back({w.view.id, at->bytes + w.lead});
    at->bytes += slices * w.view.slice_stride;
    if (plan.guarded) at->guards += slices * (w.view.slice_stride - w.lead - w.slice_bytes);
  }
  std::ranges::sort(layers, {}, &ExpertRecords::layer);
  return layers;
}

}  // namespace

std::vector<ExpertRecords> ExpertRecordsOf(const WeightPlan& plan) {
  return RecordsOf(plan, /*whole=*/false, [](const PlannedWeight& w) { return InRecords(w.role); });
}

std::vector<ExpertRecords> LayerRecordsOf(const WeightPlan& plan) {
  return RecordsOf(plan, /*whole=*/true, [](const PlannedWeight& w) { return w.streamed && !InRecords(w.role); });
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
      round += BytesOf(layers[i]);
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
      if (slots[i] == layers[i].experts || BytesOf(layers[i]) > bytes) continue;
      ++slots[i];
      bytes -= BytesOf(layers[i]);
    }
  }
  return slots;
}

uint64_t SlotBytes(const std::vector<ExpertRecords>& layers, const std::vector<int64_t>& slots) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < layers.size(); ++i) bytes += static_cast<uint64_t>(slots[i]) * BytesOf(layers[i]);
  return bytes;
}

}  // namespace tally
