// SPDX-License-Identifier: Apache-2.0
// What `bench` last measured of a model on this machine, kept for `fit` and `run`.
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

}  // namespace tally
