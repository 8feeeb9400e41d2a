// SPDX-License-Identifier: Apache-2.0
// Records out of a checkpoint that is not packed: each is packed when it is read.
#pragma once

#include <memory>

#include "engine/base/status.h"
#include "engine/weights/plan.h"
#include "engine/weights/record_reads.h"
#include "engine/weights/records.h"
#include "loaders/inventory/inventory.h"

namespace tally {

// `plan` was made from `inventory`, with streamed experts; `records` are its own. The files stay open. Packing costs processor time that a
// packed file does not need (docs/bigger.md). kBadInput: a file that cannot be opened, or has changed since its header was read; the same
// for each read of a file that has changed by then.
Result<std::unique_ptr<RecordReader>> OpenSourceRecords(std::shared_ptr<const Inventory> inventory,
                                                        std::shared_ptr<const WeightPlan> plan,
                                                        const std::vector<ExpertRecords>& records);

// The same for whole layers: `layers` are LayerRecordsOf(*plan).
Result<std::unique_ptr<RecordReader>> OpenSourceLayers(std::shared_ptr<const Inventory> inventory,
                                                       std::shared_ptr<const WeightPlan> plan,
                                                       const std::vector<ExpertRecords>& layers);

}  // namespace tally
