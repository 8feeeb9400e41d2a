// SPDX-License-Identifier: Apache-2.0
#include "engine/app/parts.h"

#include <iterator>

#include "engine/base/format.h"

namespace tally::app {
namespace {

enum Part : uint8_t { kEmbeddingPart, kAttentionPart, kFeedForwardPart, kExpertsPart, kRouterPart, kNormsPart, kHeadPart };
constexpr std::string_view kNames[] = {"embedding", "attention", "feed-forward", "experts", "router", "norms", "head"};

}  // namespace

std::span<const std::string_view> ParameterParts() { return kNames; }

std::vector<std::string> ParameterPartNames(const Recipe& recipe) {
  std::vector<std::string> names(std::begin(kNames), std::end(kNames));
  if (recipe.tied_head) names[kEmbeddingPart] = "embedding and head";
  return names;
}

std::vector<uint64_t> CountParts(const books::Count& count, books::Form books::ParameterForm::*which) {
  std::vector<uint64_t> parts(std::size(kNames));
  for (const books::ParameterForm& p : count.tensors) {
    if (!p.prediction) parts[PartOf(p.component, p.expert)] += (p.*which).value();
  }
  return parts;
}

std::string NotRunText(const books::NotRun& n) {
  if (n.tensors == 0) return "";
  return "present, not run: " + books::WithThousands(n.parameters) + " parameters, " + books::WithThousands(n.bytes) +
         " bytes (" + Printable(n.names) + ")\n";
}

size_t PartOf(Component component, bool expert) {
  switch (component) {
    case Component::kEmbedding:
    case Component::kPositionEmbedding: return kEmbeddingPart;
    case Component::kFfnGateUp:
    case Component::kFfnDown: return expert ? kExpertsPart : kFeedForwardPart;
    case Component::kSharedGateUp:
    case Component::kSharedDown:
    case Component::kSharedSigmoid: return kFeedForwardPart;
    case Component::kRouter: return kRouterPart;
    case Component::kAttnNorm:
    case Component::kAttnPostNorm:
    case Component::kFfnNorm:
    case Component::kFfnPostNorm:
    case Component::kOutputNorm:
    case Component::kEmbeddingNorm: return kNormsPart;
    case Component::kHead:
    case Component::kLogits: return kHeadPart;
    default: return kAttentionPart;
  }
}

}  // namespace tally::app
