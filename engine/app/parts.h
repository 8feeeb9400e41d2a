// SPDX-License-Identifier: Apache-2.0
// Where parameters are, coarsely: the rows of tables of parts and the segments of bars.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/api/tally.h"

namespace tally::app {

// The names of all parts for a model; a tied matrix, whose reads as a head count with the embedding, is "embedding and head".
std::vector<std::string> PartNames(const Recipe& recipe);
// "attention proj.", so that tables fit 80 columns.
std::string ShortPartName(std::string_view name);

// By part: the sum of one form over its tensors, without multi-token prediction.
std::vector<uint64_t> CountParts(const books::Count& count, books::Form books::ParameterForm::*which);

// Tensors of one name and shape. Those of all layers are one group, "blk.*.attn_q", unless `layers`.
struct TensorGroup {
  std::string name;
  const books::ParameterForm* first = nullptr;
  uint64_t n = 0;
};
std::vector<TensorGroup> TensorGroups(const books::Count& count, bool layers);

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
