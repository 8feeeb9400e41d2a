// SPDX-License-Identifier: Apache-2.0
// Runs many requests on one engine, a step at a time.
//
// A step takes rows from all that run, within the engine's max_batch: first one row of each request that decodes, then pieces of prompts
// in equal shares. Requests begin in the order in which they came, as long as there is room. Where a running request needs room and
// there is none, the one that began last is preempted: it gives its sequence back, and goes on later from its tokens with the same bits.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "engine/session/engine.h"
#include "engine/session/request.h"

namespace tally {

// Not to be used by two threads at once.
class Scheduler {
 public:
  // `engine` must outlive the scheduler.
  explicit Scheduler(Engine& engine) : engine_(engine) {}
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;
  ~Scheduler();

  // A request waits until there is room. `sequence`: one of the caller's to run it on, which holds the first tokens of the prompt and not
  // all, and stays the caller's; such a request is not preempted. None: a sequence that the scheduler makes and frees.
  void Add(std::shared_ptr<Request> request, std::optional<int32_t> sequence = std::nullopt);
  // Ends the request with kInterrupted, unless it has ended. One that was not added is ignored.
  void Cancel(const Request& request);
  // No request waits or runs.
  bool idle() const { return waiting_.empty() && running_.empty(); }
  size_t waiting() const { return waiting_.size(); }
  size_t running() const { return running_.size(); }
  // Runs one step, if any request is left. A request that fails ends with its error (`finish` is kError), also where it runs alone and
  // has no room. An error of the whole step ends all that run with it.
  void Step();

 private:
  struct Entry {
    std::shared_ptr<Request> request;
    std::optional<int32_t> sequence;
    bool own = true;    // the sequence is the scheduler's
    int64_t rows = 0;   // in this step
    size_t logits = 0;  // which of the step's rows with logits is its last, where it wants them
    bool wants_logits = false;
  };

  void Admit();
  int64_t Left(const Entry& entry) const;  // tokens that have not run
  void Share();
  void AddRows(Entry& entry);
  void Settle(Entry& entry, const StepOutput& out);
  void MakeRoom();
  void GiveBack(Entry& entry);
  void DropEnded();

  Engine& engine_;
  std::deque<Entry> waiting_;
  std::vector<Entry> running_;  // in the order in which they began
  std::vector<BatchRow> rows_;
  size_t logit_rows_ = 0;
  size_t first_ = 0;      // of running_: where a step that cannot take all begins
  bool is_full_ = false;  // a request was preempted, and none that ran has ended since
};

}  // namespace tally
