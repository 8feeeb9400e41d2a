// SPDX-License-Identifier: Apache-2.0
// Records out of a packed file, where they lie as slots hold them.
#pragma once

#include <memory>
#include <vector>

#include "engine/base/status.h"
#include "engine/weights/packed_file.h"
#include "engine/weights/plan.h"
#include "engine/weights/record_reads.h"
#include "engine/weights/records.h"
#include "loaders/inventory/inventory.h"

namespace tally {

// `plan` was made from `inventory`, which was read from a packed file; `records` are its own. Points into neither afterwards. Errors of
// PackedFile::Open; `read` as there.
Result<std::unique_ptr<RecordReader>> OpenPackedRecords(const Inventory& inventory, const WeightPlan& plan,
                                                        const std::vector<ExpertRecords>& records,
                                                        PackedFile::ReadBytes read = {});

// The same for whole layers: `layers` are LayerRecordsOf(plan).
Result<std::unique_ptr<RecordReader>> OpenPackedLayers(const Inventory& inventory, const WeightPlan& plan,
                                                       const std::vector<ExpertRecords>& layers, PackedFile::ReadBytes read = {});

}  // namespace tally
