// SPDX-License-Identifier: Apache-2.0
// The record of one run of an op: its charges and its time. An op that is charged at several sites has a record for each; time and
// touches are in the first one.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "counters/cost/cost.h"
#include "counters/cost/op_description.h"
#include "counters/cost/site.h"
#include "counters/ledger/ledger.h"

namespace tally {

// Rows of one sequence in a step, at consecutive positions.
struct SequenceRows {
  int32_t sequence = 0;
  int64_t position = 0;  // of the first row
  int64_t rows = 0;
};

// Views and references are valid during the call of the Recorder. Weights are indices into Ledger::weights().
struct OpRecord {
  uint64_t step = 0;   // counted from 0 since the recorder was set
  uint64_t index = 0;  // of the op in its step, from 0
  Phase phase = Phase::kPrefill;
  std::span<const SequenceRows> sequences = {};
  int64_t logit_rows = 0;  // rows of the step with logits
  Site site = {};
  size_t part = 0;                       // index of `site` among the op's sites
  std::string_view op = {};              // "matmul"
  std::string_view implementation = {};  // "hwy", "ref", "blas"
  std::string_view target = {};          // instruction set of "hwy": "AVX3_ZEN4"
  int threads = 1;                       // that ran the op
  const OpDescription& description;
  const Cost& useful;
  const Cost& executed;
  std::span<const WeightTouch> touches = {};
  uint64_t start_nanoseconds = 0;  // since the recorder was set, steady clock
  uint64_t nanoseconds = 0;        // of the kernel; excludes charging and recording
};

// The part of an op's record that a process keeps for rank 0 when several run one model. Times are rank 0's clock, since its recorder was
// set.
struct RankOp {
  uint64_t step = 0, index = 0;  // as in OpRecord
  Phase phase = Phase::kPrefill;
  Site site = {};
  std::string op = {};
  uint64_t flops = 0;  // useful
  uint64_t bytes = 0;  // of weights, KV cache and states read
  uint64_t sent = 0, received = 0;
  int64_t start_nanoseconds = 0;
  uint64_t nanoseconds = 0;
};
struct RankOps {
  std::string process = {};  // "rank 1 on alpha"
  std::vector<RankOp> ops = {};
  uint64_t left_out = 0;  // ops after `ops` that were not kept
};

// Called between ops on the thread that called Step. Must not step the engine or change its sequences.
using Recorder = std::function<void(const OpRecord&)>;

}  // namespace tally
