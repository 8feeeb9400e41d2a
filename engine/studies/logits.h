// Teacher-forced logits, and files of what every op put out on the way.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>

#include "engine/base/export.h"
#include "engine/session/generate.h"

namespace tally {

// Runs `tokens` through a fresh sequence in pieces of max_logit_rows and hands over the logits of every position in order:
// `take(first position, logits [rows, vocab], valid during the call)`; an error of its ends the run and is returned. `begin_step`
// and `interrupted` (true: stop) are called before each piece and may be null; `take` may not. The sequence is freed.
// kBadInput: no tokens, a token beyond the vocabulary, more tokens than the context, what Step refuses; kInterrupted.
struct LogitsCallbacks {
  std::function<Status(int64_t first, Mat<const float> logits)> take;
  std::function<void()> begin_step;
  std::function<bool()> interrupted;
};
TALLY_API Status RunLogits(Engine& engine, std::span<const int32_t> tokens, const LogitsCallbacks& callbacks);

// Collects the outputs of every op in a directory, one .npy for each op of the model: DIR/blk.3.attn_q.matmul.npy, DIR/head.matmul.npy.
// Where a component runs the same op more than once in a step, the second is .1 and so on. The rows of later steps are
// appended.
class OpDump {
 public:
  // Creates the directory where it is missing. kBadInput, naming it: it cannot be made.
  TALLY_API static Result<OpDump> Create(const std::string& directory);
  void BeginStep() { seen_.clear(); }  // to be called before each step
  // For Engine::SetTap. The first error (kBadInput, naming the file) is kept in status(), and nothing is written after it.
  TALLY_API void Write(Site site, std::string_view op, Mat<const float> output);
  const Status& status() const { return status_; }
  size_t files() const { return rows_.size(); }  // written so far

 private:
  OpDump() = default;
  std::string directory_;
  Status status_;
  std::map<std::string, int> seen_;      // in this step
  std::map<std::string, int64_t> rows_;  // written so far, by file name
};

}  // namespace tally
