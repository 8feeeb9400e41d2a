// SPDX-License-Identifier: Apache-2.0
// What a model that is only counted keeps of a sequence.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/recipe/recipe.h"

namespace tally::books {

// Elements of a sequence of `context` positions: entries of positions that are not yet enough for one are left out.
inline uint64_t CachedElements(const CountedCache& cache, uint64_t context) {
  const uint64_t positions = cache.window > 0 ? std::min(cache.window, context) : context;
  return cache.layers * cache.elements * (positions / cache.every);
}

}  // namespace tally::books
