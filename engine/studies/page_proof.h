// The pages of the packed weights that a step was charged with, beside those it touched; internal to the api.
#pragma once

#include <cstddef>
#include <vector>

#include "counters/ledger/ledger.h"
#include "engine/studies/audit.h"
#include "engine/weights/weights.h"

namespace tally {

// One row for each weight that the ledger's last step was charged with or that has a page that was touched. `touched` has a bit
// for each page of weights.arena(); the weights are guarded. The ledger's table is weights.infos().
std::vector<PageRow> ComparePages(const Ledger& ledger, const PackedWeights& weights, size_t page_bytes,
                                  const std::vector<bool>& touched);

}  // namespace tally
