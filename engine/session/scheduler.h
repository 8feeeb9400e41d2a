// SPDX-License-Identifier: Apache-2.0
// Runs many requests on one engine, a step at a time.
//
// A step takes rows from all that run, within the engine's max_batch: first one row of each request that decodes, then rows of prompts.
// Requests begin in the order in which they came, as long as there is room. If a running request needs room and there is none, the one
// that began last is preempted: it gives its sequence back. Later it runs its tokens again and continues with the same bits.
//
// Prompts run one after the other, not side by side: none would be done sooner, and most later. Clients take turns of kTurn rows, and the
// turn is that of the client whose prompts have had the fewest, so that clients have equal shares; a prompt with fewer than kShortPrompt
// rows to run does not wait for another's turn to end, unless its client has had more. Of a client's prompts the first that came is the
// next, but short ones overtake longer ones, and together keep one waiting for at most kMostOvertaking rows and as many as
// it has run itself.
//
// Requests that draft get further rows in steps of few rows that are all decode: such a step waits for the weights, and rows cost little.
// Rows that were not accepted are taken back before the request is told. If a step fails for a sequence with drafts, the next has none.
//
// Requests of one key share what they begin with: what a sequence has run is remembered (Sequences::Remember), and a request waits while a
// running one has yet to run more of their common beginning.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/export.h"
#include "engine/session/engine.h"
#include "engine/session/request.h"

namespace tally {

class StepClock;

struct SchedulerOptions {
  // About how many seconds a step with rows of prompts may last if other requests decode; four times as many if none does. Past steps
  // decide how large pieces of prompts are. 0: pieces are as large as the engine takes. Results are the same bits.
  double step_seconds = 0;
};

// Not to be used by two threads at once.
class TALLY_API Scheduler {
 public:
  static constexpr int64_t kShortPrompt = 256, kMostOvertaking = 512, kTurn = 1024;  // rows
  // `engine` must outlive the scheduler.
  explicit Scheduler(Engine& engine, const SchedulerOptions& options = {});
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;
  // Requests that have not ended end with kInterrupted.
  ~Scheduler();

  // Adds a request, which waits until there is room. If no request of the scheduler runs, it does not wait for what others hold of the
  // engine.
  void Add(std::shared_ptr<Request> request) { waiting_.push_back({.request = std::move(request), .arrival = ++arrivals_}); }
  // Ends the request with kInterrupted, unless it has ended. One that was not added is ignored.
  void Cancel(const Request& request);
  // No request waits or runs.
  bool idle() const { return waiting_.empty() && running_.empty(); }
  size_t waiting() const { return waiting_.size(); }
  size_t running() const { return running_.size(); }
  // Begins requests that wait and have room. Step does too.
  void Admit();
  // Runs one step, if any request is left. A request that fails ends with its error (`finish` is kError), even if it runs alone and has no
  // room. An error of the whole step ends all that run with it.
  void Step();

 private:
  struct Entry {
    std::shared_ptr<Request> request;
    uint64_t arrival = 0;                  // the order in which requests were added
    int64_t overtaken = 0;                 // rows of prompts that overtook this one's, less its own; 0 or more
    int32_t sequence = -1;                 // while it runs
    int32_t bill = kNoBill;                // from when it began until it has ended
    int64_t rows = 0;                      // in this step, without drafts
    std::span<const int32_t> drafts = {};  // in this step
    // Places among the step's rows with logits: of the prompt's rows, of the last token if it wants logits, then of drafts.
    size_t logits = 0;
    size_t prompt_logits = 0;  // rows of the prompt that want logits
    bool wants_logits = false;
  };

  bool MayAdmit() const;
  bool WaitsForPrefix(const Request& request) const;
  Result<int32_t> MakeSequence(const Request& request);
  uint64_t BytesToCome(const Request& request, int32_t sequence) const;
  bool HasRoom(const Request& request, int32_t sequence) const;
  void Remember(const Entry& entry, int32_t states);
  int32_t StatesToKeep(const Entry& entry) const;
  int64_t MostRows(const Entry& entry) const;
  int64_t RowsOf(const Entry& entry, int64_t room);
  int64_t Left(const Entry& entry) const;  // tokens that have not run
  void Share();
  int64_t SharePrompts(std::vector<Entry*> prompts, int64_t room);
  void CountClients(std::span<Entry* const> prompts);
  std::vector<Entry*>::iterator TurnGoesOn(std::vector<Entry*>& prompts) const;
  std::vector<Entry*>::iterator NextPrompt(std::vector<Entry*>& prompts);
  void ShareDrafts(int64_t room);
  void Predict(std::span<const DraftWish> wishes, std::span<Entry* const> of);
  void AddRows(Entry& entry);
  void Settle(Entry& entry, const StepOutput& out);
  void Take(Entry& entry, const StepOutput& out);
  void PreemptYoungest();
  void GiveBack(Entry& entry);
  void Drop(Entry& entry);
  void DropEnded();

  Engine& engine_;
  const SchedulerOptions options_;
  const bool recurrent_;   // the model has recurrent layers
  const double row_cost_;  // of a drafted row, as a part of a step of one row
  std::deque<Entry> waiting_;
  std::vector<Entry> running_;  // in the order in which they began
  uint64_t arrivals_ = 0;
  // Rows that prompts of a client have had while others waited: of clients that have prompts to run, or are ahead of all that have.
  std::map<std::string, int64_t> prompt_rows_;
  std::string turn_;           // the client whose turn it is
  int64_t turn_rows_ = kTurn;  // in this turn
  std::unique_ptr<StepClock> clock_;
  std::vector<BatchRow> rows_;
  int64_t decode_rows_ = 0;  // of the step, drafts included
  size_t logit_rows_ = 0;
  int64_t logits_left_ = 0;  // rows with logits of the step, besides one for each request
  size_t first_ = 0;         // index in running_ at which a step begins that cannot take all
  bool is_full_ = false;     // there was no room for a request, and none that ran has ended since
};

}  // namespace tally
