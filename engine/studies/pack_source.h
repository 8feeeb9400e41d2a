// SPDX-License-Identifier: Apache-2.0
// Writing a packed file from any source of tensors. Internal to studies.
#pragma once

#include <functional>
#include <string>

#include "engine/recipe/shard.h"
#include "engine/studies/packed_model.h"
#include "engine/weights/item_loader.h"
#include "engine/weights/plan.h"
#include "loaders/inventory/inventory.h"

namespace tally {

// What is packed of a source: its plan, and what the header says.
struct PackPlan {
  WeightPlan weights;  // points into the source
  std::string path;    // of the source, for messages
};
Result<PackPlan> PlanPack(const Inventory& source, const Shard& shard);

// PackModel of the part of one of several processes.
Result<PackReport> PackShard(const std::string& path, const std::string& out, const PackOptions& options, const Shard& shard);

// `after`: called when all is read, before the file gets its name.
Result<PackReport> WritePackedFile(const Inventory& source, const PackPlan& plan, const TensorReader& reader,
                                   const std::string& out, const PackOptions& options, const std::function<Status()>& after = {});

}  // namespace tally
