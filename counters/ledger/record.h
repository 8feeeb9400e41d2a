// One op as it ran: what the ledger was charged with, and when. An op that is charged at several sites has a record for each: the time
// and the touches are in the first.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "counters/cost/cost.h"
#include "counters/cost/op_description.h"
#include "counters/cost/site.h"
#include "counters/ledger/ledger.h"

namespace tally {

// A sequence's part of a step.
struct SequenceRows {
  int32_t sequence = 0;
  int64_t position = 0;  // of its first row
  int64_t rows = 0;      // one after another
};

// Views and references hold during the call that delivers the record. Weights are named by their index in Ledger::weights().
struct OpRecord {
  uint64_t step = 0;   // from 0, since the recorder was set
  uint64_t index = 0;  // of the op within its step, from 0
  Phase phase = Phase::kPrefill;
  std::span<const SequenceRows> sequences = {};
  int64_t logit_rows = 0;  // rows of the step whose logits were asked for
  Site site = {};
  size_t part = 0;                       // of the op's sites
  std::string_view op = {};              // "matmul"
  std::string_view implementation = {};  // "hwy", "ref", "blas"
  std::string_view target = {};          // instruction set that "hwy" means: "AVX3_ZEN4"
  int threads = 1;                       // that shared the op
  const OpDescription& description;
  const Cost& useful;
  const Cost& executed;
  std::span<const WeightTouch> touches = {};
  uint64_t start_nanoseconds = 0;  // since the recorder was set, on a steady clock
  uint64_t nanoseconds = 0;        // running the kernel: charging and recording are not in it
};

// Called on the thread that steps, between ops; must not step the engine or change what it holds.
using Recorder = std::function<void(const OpRecord&)>;

}  // namespace tally
