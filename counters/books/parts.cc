// SPDX-License-Identifier: Apache-2.0
#include "counters/books/parts.h"

#include <array>

namespace tally::books {

std::string_view PartName(Part part) {
  static constexpr std::array<std::string_view, kParts> kNames = {"embedding",
                                                                  "layer embeddings",
                                                                  "n-gram table",
                                                                  "attention projections",
                                                                  "indexer",
                                                                  "compressor",
                                                                  "attention",
                                                                  "convolution",
                                                                  "recurrent projections",
                                                                  "recurrence",
                                                                  "feed-forward",
                                                                  "experts",
                                                                  "router",
                                                                  "head",
                                                                  "norms",
                                                                  "residual streams",
                                                                  "softmax",
                                                                  "rope",
                                                                  "activations",
                                                                  "top-k routing",
                                                                  "residual and bias",
                                                                  "recurrence, elementwise"};
  return kNames[static_cast<size_t>(part)];
}

Part PartOf(Component component, bool expert) {
  switch (component) {
    case Component::kEmbedding:
    case Component::kPositionEmbedding:
    case Component::kEmbeddingProj: return Part::kEmbedding;
    case Component::kLayerEmbedding: return Part::kLayerEmbedding;
    case Component::kNgramTable: return Part::kNgramTable;
    case Component::kIndexer: return Part::kIndexer;
    case Component::kCompressor: return Part::kCompressor;
    case Component::kStreams: return Part::kStreams;
    case Component::kFfnGateUp:
    case Component::kFfnDown: return expert ? Part::kExperts : Part::kFeedForward;
    case Component::kSharedGateUp:
    case Component::kSharedDown:
    case Component::kSharedSigmoid:
    case Component::kLatentIn:
    case Component::kLatentOut:
    case Component::kLayerEmbeddingProj:
    case Component::kLayerGate:
    case Component::kLayerOut: return Part::kFeedForward;
    case Component::kRouter: return Part::kRouter;
    case Component::kConvIn:
    case Component::kShortConv:
    case Component::kConvOut:
    case Component::kRecurrentConv: return Part::kConvolution;
    case Component::kRecurrentIn:
    case Component::kRecurrentGate:
    case Component::kRecurrentRates:
    case Component::kRecurrence:
    case Component::kRecurrentOut: return Part::kRecurrentProjections;
    case Component::kAttnNorm:
    case Component::kAttnQNorm:
    case Component::kAttnKNorm:
    case Component::kRecurrentNorm:
    case Component::kAttnPostNorm:
    case Component::kFfnNorm:
    case Component::kFfnPostNorm:
    case Component::kLayerEmbeddingNorm:
    case Component::kLayerPostNorm:
    case Component::kLayerScale:
    case Component::kRouterNorm:
    case Component::kDensePostNorm:
    case Component::kExpertNorm:
    case Component::kExpertPostNorm:
    case Component::kOutputNorm:
    case Component::kEmbeddingNorm: return Part::kNorm;
    case Component::kHead:
    case Component::kHeadProj:
    case Component::kLogits: return Part::kHead;
    default: return Part::kProjections;
  }
}

}  // namespace tally::books
