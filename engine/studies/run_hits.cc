// SPDX-License-Identifier: Apache-2.0
#include "engine/studies/run_hits.h"

#include <span>
#include <utility>

#include "engine/recipe/recipe.h"
#include "engine/studies/kept_bench.h"

namespace tally {

void RunHits::Add(Engine& engine) {
  const MemoryPlan& plan = engine.model().memory_plan();
  const Recipe& recipe = engine.model().recipe();
  if (!plan.streams() || plan.experts != ExpertsOf(recipe).n_experts) return;
  const Ledger& ledger = engine.ledger();
  std::vector<ExpertUses> layers;
  const std::span<const ExpertUses> uses = ledger.expert_uses(Phase::kDecode);
  for (size_t i = 0; i < uses.size() && i < static_cast<size_t>(recipe.n_layers); ++i) {  // behind them: a layer for prediction
    if (uses[i] != ExpertUses()) layers.push_back(uses[i]);
  }
  if (layers.empty()) return;
  std::string id = RoutingId(recipe);
  if (id != routing_id_ || plan.expert_slots != slots_ || layers.size() != layers_.size()) {  // of another model
    Keep();
    routing_id_ = std::move(id);
    slots_ = plan.expert_slots;
    layers_.assign(layers.size(), {});
  }
  for (size_t i = 0; i < layers.size(); ++i) layers_[i] += layers[i];
  // Rows of steps with a prompt's rows beside them are counted with the others'; a ledger does not tell them apart.
  const uint64_t all = ledger.steps(Phase::kDecode) + ledger.steps(Phase::kMixed);
  steps_ += ledger.steps(Phase::kDecode);
  rows_ += ledger.rows(Phase::kDecode) * ledger.steps(Phase::kDecode) / all;
}

void RunHits::Keep() {
  KeptHits run = {.slots = slots_, .tokens = steps_};
  for (const ExpertUses& l : layers_) {
    run.hit_rates.push_back(static_cast<double>(l.hits) / static_cast<double>(l.hits + l.misses));
  }
  if (steps_ > 0) run.rows = RowsOfHits(static_cast<double>(rows_) / static_cast<double>(steps_));
  if (!layers_.empty()) KeepHitRates(routing_id_, run);
  *this = RunHits();
}

void KeepRunHits(Engine& engine) {
  RunHits hits;
  hits.Add(engine);
  hits.Keep();
}

}  // namespace tally
