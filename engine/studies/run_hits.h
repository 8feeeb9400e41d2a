// SPDX-License-Identifier: Apache-2.0
// What the experts' slots have hit in the decode steps of a process, kept for `fit` when it ends.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "counters/ledger/ledger.h"
#include "engine/base/export.h"
#include "engine/session/engine.h"

namespace tally {

// Sums over the engine's ledger, which may be reset in between.
class RunHits {
 public:
  // Adds the ledger's decode steps since its last Reset. Nothing of an engine that has all experts in memory, or where a process holds
  // some of a layer's experts alone: its slots are another share of them.
  TALLY_API void Add(Engine& engine);
  // Adds the rates to those kept (KeepHitRates), and begins anew.
  TALLY_API void Keep();

 private:
  std::string routing_id_;
  int64_t slots_ = 0;
  std::vector<ExpertUses> layers_;  // those with experts
  uint64_t steps_ = 0, rows_ = 0;
};

// Of an engine whose ledger was never reset.
TALLY_API void KeepRunHits(Engine& engine);

}  // namespace tally
