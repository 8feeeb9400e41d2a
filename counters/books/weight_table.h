// The ledger's table of weights without a load.
#pragma once

#include <vector>

#include "counters/cost/site.h"
#include "engine/recipe/model_spec.h"
#include "loaders/inventory/inventory.h"

namespace tally::books {

// The ledger's table, from the files' own shapes and sizes alone: what a load would give, with packed_bytes
// left at 0. One entry per binding of `spec` that is learned (rope divisors are a buffer), in its order. The
// spec must have passed ReadModelSpec.
std::vector<WeightInfo> WeightTable(const Inventory& inventory, const ModelSpec& spec);

// The stored type of each entry of WeightTable, in its order.
std::vector<DType> WeightTypes(const Inventory& inventory, const ModelSpec& spec);

}  // namespace tally::books
