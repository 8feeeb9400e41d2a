// SPDX-License-Identifier: Apache-2.0
// Whether a recipe makes sense, whatever it was read from.
#pragma once

#include <cstdint>

#include "engine/base/status.h"
#include "engine/recipe/recipe.h"

namespace tally {

// Limits far above any published model; a number beyond them means a damaged or hostile file.
inline constexpr int64_t kMaxLayers = 4096, kMaxWidth = 1 << 24, kMaxHeads = 1 << 16, kMaxContext = INT32_MAX,
                         kMaxExperts = 1 << 16, kMaxVocab = 1 << 26, kMaxTaps = 16;

// The parts of a recipe fit together, and its parameters can be counted in 64 bits. kBadInput says what does not, by the names of Recipe's
// fields. Features that no plan covers are for CannotRun (engine/graph/plan.h).
Status CheckRecipe(const Recipe& recipe);

}  // namespace tally
