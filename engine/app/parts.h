// SPDX-License-Identifier: Apache-2.0
// Where parameters are, coarsely: the rows of tables of parts and the segments of bars.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/api/tally.h"

namespace tally::app {

// "embedding", "attention", "feed-forward", "experts", "router", "norms", "head".
std::span<const std::string_view> ParameterParts();
// The same for a model; a tied matrix, whose reads as a head count with the embedding, is "embedding and head".
std::vector<std::string> ParameterPartNames(const Recipe& recipe);
// The index of a tensor's part; `expert`: it is one of those that tokens choose among.
size_t PartOf(Component component, bool expert);

// The sum of one form over the tensors of each part, without multi-token prediction.
std::vector<uint64_t> CountParts(const books::Count& count, books::Form books::ParameterForm::*which);

// "present, not run: 132 parameters, 528 bytes (lm_head.weight)" and a line end; empty where nothing is.
std::string NotRunText(const books::NotRun& not_run);

// Tables that are looked up beside the embedding: their elements, and those that one token reads.
struct LookedUpTables {
  uint64_t stored = 0, read = 0;
  bool ngrams = false;  // of the last tokens together, not of a layer
};
LookedUpTables LookedUp(const books::Count& count);
std::string LookedUpText(const LookedUpTables& tables);

}  // namespace tally::app
