// SPDX-License-Identifier: Apache-2.0
// Where parameters are, coarsely: the rows of tables of parts and the segments of bars.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "counters/books/books.h"
#include "engine/recipe/recipe.h"
#include "engine/studies/count_figures.h"

namespace tally {

// The names of all parts for a model; a tied matrix, whose reads as a head count with the embedding, is "embedding and head".
std::vector<std::string> PartNames(const Recipe& recipe);
// "attention proj.", so that tables fit 80 columns.
std::string ShortPartName(std::string_view name);

// "present, not run: 132 parameters, 528 bytes (lm_head.weight)" and a line end; empty where nothing is.
std::string NotRunText(const books::NotRun& not_run);

std::string LookedUpText(const LookedUpTables& tables);

}  // namespace tally
