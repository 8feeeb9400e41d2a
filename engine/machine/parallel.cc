#include "engine/machine/parallel.h"

#include <algorithm>
#include <atomic>

#include "engine/machine/machine.h"

#if !defined(TALLY_TEAM_OPENMP)
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>
#else
#include <omp.h>
#endif

namespace tally {
namespace {

// Contiguous shares whose sizes differ by at most one: share t of `parts` is [t * tasks / parts, (t + 1) *
// tasks / parts), computed without the product, which could overflow.
int64_t ShareBegin(int64_t tasks, int parts, int t) { return tasks / parts * t + std::min<int64_t>(t, tasks % parts); }

void RunShare(int64_t tasks, int parts, int thread, TaskFn fn) {
  const int64_t begin = ShareBegin(tasks, parts, thread);
  const int64_t end = ShareBegin(tasks, parts, thread + 1);
  if (begin < end) fn(thread, begin, end);
}

void RunChunks(int64_t tasks, int64_t chunk, std::atomic<int64_t>& next, int thread, TaskFn fn) {
  while (true) {
    const int64_t begin = next.fetch_add(chunk, std::memory_order_relaxed);
    if (begin >= tasks) return;
    fn(thread, begin, begin + std::min(chunk, tasks - begin));
  }
}

int ClampThreads(int threads) { return std::clamp(threads > 0 ? threads : AvailableCores(), 1, kMaxThreads); }

}  // namespace

#if defined(TALLY_TEAM_OPENMP)

struct Team::Impl {};

// The pool is libgomp's. It keeps its threads only while every region asks for the same number, so Run always
// asks for all of them, and a thread without work leaves at once. The first region creates the threads: done
// here, not in the first op.
Team::Team(int threads) : threads_(ClampThreads(threads)) {
  if (threads_ == 1) return;
  auto nothing = [](int, int64_t, int64_t) {};
  Run(threads_, 0, nothing);
}

Team::~Team() = default;

void Team::Run(int64_t tasks, int64_t chunk, TaskFn fn) {
  if (tasks <= 0) return;
  if (threads_ == 1 || tasks == 1) {
    fn(0, 0, tasks);
    return;
  }
  chunk = std::min(chunk, tasks);  // so that the counter cannot run past the range of its type
  std::atomic<int64_t> next{0};
#pragma omp parallel num_threads(threads_)
  {
    // The runtime may give fewer threads than asked for (OMP_DYNAMIC, OMP_THREAD_LIMIT): share among those
    // there are.
    const int thread = omp_get_thread_num();
    if (chunk <= 0) {
      RunShare(tasks, omp_get_num_threads(), thread, fn);
    } else {
      RunChunks(tasks, chunk, next, thread, fn);
    }
  }
}

#else

// Plain threads that sleep between runs: slower to start than libgomp's, but the thread sanitizer understands
// them.
struct Team::Impl {
  std::mutex mutex;
  std::condition_variable start, done;
  uint64_t generation = 0;
  int running = 0;
  bool stop = false;
  int64_t tasks = 0, chunk = 0;
  const TaskFn* fn = nullptr;
  std::atomic<int64_t> next{0};
  std::vector<std::thread> workers;

  void Work(int thread, int parts) {
    if (chunk <= 0) {
      RunShare(tasks, parts, thread, *fn);
    } else {
      RunChunks(tasks, chunk, next, thread, *fn);
    }
  }

  void Loop(int thread, int parts) {
    uint64_t seen = 0;
    while (true) {
      {
        std::unique_lock lock(mutex);
        start.wait(lock, [&] { return stop || generation != seen; });
        if (stop) return;
        seen = generation;
      }
      Work(thread, parts);
      std::lock_guard lock(mutex);
      if (--running == 0) done.notify_one();
    }
  }
};

Team::Team(int threads) : threads_(ClampThreads(threads)), impl_(std::make_unique<Impl>()) {
  for (int t = 1; t < threads_; ++t) impl_->workers.emplace_back([this, t] { impl_->Loop(t, threads_); });
}

Team::~Team() {
  {
    std::lock_guard lock(impl_->mutex);
    impl_->stop = true;
  }
  impl_->start.notify_all();
  for (std::thread& worker : impl_->workers) worker.join();
}

void Team::Run(int64_t tasks, int64_t chunk, TaskFn fn) {
  if (tasks <= 0) return;
  if (threads_ == 1 || tasks == 1) {
    fn(0, 0, tasks);
    return;
  }
  {
    std::lock_guard lock(impl_->mutex);
    impl_->tasks = tasks;
    impl_->chunk = std::min(chunk, tasks);
    impl_->fn = &fn;
    impl_->next.store(0, std::memory_order_relaxed);
    impl_->running = threads_ - 1;
    ++impl_->generation;
  }
  impl_->start.notify_all();
  impl_->Work(0, threads_);
  std::unique_lock lock(impl_->mutex);
  impl_->done.wait(lock, [&] { return impl_->running == 0; });
}

#endif

}  // namespace tally
