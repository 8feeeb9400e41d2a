// Measures the speed of an engine and, at the same time, the machine's limits (roofs).
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>

#include "engine/base/export.h"
#include "engine/machine/peaks.h"
#include "engine/session/generate.h"

namespace tally {

struct SpeedOptions {
  int64_t prompt = 512;                     // tokens; random, from `seed`
  int64_t generate = 64;                    // decode steps after it, greedy
  int32_t repetitions = 5;                  // medians are reported
  double roof_seconds = 0.25;               // seconds per roof and repetition; above 0, at most 3600. Bandwidth may take longer:
                                            // 9 measurements of at least 15/16 of roof_bytes (ReadRoof)
  uint64_t roof_bytes = uint64_t{1} << 30;  // memory read for the bandwidth, part by part, so that no byte is still in a
                                            // cache; at least 64 MiB, at most a quarter of the free memory
  uint64_t seed = 1;
  std::function<bool()> interrupted;  // polled between steps; true: stop, kInterrupted
};

// Each figure, ratios included, is the median over the repetitions. The speed of a shared machine can change by half within
// seconds, so the peaks are measured before and after each prefill and the bandwidth between pieces of a few decode steps, and
// the mean of before and after is used. Each piece starts with caches full of other data, which matters for models about as small
// as the caches.
struct SpeedReport {
  double bandwidth = 0;   // bytes/s that all threads can read, measured during the decode
  ArithmeticPeaks peaks;  // operations/s

  double prefill_tokens_per_second = 0;                 // with logits of the last row only
  double prefill_flops = 0;                             // useful FLOPs of one prefill, classes linear and attention
  std::array<double, kAriths> prefill_flops_by_type{};  // by Arith
  // The time of these FLOPs at the peaks of their types, divided by the time taken. All int8 work of a model with 4-bit matrices is
  // compared with int8_narrow; if that is the higher peak, the ratio is a lower bound.
  double prefill_ratio = 0;
  double decode_tokens_per_second = 0;
  double decode_bytes = 0;  // per step: packed weights, KV read and KV written
  double decode_ratio = 0;  // bytes of the decode / bytes that could have been read in the same time

  uint64_t peak_resident = 0;  // bytes of the process after a whole prefill and decode, before roofs were measured
  std::string verified;        // the checks that were made before timing
};

// First checks the outputs: on a short prefix, prefill in one piece and token by token must give the same greedy token and (unless
// OpenBLAS ran) the same bits. Resets the engine's ledger. kInternal: the check fails. kBadInput: numbers of tokens or
// repetitions below 1 or beyond the context, too little memory for the roofs, errors of Step. kInterrupted.
TALLY_API Result<SpeedReport> MeasureSpeed(Engine& engine, const SpeedOptions& options);

}  // namespace tally
