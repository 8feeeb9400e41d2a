// SPDX-License-Identifier: Apache-2.0
// The decisions about experts that a run read from disk, made again from the experts that its rows chose, apart from the engine's store;
// internal to the studies.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "counters/ledger/ledger.h"
#include "counters/ledger/record.h"
#include "engine/base/status.h"

namespace tally {

// One layer's experts in one step, of a model that reads some from disk.
struct ExpertStep {
  uint64_t step = 0;
  Phase phase = Phase::kPrefill;
  int32_t layer = -1;
  int64_t slots = 0;                          // experts that may be in memory
  std::vector<int64_t> experts = {};          // that rows chose, ascending
  std::vector<int64_t> last_rows = {};        // of the step, that chose each
  std::vector<int64_t> missed = {};           // of the experts, those that were read
  uint64_t first_uses = 0, record_bytes = 0;  // of an expert on disk
  uint64_t disk_bytes = 0;                    // that the step was charged with
  bool operator==(const ExpertStep&) const = default;
  ExpertUses uses() const { return {experts.size() - missed.size(), missed.size(), first_uses, disk_bytes}; }
};

// Whether a record of the op "fetch" is of experts; else it is of a whole layer.
bool IsExpertStep(const OpRecord& record);
// Of a record of the op "fetch", of experts. kBadInput: lists that no run writes.
Result<ExpertStep> ReadExpertStep(const OpRecord& record);

struct ExpertReplay {
  struct Layer {
    int32_t layer = -1;
    int64_t slots = 0;
    uint64_t steps = 0, differing = 0;
    ExpertUses recorded = {}, replayed = {};
  };
  std::vector<Layer> layers = {};  // ascending
  uint64_t compared = 0, differing = 0;
  std::string first = {};  // what differs first: "step 3, layer 5: read 1 4 7, by the replay 1 4"
  bool agrees() const { return differing == 0; }
};

// Each layer has a list of the experts in memory, the least recently used first, which is empty before the first step: as the run began.
// Where a step needs more experts than there are slots, those that come and go are followed one by one. `steps` in the order of the run.
ExpertReplay ReplayExperts(std::span<const ExpertStep> steps);

}  // namespace tally
