// SPDX-License-Identifier: Apache-2.0
// The options of an engine with their defaults filled in: what it is planned from.
#pragma once

#include <cstdint>

#include "engine/graph/plan.h"
#include "engine/graph/sequence_store.h"
#include "engine/session/model.h"

namespace tally {

struct StepperOptions {
  PlanOptions plan;
  uint64_t share_gain_ns = kShareGainNanoseconds;  // Executor::SetShareGain
  int64_t context = 0;                             // maximum positions of a sequence
  int32_t sequences = 1;                           // maximum number of live sequences
  int64_t draft_rows = 0;                          // of plan.max_logit_rows
  bool prediction = false;                         // EngineOptions::prediction
  uint64_t kv_bytes = 0;                           // the budget of the KV cache; 0: all sequences at full context

  StoreSize kv_size() const { return {context, sequences, plan.max_batch, kv_bytes}; }
};

// batch_rows: of a step where options.max_batch is 0.
StepperOptions MakeStepperOptions(const Recipe& recipe, const EngineOptions& options,
                                  int64_t batch_rows = EngineOptions::kBatchRows);

}  // namespace tally
