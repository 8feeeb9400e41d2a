// SPDX-License-Identifier: Apache-2.0
// The parts of a model: where its parameters are, and what the FLOPs of a step are spent on. A part of the same name is the same in both.
#pragma once

#include <cstdint>
#include <string_view>

#include "counters/cost/site.h"
#include "engine/base/export.h"

namespace tally::books {

// Parts up to kHead, and kStreams, have parameters, and the FLOPs of the products with them; kAttention and kRecurrence have FLOPs
// only, since their products have no weights. kNorm has parameters, and the FLOPs of its class. Parts from kSoftmax on have the FLOPs
// of a class only.
enum class Part : uint8_t {
  kEmbedding,
  kLayerEmbedding,
  kNgramTable,
  kProjections,  // of attention: every weight of it but norms
  kIndexer,
  kCompressor,
  kAttention,    // queries with keys, and probabilities with values
  kConvolution,  // of LFM2 with the matrices before and after it
  kRecurrentProjections,
  kRecurrence,   // products with the state
  kFeedForward,  // shared experts too
  kExperts,
  kRouter,
  kHead,
  kNorm,
  kStreams,
  kSoftmax,
  kRope,
  kActivation,
  kChoice,
  kResidualBias,
  kStateWork  // of a recurrence what is no product
};
inline constexpr int kParts = 22;
TALLY_API std::string_view PartName(Part part);  // "attention projections"; static
// Of a weight, and of products with it; `expert`: it is one of those that tokens choose among.
TALLY_API Part PartOf(Component component, bool expert);

}  // namespace tally::books
