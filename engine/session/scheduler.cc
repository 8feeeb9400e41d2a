// SPDX-License-Identifier: Apache-2.0
#include "engine/session/scheduler.h"

#include <algorithm>
#include <utility>

#include "engine/machine/machine.h"
#include "engine/recipe/recipe.h"
#include "engine/session/row_cost.h"
#include "engine/session/step_clock.h"

namespace tally {
namespace {

constexpr int64_t kWorthWaiting = 128;  // tokens that two requests begin with
constexpr double kAloneTimes = 4;       // a step of prompts alone may last so many times as long
constexpr int64_t kFewRows = 8;         // a step of so many rows lasts little longer than one of a row
constexpr int64_t kStateEvery = 1024;   // positions at whose multiples recurrent layers' states are remembered

std::span<const int32_t> WithoutLast(std::span<const int32_t> tokens) { return tokens.first(tokens.size() - 1); }

// Tokens that both begin with.
int64_t CommonLength(std::span<const int32_t> a, std::span<const int32_t> b) {
  return std::ranges::mismatch(a, b).in1 - a.begin();
}

}  // namespace

Scheduler::Scheduler(Engine& engine, const SchedulerOptions& options)
    : engine_(engine),
      options_(options),
      recurrent_(AnyLayer(engine.model().recipe(), &LayerRecipe::recurrent)),
      row_cost_(RowCost(engine.model().recipe(), engine.model().memory_plan(), engine.ledger().weights(), engine.predicts())),
      clock_(std::make_unique<StepClock>()) {}

Scheduler::~Scheduler() {
  for (Entry& e : running_) e.request->End(FinishReason::kInterrupted);
  for (Entry& e : waiting_) e.request->End(FinishReason::kInterrupted);
  DropEnded();
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

void Scheduler::Remember(const Entry& e, int32_t states) {
  if (!e.request->prefix_key()) return;
  engine_.Remember(e.sequence, *e.request->prefix_key(), e.request->tokens(), states);
}

// How many states of recurrent layers to remember after this step, for other requests to begin from: one at multiples of kStateEvery and
// at the shared beginning; two at the end of the prompt, since in a conversation's next turn its last tokens may differ.
int32_t Scheduler::StatesToKeep(const Entry& e) const {
  const int64_t length = engine_.Length(e.sequence);
  if (!recurrent_) return 0;
  if (e.request->IsGenerated(length) && !e.request->IsGenerated(length - 1)) return 2;
  return length % kStateEvery == 0 || length == e.request->shared_beginning() ? 1 : 0;
}

void Scheduler::GiveBack(Entry& e) {
  if (e.sequence >= 0) e.request->Held(engine_.KvBytesOf(e.sequence));
  if (recurrent_ && e.sequence >= 0) Remember(e, 1);
  engine_.Free(std::exchange(e.sequence, -1));
}

// Removes a request that runs no more, and gives it its bill.
void Scheduler::Drop(Entry& e) {
  GiveBack(e);
  if (e.bill != kNoBill) e.request->Billed(engine_.CloseBill(e.bill));
}

void Scheduler::DropEnded() {
  const auto ended = [&](Entry& e) {
    if (!e.request->ended()) return false;
    Drop(e);
    is_full_ = false;
    return true;
  };
  std::erase_if(waiting_, ended);
  std::erase_if(running_, ended);
}

bool Scheduler::MayAdmit() const {
  return (!is_full_ || running_.empty()) && static_cast<int64_t>(running_.size()) < engine_.max_requests();
}

// True if a running request has yet to run prompt tokens with which this one begins too, and there are enough of them.
bool Scheduler::WaitsForPrefix(const Request& request) const {
  if (!request.prefix_key() || request.RunsAllOfPrompt() || running_.empty()) return false;
  const std::span<const int32_t> tokens = WithoutLast(request.tokens());
  const int64_t there = engine_.Reusable(*request.prefix_key(), tokens);
  return std::ranges::any_of(running_, [&](const Entry& e) {
    if (Left(e) <= 1 || e.request->prefix_key() != request.prefix_key()) return false;
    int64_t common = CommonLength(e.request->tokens(), tokens);
    // Recurrent layers leave a state at the prompt's end, and where StatesToKeep says.
    if (recurrent_ && common < static_cast<int64_t>(e.request->tokens().size())) {
      const int64_t shared = e.request->shared_beginning() <= common ? e.request->shared_beginning() : 0;
      common = std::max(common - common % kStateEvery, shared);
    }
    return common >= kWorthWaiting && common > there && engine_.Length(e.sequence) < common;
  });
}

Result<int32_t> Scheduler::MakeSequence(const Request& request) {
  if (!request.prefix_key() || request.RunsAllOfPrompt()) return engine_.NewSequence();
  return engine_.NewSequenceFor(*request.prefix_key(), WithoutLast(request.tokens()));
}

// Bytes that a sequence takes until it has run the request's tokens, besides those that it has.
uint64_t Scheduler::BytesToCome(const Request& request, int32_t sequence) const {
  const uint64_t now = engine_.KvBytesOf(sequence);
  return std::max(now, engine_.KvBytesFor(static_cast<int64_t>(request.tokens().size()))) - now;
}

// Whether the request can run its tokens on `sequence` beside those that run.
bool Scheduler::HasRoom(const Request& request, int32_t sequence) const {
  uint64_t bytes = engine_.KvBytesInUse() + BytesToCome(request, sequence);
  for (const Entry& e : running_) bytes += BytesToCome(*e.request, e.sequence);
  return bytes <= engine_.KvBudget();
}

void Scheduler::Admit() {
  for (size_t i = 0; i < waiting_.size() && MayAdmit();) {
    Entry& next = waiting_[i];
    if (WaitsForPrefix(*next.request)) {  // requests behind it need not wait
      if (++i == static_cast<size_t>(engine_.max_requests())) return;
      continue;
    }
    const Result<int32_t> made = MakeSequence(*next.request);
    if (made.ok() && !running_.empty() && !HasRoom(*next.request, *made)) {
      engine_.Free(*made);
      is_full_ = true;
      return;
    }
    if (!made.ok() && made.status().code() == StatusCode::kNoRoom && !running_.empty()) return;
    Entry entry = std::move(next);
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
    if (!made.ok()) {
      entry.request->End(FinishReason::kError, made.status());
      Drop(entry);
      continue;
    }
    entry.sequence = *made;
    entry.request->Begin(engine_.Length(*made));
    if (entry.bill == kNoBill) entry.bill = engine_.OpenBill();
    running_.push_back(std::move(entry));
  }
}

int64_t Scheduler::Left(const Entry& e) const {
  return static_cast<int64_t>(e.request->tokens().size()) - engine_.Length(e.sequence);
}

// The most rows of one step. With recurrent layers: up to the next position whose state others may begin from.
int64_t Scheduler::MostRows(const Entry& e) const {
  const int64_t left = Left(e), length = engine_.Length(e.sequence), shared = e.request->shared_beginning();
  if (!recurrent_ || !e.request->prefix_key()) return left;
  return std::min({left, kStateEvery - length % kStateEvery, length < shared ? shared - length : left});
}

// The rows that a prompt has in a step with room for `room`. One row with logits is every request's own; more are taken from those that
// are left.
int64_t Scheduler::RowsOf(const Entry& e, int64_t room) {
  const int64_t length = engine_.Length(e.sequence), most = std::min(MostRows(e), room);
  bool has_own = false;
  for (int64_t rows = 0; rows < most; ++rows) {
    if (!e.request->WantsLogits(length + rows) || !std::exchange(has_own, true)) continue;
    if (logits_left_ == 0) return rows;
    --logits_left_;
  }
  return most;
}

// Sets the rows of every running request in this step.
void Scheduler::Share() {
  int64_t room = engine_.max_batch();
  logits_left_ = engine_.max_logit_rows() - static_cast<int64_t>(running_.size());
  const size_t n = running_.size();
  std::vector<Entry*> prompts;
  size_t past = first_;  // the first that a full step leaves out
  for (size_t i = 0; i < n; ++i) {
    Entry& e = running_[(first_ + i) % n];
    e.rows = 0;
    e.drafts = {};
    if (Left(e) > 1 && !e.request->AreForced(Left(e))) {
      prompts.push_back(&e);
    } else if (room > 0) {
      e.rows = std::min(MostRows(e), room);
      room -= e.rows;
      past = first_ + i + 1;
    }
  }
  decode_rows_ = engine_.max_batch() - room;
  const int64_t rest = room;  // of the engine's batch
  if (options_.step_seconds > 0) {
    room = std::min(room, clock_->MostRows(decode_rows_, options_.step_seconds * (decode_rows_ > 0 ? 1 : kAloneTimes)));
  }
  const int64_t left_out = rest - room;
  room = SharePrompts(prompts, room);
  first_ = room + left_out > 0 || n == 0 ? 0 : past % n;
  if (prompts.empty() && !is_full_) ShareDrafts(room);
}

// Updates prompt_rows_ before a step. A client whose prompts did not wait before begins with the rows of the client that has had the
// fewest, or with its own earlier rows if these are more.
void Scheduler::CountClients(std::span<Entry* const> prompts) {
  std::map<std::string, int64_t> had;
  int64_t fewest = 0;
  for (const Entry* e : prompts) {
    const auto known = prompt_rows_.find(e->request->client());
    if (known == prompt_rows_.end()) continue;
    fewest = had.empty() ? known->second : std::min(fewest, known->second);
    had.insert(*known);
  }
  for (const Entry* e : prompts) had.try_emplace(e->request->client(), fewest);
  for (const auto& [client, rows] : prompt_rows_) {
    if (rows > fewest && !prompts.empty()) had.try_emplace(client, rows);
  }
  prompt_rows_.swap(had);
}

// Gives `room` rows to prompts. Returns what is left.
int64_t Scheduler::SharePrompts(std::vector<Entry*> prompts, int64_t room) {
  std::ranges::sort(prompts, {}, &Entry::arrival);
  CountClients(prompts);
  while (room > 0 && !prompts.empty()) {
    const auto next = NextPrompt(prompts);
    Entry& e = **next;
    const std::string& client = e.request->client();
    e.rows = RowsOf(e, room);
    e.overtaken = std::max<int64_t>(0, e.overtaken - e.rows);
    for (auto before = prompts.begin(); before != next; ++before) {
      if ((*before)->request->client() == client) (*before)->overtaken += e.rows;
    }
    prompt_rows_[client] += e.rows;
    if (TurnGoesOn(prompts) == prompts.end()) {
      turn_ = client;
      turn_rows_ = 0;
    }
    if (turn_ == client) turn_rows_ += e.rows;
    room -= e.rows;
    prompts.erase(next);
  }
  return room;
}

// The first prompt of the client whose turn it is; end: its turn is over.
std::vector<Scheduler::Entry*>::iterator Scheduler::TurnGoesOn(std::vector<Entry*>& prompts) const {
  if (turn_rows_ >= kTurn) return prompts.end();
  return std::ranges::find_if(prompts, [&](const Entry* e) { return e->request->client() == turn_; });
}

// Of prompts in the order in which they came, the one that is to run next.
std::vector<Scheduler::Entry*>::iterator Scheduler::NextPrompt(std::vector<Entry*>& prompts) {
  const auto had = [&](const Entry* e) { return prompt_rows_.at(e->request->client()); };
  auto first = std::ranges::min_element(prompts, {}, had);
  if (const auto in_turn = TurnGoesOn(prompts); in_turn != prompts.end()) {
    const auto cuts_in = std::ranges::find_if(prompts, [&](const Entry* e) {
      return Left(*e) < kShortPrompt && had(e) <= had(*in_turn) && e->request->client() != turn_;
    });
    first = cuts_in != prompts.end() ? cuts_in : in_turn;
  }
  if (Left(**first) < kShortPrompt) return first;
  const auto overtakes = std::find_if(first, prompts.end(), [&](const Entry* e) {
    return e->request->client() == (*first)->request->client() && Left(*e) < kShortPrompt &&
           (*first)->overtaken + Left(*e) <= kMostOvertaking;
  });
  return overtakes == prompts.end() ? first : overtakes;
}

// Gives rows of a step of few rows to drafts.
void Scheduler::ShareDrafts(int64_t room) {
  room = std::min({room, engine_.draft_rows(), kFewRows - decode_rows_});
  const bool predicts = engine_.predicts();
  std::vector<DraftWish> wishes;
  std::vector<Entry*> wishing;
  for (size_t i = 0; i < running_.size() && room > 0; ++i) {
    Entry& e = running_[i];
    if (e.rows != 1) continue;  // none, or several that a grammar forced
    int64_t most = (room + static_cast<int64_t>(running_.size() - i) - 1) / static_cast<int64_t>(running_.size() - i);
    if (recurrent_ && e.request->prefix_key()) {  // others may begin from the states at these positions
      most = std::min(most, kStateEvery - 1 - engine_.Length(e.sequence) % kStateEvery);
    }
    if (predicts) {
      most = e.request->MayDraft(most);
      if (most == 0) continue;
      wishes.push_back({.sequence = e.sequence, .token = e.request->tokens().back(), .most = most, .bill = e.bill});
      wishing.push_back(&e);
      room -= most;
      continue;
    }
    e.drafts = e.request->Draft(most);
    room -= static_cast<int64_t>(e.drafts.size());
    decode_rows_ += static_cast<int64_t>(e.drafts.size());
  }
  if (!wishes.empty()) Predict(wishes, wishing);
}

// Asks the engine for drafts: wishes[i] is for entry of[i].
void Scheduler::Predict(std::span<const DraftWish> wishes, std::span<Entry* const> of) {
  const Result<std::span<const std::vector<int32_t>>> drafts = engine_.Predict(wishes);
  for (size_t i = 0; i < of.size(); ++i) {
    Entry& e = *of[i];
    if (!drafts.ok()) {
      e.request->End(FinishReason::kError, drafts.status());
      e.rows = 0;
      continue;
    }
    e.drafts = e.request->WithoutEnd((*drafts)[i]);
    decode_rows_ += static_cast<int64_t>(e.drafts.size());
  }
}

void Scheduler::AddRows(Entry& e) {
  const int64_t length = engine_.Length(e.sequence);
  e.wants_logits = false;
  e.logits = logit_rows_;
  e.prompt_logits = 0;
  for (int64_t p = length; p < length + e.rows; ++p) {
    const bool logits = e.request->WantsLogits(p);
    if (logits) {
      (e.request->WantsPromptLogits(p) ? ++e.prompt_logits : e.wants_logits = true);
      ++logit_rows_;
    }
    rows_.push_back({.token = e.request->tokens()[static_cast<size_t>(p)],
                     .sequence = e.sequence,
                     .want_logits = logits,
                     .generated = e.request->IsGenerated(p),
                     .bill = e.bill,
                     .again = e.request->HasRun(p)});
  }
  logit_rows_ += e.drafts.size();
  for (const int32_t token : e.drafts) {
    rows_.push_back(
        {.token = token, .sequence = e.sequence, .want_logits = true, .generated = true, .bill = e.bill, .draft = true});
  }
}

// Gives the request the results of the step.
void Scheduler::Settle(Entry& e, const StepOutput& out) {
  if (e.rows == 0) return;
  const int64_t drafts = static_cast<int64_t>(e.drafts.size());
  if (drafts == 0) Remember(e, StatesToKeep(e));
  for (size_t i = 0; i < e.prompt_logits; ++i) e.request->TakePrompt(out.Logits(e.logits + i));
  e.logits += e.prompt_logits;
  e.request->Ran(engine_.Length(e.sequence) - drafts, e.rows);
  if (e.wants_logits) Take(e, out);
  if (drafts > 0) Remember(e, StatesToKeep(e));
}

// Draws from the logits of the last token, then from those of each draft, as long as the token drawn before it is that draft.
void Scheduler::Take(Entry& e, const StepOutput& out) {
  const Request& request = *e.request;
  const size_t known = request.tokens().size();
  e.request->Take(out.Logits(e.logits));
  if (e.drafts.empty()) return;
  size_t accepted = 0;
  while (accepted < e.drafts.size() && !request.ended() && request.tokens().size() > known + accepted &&
         request.tokens()[known + accepted] == e.drafts[accepted]) {
    ++accepted;
    if (request.tokens().size() == known + accepted) e.request->Take(out.Logits(e.logits + accepted));
  }
  const int64_t kept = static_cast<int64_t>(accepted);
  const Status taken_back = engine_.KeepDrafts(e.sequence, kept);
  e.request->Drafted(static_cast<int64_t>(e.drafts.size()), kept, row_cost_);
  if (!taken_back.ok()) e.request->End(FinishReason::kError, taken_back);
}

// The request that began last gives its sequence back, and is the next to begin.
void Scheduler::PreemptYoungest() {
  GiveBack(running_.back());
  running_.back().request->Preempted();
  waiting_.push_front(std::move(running_.back()));
  running_.pop_back();
  is_full_ = true;
}

void Scheduler::Step() {
  Admit();
  if (running_.empty()) return;
  Share();
  rows_.clear();
  logit_rows_ = 0;
  for (Entry& e : running_) AddRows(e);
  const double begin = MonotonicSeconds();
  const Result<StepOutput> out = engine_.Step(rows_);
  clock_->Add(static_cast<int64_t>(rows_.size()) - decode_rows_, decode_rows_, MonotonicSeconds() - begin);
  if (!out.ok()) {
    for (Entry& e : running_) e.request->End(FinishReason::kError, out.status());
    return DropEnded();
  }
  bool full = false;
  for (Entry& e : running_) {
    const Status* const error = e.rows > 0 ? out->ErrorOf(e.sequence) : nullptr;
    if (error == nullptr) {
      Settle(e, *out);
    } else if (!e.drafts.empty()) {  // without them it may go on
      e.request->SkipDrafts();
    } else if (error->code() == StatusCode::kNoRoom && running_.size() > 1) {
      full = true;
    } else {
      e.request->End(FinishReason::kError, *error);
    }
  }
  const size_t ran = running_.size();
  DropEnded();
  if (full && running_.size() == ran) PreemptYoungest();  // none that ended made room
  if (idle()) prompt_rows_.clear(), turn_rows_ = kTurn;
}

}  // namespace tally
