// SPDX-License-Identifier: Apache-2.0
// Builds the ledger's weight table from file headers only.
#pragma once

#include <vector>

#include "counters/books/books.h"
#include "counters/cost/site.h"
#include "engine/recipe/model_spec.h"
#include "loaders/inventory/inventory.h"

namespace tally::books {

// The table that LoadWeights gives, with packed_bytes 0. One entry for each binding of `spec` that is learned (rope divisors are a
// buffer), in the order of the bindings. `spec` must come from ReadModelSpec.
std::vector<WeightInfo> WeightTable(const Inventory& inventory, const ModelSpec& spec);

// The stored type of each entry of WeightTable, in its order.
std::vector<DType> WeightTypes(const Inventory& inventory, const ModelSpec& spec);

// The tensors that `spec` lists as not run. Indices and masks are bytes, not parameters.
NotRun CountNotRun(const Inventory& inventory, const ModelSpec& spec);

}  // namespace tally::books
