// Teacher-forced logits, and files of what every op put out on the way.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>

#include "engine/api/tally.h"

namespace tally {

// Runs `tokens` through a fresh sequence in pieces of max_logit_rows and hands over the logits of every position in order:
// `take(first position, logits [rows, vocab])`; an error of its ends the run. `begin_step` (may be null) is called before each
// piece. kBadInput: no tokens, a token beyond the vocabulary, more tokens than the context; kInterrupted when asked to stop.
struct LogitsCallbacks {
  std::function<Status(int64_t first, Mat<const float> logits)> take;
  std::function<void()> begin_step;
  std::function<bool()> interrupted;
};
Status RunLogits(Engine& engine, std::span<const int32_t> tokens, const LogitsCallbacks& callbacks);

// Collects the outputs of every op in a directory, one .npy for each op of the model: DIR/blk.3.attn_q.matmul.npy, DIR/head.matmul.npy.
// Where a component runs the same op more than once in a step, the second is .1 and so on. The rows of later steps are
// appended.
class OpDump {
 public:
  // Creates the directory where it is missing.
  static Result<OpDump> Create(const std::string& directory);
  void BeginStep() { seen_.clear(); }
  // For Engine::SetTap. The first error is kept, and nothing is written after it.
  void Write(Site site, std::string_view op, Mat<const float> output);
  const Status& status() const { return status_; }
  size_t files() const { return rows_.size(); }

 private:
  OpDump() = default;
  std::string directory_;
  Status status_;
  std::map<std::string, int> seen_;      // in this step
  std::map<std::string, int64_t> rows_;  // written so far, by file name
};

}  // namespace tally
