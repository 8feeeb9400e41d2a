// SPDX-License-Identifier: Apache-2.0
// The models of a server: those in memory, each with the loop that steps its engine, and those that are loaded when a request wants them.
//
// All together take at most a budget of bytes: weights, KV caches and scratch, as planned. A request whose model is not in memory waits
// until it has been loaded; requests for those in memory go on meanwhile. Models are loaded one at a time, in the order in which they were
// first wanted. Where there is no room, the least recently used models give way: idle ones at once, busy ones when what they have begun is
// answered. Requests that come for a model that is to give way wait for its next turn.
//
// While the model that was wanted first waits for busy ones, those wanted later that find room without them pass it: free bytes, and idle
// models that need not give way. None can pass it for ever: a busy model whose room it needs takes nothing new from then on, and stays in
// memory, its room kept, until there is room for the first.
//
// A model that could not be loaded is not tried again for some seconds: its requests get the same error, and nothing gives way for it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/page/report_data.h"
#include "engine/serve/api_error.h"
#include "engine/serve/completion.h"
#include "engine/serve/engine_loop.h"
#include "engine/serve/metrics.h"
#include "engine/serve/service_thread.h"

namespace tally {

// What is loaded: an engine, which keeps its model alive, and how it answers. Without an engine here, that of `served` is the caller's.
struct ReadyModel {
  std::unique_ptr<Engine> engine = {};
  ServedModel served = {};
};

// A model that can be served.
struct ModelSource {
  std::string name = {};  // in requests and answers
  uint64_t bytes = 0;     // that it takes in memory: MemoryPlan::total()
  int64_t context = 0;    // of a sequence
  // Loads it, on any thread. `alone`: no other model answers meanwhile, so that all threads may read. The load ends early, with
  // kInterrupted, once `stop` says so. The text of an error may be shown to clients.
  std::function<Result<ReadyModel>(bool alone, const std::function<bool()>& stop)> load = {};
};

struct PoolOptions {
  uint64_t bytes = UINT64_MAX;  // the most that models in memory take together
  std::string cache_folder =
      {};                    // of PrefixFiles, with a folder in it for each model if there are several; empty: there are none
  uint64_t cache_bytes = 0;  // of all models together
  std::string cache_options = {};  // as PrefixFiles has them, without the instruction set
  std::function<void(const std::string& line)> warn =
      {};                    // about models and files of the cache folder; any thread, one at a time
  double retry_seconds = 5;  // from a load that failed to the next one of the same model
  // Called when an engine will run nothing more, before it goes; any thread, one at a time for each.
  std::function<void(Engine& engine)> ended = {};
  ReportRoofs roofs = {};
  LoopOptions loop = {};
};

// A model in memory.
struct HostedModel {
  std::unique_ptr<Engine> engine;  // null: the caller's
  ServedModel served;
  std::unique_ptr<EngineLoop> loop;
  bool told = false;  // PoolOptions::ended was called
};
// Keeps a model in memory.
using ModelLease = std::shared_ptr<HostedModel>;

enum class ModelState : uint8_t { kUnloaded, kLoading, kLoaded };

class ModelPool {
 public:
  // A request that wants a model.
  struct Waiter {
    std::string client = {};
    double arrived = 0;               // MonotonicSeconds()
    std::function<bool()> left = {};  // its client has gone
    // One of the two is called, on a thread of the pool: neither may wait.
    std::function<void(ModelLease model)> go = {};
    std::function<void(const ApiError& error)> fail = {};  // status 499: the client has gone
  };
  struct Figures {
    std::string name = {}, description = {}, error = {};  // description: once it has been loaded; error: why it was not, last
    ModelState state = ModelState::kUnloaded;
    uint64_t bytes = 0, loads = 0, drops = 0;
    int64_t context = 0;
    size_t in_use = 0, waiting = 0;  // requests
  };

  // There is at least one, and their names differ.
  ModelPool(std::vector<ModelSource> sources, PoolOptions options);
  ~ModelPool() { Stop(0); }
  // Loads models in their order, each that still fits. kNoRoom: one of them alone is larger than the budget, or the system refuses a
  // thread. Errors of their loads.
  Status Start();

  // --- any thread

  size_t size() const { return entries_.size(); }
  // The model that answers to a name. If there is one model, it answers to all; if there are several, the first answers to "".
  std::optional<size_t> Find(std::string_view name) const;
  std::string Names() const;  // "'a', 'b'"
  // The model, if it is in memory and not to give way. Null: Wait for it.
  ModelLease Take(size_t model);
  // The model, if it is in memory. Not a use of it: which models are dropped does not depend on it.
  ModelLease Look(size_t model);
  // An error, and none of its functions is called: too many wait, the model could not be loaded a moment ago, or the pool stops.
  [[nodiscard]] std::optional<ApiError> Wait(size_t model, Waiter waiter);
  // The one that was used last, of those in memory.
  std::optional<size_t> Latest() const;
  // Calls `call` for each model in memory, or for one of them, which must return soon and not use the pool. Not a use of the model.
  void Each(const std::function<void(size_t model, HostedModel& hosted)>& call) const;
  bool With(size_t model, const std::function<void(HostedModel& hosted)>& call) const;  // false: it is not in memory
  Metrics& metrics(size_t model) const { return *entries_[model]->metrics; }            // they outlive what is in memory
  const std::string& name(size_t model) const { return entries_[model]->source.name; }
  std::vector<Figures> All() const;
  uint64_t budget() const { return options_.bytes; }
  uint64_t bytes() const;  // of the models in memory
  size_t in_use() const;   // requests that have a model or wait for one
  // Refuses those that wait, and stops each loop as EngineLoop::Stop. Returns the number of requests that were not finished.
  size_t Stop(double seconds);

 private:
  struct Entry {
    ModelSource source;
    std::unique_ptr<Metrics> metrics = std::make_unique<Metrics>();
    std::string description = {}, error = {};
    std::unique_ptr<HostedModel> hosted = {};
    ModelState state = ModelState::kUnloaded;
    bool leaving = false;  // it is to give way: new requests wait
    size_t in_use = 0;     // leases
    uint64_t used = 0;     // in which order models were used last
    uint64_t loads = 0, drops = 0;
    std::vector<Waiter> waiters = {};
    uint64_t wanted = 0;                   // in which order models were wanted, while it has waiters
    std::optional<ApiError> refusal = {};  // of the last load, if that failed
    double refused = 0;                    // MonotonicSeconds() of it
  };

  struct Hold;

  // With the lock held.
  ModelLease Lease(size_t model, bool use = true);
  bool IsReady(const Entry& entry) const { return entry.hosted != nullptr && !entry.leaving; }
  uint64_t Bytes() const;
  std::vector<size_t> Wanted() const;
  size_t Waiting() const;
  void Release(size_t model, bool use);  // takes the lock
  bool Resume(std::unique_lock<std::mutex>& lock);
  void Refuse(size_t model, const ApiError& error, std::unique_lock<std::mutex>& lock);
  enum class Victims : uint8_t { kIdle, kUnneeded, kAny };
  std::optional<std::vector<size_t>> FindVictims(size_t model, Victims of) const;
  void SetLeaving(const std::vector<size_t>& models, bool busy_only);
  bool Place(size_t model, Victims of, std::unique_lock<std::mutex>& lock);
  void Drop(size_t model, std::unique_lock<std::mutex>& lock);
  void LoadFor(size_t model, std::unique_lock<std::mutex>& lock);

  Status Load(size_t model, bool alone, bool starting);
  Result<std::unique_ptr<HostedModel>> Host(size_t model, bool alone, bool starting);
  void Warn(const std::string& line) const;
  void TellEnded(HostedModel& hosted) const;
  void Turn(std::unique_lock<std::mutex>& lock);
  void Run();
  std::optional<std::pair<Waiter, ApiError>> TakeEnded();
  void Watch();

  const PoolOptions options_;
  std::vector<std::unique_ptr<Entry>> entries_;
  mutable std::mutex warn_mutex_;
  mutable std::mutex mutex_;  // of all entries but their sources' names and metrics, and of what follows
  std::condition_variable changed_, watch_;
  uint64_t clock_ = 0;
  std::atomic<bool> stopping_{false};
  ServiceThread loader_, watcher_;
};

}  // namespace tally
