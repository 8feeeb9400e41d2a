// How fast an engine runs, beside what the machine allows, measured in the same minutes.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>

#include "engine/api/tally.h"
#include "engine/machine/roofs.h"

namespace tally {

struct SpeedOptions {
  int64_t prompt = 512;                     // tokens; random, from `seed`
  int64_t generate = 64;                    // decode steps after it, greedy
  int32_t repetitions = 5;                  // medians are reported
  double roof_seconds = 0.25;               // of each roof in each repetition
  uint64_t roof_bytes = uint64_t{1} << 30;  // read for the bandwidth: far beyond any last-level cache
  uint64_t seed = 1;
  std::function<bool()> interrupted;
};

// Each figure is the median over the repetitions, the ratios too; in one repetition roofs, prefill and decode follow one
// another, so that a ratio compares like with like on a machine whose speed moves.
struct SpeedReport {
  double bandwidth = 0;   // bytes/s that all threads read
  ArithmeticPeaks peaks;  // operations/s

  double prefill_tokens_per_second = 0;  // logits of the last row only
  double prefill_flops = 0;              // useful, linear and attention, per repetition
  std::array<double, kAriths> prefill_flops_by_type{};
  // The time these need at the peaks of their types, over the time taken. int8 work of a model with 4-bit matrices is held
  // against int8_narrow, all of it: where that is the higher peak, the ratio is a lower bound.
  double prefill_ratio = 0;
  double decode_tokens_per_second = 0;
  double decode_bytes = 0;  // packed weights and KV, read and written, per step
  double decode_ratio = 0;  // decode_bytes per second over bandwidth

  uint64_t peak_resident = 0;  // bytes of the process after a whole prefill and decode, before roofs were measured
  std::string verified;        // what was checked before any time was reported
};

// Checks first that the outputs are right: on a short prefix, prefill in one piece and token by token give the same greedy
// token and (unless OpenBLAS ran) the same bits. Errors: kInternal where they do not; kBadInput for figures that do not fit
// the context; kInterrupted.
Result<SpeedReport> MeasureSpeed(Engine& engine, const SpeedOptions& options);

}  // namespace tally
