// SPDX-License-Identifier: Apache-2.0
#include "engine/serve/engine_loop.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <utility>

#include "engine/base/format.h"
#include "engine/machine/machine.h"
#include "engine/serve/api_answer.h"
#include "engine/serve/api_error.h"

namespace tally {
namespace {

constexpr std::chrono::seconds kBeat{15};          // between events without news for watchers
constexpr double kWriteSeconds = 5;                // for prefixes, once the server has been told to end
constexpr std::chrono::milliseconds kReading{20};  // between looks for clients that have left, while nothing but files is read
constexpr std::chrono::milliseconds kQuiet{500};   // without a request, before prefixes are written
constexpr size_t kFedAhead = 1;  // choices that the scheduler has waiting, so that none is missing where one ends

ApiError Unavailable(const std::string& message, const char* code) {
  return {.status = 503, .message = message, .type = "server_error", .code = code};
}

}  // namespace

struct EngineLoop::Active {
  std::unique_ptr<ServedRequest> served;
  std::vector<double> last_token;  // of each choice: when it came; 0: none has
  bool first_token = false;        // has come
  bool ended = false;
};

EngineLoop::EngineLoop(Engine& engine, const LoopOptions& options, Metrics& metrics, LiveFeed feed,
                       std::unique_ptr<PrefixFiles> files)
    : engine_(engine),
      options_(options),
      metrics_(metrics),
      feed_(std::move(feed)),
      files_(std::move(files)),
      loads_(files_ == nullptr ? nullptr
                               : std::make_unique<PrefixLoads>(*files_,
                                                               [this] {
                                                                 const std::lock_guard lock(mutex_);
                                                                 wake_.notify_all();
                                                               })),
      scheduler_(engine, {.step_seconds = options.step_seconds}),
      keeper_(options.quiet_seconds) {}

EngineLoop::~EngineLoop() { Stop(0); }

Status EngineLoop::Start() {
  if (loads_ != nullptr) TALLY_RETURN_IF_ERROR(loads_->Start());
  TALLY_RETURN_IF_ERROR(keeper_.Start());
  if (thread_.Start([this] { Run(); })) return {};
  return NoRoom("the server cannot start: the system refuses it a thread");
}

std::optional<ApiError> EngineLoop::Add(std::unique_ptr<ServedRequest>& request) {
  const size_t n = request->completion->requests().size();
  const std::lock_guard lock(mutex_);
  if (stopping_ || ended_) return ShuttingDown();
  if (!waiting_.empty() && waiting_.size() + n > options_.most_waiting) {
    return Unavailable("too many requests wait here: try again later", "overloaded");
  }
  const size_t own = waiting_.SizeOf(request->client);
  if (own > 0 && own + n > options_.most_waiting_of_client) {
    return ApiError{.status = 429,
                    .message = "too many of your requests wait here: try again later",
                    .type = "rate_limit_error",
                    .code = "rate_limit_exceeded"};
  }
  if (request->stream != nullptr) {  // before the engine's thread can write to it
    HttpHeaders headers = request->headers;
    headers.emplace_back("Content-Type", request->stream->ContentType());
    headers.emplace_back("Cache-Control", "no-cache");
    headers.emplace_back("X-Accel-Buffering", "no");
    std::string begin = request->stream->Begin(*request->completion);
    request->exchange = keeper_.Keep(std::move(request->exchange), request->stream->Sign());
    request->exchange->Begin({.headers = std::move(headers), .body = std::move(begin)});
  }
  for (const std::shared_ptr<Request>& choice : request->completion->requests()) waiting_.Push(request->client, choice);
  arrivals_.push_back(std::move(request));
  wake_.notify_all();
  return std::nullopt;
}

bool EngineLoop::Call(std::function<void(Engine&, LiveFeed&, const LoopState&)> call) {
  const std::lock_guard lock(mutex_);
  if (ended_) return false;
  calls_.push_back(std::move(call));
  wake_.notify_all();
  return true;
}

bool EngineLoop::CutShort(std::string client, std::string id, std::function<void(bool found)> done) {
  return Call(
      [this, client = std::move(client), id = std::move(id), done = std::move(done)](Engine&, LiveFeed&, const LoopState&) {
        const auto at = std::ranges::find_if(active_, [&](const std::unique_ptr<Active>& active) {
          return active->served->client == client && active->served->completion->answer().id == id;
        });
        if (at != active_.end()) Cancel(**at, FinishReason::kStop);  // the next turn answers it
        done(at != active_.end());
      });
}

bool EngineLoop::CallWithSlots(std::function<void(const Engine& engine, const std::vector<SlotFigures>& slots)> done) {
  return Call([this, done = std::move(done)](const Engine& engine, const LiveFeed&, const LoopState&) {
    std::vector<SlotFigures> slots;
    for (const std::unique_ptr<Active>& active : active_) {
      for (const std::shared_ptr<Request>& choice : active->served->completion->requests()) {
        if (!choice->begun() || choice->ended()) continue;
        slots.push_back({.prompt_tokens = choice->prompt_size(),
                         .prompt_done = choice->prompt_done(),
                         .prompt_cached = choice->prompt_reused(),
                         .generated = static_cast<int64_t>(choice->result().tokens.size())});
      }
    }
    done(engine, slots);
  });
}

void EngineLoop::BeginStop(double seconds) {
  const std::lock_guard lock(mutex_);
  stop_at_ = stopping_ ? std::min(stop_at_, MonotonicSeconds() + seconds) : MonotonicSeconds() + seconds;
  stopping_ = true;
  wake_.notify_all();
}

void EngineLoop::Stop(double seconds) {
  BeginStop(seconds);
  thread_.Join();
  keeper_.Stop();
  if (loads_ != nullptr) loads_->Stop();
  const std::lock_guard lock(mutex_);
  ended_ = true;
}

LoopState EngineLoop::State() const {
  return {.waiting = waiting_.size() + scheduler_.waiting() + (loads_ != nullptr ? loads_->waiting() : 0),
          .running = scheduler_.running(),
          .busy_seconds = busy_seconds_,
          .step_seconds = step_seconds_};
}

LoopState EngineLoop::LockedState() const {
  const std::lock_guard lock(mutex_);
  return State();
}

// True if no request has come for a moment, and prefixes wait to be written.
bool EngineLoop::IsTimeToWrite(std::unique_lock<std::mutex>& lock) {
  if (files_ == nullptr || files_->idle() || !active_.empty()) return false;
  return !wake_.wait_for(lock, kQuiet, [&] { return !arrivals_.empty() || !calls_.empty() || stopping_; });
}

// True if nothing can run until a file has been read.
bool EngineLoop::OnlyFilesAreRead() const {
  return loads_ != nullptr && loads_->waiting() > 0 && !loads_->ready() && scheduler_.running() + scheduler_.waiting() == 0;
}

// Waits for something to do, and takes it. False: the loop ends.
bool EngineLoop::TakeArrivals() {
  std::vector<std::unique_ptr<ServedRequest>> arrivals;
  std::vector<std::function<void(Engine&, LiveFeed&, const LoopState&)>> calls;
  LoopState state;
  {
    std::unique_lock lock(mutex_);
    while (IsTimeToWrite(lock)) {
      lock.unlock();
      files_->WriteOne();
      lock.lock();
    }
    if (OnlyFilesAreRead()) {
      wake_.wait_for(lock, kReading, [&] { return loads_->ready() || !arrivals_.empty() || !calls_.empty() || stopping_; });
    }
    const auto idle = [&] { return active_.empty() && arrivals_.empty() && calls_.empty(); };
    while (!wake_.wait_for(lock, kBeat, [&] { return !idle() || stopping_; })) feed_.Beat();
    if (stopping_ && (idle() || MonotonicSeconds() >= stop_at_)) {
      ended_ = true;
      cut_ = arrivals_.size() + active_.size();
    }
    arrivals.swap(arrivals_);
    calls.swap(calls_);
    state = State();
  }
  for (std::unique_ptr<ServedRequest>& served : arrivals) {
    auto active = std::make_unique<Active>();
    active->last_token.resize(served->completion->requests().size());
    active->served = std::move(served);
    active_.push_back(std::move(active));
  }
  for (const auto& call : calls) call(engine_, feed_, state);
  const std::lock_guard lock(mutex_);
  return !ended_;
}

// Hands the scheduler as many choices as can run, client by client.
void EngineLoop::Feed() {
  // A file is read when a sequence is free for it.
  const size_t most = static_cast<size_t>(engine_.max_requests()) + (loads_ != nullptr ? 0 : kFedAhead);
  if (loads_ != nullptr) {
    for (std::shared_ptr<Request>& ready : loads_->TakeReady()) scheduler_.Add(std::move(ready));
  }
  while (scheduler_.running() + scheduler_.waiting() + (loads_ != nullptr ? loads_->waiting() : 0) < most) {
    std::shared_ptr<Request> next = NextChoice();
    if (next == nullptr) return;
    if (next->ended()) continue;
    if (loads_ != nullptr && loads_->Begin(next)) continue;
    scheduler_.Add(std::move(next));
  }
}

// Out of the queue of the client whose turn it is; null: nothing waits.
std::shared_ptr<Request> EngineLoop::NextChoice() {
  const std::lock_guard lock(mutex_);
  return waiting_.empty() ? nullptr : waiting_.Pop();
}

// Removes its waiting choices from the queues, and ends the others.
void EngineLoop::Cancel(Active& active, FinishReason finish) {
  const std::span<const std::shared_ptr<Request>> choices = active.served->completion->requests();
  for (const std::shared_ptr<Request>& choice : choices) {
    choice->End(finish);
    scheduler_.Cancel(*choice);  // its sequence and its bill
  }
  const std::lock_guard lock(mutex_);
  waiting_.Erase(active.served->client, [](const std::shared_ptr<Request>& choice) { return choice->ended(); });
}

void EngineLoop::End(Active& active, int status) {
  active.ended = true;
  metrics_.CountUsage(active.served->completion->usage());
  metrics_.CountBills(active.served->completion->requests());
  if (active.served->answered) active.served->answered(status);
  active.served->exchange.reset();
}

void EngineLoop::Fail(Active& active, const ApiError& error) {
  Cancel(active);
  ServedRequest& served = *active.served;
  if (served.stream != nullptr) {
    served.exchange->Write(served.stream->Fail(error));
    served.exchange->End(/*whole=*/true);
  } else {
    served.exchange->Answer(JsonAnswer(error.status, ErrorJson(error, served.completion->answer().endpoint), served.headers));
  }
  End(active, error.status);
}

void EngineLoop::DropDeparted() {
  const double now = MonotonicSeconds();
  for (const std::unique_ptr<Active>& active : active_) {
    if (active->served->exchange->left()) {
      Cancel(*active);
      metrics_.CountCancelled();
      End(*active, kClientLeft);
    } else if (options_.deadline_seconds > 0 && now > active->served->arrived + options_.deadline_seconds) {
      Fail(*active, {.status = 504,
                     .message = "the request was not done within its time",
                     .type = "server_error",
                     .code = "deadline_exceeded"});
    }
  }
  std::erase_if(active_, [](const std::unique_ptr<Active>& active) { return active->ended; });
}

// Tells clients that ask for it which prompts begin, before the step that may last.
void EngineLoop::TellPrompts() {
  for (const std::unique_ptr<Active>& active : active_) {
    ServedRequest& served = *active->served;
    if (served.stream == nullptr) continue;
    if (const std::string events = served.stream->PromptProgress(*served.completion); !events.empty()) {
      served.exchange->Write(events);
    }
  }
}

// Sends its client the progress of a request.
void EngineLoop::Progress(Active& active) {
  ServedRequest& served = *active.served;
  Completion& completion = *served.completion;
  const std::vector<ApiDelta> deltas = completion.Collect();
  const double now = deltas.empty() ? 0 : MonotonicSeconds();
  std::string events = served.stream != nullptr ? served.stream->PromptProgress(completion) : "";
  for (const ApiDelta& delta : deltas) {
    double& last = active.last_token[delta.choice];
    if (delta.tokens > 0 && last > 0) metrics_.CountTokens(delta.tokens, now - last);
    if (delta.tokens > 0 && !std::exchange(active.first_token, true)) metrics_.CountFirstToken(now - served.arrived);
    if (delta.tokens > 0) last = now;
    drawn_ += static_cast<uint64_t>(delta.tokens);
    if (served.stream != nullptr) events += served.stream->Add(completion, delta);
  }
  if (!completion.ended()) {
    if (!events.empty()) served.exchange->Write(events);
    return;
  }
  if (const Status status = completion.status(); !status.ok()) {
    if (!events.empty()) served.exchange->Write(events);
    return Fail(active, ApiErrorOf(status));
  }
  if (served.stream != nullptr) {
    served.exchange->Write(events + served.stream->End(completion));
    served.exchange->End(/*whole=*/true);
  } else {
    served.exchange->Answer(JsonAnswer(200, completion.Answer(), served.headers));
  }
  End(active, 200);
  if (files_ != nullptr) KeepPrefix(std::move(served.completion));
}

// Keeps the first choice's prefixes: the others are seldom continued. What comes last is written first.
void EngineLoop::KeepPrefix(const std::shared_ptr<const Completion>& completion) {
  const Request& first = *completion->requests().front();
  if (!first.prefix_key()) return;
  const std::span<const int32_t> ran = first.tokens(), prompt = ran.first(static_cast<size_t>(first.prompt_size() - 1));
  files_->Keep(*first.prefix_key(), {prompt.begin(), prompt.end()}, {}, PrefixUse::kPrompt);
  files_->Keep(
      *first.prefix_key(), {ran.begin(), ran.end()}, [completion] { return completion->SharedBeginning(); },
      PrefixUse::kBeginning);
  files_->Keep(*first.prefix_key(), {ran.begin(), ran.end()}, [completion] { return completion->NextPrompt(); });
}

void EngineLoop::Deliver() {
  for (const std::unique_ptr<Active>& active : active_) Progress(*active);
  std::erase_if(active_, [](const std::unique_ptr<Active>& active) { return active->ended; });
}

void EngineLoop::Run() {
  for (bool more = true; more;) {
    try {
      more = TakeArrivals();
      const double begin = MonotonicSeconds();
      if (more) Turn();
      busy_seconds_ += MonotonicSeconds() - begin;
    } catch (const std::bad_alloc&) {
      FailAll(Unavailable("not enough memory", "no_room"));
    } catch (const std::exception& error) {
      FailAll({.status = 500, .message = Printable(error.what()), .type = "server_error"});
    }
  }
  FailAll(ShuttingDown());
  try {
    feed_.End();
    const double until = MonotonicSeconds() + kWriteSeconds;
    while (files_ != nullptr && !files_->idle() && MonotonicSeconds() < until) files_->WriteOne();
  } catch (const std::exception&) {  // prefixes that are not written run again in a later turn
  }
}

void EngineLoop::Turn() {
  DropDeparted();
  Feed();
  scheduler_.Admit();
  TellPrompts();
  drawn_ = 0;
  feed_.BeforeStep();
  const double step = MonotonicSeconds();
  scheduler_.Step();
  step_seconds_ += MonotonicSeconds() - step;
  if (const Status health = engine_.Health(); !health.ok()) {
    FailAll(Unavailable(health.message(), "processes_lost"));
    const std::lock_guard lock(mutex_);
    stopping_ = true;  // nothing will run again
    stop_at_ = 0;
    return;
  }
  Deliver();
  feed_.AfterStep(drawn_, LockedState());
  if (active_.empty()) feed_.Idle(LockedState());
}

// A request whose client cannot even be told is dropped, which the client sees.
void EngineLoop::FailAll(const ApiError& error) {
  for (const std::unique_ptr<Active>& active : active_) {
    try {
      if (!active->ended) Fail(*active, error);
    } catch (const std::exception&) {
      active->served->exchange.reset();
    }
  }
  active_.clear();
}

}  // namespace tally
