// SPDX-License-Identifier: Apache-2.0
#include "engine/weights/records.h"

#include <algorithm>

namespace tally {

bool InRecords(Role role) { return role == Role::kExpertGate || role == Role::kExpertUp || role == Role::kExpertDown; }

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
    at->parts.push_back({w.view.id, at->bytes});
    at->bytes += w.view.slice_stride;
  }
  std::ranges::sort(layers, {}, &ExpertRecords::layer);
  return layers;
}

}  // namespace tally
