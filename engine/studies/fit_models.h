// SPDX-License-Identifier: Apache-2.0
// What fits a machine, type by type, beside what bench has measured of the model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/export.h"
#include "engine/studies/fit.h"
#include "engine/studies/kept_bench.h"
#include "engine/studies/streaming_forecast.h"

namespace tally {

// A measured step beside the bound of that very step.
struct MeasuredStep {
  KeptPoint point;
  double bound = 0;  // tokens/s
};

struct FitRow {
  std::string type;                                 // "Q4_K_M", "MXFP4 + BF16"
  bool given = false;                               // the weights as they are stored or published
  std::optional<Fit> fit;                           // none: `why`
  std::string why = {};                             // it cannot be run
  std::optional<StreamingForecast> streaming = {};  // with weights read from disk as they are needed; none: it fits
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
  std::vector<MoreMemory> more_memory = {};               // of the chosen row, if it is streamed
};

struct FitPage {
  FitMachine machine;
  FitOptions options;
  bool streaming = true;  // forecasts of rows that do not fit
};

// As many types as FitPresets has, beside the given weights, where `given`; else these alone. A row that cannot be run says why. `path`: of
// the checkpoint, whose kept bench is looked for if the machine was measured; empty: none.
TALLY_API FittedModel FitTypes(const CountedModel& counted, const std::string& path, bool given, const FitPage& page);

}  // namespace tally
