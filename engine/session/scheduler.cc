// SPDX-License-Identifier: Apache-2.0
#include "engine/session/scheduler.h"

#include <algorithm>
#include <utility>

namespace tally {

Scheduler::~Scheduler() {
  for (Entry& e : running_) GiveBack(e);
}

void Scheduler::Add(std::shared_ptr<Request> request, std::optional<int32_t> sequence) {
  waiting_.push_back({.request = std::move(request), .sequence = sequence, .own = !sequence.has_value()});
}

void Scheduler::Cancel(const Request& request) {
  for (Entry& e : waiting_) {
    if (e.request.get() == &request) e.request->End(FinishReason::kInterrupted);
  }
  for (Entry& e : running_) {
    if (e.request.get() == &request) e.request->End(FinishReason::kInterrupted);
  }
  DropEnded();
}

void Scheduler::GiveBack(Entry& e) {
  if (e.own && e.sequence) engine_.Free(*e.sequence);
  if (e.own) e.sequence.reset();
}

void Scheduler::DropEnded() {
  std::erase_if(waiting_, [](const Entry& e) { return e.request->ended(); });
  const auto ended = [&](Entry& e) {
    if (!e.request->ended()) return false;
    GiveBack(e);
    is_full_ = false;
    return true;
  };
  std::erase_if(running_, ended);
}

// Begins requests that wait, in their order.
void Scheduler::Admit() {
  while (!waiting_.empty() && !is_full_ && static_cast<int64_t>(running_.size()) < engine_.max_logit_rows()) {
    Entry& next = waiting_.front();
    if (!next.sequence) {
      Result<int32_t> made = engine_.NewSequence();
      if (made.ok()) {
        next.sequence = *made;
      } else if (made.status().code() == StatusCode::kNoRoom && !running_.empty()) {
        return;
      } else {
        next.request->End(FinishReason::kError, made.status());
        waiting_.pop_front();
        continue;
      }
    }
    next.request->Begin(engine_.Length(*next.sequence));
    running_.push_back(std::move(next));
    waiting_.pop_front();
  }
}

int64_t Scheduler::Left(const Entry& e) const {
  return static_cast<int64_t>(e.request->tokens().size()) - engine_.Length(*e.sequence);
}

// Sets the rows of every running request in this step.
void Scheduler::Share() {
  int64_t room = engine_.max_batch();
  const size_t n = running_.size();
  std::vector<Entry*> prompts;
  size_t past = first_;  // the first that a full step leaves out
  for (size_t i = 0; i < n; ++i) {
    Entry& e = running_[(first_ + i) % n];
    e.rows = 0;
    if (Left(e) > 1) {
      prompts.push_back(&e);
    } else if (room > 0) {
      e.rows = Left(e);
      room -= e.rows;
      past = first_ + i + 1;
    }
  }
  // Equal shares; what a short prompt leaves goes to the others.
  for (size_t i = 0; i < prompts.size() && room > 0; ++i) {
    const int64_t others = static_cast<int64_t>(prompts.size() - i);
    prompts[i]->rows = std::min(Left(*prompts[i]), std::max<int64_t>(1, room / others));
    room -= prompts[i]->rows;
  }
  for (size_t i = 0; i < prompts.size() && room > 0; ++i) {
    const int64_t more = std::min(Left(*prompts[i]) - prompts[i]->rows, room);
    prompts[i]->rows += more;
    room -= more;
  }
  first_ = room > 0 || n == 0 ? 0 : past % n;
}

void Scheduler::AddRows(Entry& e) {
  const int64_t length = engine_.Length(*e.sequence);
  e.wants_logits = false;
  for (int64_t p = length; p < length + e.rows; ++p) {
    const bool logits = e.request->WantsLogits(p);
    if (logits) {
      e.wants_logits = true;
      e.logits = logit_rows_++;
    }
    rows_.push_back({.token = e.request->tokens()[static_cast<size_t>(p)],
                     .sequence = *e.sequence,
                     .want_logits = logits,
                     .generated = e.request->IsGenerated(p)});
  }
}

// Tells the request what the step gave it.
void Scheduler::Settle(Entry& e, const StepOutput& out) {
  if (e.rows == 0) return;
  e.request->Ran(engine_.Length(*e.sequence), e.rows);
  if (e.wants_logits) e.request->Take(out.Logits(e.logits));
}

// A running request found no room: the one that began last makes some.
void Scheduler::MakeRoom() {
  const auto last = std::find_if(running_.rbegin(), running_.rend(), [](const Entry& e) { return e.own && !e.request->ended(); });
  if (last == running_.rend()) return;
  GiveBack(*last);
  last->request->Preempted();
  waiting_.push_front(std::move(*last));
  running_.erase(std::next(last).base());
  is_full_ = true;
}

void Scheduler::Step() {
  Admit();
  if (running_.empty()) return;
  Share();
  rows_.clear();
  logit_rows_ = 0;
  for (Entry& e : running_) AddRows(e);
  const Result<StepOutput> out = engine_.Step(rows_);
  if (!out.ok()) {
    for (Entry& e : running_) e.request->End(FinishReason::kError, out.status());
    return DropEnded();
  }
  bool full = false;
  for (Entry& e : running_) {
    const Status* const error = e.rows > 0 ? out->ErrorOf(*e.sequence) : nullptr;
    if (error == nullptr) {
      Settle(e, *out);
    } else if (error->code() == StatusCode::kNoRoom && running_.size() > 1) {
      full = true;
    } else {
      e.request->End(FinishReason::kError, *error);
    }
  }
  DropEnded();
  if (full && !running_.empty()) MakeRoom();
}

}  // namespace tally
