// An op of a --ledger line, built again with random data of the same shapes.
#pragma once

#include <cstddef>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "engine/exec/executor.h"

namespace tally {

class ReplayOp {
 public:
  virtual ~ReplayOp() = default;
  // Runs it, as the engine would. Successive runs use other copies of the weights.
  virtual Status Run(Executor& executor) = 0;
  // What it made when it last ran, as bytes; and whether these are f32 values.
  virtual std::vector<uint8_t> Output() const = 0;
  virtual bool float_output() const = 0;
  // Outputs as before the first run, and the first copy of the weights again.
  virtual void Reset() = 0;
};

// `line`: a line of a ledger file (docs/ledger.schema.json). The weights it reads are laid out as often as `weight_bytes` has room
// for, at least once. kBadInput: a line that describes no op of ours, or one that this machine has no memory for.
Result<std::unique_ptr<ReplayOp>> BuildReplay(const nlohmann::json& line, Team& team, size_t weight_bytes);

}  // namespace tally
