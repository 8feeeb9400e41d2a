// How fast an engine runs, beside what the machine allows, measured in the same minutes.
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
  int64_t prompt = 512;        // tokens; random, from `seed`
  int64_t generate = 64;       // decode steps after it, greedy
  int32_t repetitions = 5;     // medians are reported
  double roof_seconds = 0.25;  // above 0, at most 3600: given to each roof in each repetition; the bandwidth takes longer
                               // where its passes do (ReadRoof: nine measurements, each of 15/16 of roof_bytes or more)
  uint64_t roof_bytes = uint64_t{1} << 30;  // read for the bandwidth, in turn, so that far more than any last-level cache
                                            // lies between two readings of a byte; 64 MiB or more, and at most a quarter
                                            // of the memory that is free
  uint64_t seed = 1;
  std::function<bool()> interrupted;  // polled between steps; true: stop, kInterrupted
};

// Each figure is the median over the repetitions, the ratios too. A machine's speed moves, by half within seconds where it is
// shared: the peaks are measured before and after each prefill (their mean counts), the bandwidth between pieces of a few decode
// steps (for a piece, the mean of before and after). So each piece starts with caches full of other things, which shows where a
// model is about as small as they are.
struct SpeedReport {
  double bandwidth = 0;   // bytes/s that all threads could have read while the decode ran
  ArithmeticPeaks peaks;  // operations/s

  double prefill_tokens_per_second = 0;                 // logits of the last row only
  double prefill_flops = 0;                             // FLOPs of one prefill: useful, linear and attention
  std::array<double, kAriths> prefill_flops_by_type{};  // by Arith
  // The time these need at the peaks of their types, over the time taken. int8 work of a model with 4-bit matrices is held
  // against int8_narrow, all of it: where that is the higher peak, the ratio is a lower bound.
  double prefill_ratio = 0;
  double decode_tokens_per_second = 0;
  double decode_bytes = 0;  // packed weights and KV, read and written, per step
  double decode_ratio = 0;  // bytes of the decode over those that could have been read meanwhile

  uint64_t peak_resident = 0;  // bytes of the process after a whole prefill and decode, before roofs were measured
  std::string verified;        // what was checked before any time was reported
};

// Checks first that the outputs are right: on a short prefix, prefill in one piece and token by token give the same greedy
// token and (unless OpenBLAS ran) the same bits. The engine's ledger is reset on the way. kInternal: they do not; kBadInput:
// numbers of tokens or repetitions below 1 or beyond the context, too little memory for the roofs, what Step refuses;
// kInterrupted.
TALLY_API Result<SpeedReport> MeasureSpeed(Engine& engine, const SpeedOptions& options);

}  // namespace tally
