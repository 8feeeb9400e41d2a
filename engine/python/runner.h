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
  // From now on a byte is written to the file descriptor `file` whenever events come and at the end, or with `at_end` at the end alone; one
  // is written now if that has happened before. -1: nothing is written any longer, and the last descriptor may be closed.
  void SetWake(int file, bool at_end);

  // Until events have come that were not taken, or the end, at most so long; whether that is so.
  bool Wait(std::chrono::milliseconds most);
  bool WaitForEnd(std::chrono::milliseconds most);
  std::vector<RequestEvent> Take();
  bool HasNews() const;  // what Wait waits for
  bool Over() const;     // it has ended; events may not have been taken yet
  bool Ended() const;    // and all events were taken
  // Until it has ended, only what does not change: the engine's thread works on it.
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

// A call on the engine's thread, between two steps. A job that is `alone` begins when all requests that were added before it have ended,
// and requests that are added later wait for it. Any other begins as soon as a sequence is free for it; if it then finds no room beside
// the requests that run, it begins again, alone.
class Job {
 public:
  using Interrupted = std::function<bool()>;
  // `call` returns false if it found no room.
  using Call = std::function<bool(Engine& engine, const Interrupted& interrupted)>;
  Job(bool alone, Call call) : alone_(alone), call_(std::move(call)) {}
  bool Wait(std::chrono::milliseconds most);  // true: it is over

 private:
  friend class Runner;
  bool alone_;
  const Call call_;
  std::atomic<bool> interrupted_ = false;  // what `call` polls
  std::mutex mutex_;
  std::condition_variable over_;
  bool done_ = false;
};

class Runner {
 public:
  // `sequences`: EngineOptions::sequences of the engine, as many requests run side by side. kNoRoom: the system has no thread left.
  static Result<std::unique_ptr<Runner>> Start(std::unique_ptr<Engine> engine, int32_t sequences);
  ~Runner() { Stop(); }
  // Ends the thread: requests that have not ended are cancelled, a job that runs is interrupted and waited for. Any thread; all wait for
  // the end.
  void Stop();

  // What does not change, for any thread: options, model, the table of weights.
  const Engine& engine() const { return *engine_; }
  const std::shared_ptr<const std::vector<WeightInfo>>& weights() const { return weights_; }
  // False: it was stopped.
  bool Add(std::shared_ptr<Answer> answer) { return Add(Work{.answer = std::move(answer)}); }
  bool Add(std::shared_ptr<Job> job) { return Add(Work{.job = std::move(job)}); }
  void Cancel(const std::shared_ptr<Answer>& answer);
  // One that waits is not run any longer, one that runs is told.
  void Cancel(const std::shared_ptr<Job>& job);

 private:
  // One of the two.
  struct Work {
    std::shared_ptr<Answer> answer = {};
    std::shared_ptr<Job> job = {};
  };
  Runner(std::unique_ptr<Engine> engine, int32_t sequences)
      : engine_(std::move(engine)),
        weights_(std::make_shared<const std::vector<WeightInfo>>(engine_->ledger().weights())),
        most_running_(static_cast<size_t>(sequences)) {}
  bool Add(Work work);
  static void Drop(const Work& work);
  void Run();
  bool TakeWork(Scheduler& scheduler);
  void Step(Scheduler& scheduler);
  void Deliver();
  void RunJob(const std::shared_ptr<Job>& job);
  static void Finish(Job& job);

  const std::unique_ptr<Engine> engine_;
  const std::shared_ptr<const std::vector<WeightInfo>> weights_;
  const size_t most_running_;
  std::vector<std::shared_ptr<Answer>> active_;  // that the scheduler has; the engine's thread's
  std::shared_ptr<Job> job_;                     // that runs; under mutex_
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Work> waiting_;
  std::vector<std::shared_ptr<Answer>> cancelled_;
  bool stopping_ = false;
  std::once_flag stopped_;
  std::thread thread_;
};

}  // namespace tally::python
