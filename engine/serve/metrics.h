// SPDX-License-Identifier: Apache-2.0
// Figures of a server for Prometheus (https://prometheus.io/docs/instrumenting/exposition_formats/, text format 0.0.4).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "engine/serve/api_answer.h"

namespace tally {

inline constexpr std::array<Phase, 3> kAllPhases = {Phase::kPrefill, Phase::kDecode, Phase::kMixed};

// Seconds, in buckets. Not for several threads.
class Histogram {
 public:
  static constexpr std::array<double, 16> kBounds = {.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120};
  void Add(double seconds);
  void Write(std::string_view name, std::string_view help, std::string* text) const;

 private:
  std::array<uint64_t, kBounds.size() + 1> counts_{};
  double sum_ = 0;
};

// Requests that have been answered, by a path that the server knows. Any number of threads may count at once.
class RequestCounts {
 public:
  void Count(std::string_view path, int status);
  std::string Text() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, int>, uint64_t> requests_;
};

// What requests had of a model. Any number of threads may count at once.
class Metrics {
 public:
  void CountFirstToken(double seconds);         // since the request came
  void CountTokens(int64_t n, double seconds);  // after the first of a choice; since the one before them
  void CountUsage(const ApiUsage& usage);
  void CountCancelled();
  // The bills of a request's choices, once they have ended: together those of all requests are the ledger's useful work.
  void CountBills(std::span<const std::shared_ptr<Request>> choices);
  // The figures so far; those of the engine are appended by EngineMetrics.
  std::string Text() const;

 private:
  mutable std::mutex mutex_;
  Histogram first_token_, token_;
  ApiUsage usage_;
  uint64_t cancelled_ = 0, billed_rows_ = 0, billed_flops_ = 0, rows_again_ = 0, rows_in_vain_ = 0;
};

struct LoopState {
  size_t waiting = 0, running = 0;            // choices
  double busy_seconds = 0, step_seconds = 0;  // of the loop while it has requests; of these, within Scheduler::Step
};
// Figures of the engine and its ledger. Called on the thread that steps the engine.
std::string EngineMetrics(Engine& engine, const LoopState& state);

// A model on a server of several.
struct ModelCounts {
  std::string name = {};
  bool loaded = false;
  uint64_t bytes = 0, loads = 0, drops = 0;
};
std::string ModelsMetrics(std::span<const ModelCounts> models, uint64_t bytes, uint64_t budget);
// Texts of the same figures of several models, as one: each sample has its model's name as a label.
std::string JoinMetrics(std::span<const std::pair<std::string, std::string>> texts_by_model);

}  // namespace tally
