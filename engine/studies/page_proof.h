// SPDX-License-Identifier: Apache-2.0
// Compares the pages of packed weights that a step was charged with and those it touched; internal to the studies.
#pragma once

#include <cstddef>
#include <vector>

#include "counters/ledger/ledger.h"
#include "engine/studies/audit.h"
#include "engine/weights/weights.h"

namespace tally {

// One row for each weight that was charged in the ledger's last step or has a touched page. `touched` has a bit for each page of
// weights.arena(). The weights must be guarded, and the ledger's table must be weights.infos().
std::vector<PageRow> ComparePages(const Ledger& ledger, const PackedWeights& weights, size_t page_bytes,
                                  const std::vector<bool>& touched);

}  // namespace tally
