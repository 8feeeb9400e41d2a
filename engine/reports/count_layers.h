// SPDX-License-Identifier: Apache-2.0
// A count's layers as a document.
#pragma once

#include "counters/books/model_count.h"
#include "engine/render/value.h"

namespace tally {

// [{"layer", "mixer", "feed_forward", "parameters", ...}]; "layer" of what is outside of layers is null.
Value LayersJson(const books::Count& count);

}  // namespace tally
