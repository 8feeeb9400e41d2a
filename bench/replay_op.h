// An op of a --ledger line, built again with random data of the same shapes.
#pragma once

#include <cstddef>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/exec/executor.h"

namespace tally {

class ReplayOp {
 public:
  virtual ~ReplayOp() = default;
  // Runs it, as the engine would. Successive runs use other copies of the weights.
  virtual Status Run(Executor& executor) = 0;
  // What it made when it last ran: f32 values, and what must be the same bytes whichever kernel runs.
  struct Made {
    std::vector<float> values;
    std::vector<uint8_t> exact;
  };
  virtual Made Output() const = 0;
  // Outputs as before the first run, and the first copy of the weights again.
  virtual void Reset() = 0;
};

// The largest difference of the values, as a part of the largest one wanted; infinity where exact bytes, sizes or NaNs differ.
double DifferenceOf(const ReplayOp::Made& got, const ReplayOp::Made& want);

// What an op was charged with that its line does not say, or the other way round: one figure in words; empty where all agree.
std::string CostDifference(const Cost& useful, const nlohmann::json& line);

// `line`: a line of a ledger file (docs/ledger.schema.json). The weights it reads are laid out as often as `weight_bytes` has room
// for, at least once. kBadInput: a line that describes no op of ours, or one that this machine has no memory for.
Result<std::unique_ptr<ReplayOp>> BuildReplay(const nlohmann::json& line, Team& team, size_t weight_bytes);

}  // namespace tally
