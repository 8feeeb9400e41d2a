#include "engine/machine/parallel.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <new>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "engine/machine/machine.h"

#if defined(TALLY_TEAM_OPENMP)
#include <omp.h>
#include <pthread.h>
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

// The chunks of a run, a contiguous share a thread. A thread takes its own from the front, so that what it reads follows on in
// memory, and when it has none, the last ones of others.
class Chunks {
 public:
  explicit Chunks(int parts) : shares_(static_cast<size_t>(parts)) {}

  // Before the threads start.
  void Set(int64_t tasks, int64_t chunk) {
    const int parts = static_cast<int>(shares_.size());
    tasks_ = tasks;
    chunk_ = std::max(std::min(chunk, tasks), tasks / INT32_MAX + 1);  // so that they can be counted in 32 bits
    const int64_t chunks = tasks / chunk_ + (tasks % chunk_ != 0);
    for (int t = 0; t < parts; ++t) {
      const uint64_t range = Range(ShareBegin(chunks, parts, t), ShareBegin(chunks, parts, t + 1));
      shares_[static_cast<size_t>(t)].left.store(range, std::memory_order_relaxed);
    }
  }

  void Run(int thread, TaskFn fn) {
    const int parts = static_cast<int>(shares_.size());
    for (int i = 0; i < parts; ++i) {
      int victim = thread + i;
      if (victim >= parts) victim -= parts;
      std::atomic<uint64_t>& left = shares_[static_cast<size_t>(victim)].left;
      for (uint64_t range = left.load(std::memory_order_relaxed); Begin(range) < End(range);) {
        const int64_t taken = i == 0 ? Begin(range) : End(range) - 1;
        const uint64_t rest = i == 0 ? Range(taken + 1, End(range)) : Range(Begin(range), taken);
        if (!left.compare_exchange_weak(range, rest, std::memory_order_relaxed)) continue;
        const int64_t begin = taken * chunk_;
        fn(thread, begin, begin + std::min(chunk_, tasks_ - begin));
        range = left.load(std::memory_order_relaxed);
      }
    }
  }

 private:
  // [begin, end) in one word.
  static uint64_t Range(int64_t begin, int64_t end) { return static_cast<uint64_t>(begin) << 32 | static_cast<uint64_t>(end); }
  static int64_t Begin(uint64_t range) { return static_cast<int64_t>(range >> 32); }
  static int64_t End(uint64_t range) { return static_cast<int64_t>(range & UINT32_MAX); }

  struct alignas(64) Share {
    std::atomic<uint64_t> left{0};
  };
  std::vector<Share> shares_;
  int64_t tasks_ = 0, chunk_ = 1;
};

int ClampThreads(int threads) { return std::clamp(threads > 0 ? threads : AvailableCores(), 1, kMaxThreads); }

Status Refused(int threads, const std::error_code& why) {
  return BadInput("the system refuses to start " + std::to_string(threads) + " threads (" + why.message() + "): ask for fewer");
}

}  // namespace

#if defined(TALLY_TEAM_OPENMP)

struct Team::Impl {
  explicit Impl(int threads) : chunks(threads) {}
  Chunks chunks;
};

namespace {

struct Gate {
  std::mutex mutex;
  std::condition_variable opened;
  bool open = false;
};

void* WaitAtGate(void* p) {
  Gate& gate = *static_cast<Gate*>(p);
  std::unique_lock lock(gate.mutex);
  gate.opened.wait(lock, [&] { return gate.open; });
  return nullptr;
}

// libgomp ends the process where it is refused a thread. So before its pool of `have` becomes one of `threads`, as many are
// started here, side by side, and end again: what the system refuses is then an error that can be handled. Not as std::threads,
// each of which frees memory: glibc gives a thread that does 64 MiB of address space of its own and keeps them, which libgomp's
// then lack.
Status TryThreads(int have, int threads) {
  Gate gate;
  std::vector<pthread_t> started;
  started.reserve(static_cast<size_t>(std::max(0, threads - have)));
  int error = 0;
  for (int t = have; t < threads && error == 0; ++t) {
    pthread_t id;
    error = pthread_create(&id, nullptr, WaitAtGate, &gate);
    if (error == 0) started.push_back(id);
  }
  {
    std::lock_guard lock(gate.mutex);
    gate.open = true;
  }
  gate.opened.notify_all();
  for (const pthread_t id : started) pthread_join(id, nullptr);
  return error == 0 ? Status() : Refused(threads, std::error_code(error, std::generic_category()));
}

// libgomp keeps a pool for every thread that calls, of as many as its last region had.
thread_local int pool_threads = 1;

}  // namespace

// The pool is libgomp's. It keeps its threads only while every region asks for the same number, so Run always
// asks for all of them, and a thread without work leaves at once. The first region creates the threads: done
// here, not in the first op.
Team::Team(int threads) : threads_(ClampThreads(threads)) {
  if (threads_ > pool_threads) status_ = TryThreads(pool_threads, std::min(threads_, omp_get_thread_limit()));
  if (!status_.ok()) threads_ = 1;
  if (threads_ > 1) {
    int given = 1;
#pragma omp parallel num_threads(threads_)
#pragma omp single
    given = omp_get_num_threads();
    threads_ = pool_threads = given;
  }
  impl_ = std::make_unique<Impl>(threads_);
}

Team::~Team() = default;

void Team::Run(int64_t tasks, int64_t chunk, TaskFn fn) {
  if (tasks <= 0) return;
  if (threads_ == 1 || tasks == 1) {
    fn(0, 0, tasks);
    return;
  }
  if (threads_ != pool_threads) {  // another caller than the one that made the team, or another team has run here
    if (threads_ > pool_threads && !TryThreads(pool_threads, threads_).ok()) {
      fn(0, 0, tasks);  // the same bits
      return;
    }
    pool_threads = threads_;
  }
  Chunks& chunks = impl_->chunks;
  if (chunk > 0) chunks.Set(tasks, chunk);
#pragma omp parallel num_threads(threads_)
  {
    // The runtime may give fewer threads than asked for (OMP_DYNAMIC, OMP_THREAD_LIMIT): share among those
    // there are; chunks are taken over.
    const int thread = omp_get_thread_num();
    if (chunk <= 0) {
      RunShare(tasks, omp_get_num_threads(), thread, fn);
    } else {
      chunks.Run(thread, fn);
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
  Chunks chunks;
  std::vector<std::thread> workers;

  explicit Impl(int threads) : chunks(threads) {}

  void End() {
    {
      std::lock_guard lock(mutex);
      stop = true;
    }
    start.notify_all();
    for (std::thread& worker : workers) worker.join();
    workers.clear();
  }

  void Work(int thread, int parts) {
    if (chunk <= 0) {
      RunShare(tasks, parts, thread, *fn);
    } else {
      chunks.Run(thread, *fn);
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

Team::Team(int threads) : threads_(ClampThreads(threads)), impl_(std::make_unique<Impl>(threads_)) {
  std::error_code why;
  try {
    for (int t = 1; t < threads_; ++t) impl_->workers.emplace_back([impl = impl_.get(), t, n = threads_] { impl->Loop(t, n); });
  } catch (const std::system_error& e) {
    why = e.code();
  } catch (const std::bad_alloc&) {
    why = std::make_error_code(std::errc::not_enough_memory);
  }
  if (why) {
    impl_->End();
    status_ = Refused(threads_, why);
    threads_ = 1;
  }
}

Team::~Team() { impl_->End(); }

void Team::Run(int64_t tasks, int64_t chunk, TaskFn fn) {
  if (tasks <= 0) return;
  if (threads_ == 1 || tasks == 1) {
    fn(0, 0, tasks);
    return;
  }
  {
    std::lock_guard lock(impl_->mutex);
    impl_->tasks = tasks;
    impl_->chunk = chunk;
    if (chunk > 0) impl_->chunks.Set(tasks, chunk);
    impl_->fn = &fn;
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
