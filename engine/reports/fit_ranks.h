// SPDX-License-Identifier: Apache-2.0
// `tally fit --ranks`: a model over several machines, a rank on each.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/status.h"
#include "engine/render/value.h"
#include "engine/studies/fit.h"

namespace tally {

struct FitRanksPage {
  std::string name, type;
  FitMachine machine;
  FitOptions options;
  FitNetwork network;
  std::vector<RanksFit> fits = {};  // by number of ranks
};

std::string FitRanksText(const FitRanksPage& page, size_t width);
Value FitRanksJson(const FitRanksPage& page);
// Why it fits on none of them, with the figures of the largest rank; ok: it does, or the memory is not known.
Status CheckFits(const FitRanksPage& page);

}  // namespace tally
