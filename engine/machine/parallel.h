// SPDX-License-Identifier: Apache-2.0
// The team: the only place that knows of threads. The process has one pool of helpers, in an OpenMP region that lasts; a Team is the right
// to use some of them. The caller of Run works as thread 0, outside of the region. Helpers that wait spin for some microseconds, then
// sleep. If the system has taken their core away, they sleep at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <type_traits>

#include "engine/base/status.h"

namespace tally {

// A non-owning reference to a callable: void(int thread, int64_t begin, int64_t end).
class TaskFn {
 public:
  TaskFn() = default;
  template <class F>
  requires(!std::is_same_v<std::remove_cv_t<F>, TaskFn>) TaskFn(F& f)  // NOLINT: implicit on purpose
      : object_(&f), call_([](void* o, int t, int64_t b, int64_t e) { (*static_cast<F*>(o))(t, b, e); }) {}
  void operator()(int thread, int64_t begin, int64_t end) const { call_(object_, thread, begin, end); }

 private:
  void* object_ = nullptr;
  void (*call_)(void*, int, int64_t, int64_t) = nullptr;
};

inline constexpr int kMaxThreads = 1024;  // more than any machine we know; a typing error must not make libgomp abort

class Team {
 public:
  // 0 or less: OMP_NUM_THREADS, or else as many threads as the machine has cores for us (affinity and cgroup limits respected). At
  // most kMaxThreads and OMP_THREAD_LIMIT. Helpers that are missing are started; they last as long as the process.
  explicit Team(int threads);
  int threads() const { return threads_; }
  // kNoRoom if the system refused to start that many; the team then is the calling thread alone.
  const Status& status() const { return status_; }

  // What each thread is to read first in a later run, [threads] or empty: who waits brings it into the second-level cache.
  using Ahead = std::span<const std::span<const uint8_t>>;

  // Runs fn over [0, tasks), and returns when all tasks are done, whether or not every thread has taken part. Each thread has a contiguous
  // share. chunk 0: one call does a whole share. chunk n: a call does n tasks, or more if there would be 2^20 chunks or more, from the
  // front of the share. A thread that has none left takes the last chunks of others. A single thread or task runs on the caller. Not to be
  // called from inside fn.
  void Run(int64_t tasks, int64_t chunk, TaskFn fn, Ahead ahead = {});
  // The first task of the share of `thread` in a run of chunks.
  int64_t FirstTask(int64_t tasks, int64_t chunk, int thread) const;
  // fn(t, t, t + 1) on each thread t, for measuring the machine.
  void RunEach(TaskFn fn);

  // The helpers serve one caller at a time, in the order of asking: a run waits for its turn. A Turn holds the turn for its whole life, so
  // that the caller's runs need not wait. A team of one thread has no helpers, and its Turn does nothing.
  class Turn {
   public:
    explicit Turn(const Team& team);
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    bool taken_ = false;
  };

 private:
  int threads_ = 1;
  Status status_;
};

// Starts up to `threads` threads that each run `work`, calls own(threads that were started: fewer if the system refused more), and returns
// when all have ended. For work that waits, such as reading files, beside a team that computes. An exception of `own` passes through, once
// the threads have ended: it must see to that. `work` throws none.
void RunBeside(int threads, const std::function<void()>& work, const std::function<void(int)>& own);

// Runs `work` on a thread of its own. False: it has not ended after `seconds`. It then keeps running, and its result is lost.
bool RunWithin(double seconds, std::function<void()> work);

}  // namespace tally
