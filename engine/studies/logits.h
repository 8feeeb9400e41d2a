// SPDX-License-Identifier: Apache-2.0
// Logits of every position of given tokens, and files with the outputs of every op.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>

#include "engine/base/export.h"
#include "engine/session/generate.h"

namespace tally {

// Given tokens, run through a new sequence.
struct TokenRun {
  int64_t logits_from = 0;  // positions from here on have logits
  bool hidden = false;      // all positions have hidden states (StepOutput::Hidden)
  // Not empty: what earlier runs of this key computed for the tokens before logits_from is not computed again.
  std::string prefix_key = {};
  // Called for each piece with its first position, its number of rows and what the step gave, valid during the call. An error ends the run
  // and is returned. Must not be null.
  std::function<Status(int64_t first, int64_t rows, const StepOutput& out)> take = {};
  // Called before each piece; may be null. `interrupted` returns true to stop.
  std::function<void()> begin_step = {};
  std::function<bool()> interrupted = {};
};
// Runs `tokens` in pieces of at most max_batch rows, and max_logit_rows with logits. The sequence is freed. kBadInput: no tokens, a token
// beyond the vocabulary, more tokens than the context, errors of Step; kInterrupted.
TALLY_API Status RunTokens(Engine& engine, std::span<const int32_t> tokens, const TokenRun& run);

struct LogitsCallbacks {
  // Called for each piece with its first position and its logits [rows, vocab], valid during the call. An error ends the run and is
  // returned. Must not be null.
  std::function<Status(int64_t first, Mat<const float> logits)> take = {};
  // Called before each piece; may be null. `interrupted` returns true to stop.
  std::function<void()> begin_step = {};
  std::function<bool()> interrupted = {};
};
// RunTokens with the logits of every position, in order.
TALLY_API Status RunLogits(Engine& engine, std::span<const int32_t> tokens, const LogitsCallbacks& callbacks);

// Of an op's output: "blk.3.attn_q.matmul", "head.matmul".
TALLY_API std::string TapName(Site site, std::string_view op);

// Writes the outputs of every op to a directory, one .npy for each op of the model: DIR/blk.3.attn_q.matmul.npy,
// DIR/head.matmul.npy. If a component runs the same op several times in a step, the second is .1 and so on. The rows of later
// steps are appended.
class OpDump {
 public:
  // Creates the directory if it is missing. kBadInput: it cannot be created.
  TALLY_API static Result<OpDump> Create(const std::string& directory);
  void BeginStep() { seen_.clear(); }  // call it before each step
  // For Probe::SetTap. The first error (kBadInput, naming the file) is kept in status(); what was written is removed then, the
  // directory too if Create made it, and nothing is written after it.
  TALLY_API void Write(Site site, std::string_view op, Mat<const float> output);
  const Status& status() const { return status_; }
  size_t files() const { return rows_.size(); }  // written so far

 private:
  OpDump() = default;
  std::string directory_;
  bool made_ = false;  // the directory
  Status status_;
  std::map<std::string, int> seen_;      // in this step
  std::map<std::string, int64_t> rows_;  // written so far, by file name
};

}  // namespace tally
