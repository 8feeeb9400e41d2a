// SPDX-License-Identifier: Apache-2.0
// Measures the speed of a model over a grid of work and, at the same time, the machine's limits (roofs).
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/export.h"
#include "engine/machine/peaks.h"
#include "engine/session/generate.h"

namespace tally {

enum class SpeedWork : uint8_t { kPrefill, kDecode };
inline constexpr std::array<std::string_view, 2> kSpeedWorkNames = {"prefill", "decode"};

// Before a measurement.
struct SpeedProgress {
  int64_t done = 0, total = 0;  // measurements
  std::string next = {};        // "round 2 of 5: decode 64, 2 threads, f16, depth 4096"
  double seconds_left = -1;     // until the end, by what each point took before; -1: not known yet
};

// Every combination of the lists is one point of the grid. Tokens are random, from `seed`; each sequence has its own.
struct SpeedOptions {
  std::vector<int64_t> prompts = {512};          // tokens of a prefill; none: no prefill is measured
  std::vector<int64_t> generate = {64};          // decode steps; none: no decode is measured
  std::vector<int64_t> depths = {0};             // tokens that the KV cache of each sequence holds before
  std::vector<int64_t> batches = {1};            // sequences that decode together, one row of a step each
  std::vector<int> threads = {0};                // as EngineOptions::threads
  std::vector<std::optional<KvType>> kv = {{}};  // as EngineOptions::kv
  int32_t rounds = 5;                            // each measures every point once, so that points are interleaved
  double roof_seconds = 0.25;                    // seconds per roof, point and round; above 0, at most 3600. Bandwidth may take
                                                 // longer: 9 measurements of at least 15/16 of roof_bytes (ReadRoof)
  uint64_t roof_bytes = uint64_t{1} << 30;       // memory read for the bandwidth, part by part, so that no byte is still in a
                                                 // cache: weights if there are so many, else at most a quarter of the
                                                 // free memory; at least 64 MiB
  uint64_t seed = 1;
  std::function<bool()> interrupted = {};                   // polled between steps; true: stop, kInterrupted
  std::function<void(const SpeedProgress&)> progress = {};  // before each measurement; may be null
};

// Tokens per second in the rounds kept.
struct SpeedRate {
  double median = 0, least = 0, most = 0;
};

struct SpeedPoint {
  int threads = 0;  // as granted
  KvType kv = KvType::kF16;
  int64_t depth = 0;   // tokens in the KV cache of each sequence before
  int64_t batch = 1;   // sequences
  int64_t tokens = 0;  // of each sequence: of the prefill, or decode steps
  int32_t rounds = 0;
  // Rounds in which the point's roofs, each the mean of before and after a piece of the work, moved by at most 10 %; of a prefill,
  // before and after. Figures are of these. 0: they moved in all, and figures are of all.
  int32_t kept = 0;
  SpeedRate rate = {};  // all sequences together
  // Of all rounds, where experts come from disk. Rounds repeat their random tokens: a text's hit rates are other ones.
  ExpertUses experts = {};
  double disk_bytes_per_token = 0;  // experts or layers; mean of all rounds
};

struct PrefillSpeed : SpeedPoint {              // with logits of the last row only
  double flops = 0;                             // useful FLOPs, classes linear and attention
  std::array<double, kAriths> flops_by_type{};  // by Arith; attention as AttentionByType, so that they may be more than `flops`
  ArithmeticPeaks peaks = {};                   // before and after
  bool narrow = false;                          // int8 work is compared with int8_narrow
  // The time of these FLOPs at the peaks of their types, divided by the time taken. All int8 work of a model with 4-bit matrices is
  // compared with int8_narrow; if that is the higher peak, the ratio is a lower bound.
  double ratio_of_peak = 0;
};

struct DecodeSpeed : SpeedPoint {  // with logits and their greatest for every row
  double bytes_per_token = 0;      // packed weights, KV read and KV written of a step, divided by its rows; mean of the steps
  double bandwidth = 0;            // bytes/s that all threads can read, between pieces of the decode
  double ratio_of_bandwidth = 0;   // bytes of the decode / bytes that could have been read in the same time
  // Seconds of a choice from the logits of one row: by a Sampler at its defaults, and by Argmax, which is part of the decode.
  double sampled_seconds = 0, greedy_seconds = 0;
};

// What so many threads can do: medians over all measurements.
struct MeasuredRoofs {
  int threads = 0;
  double bandwidth = 0;        // bytes/s read
  ArithmeticPeaks peaks = {};  // operations/s; 0 where no prefill was measured
};

struct SpeedReport {
  std::vector<PrefillSpeed> prefill = {};
  std::vector<DecodeSpeed> decode = {};
  std::vector<MeasuredRoofs> roofs = {};  // by threads, ascending
  std::vector<MeasuredRoofs> best = {};   // the same, the best moment of each instead of the median
  MemoryPlan memory = {};                 // the weights, and KV and scratch of all engines of the grid
  uint64_t peak_resident = 0;             // bytes of the process after every point was run once, before roofs were measured
  std::string verified = {};              // the checks that were made before timing
  std::string target = {};                // instruction set of the kernels
  bool used_blas = false;
};

using SpeedEngineMaker = std::function<Result<std::shared_ptr<Engine>>(const EngineOptions&)>;

// `load` with the context, sequences and rows of a step that the grid needs, the first of its threads and the first KV type. The
// context stays where it is given. For LoadModel, which checks memory.
TALLY_API EngineOptions SpeedLoadOptions(EngineOptions load, const SpeedOptions& options);

// Makes an engine for each number of threads and KV type, checks the outputs, fills the caches to each depth (once; measurements
// fork or copy them) and runs each point once before anything is timed. The checks: on a short prefix, prefill in one piece and token
// by token gives the same greedy token and (unless OpenBLAS ran) the same bits, as do several sequences in one step and each alone,
// and all numbers of threads. The speed of a shared machine can change by half within seconds, so peaks are measured before and
// after each prefill and bandwidth between pieces of a few decode steps, and the mean of before and after is used. Each piece starts
// with caches full of other data, which matters for models about as small as the caches.
// kInternal: a check fails. kBadInput: an empty grid, numbers out of range or beyond the context, too little memory for the roofs,
// errors of the maker and of Step. kInterrupted.
TALLY_API Result<SpeedReport> MeasureSpeed(const SpeedEngineMaker& maker, const EngineOptions& load, const SpeedOptions& options);
TALLY_API Result<SpeedReport> MeasureSpeed(std::shared_ptr<const Model> model, const EngineOptions& load,
                                           const SpeedOptions& options);

}  // namespace tally
