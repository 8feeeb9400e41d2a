// SPDX-License-Identifier: Apache-2.0
// Runs the requests of one engine on a thread of its own, so that callers wait, cancel and come and go as they like. Knows nothing of
// Python.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "engine/api/tally.h"

namespace tally::python {

// A request and what has come of it. Any thread may call what is public.
class Answer {
 public:
  explicit Answer(std::shared_ptr<Request> request) : request_(std::move(request)) {}
  // From now on this file descriptor gets a byte whenever there is news, or (`at_end`) at the end alone, and one now if that has been. -1:
  // none does; the last one may be closed then.
  void SetWake(int file, bool at_end);

  // Until events have come that were not taken, or the end, at most so long; whether that is so.
  bool Wait(std::chrono::milliseconds most);
  bool WaitForEnd(std::chrono::milliseconds most);
  std::vector<RequestEvent> Take();
  bool Over() const;   // it has ended; events may not have been taken yet
  bool Ended() const;  // and all events were taken
  // The request, once it has ended: the engine's thread does not touch it any longer.
  const std::shared_ptr<Request>& shared() const { return request_; }
  const Request& request() const { return *request_; }

 private:
  friend class Runner;
  void Push(std::vector<RequestEvent> events, bool ended);
  void Wake() const;

  const std::shared_ptr<Request> request_;
  mutable std::mutex mutex_;
  int wake_ = -1;
  bool wake_at_end_ = false;
  std::condition_variable news_, end_;
  std::vector<RequestEvent> events_;
  bool ended_ = false;
};

// A call on the engine's thread, between two steps. `alone`: when all requests that came before have ended; later ones wait for it. Else as
// soon as a sequence is free for it.
class Job {
 public:
  using Interrupted = std::function<bool()>;
  Job(bool alone, std::function<void(Engine& engine, const Interrupted& interrupted)> call)
      : alone_(alone), call_(std::move(call)) {}
  bool Wait(std::chrono::milliseconds most);  // true: it is over
  void Interrupt() { interrupted_ = true; }   // what it polls says so from now on

 private:
  friend class Runner;
  const bool alone_;
  std::function<void(Engine& engine, const Interrupted& interrupted)> call_;
  std::atomic<bool> interrupted_ = false;
  std::mutex mutex_;
  std::condition_variable over_;
  bool done_ = false;
};

class Runner {
 public:
  // `sequences`: EngineOptions::sequences of the engine, as many requests run side by side. kNoRoom: the system has no thread left.
  static Result<std::unique_ptr<Runner>> Start(std::unique_ptr<Engine> engine, int32_t sequences);
  ~Runner() { Stop(); }
  // Ends the thread: requests that have not ended are cancelled, a job that runs is interrupted and waited for. What is added later ends at
  // once. Any thread, but one at a time.
  void Stop();

  // What does not change, for any thread: options, model, the table of weights.
  const Engine& engine() const { return *engine_; }
  const std::vector<WeightInfo>& weights() const { return engine_->ledger().weights(); }
  void Add(std::shared_ptr<Answer> answer);
  void Cancel(const std::shared_ptr<Answer>& answer);
  void Add(std::shared_ptr<Job> job);

 private:
  // One of the two.
  struct Work {
    std::shared_ptr<Answer> answer = {};
    std::shared_ptr<Job> job = {};
  };
  Runner(std::unique_ptr<Engine> engine, int32_t sequences)
      : engine_(std::move(engine)), most_running_(static_cast<size_t>(sequences)) {}
  void Add(Work work);
  static void Drop(const Work& work);
  void Run();
  bool TakeWork(Scheduler& scheduler);
  void Step(Scheduler& scheduler);
  void Deliver();
  static void Finish(Job& job, Engine* engine);  // `engine`: null if the job is not to run

  const std::unique_ptr<Engine> engine_;
  const size_t most_running_;
  std::vector<std::shared_ptr<Answer>> active_;  // that the scheduler has; the engine's thread's
  std::shared_ptr<Job> job_;                     // that runs; under mutex_
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Work> waiting_;
  std::vector<std::shared_ptr<Answer>> cancelled_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace tally::python
