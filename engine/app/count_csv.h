// SPDX-License-Identifier: Apache-2.0
// The figures of `count` as CSV that a program reads.
#pragma once

#include <span>
#include <string>

#include "engine/api/tally.h"

namespace tally::app {

// As RFC 4180, lines ended by '\n'. One header, "model,table,row,figure,value"; one line a figure; every value a number, exact, without
// unit: parameters, bytes, FLOPs. One model and several have the same lines. `layers`: each layer's tensors in lines of their own.
// `training`: lines of table "training" besides.
Result<std::string> CountCsv(std::span<const CountedModel> models, bool layers, bool training);

// What is published of the models: under each convention the count (the row is "active 3.61B"), and 1 or 0 for whether it holds.
std::string ClaimsCsv(std::span<const CountedModel> models);

}  // namespace tally::app
