// SPDX-License-Identifier: Apache-2.0
// The one thread that steps the engine for all requests of a server. Other threads Add requests; this thread writes their answers
// to their exchanges.
//
// Choices wait in a queue for each client, and clients take turns.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/serve/api_stream.h"
#include "engine/serve/completion.h"
#include "engine/serve/http_server.h"
#include "engine/serve/live_feed.h"
#include "engine/serve/metrics.h"
#include "engine/serve/prefix_files.h"
#include "engine/serve/prefix_loads.h"
#include "engine/serve/service_thread.h"
#include "engine/serve/stream_keeper.h"
#include "engine/serve/turn_queue.h"
#include "engine/session/scheduler.h"

namespace tally {

struct LoopOptions {
  // The most choices that wait, of all clients and of one. A request with more choices is taken all the same if none waits there yet.
  size_t most_waiting = 256;
  size_t most_waiting_of_client = 128;
  double deadline_seconds = 0;  // from a request's arrival to the end of its answer; 0: none
  double step_seconds = 0.15;   // SchedulerOptions::step_seconds
  double quiet_seconds = 4;     // a stream without events for so long is sent a comment (StreamKeeper)
};

// A request that is to be answered.
struct ServedRequest {
  std::shared_ptr<void> lease = {};  // kept for as long as the rest
  std::shared_ptr<HttpExchange> exchange;
  std::unique_ptr<Completion> completion;
  std::unique_ptr<ApiStream> stream;  // null: the answer is whole
  std::string client;                 // whose queue it waits in
  HttpHeaders headers = {};           // of the answer
  double arrived = 0;                 // MonotonicSeconds()
  // Called with the status once it has been answered.
  std::function<void(int status)> answered = {};
};

// A choice that runs.
struct SlotFigures {
  int64_t prompt_tokens = 0, prompt_done = 0, prompt_cached = 0, generated = 0;
};

class EngineLoop {
 public:
  // `engine` and `metrics` must outlive the loop. `files`: of what conversations have run; null: there are none.
  EngineLoop(Engine& engine, const LoopOptions& options, Metrics& metrics, LiveFeed feed,
             std::unique_ptr<PrefixFiles> files = nullptr);
  ~EngineLoop();  // as Stop(0)
  // kNoRoom: the system has no thread left.
  Status Start();

  // --- any thread

  // An error, and the request stays the caller's: 429 this client has enough waiting, 503 all have, or the server ends. A streamed answer
  // begins at once.
  [[nodiscard]] std::optional<ApiError> Add(std::unique_ptr<ServedRequest>& request);
  // `call` runs on the engine's thread, between two steps. False: the loop has ended.
  bool Call(std::function<void(Engine& engine, LiveFeed& feed, const LoopState& state)> call);
  // Ends the request of `client` whose answer has this id: it is answered with what has come, and its usage. `done` is told on the engine's
  // thread whether there was one. False: the loop has ended.
  bool CutShort(std::string client, std::string id, std::function<void(bool found)> done);
  // `done` gets, on the engine's thread, the choices that run. False: the loop has ended.
  bool CallWithSlots(std::function<void(const Engine& engine, const std::vector<SlotFigures>& slots)> done);
  // The beginning of Stop, without waiting.
  void BeginStop(double seconds);
  // Takes no further request, finishes those that it has for at most so many seconds, and ends the others with an error that says so.
  void Stop(double seconds);
  size_t cut() const { return cut_; }  // requests that Stop has ended

 private:
  struct Active;

  void Run();
  bool TakeArrivals();
  bool OnlyFilesAreRead() const;
  bool IsTimeToWrite(std::unique_lock<std::mutex>& lock);
  void Feed();
  std::shared_ptr<Request> NextChoice();
  void KeepPrefix(const std::shared_ptr<const Completion>& completion);
  void Turn();
  void FailAll(const ApiError& error);
  void DropDeparted();
  void Deliver();
  void TellPrompts();
  void Progress(Active& active);
  void Fail(Active& active, const ApiError& error);
  void End(Active& active, int status);
  void Cancel(Active& active, FinishReason finish = FinishReason::kInterrupted);
  LoopState State() const;
  LoopState LockedState() const;

  Engine& engine_;
  const LoopOptions options_;
  Metrics& metrics_;
  LiveFeed feed_;
  uint64_t drawn_ = 0;  // tokens, in the last step
  const std::unique_ptr<PrefixFiles> files_;
  const std::unique_ptr<PrefixLoads> loads_;  // of files_; null: there are none
  Scheduler scheduler_;
  StreamKeeper keeper_;
  std::vector<std::unique_ptr<Active>> active_;

  mutable std::mutex mutex_;  // of what follows
  std::condition_variable wake_;
  std::vector<std::unique_ptr<ServedRequest>> arrivals_;
  std::vector<std::function<void(Engine&, LiveFeed&, const LoopState&)>> calls_;
  TurnQueue<std::shared_ptr<Request>> waiting_;  // choices
  bool stopping_ = false, ended_ = false;
  double stop_at_ = 0;

  size_t cut_ = 0;
  double busy_seconds_ = 0, step_seconds_ = 0;  // LoopState
  ServiceThread thread_;
};

}  // namespace tally
