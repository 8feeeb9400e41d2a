// The team: the only place that knows of threads. Each engine has one. With OpenMP the runtime keeps the threads for the thread that
// calls, and all teams of that caller share them. Where teams of different sizes take turns on one caller, the runtime ends and
// starts threads at every change (measured: some 100 us); teams of one size keep them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "engine/base/status.h"

namespace tally {

// A non-owning reference to a callable: void(int thread, int64_t begin, int64_t end).
class TaskFn {
 public:
  template <class F>
  TaskFn(F& f)  // NOLINT: implicit on purpose
      : object_(&f), call_([](void* o, int t, int64_t b, int64_t e) { (*static_cast<F*>(o))(t, b, e); }) {}
  void operator()(int thread, int64_t begin, int64_t end) const { call_(object_, thread, begin, end); }

 private:
  void* object_;
  void (*call_)(void*, int, int64_t, int64_t);
};

inline constexpr int kMaxThreads = 1024;  // more than any machine we know; a typing error must not make libgomp abort

class Team {
 public:
  // 0 or less: as many threads as the machine has cores for us (affinity and cgroup limits respected). At most kMaxThreads, and
  // no more than the runtime gives (OMP_THREAD_LIMIT).
  explicit Team(int threads);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;
  int threads() const { return threads_; }
  // kBadInput where the system refused to start that many; the team then is the calling thread alone.
  const Status& status() const { return status_; }
  // Runs fn over [0, tasks), then returns. chunk 0: thread t takes one contiguous share (and is called only
  // if it is not empty); chunk n: each takes its contiguous share n tasks at a time, from the front, then what others
  // have left, from the end (where that makes 2^31 chunks or more, they are larger).
  // A single thread or task runs on the caller, as everything does for a caller that is refused the threads. Not to be called
  // from inside fn, nor by two callers at once.
  void Run(int64_t tasks, int64_t chunk, TaskFn fn);

 private:
  struct Impl;
  int threads_ = 1;
  Status status_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tally
