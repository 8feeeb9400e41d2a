// SPDX-License-Identifier: Apache-2.0
// The figures of `count` as CSV that a program reads.
#pragma once

#include <span>
#include <string>

#include "engine/api/tally.h"

namespace tally::app {

struct CsvTables {
  bool counts = true;
  bool layers = false;  // each layer's tensors in lines of their own
  // What is published of the models: under each convention the count (the row is "active 3.61B"), and 1 or 0 for whether it holds.
  bool claims = false;
  bool training = false;
};

// As RFC 4180, lines ended by '\n'. One header, "model,context,prompt,batch,table,row,figure,value"; one line a figure; every value a number, exact, without
// unit: parameters, bytes, FLOPs. One model and several have the same lines. kBadInput: counts that do not fit 64 bits.
Result<std::string> CountCsv(std::span<const CountedModel> models, const CsvTables& tables);

}  // namespace tally::app
