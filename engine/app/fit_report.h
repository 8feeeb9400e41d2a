// SPDX-License-Identifier: Apache-2.0
// What `tally fit` says.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/api/tally.h"
#include "engine/app/json.h"
#include "engine/app/kept_bench.h"

namespace tally::app {

// A measured step beside the bound of that very step.
struct MeasuredStep {
  KeptPoint point;
  double bound = 0;  // tokens/s
};

struct FitRow {
  std::string type;        // "Q4_K_M", "MXFP4 + BF16"
  bool given = false;      // the weights as they are stored or published
  std::optional<Fit> fit;  // none: `why`
  std::string why = {};    // it cannot be run
};

struct FittedModel {
  std::string name;
  bool file = false;  // a checkpoint: its weights are stored, not published
  bool experts = false;
  uint64_t parameters = 0;
  std::vector<FitRow> rows;  // from large to small
  // The row that the verdict is about: the largest type that fits and is not larger than the given one; else the smallest.
  size_t chosen = 0;
  std::optional<KeptBench> bench = {};
  std::optional<MeasuredStep> decode = {}, prefill = {};  // of the given weights
};

struct FitPage {
  FitMachine machine;
  FitOptions options;
};

Json FitDocument(const FitPage& page, const std::vector<FittedModel>& models);
// One screen of one model; a line each of several, the verdict first. Lines of at most `width` columns, 80 or more. `largest`: of
// several only the largest that fit, as many as a screen has room for.
std::string FitText(const FitPage& page, const FittedModel& model, size_t width);
std::string FitTableText(const FitPage& page, const std::vector<FittedModel>& models, size_t width, bool largest);

}  // namespace tally::app
