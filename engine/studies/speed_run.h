// SPDX-License-Identifier: Apache-2.0
// One engine of a speed grid: its sequences, the checks of its outputs, and the work that is timed; internal to the studies.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/session/scoped_sequence.h"
#include "engine/studies/speed.h"
#include "engine/studies/speed_roofs.h"

namespace tally {

// One measurement. Roofs and what follows from them are 0 where no roofs were given.
struct PrefillSample {
  double seconds = 0;
  double flops = 0;                       // useful
  std::array<double, kAriths> by_type{};  // as PrefillSpeed::flops_by_type
  ArithmeticPeaks before, after;
  ExpertUses experts;
  double disk_bytes = 0;
};
struct DecodeSample {
  double seconds = 0;
  double bytes = 0;                                // of all steps: packed weights, KV read and KV written
  double readable = 0;                             // bytes that could have been read in the same time
  double least_bandwidth = 0, most_bandwidth = 0;  // that a piece of the decode is compared with
  double sampled_seconds = 0, greedy_seconds = 0;  // a token
  ExpertUses experts;
  double disk_bytes = 0;
};

class SpeedRun {
 public:
  // The engine has room for the grid of `options`, which must outlive this.
  SpeedRun(std::shared_ptr<Engine> engine, const SpeedOptions& options) : engine_(std::move(engine)), options_(options) {}
  SpeedRun(const SpeedRun&) = delete;
  SpeedRun& operator=(const SpeedRun&) = delete;

  Engine& engine() { return *engine_; }
  const Engine& engine() const { return *engine_; }
  bool narrow() const;  // some products are summed in 16 bits where the machine has no int8 dot product

  // What was checked. `expected`: the logits of the checked prefix; where it is not empty, this engine's must be the same.
  Result<std::string> Verify(std::vector<float>& expected);
  // Prefills one sequence for each depth of the grid. `on_piece` is called with each piece's tokens.
  Status Fill(const std::function<void(int64_t tokens)>& on_piece);
  // `tokens` into a new sequence of `depth` positions.
  Result<PrefillSample> Prefill(int64_t tokens, int64_t depth, MomentaryRoofs* roofs);
  // `steps` steps of one row for each of `batch` sequences of `depth` positions.
  Result<DecodeSample> Decode(int64_t steps, int64_t depth, int64_t batch, MomentaryRoofs* roofs);

 private:
  Status Poll() const;
  int32_t Token(int64_t sequence, int64_t position) const;
  Result<ScopedSequence> NewAt(int64_t depth, bool shared);
  // Steps `sequence` through the tokens `stream` has at its positions up to `end`. Returns the logits of the last row.
  Result<std::span<const float>> Push(int32_t sequence, int64_t stream, int64_t end, int64_t piece,
                                      const std::function<void(int64_t tokens)>& on_piece = nullptr);
  Status CheckBatch(int64_t prefix, int64_t batch);
  void TimeSampling(const Mat<const float>& logits, DecodeSample& sample);

  std::shared_ptr<Engine> engine_;
  const SpeedOptions& options_;
  std::map<int64_t, ScopedSequence> filled_;  // by depth
  std::vector<BatchRow> rows_;
  Sampler sampler_{SamplerConfig{}};
  uint32_t chosen_ = 0;  // keeps the choices from being optimised away
};

}  // namespace tally
