// SPDX-License-Identifier: Apache-2.0
#include "engine/session/row_cost.h"

#include <algorithm>

#include "counters/books/streaming.h"

namespace tally {

double RowCost(const Recipe& recipe, const MemoryPlan& plan, std::span<const WeightInfo> weights, bool predicts) {
  constexpr double kArithmetic = .1;
  const Experts& x = ExpertsOf(recipe);
  const double used = x.n_experts > 0 ? static_cast<double>(x.top_k) / x.n_experts : 0;
  double all = 0, experts = 0, predicting = 0;
  for (const WeightInfo& w : weights) {
    const bool looked_up =
        w.kind == WeightInfo::Kind::kEmbedding || w.kind == WeightInfo::Kind::kPosition || w.kind == WeightInfo::Kind::kTable;
    if (looked_up) continue;
    const bool head = w.kind == WeightInfo::Kind::kHead || w.kind == WeightInfo::Kind::kTiedEmbeddingHead;
    const double bytes = static_cast<double>(w.packed_bytes);
    if (head || w.layer >= recipe.n_layers) predicting += bytes * (w.experts ? used : 1);
    if (w.layer < recipe.n_layers) (w.experts ? experts : all) += bytes;
  }
  const double in_memory = all + experts * used;
  if (in_memory <= 0) return kArithmetic;
  double disk = 0;  // of a row, in bytes of memory that take as long
  if (plan.expert_slots > 0) {
    const double share = static_cast<double>(plan.expert_slots) / static_cast<double>(plan.experts);
    const double missed = (books::MissRate(books::Routing::kFlat, share) + books::MissRate(books::Routing::kLocal, share)) / 2;
    disk = experts * used * missed * kDiskTimes;
  }
  double row = all + std::max(experts * used, disk);
  row = std::max(row, static_cast<double>(plan.streamed_bytes) * kDiskTimes);
  const double more = std::max(experts * used * (1 - used), disk) + (predicts ? predicting : 0);
  return (kArithmetic * in_memory + more) / row;
}

}  // namespace tally
