// SPDX-License-Identifier: Apache-2.0
// What `tally run` says of a run: the books.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/api/tally.h"
#include "engine/app/json.h"
#include "engine/app/options.h"
#include "engine/reports/rank_report.h"

namespace tally::app {

struct RunBooks {
  books::RunFigures figures;
  std::string ended = {};                          // why the generation ended
  double load_seconds = 0;                         // until the engine was ready
  double first_token_seconds = 0;                  // of the prefill and the first choice; 0: there was no token
  uint64_t peak_resident = 0, planned_memory = 0;  // bytes
  std::optional<double> read_bandwidth = {};       // bytes/s that the run's threads can read; none: not known
  uint64_t seed = 0;
  bool samples = false, seed_drawn = false;  // tokens were drawn at random; the seed too, as no option gave it
  RankBooks ranks = {};                      // of several processes
};

// Those of one Generate, without what several processes did.
RunBooks BooksOf(const Loaded& loaded, const GenerateResult& result, const SamplingOptions& sampling, bool seed_drawn);

// "length", "end of text"
const char* FinishName(FinishReason reason);

// What the documents of `run` and `chat` have in common.
Json FiguresJson(const GenerateResult& result, const RunBooks& books, const Engine& engine);

// Bytes of packed weights and KV that a decoded token read or wrote.
double MovedBytesPerToken(const books::RunFigures& figures);
// Of the decode: the bandwidth that it used / read_bandwidth. None where nothing was decoded or the bandwidth is not known.
std::optional<double> RatioOfBandwidth(const RunBooks& run);

// "experts hit 71 % of 4,608, 1.3 GB a token from disk": of the decode, or of the prompt where nothing was decoded. For runs that stream.
std::string ExpertWords(const books::RunFigures& figures);

// Four lines of at most 80 columns; a line more where experts are read from disk, tokens were drafted, the touched parameters are wrong,
// or OpenBLAS ran.
std::string RunScreen(const RunBooks& run);
// All figures, under the model's description.
std::string RunTables(const RunBooks& run, const std::string& description);

}  // namespace tally::app
