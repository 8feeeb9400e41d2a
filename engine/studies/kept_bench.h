// SPDX-License-Identifier: Apache-2.0
// What `bench` last measured of a model on this machine, kept for `fit` and `run`; and the hit rates of experts that runs under a budget of
// weights have left.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "counters/books/books.h"
#include "engine/base/export.h"
#include "engine/studies/speed.h"

namespace tally {

// $XDG_CACHE_HOME/tally, or ~/.cache/tally (XDG Base Directory Specification 0.8); "" where neither variable is an absolute path.
TALLY_API std::string CacheDirectory();

struct KeptPoint {
  SpeedWork work{};
  int threads = 0;
  std::string kv;
  int64_t depth = 0, batch = 1, tokens = 0;
  double tokens_per_second = 0;
  double of_roof = 0;  // of the bandwidth (decode) or the peaks (prefill) that bench measured around the steps
};
struct KeptBench {
  std::string target;  // instruction set
  int64_t when = 0;    // seconds since 1970
  bool this_boot = false;
  std::vector<KeptPoint> points;
};

// Of the model `path`, a file or directory, and of the machine (KeepBestRates). Nothing is kept where that fails.
TALLY_API void KeepBench(const std::string& path, const SpeedReport& report);
// Nothing where nothing was measured, where the model has changed since (path, size, time of change), or on another machine.
TALLY_API std::optional<KeptBench> FindBench(const std::string& path);

// Bytes/s that the run's threads can read on this machine, the best that `fit`, `bench` and runs saw since it was started, this run
// included. None if neither `fit` nor `bench` was run. Nothing is measured.
TALLY_API std::optional<double> KeptReadBandwidth(const books::RunFigures& run);

// What the experts' slots of a model have hit (counters/books/streaming.h).
struct KeptHits {
  int64_t slots = 0;                   // n, of each layer
  std::vector<double> hit_rates = {};  // h of each layer with experts, in the order of layers
  uint64_t tokens = 0;                 // decode steps that they are a mean of
  int64_t rows = 1;  // of a step, as RowsOfHits has them: steps of several sequences, or with drafts, hit otherwise
};
// The power of two that is nearest to the mean number of rows of a step, by its logarithm; at least 1.
TALLY_API int64_t RowsOfHits(double rows);
// Names what hit rates depend on beside the slots: family, layers, widths, experts and experts of a token. A checkpoint, its quantised
// files and the built-in name have the same id.
TALLY_API std::string RoutingId(const Recipe& recipe);
// Adds a run's rates to those kept of the same slots and rows: means weighted by tokens, of which at most 100,000 count. Processes that do
// so at the same time wait for one another. Nothing is kept of less than 64 tokens, whose misses are mostly first uses, of rates that are
// none, or where nothing can be kept or another process does not end.
TALLY_API void KeepHitRates(const std::string& routing_id, const KeptHits& run);
// By rows, then by slots, from few to many. Empty: nothing valid is kept.
TALLY_API std::vector<KeptHits> FindHitRates(const std::string& routing_id);

}  // namespace tally
