// SPDX-License-Identifier: Apache-2.0
// Packs the weights of a plan for a packed file, through windows of memory.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/base/status.h"
#include "engine/machine/parallel.h"
#include "engine/weights/item_loader.h"
#include "engine/weights/packed_file.h"
#include "engine/weights/plan.h"
#include "engine/weights/weights.h"

namespace tally {

// Of one of two windows: one is packed while the other is written. A larger slice, or an expert's record, has a window of its size.
inline constexpr uint64_t kPackWindow = uint64_t{128} << 20;

// Takes bytes of the data from `offset` on, all but a little in whole pages from a page on. Called on another thread than PackWeights.
using WritePacked = std::function<Status(uint64_t offset, std::span<const uint8_t> bytes)>;

// Reads and packs every weight of the plan, which has neither guards nor shares out its experts, and writes the data of the layout's
// file, each byte once. Returns the checksums. progress: as LoadWeights has it, with bytes of the data. kNoRoom: no memory for the
// windows. Errors of the reader and of `write`.
Result<std::vector<uint64_t>> PackWeights(const WeightPlan& plan, const PackedLayout& layout, const TensorReader& reader,
                                          Team& team, const WritePacked& write, const LoadProgress& progress,
                                          uint64_t window_bytes = kPackWindow);

}  // namespace tally
