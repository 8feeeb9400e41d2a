// SPDX-License-Identifier: Apache-2.0
#include "engine/machine/parallel.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "engine/machine/machine.h"

#if defined(TALLY_TEAM_OPENMP)
#include <omp.h>
#include <pthread.h>
#include <sys/mman.h>

#include <cerrno>
#endif

namespace tally {
namespace {

// Contiguous shares whose sizes differ by at most one: share t of `parts` is [t * tasks / parts, (t + 1) *
// tasks / parts), computed without the product, which could overflow.
int64_t ShareBegin(int64_t tasks, int parts, int t) { return tasks / parts * t + std::min<int64_t>(t, tasks % parts); }

Status Refused(int threads, const std::error_code& why) {
  return NoRoom("the system refuses to start " + std::to_string(threads) + " threads (" + why.message() + "): ask for fewer");
}

void Pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

int64_t Nanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// How long a thread spins before it sleeps: longer while waits end within it, not at all for a while after the system gave its core to
// somebody else. OMP_WAIT_POLICY: passive never spins, active does so for long.
class Patience {
 public:
  // Returns when `word` is no longer `value`. It spins for longer while `soon` is set: somebody has the turn, for
  // a step perhaps, whose next op is not far. First it prefetches from `ahead` on.
  void Wait(const std::atomic<uint32_t>& word, uint32_t value, const std::atomic<bool>& soon, std::span<const uint8_t> ahead) {
    const auto changed = [&] { return word.load(std::memory_order_acquire) != value; };
    if (changed()) return;
    const Policy policy = PolicyOfUser();
    if (policy != Policy::kPassive && rest_ == 0) {
      constexpr size_t kPiece = 512;
      for (size_t at = 0; at + kPiece <= ahead.size(); at += kPiece) {
        for (size_t line = 0; line < kPiece; line += 64) __builtin_prefetch(ahead.data() + at + line, 0, 2);
        if (changed()) return;
      }
    }
    const int64_t begin = Nanoseconds();
    int64_t now = begin;
    const auto budget = [&] {
      if (policy != Policy::kUnset) return policy == Policy::kActive ? kActive : 0;
      return rest_ > 0 ? 0 : soon.load(std::memory_order_relaxed) ? kSoon : budget_;
    };
    while (now - begin < budget()) {
      for (int i = 0; i < 16; ++i) {
        if (changed()) return Spun(now - begin);
        Pause();
      }
      const int64_t last = now;
      now = Nanoseconds();
      if (now - last > kTaken) {  // another program ran: interrupts take less, a time slice takes more
        rest_ = kRest;
        break;
      }
    }
    if (rest_ > 0) --rest_;
    while (!changed()) word.wait(value, std::memory_order_acquire);
    const int64_t slept = Nanoseconds() - now;
    budget_ = slept < kLongest ? std::min(kLongest, 2 * std::max(budget_, kShortest)) : kShortest;
  }

 private:
  enum class Policy : uint8_t { kUnset, kPassive, kActive };
  static constexpr int64_t kShortest = 5'000, kLongest = 50'000, kSoon = 200'000, kTaken = 300'000,
                           kActive = 10'000'000;  // nanoseconds
  static constexpr int kRest = 1000;              // waits

  static Policy PolicyOfUser() {
    static const Policy policy = [] {
      const char* const text = std::getenv("OMP_WAIT_POLICY");  // NOLINT(concurrency-mt-unsafe): read once
      std::string lower(text == nullptr ? "" : text);
      for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
      return lower == "passive" ? Policy::kPassive : lower == "active" ? Policy::kActive : Policy::kUnset;
    }();
    return policy;
  }

  void Spun(int64_t nanoseconds) {
    if (rest_ > 0) --rest_;
    if (2 * nanoseconds > budget_) budget_ = std::min(kLongest, 2 * budget_);
  }

  int64_t budget_ = kShortest;
  int rest_ = 0;  // waits that are not to spin
};

// The helpers of the process. One op at a time: its caller has the turn.
class Pool {
 public:
  static Pool& Get() {
    static Pool* const pool = new Pool;  // never ended: its threads last as long as the process
    return *pool;
  }

  // Starts helpers until there are `threads` with the caller.
  Status Grow(int threads);
  int threads() const { return started_; }  // call it while holding the turn

  void Run(int threads, int64_t tasks, int64_t chunk, TaskFn fn, Team::Ahead ahead) {
    // Shares of one call each differ by a task at most. Chunks have the size asked for, or more, so that their number fits kBits.
    const bool shares = chunk <= 0;
    chunk = shares ? 0 : ChunkOf(tasks, chunk);
    const int64_t chunks = shares ? std::min<int64_t>(threads, tasks) : ChunksOf(tasks, chunk);
    Publish(threads, {fn, tasks, chunk, static_cast<int>(chunks), true}, chunks, ahead);
  }
  void RunEach(int threads, TaskFn fn) { Publish(threads, {fn, threads, 1, threads, false}, threads, {}); }
  static int64_t FirstTask(int threads, int64_t tasks, int64_t chunk, int thread) {
    if (chunk <= 0) return ShareBegin(tasks, threads, thread);
    chunk = ChunkOf(tasks, chunk);
    return std::min(tasks, ShareBegin(ChunksOf(tasks, chunk), threads, thread) * chunk);
  }

  void TakeTurn() {
    std::unique_lock lock(turn_mutex_);
    const uint64_t ticket = next_ticket_++;
    turn_.wait(lock, [&] { return serving_ == ticket; });
    taken_.store(true, std::memory_order_relaxed);
  }
  void EndTurn() {
    {
      std::lock_guard lock(turn_mutex_);
      taken_.store(false, std::memory_order_relaxed);
      ++serving_;
    }
    turn_.notify_all();
  }

 private:
  struct Op {
    TaskFn fn;
    int64_t tasks = 0, chunk = 0;  // chunk 0: chunk c is the c-th of `parts` even shares
    int parts = 1;
    bool steal = true;
    void Call(int thread, int64_t c) const {
      const int64_t begin = chunk == 0 ? ShareBegin(tasks, parts, static_cast<int>(c)) : c * chunk;
      const int64_t end = chunk == 0 ? ShareBegin(tasks, parts, static_cast<int>(c) + 1) : begin + std::min(chunk, tasks - begin);
      fn(thread, begin, end);
    }
  };
  // The chunks of a share that no thread has taken, [begin, end), and the generation of their op, in one word. So a thread that takes a
  // chunk takes it of that op.
  struct alignas(64) Share {
    std::atomic<uint64_t> left{0};
    // What the thread reads ahead. The two may be of different ops, which does no harm: they are for prefetches only.
    std::atomic<const uint8_t*> ahead{nullptr};
    std::atomic<size_t> ahead_bytes{0};
    std::span<const uint8_t> Ahead() const {
      return {ahead.load(std::memory_order_relaxed), ahead_bytes.load(std::memory_order_relaxed)};
    }
  };
  static constexpr size_t kMostAhead = 512 << 10;  // a part of a second-level cache
  static constexpr int kBits = 20;
  static constexpr uint64_t kMask = (uint64_t{1} << kBits) - 1;
  static int64_t ChunkOf(int64_t tasks, int64_t chunk) {
    return std::max(std::min(chunk, tasks), tasks / static_cast<int64_t>(kMask) + 1);
  }
  static int64_t ChunksOf(int64_t tasks, int64_t chunk) { return tasks / chunk + (tasks % chunk != 0); }
  static uint64_t Range(uint64_t generation, int64_t begin, int64_t end) {
    return generation << (2 * kBits) | static_cast<uint64_t>(begin) << kBits | static_cast<uint64_t>(end);
  }
  static int64_t Begin(uint64_t range) { return static_cast<int64_t>(range >> kBits & kMask); }
  static int64_t End(uint64_t range) { return static_cast<int64_t>(range & kMask); }
  static bool IsOf(uint64_t range, uint32_t generation) { return range >> (2 * kBits) == (generation & 0xffffffu); }

  void Publish(int threads, const Op& op, int64_t chunks, Team::Ahead ahead) {
    op_ = op;
    left_.store(static_cast<uint32_t>(chunks), std::memory_order_relaxed);
    threads_.store(threads, std::memory_order_relaxed);
    const uint32_t generation = generation_.load(std::memory_order_relaxed) + 1;
    for (int t = 0; t < threads; ++t) {
      const uint64_t range = Range(generation, ShareBegin(chunks, threads, t), ShareBegin(chunks, threads, t + 1));
      Share& share = shares_[static_cast<size_t>(t)];
      const std::span<const uint8_t> first = ahead.empty() ? std::span<const uint8_t>() : ahead[static_cast<size_t>(t)];
      share.ahead.store(first.data(), std::memory_order_relaxed);
      share.ahead_bytes.store(std::min(first.size(), kMostAhead), std::memory_order_relaxed);
      share.left.store(range, std::memory_order_release);
    }
    generation_.store(generation, std::memory_order_release);
    generation_.notify_all();  // a system call only if a helper sleeps
    Work(0, generation);
    for (uint32_t left = left_.load(std::memory_order_acquire); left != 0; left = left_.load(std::memory_order_acquire)) {
      patience_.Wait(left_, left, taken_, shares_[0].Ahead());
    }
  }

  void Help(int thread) {
    Patience patience;
    for (uint32_t seen = 0;;) {
      patience.Wait(generation_, seen, taken_, shares_[static_cast<size_t>(thread)].Ahead());
      seen = generation_.load(std::memory_order_acquire);
      if (thread < threads_.load(std::memory_order_relaxed)) Work(thread, seen);
    }
  }

  // Takes chunks of the op until there are none. It reads the op's members only while it holds a chunk, since the op cannot end before.
  void Work(int thread, uint32_t generation) {
    const int threads = threads_.load(std::memory_order_relaxed);
    uint32_t done = 0;
    bool steal = true;
    for (int i = 0; i < threads && (i == 0 || steal); ++i) {
      int victim = thread + i;
      if (victim >= threads) victim -= threads;
      std::atomic<uint64_t>& left = shares_[static_cast<size_t>(victim)].left;
      for (uint64_t range = left.load(std::memory_order_acquire); IsOf(range, generation) && Begin(range) < End(range);) {
        const int64_t taken = i == 0 ? Begin(range) : End(range) - 1;
        const uint64_t rest = i == 0 ? Range(generation, taken + 1, End(range)) : Range(generation, Begin(range), taken);
        if (!left.compare_exchange_weak(range, rest, std::memory_order_acq_rel, std::memory_order_acquire)) continue;
        op_.Call(thread, taken);
        steal = op_.steal;
        ++done;
        range = left.load(std::memory_order_acquire);
      }
    }
    if (done > 0 && left_.fetch_sub(done, std::memory_order_acq_rel) == done) left_.notify_one();
  }

  alignas(64) std::atomic<uint32_t> generation_{0};  // of the last op
  alignas(64) std::atomic<uint32_t> left_{0};        // chunks of the op that are not done
  alignas(64) std::atomic<int> threads_{1};          // that the op may use
  std::atomic<bool> taken_{false};                   // somebody has the turn
  Op op_;
  Patience patience_;  // the callers'
  std::array<Share, kMaxThreads> shares_;

  std::mutex turn_mutex_;
  std::condition_variable turn_;
  uint64_t next_ticket_ = 0, serving_ = 0;
  int started_ = 1;  // threads, a caller included; guarded by the turn
#if defined(TALLY_TEAM_OPENMP)
  int missing_ = 0;            // threads of the region that is to begin
  std::atomic<int> begun_{0};  // threads of the region that has begun
#endif
};

#if defined(TALLY_TEAM_OPENMP)

int ThreadLimit() { return omp_get_thread_limit(); }

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

// libgomp ends the process if the system refuses a thread. So this first starts as many threads side by side and lets them end; a refusal
// is then an error that can be handled. There must also be room for the heap that glibc gives the host of the region, which allocates: 64
// MiB of aligned address space. They are no std::threads: each would get such a heap, and keep it.
int TryThreads(int threads) {
  constexpr size_t kHeap = size_t{192} << 20;
  void* const heap = mmap(nullptr, kHeap, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (heap == MAP_FAILED) return errno;
  Gate gate;
  std::vector<pthread_t> started;
  started.reserve(static_cast<size_t>(threads));
  int error = 0;
  for (int t = 0; t < threads && error == 0; ++t) {
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
  munmap(heap, kHeap);
  return error;
}

// One region for the helpers that are missing, beside those of earlier ones.
Status Pool::Grow(int threads) {
  const int missing = threads - started_;
  if (missing <= 0) return {};
  const auto refused = [&](int error) { return Refused(threads, std::error_code(error, std::generic_category())); };
  if (const int error = TryThreads(missing + 1); error != 0) return refused(error);
  begun_ = 0;
  missing_ = missing;
  const auto host = [](void* p) -> void* {
    Pool* const pool = static_cast<Pool*>(p);
    const int begin = pool->started_, wanted = pool->missing_;
    omp_set_dynamic(0);
#pragma omp parallel num_threads(wanted)
    {
      const int thread = omp_get_thread_num();
      if (thread == 0) {  // all have been started
        pool->begun_ = omp_get_num_threads();
        pool->begun_.notify_one();
      }
      pool->Help(begin + thread);
    }
    return nullptr;
  };
  pthread_t id;
  if (const int error = pthread_create(&id, nullptr, host, this); error != 0) return refused(error);
  pthread_detach(id);
  begun_.wait(0);
  started_ += begun_;
  return {};
}

#else

int ThreadLimit() { return kMaxThreads; }

// Plain threads, which the thread sanitizer understands.
Status Pool::Grow(int threads) {
  try {
    for (; started_ < threads; ++started_) std::thread([this, t = started_] { Help(t); }).detach();
  } catch (const std::system_error& e) {
    return Refused(threads, e.code());
  } catch (const std::bad_alloc&) {
    return Refused(threads, std::make_error_code(std::errc::not_enough_memory));
  }
  return {};
}

#endif

int WantedThreads(int threads) {
  if (threads > 0) return threads;
  const char* const user = std::getenv("OMP_NUM_THREADS");   // NOLINT(concurrency-mt-unsafe)
  const int wanted = user == nullptr ? 0 : std::atoi(user);  // "4,2": of the outermost region
  return wanted > 0 ? wanted : AvailableCores();
}

thread_local bool has_turn = false;

}  // namespace

Team::Team(int threads) : threads_(std::clamp(std::min(WantedThreads(threads), ThreadLimit()), 1, kMaxThreads)) {
  if (threads_ == 1) return;
  const Turn turn(*this);
  status_ = Pool::Get().Grow(threads_);
  threads_ = status_.ok() ? std::min(threads_, Pool::Get().threads()) : 1;
}

Team::Turn::Turn(const Team& team) : taken_(team.threads() > 1 && !has_turn) {
  if (!taken_) return;
  Pool::Get().TakeTurn();
  has_turn = true;
}

Team::Turn::~Turn() {
  if (!taken_) return;
  has_turn = false;
  Pool::Get().EndTurn();
}

void Team::Run(int64_t tasks, int64_t chunk, TaskFn fn, Ahead ahead) {
  if (tasks <= 0) return;
  if (threads_ == 1 || tasks == 1) return fn(0, 0, tasks);
  const Turn turn(*this);
  Pool::Get().Run(threads_, tasks, chunk, fn, ahead);
}

int64_t Team::FirstTask(int64_t tasks, int64_t chunk, int thread) const {
  return Pool::FirstTask(threads_, tasks, chunk, thread);
}

void Team::RunEach(TaskFn fn) {
  if (threads_ == 1) return fn(0, 0, 1);
  const Turn turn(*this);
  Pool::Get().RunEach(threads_, fn);
}

void RunBeside(int threads, const std::function<void()>& work, const std::function<void(int)>& own) {
  struct Joined {
    std::vector<std::thread> threads;
    ~Joined() {
      for (std::thread& t : threads) t.join();
    }
  } started;
  started.threads.reserve(static_cast<size_t>(std::max(threads, 0)));
  try {
    for (int t = 0; t < threads; ++t) started.threads.emplace_back(work);
  } catch (const std::system_error&) {  // those that run will do
  } catch (const std::bad_alloc&) {     // no thread was started by this call either
  }
  own(static_cast<int>(started.threads.size()));
}

bool RunWithin(double seconds, std::function<void()> work) {
  struct Shared {
    std::mutex mutex;
    std::condition_variable ended;
    bool done = false;
  };
  const auto shared = std::make_shared<Shared>();
  const auto run = [shared, work = std::move(work)] {
    work();
    std::lock_guard lock(shared->mutex);
    shared->done = true;
    shared->ended.notify_one();
  };
  try {
    std::thread(run).detach();
  } catch (const std::system_error&) {  // no thread is left: `work` runs here, without the limit
    run();
  }
  std::unique_lock lock(shared->mutex);
  return shared->ended.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return shared->done; });
}

}  // namespace tally
