// SPDX-License-Identifier: Apache-2.0
// How fast a model runs that is bigger than its memory: the closed forms of streaming.h with the bytes of a counted model. The only
// place that `fit` and `count` take these figures from. docs/bigger.md explains them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "counters/books/streaming.h"
#include "engine/base/export.h"
#include "engine/base/status.h"
#include "engine/studies/count.h"
#include "engine/studies/fit.h"
#include "engine/studies/kept_bench.h"

namespace tally {

// The bytes of a decode step by layer, at the context and batch that the model is counted at. Records and other weights are as packed;
// of a model or a type that cannot be run as stored, records in whole pages of each matrix.
TALLY_API books::StreamedModel StreamedModelOf(const CountedModel& model);

// A decode step under one routing.
struct StreamingCurve {
  books::Routing routing{};
  double hit_rate = 0;  // of all choices
  books::StreamedDecode decode = {};
  // Tokens/s of all sequences: at most, and as expected. 0: the disk's rate is unknown.
  double bound_rate = 0, expected_rate = 0;
};

struct StreamingPrompt {
  uint64_t rows = 0;
  double balanced = 0;      // C*; 0: unknown
  uint64_t chunk = 0;       // rows
  double seconds = 0;       // until its first token, with the slots filled; 0: unknown
  double cold_seconds = 0;  // the same after a start, with none filled
  double rate = 0;          // tokens/s of a long prompt
};

struct StreamingForecast {
  books::StreamedModel model = {};
  books::Residency at = {};
  books::StreamRates rates = {};
  // Empty if the budget is not enough. With experts: uniform, flat, local, and measured where hit rates are kept. Without: one, uniform,
  // which hits nothing that is not always resident.
  std::vector<StreamingCurve> curves = {};
  std::optional<KeptHits> measured = {};  // of the nearest number of slots
  StreamingPrompt prompt = {};

  TALLY_API const StreamingCurve* Curve(books::Routing routing) const;  // null: there is none
  // The range to expect: measured alone, or from flat to local.
  TALLY_API RateRange expected() const;
  TALLY_API RateRange bound() const;
};

// kBadInput: the budget is not `enough`, with the sizes; "needs at least 3.21 GiB for weights: ..., and 2.00 GiB are given".
TALLY_API Status CheckBudget(const StreamingForecast& forecast);

// `kept`: as FindHitRates gives them, of which those of as many rows count. Rates between two kept numbers of slots are interpolated by
// the resident share, from no hits without slots to hits alone with all experts resident.
TALLY_API StreamingForecast ForecastStreaming(const books::StreamedModel& model, uint64_t budget, const books::StreamRates& rates,
                                              uint64_t prompt, const std::vector<KeptHits>& kept = {});

// The same with more memory: 4, 8, 16, 32, ... GiB more, as long as something is streamed, and last the least budget that holds all.
struct MoreMemory {
  uint64_t more = 0;  // bytes
  StreamingForecast forecast = {};
};
TALLY_API std::vector<MoreMemory> ForecastMoreMemory(const StreamingForecast& forecast, const std::vector<KeptHits>& kept = {});

// What a machine's memory, memory rate and peaks make of it. Nullopt: it fits, or the machine's memory is not known.
TALLY_API std::optional<StreamingForecast> ForecastFit(const CountedModel& model, const Fit& fit, const FitMachine& machine,
                                                       const std::vector<KeptHits>& kept = {});

}  // namespace tally
