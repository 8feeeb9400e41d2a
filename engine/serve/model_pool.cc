// SPDX-License-Identifier: Apache-2.0
#include "engine/serve/model_pool.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <new>
#include <tuple>
#include <utility>

#include "engine/base/checked.h"
#include "engine/base/format.h"
#include "engine/machine/machine.h"

namespace tally {
namespace {

constexpr std::chrono::milliseconds kLook{50};  // between looks for clients that have left, and for deadlines

// One that there is no memory to tell loses its exchange, which its client sees.
void Tell(const ModelPool::Waiter& waiter, const ApiError& error) {
  try {
    waiter.fail(error);
  } catch (const std::exception&) {
  }
}

// A name of a folder, another for each model.
std::string FolderName(const std::string& model) {
  std::string name;
  for (const char c : model) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
                       (c == '.' && !name.empty());
    if (plain) {
      name += c;
      continue;
    }
    constexpr std::string_view kHex = "0123456789abcdef";
    name += {'%', kHex[static_cast<uint8_t>(c) >> 4], kHex[c & 15]};
  }
  return name;
}

}  // namespace

ModelPool::ModelPool(std::vector<ModelSource> sources, PoolOptions options) : options_(std::move(options)) {
  for (ModelSource& source : sources) {
    entries_.push_back(std::make_unique<Entry>());
    entries_.back()->source = std::move(source);
  }
}

Status ModelPool::Start() {
  for (const std::unique_ptr<Entry>& entry : entries_) {
    const ModelSource& source = entry->source;
    if (source.bytes <= options_.bytes) continue;
    return NoRoom(Printable(source.name) + " takes " + BytesText(source.bytes) + ", and all models together may take " +
                  BytesText(options_.bytes));
  }
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (SaturatingAdd(Bytes(), entries_[i]->source.bytes) <= options_.bytes)
      TALLY_RETURN_IF_ERROR(Load(i, /*alone=*/true, /*starting=*/true));
  }
  if (size() == 1) return {};
  if (loader_.Start([this] { Run(); }) && watcher_.Start([this] { Watch(); })) return {};
  return NoRoom("the server cannot start: the system refuses it a thread");
}

std::optional<size_t> ModelPool::Find(std::string_view name) const {
  if (size() == 1 || name.empty()) return 0;
  for (size_t i = 0; i < size(); ++i) {
    if (entries_[i]->source.name == name) return i;
  }
  return std::nullopt;
}

std::string ModelPool::Names() const {
  std::string names;
  for (const std::unique_ptr<Entry>& entry : entries_) names += (names.empty() ? "" : ", ") + Quote(entry->source.name);
  return names;
}

struct ModelPool::Hold {
  ~Hold() {
    if (pool != nullptr) pool->Release(model, use);
  }
  ModelPool* pool = nullptr;
  size_t model = 0;
  bool use = true;
};

// Must not be dropped with the lock held.
ModelLease ModelPool::Lease(size_t model, bool use) {
  Entry& entry = *entries_[model];
  auto hold = std::make_shared<Hold>();
  hold->pool = this;
  hold->model = model;
  hold->use = use;
  ++entry.in_use;
  if (use) entry.used = ++clock_;
  return {std::move(hold), entry.hosted.get()};
}

void ModelPool::Release(size_t model, bool use) {
  const std::lock_guard lock(mutex_);
  Entry& entry = *entries_[model];
  if (use) entry.used = ++clock_;
  if (--entry.in_use == 0) changed_.notify_all();
}

ModelLease ModelPool::Take(size_t model) {
  const std::lock_guard lock(mutex_);
  return IsReady(*entries_[model]) ? Lease(model) : nullptr;
}

ModelLease ModelPool::Look(size_t model) {
  const std::lock_guard lock(mutex_);
  const Entry& entry = *entries_[model];
  if (entry.hosted == nullptr || (entry.leaving && entry.in_use == 0)) return nullptr;  // the latter is being dropped
  return Lease(model, /*use=*/false);
}

std::optional<ApiError> ModelPool::Wait(size_t model, Waiter waiter) {
  std::unique_lock lock(mutex_);
  if (stopping_) return ShuttingDown();
  Entry& entry = *entries_[model];
  if (IsReady(entry)) {
    ModelLease lease = Lease(model);
    lock.unlock();
    waiter.go(std::move(lease));
    return std::nullopt;
  }
  if (entry.hosted == nullptr && entry.refusal && MonotonicSeconds() < entry.refused + options_.retry_seconds)
    return entry.refusal;
  size_t all = 0, own = 0;
  for (const std::unique_ptr<Entry>& each : entries_) {
    all += each->waiters.size();
    own += static_cast<size_t>(std::ranges::count(each->waiters, waiter.client, &Waiter::client));
  }
  if (all >= options_.loop.most_waiting) {
    return ApiError{.status = 503,
                    .message = "too many requests wait for models: try again later",
                    .type = "server_error",
                    .code = "overloaded"};
  }
  if (own >= options_.loop.most_waiting_of_client) {
    return ApiError{.status = 429,
                    .message = "too many of your requests wait for models: try again later",
                    .type = "rate_limit_error",
                    .code = "rate_limit_exceeded"};
  }
  entry.waiters.push_back(std::move(waiter));
  if (entry.waiters.size() == 1) entry.wanted = ++clock_;
  changed_.notify_all();
  watch_.notify_all();
  return std::nullopt;
}

std::optional<size_t> ModelPool::Latest() const {
  const std::lock_guard lock(mutex_);
  std::optional<size_t> latest;
  for (size_t i = 0; i < size(); ++i) {
    if (entries_[i]->hosted != nullptr && (!latest || entries_[i]->used > entries_[*latest]->used)) latest = i;
  }
  return latest;
}

void ModelPool::Each(const std::function<void(size_t model, HostedModel& hosted)>& call) const {
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < size(); ++i) {
    if (entries_[i]->hosted != nullptr) call(i, *entries_[i]->hosted);
  }
}

bool ModelPool::With(size_t model, const std::function<void(HostedModel& hosted)>& call) const {
  const std::lock_guard lock(mutex_);
  if (entries_[model]->hosted == nullptr) return false;
  call(*entries_[model]->hosted);
  return true;
}

std::vector<ModelPool::Figures> ModelPool::All() const {
  const std::lock_guard lock(mutex_);
  std::vector<Figures> all;
  for (const std::unique_ptr<Entry>& entry : entries_) {
    all.push_back({.name = entry->source.name,
                   .description = entry->description,
                   .error = entry->error,
                   .state = entry->state,
                   .bytes = entry->source.bytes,
                   .loads = entry->loads,
                   .drops = entry->drops,
                   .context = entry->source.context,
                   .in_use = entry->in_use,
                   .waiting = entry->waiters.size()});
  }
  return all;
}

uint64_t ModelPool::Bytes() const {
  uint64_t bytes = 0;
  for (const std::unique_ptr<Entry>& entry : entries_) {
    if (entry->hosted != nullptr) bytes = SaturatingAdd(bytes, entry->source.bytes);
  }
  return bytes;
}

uint64_t ModelPool::bytes() const {
  const std::lock_guard lock(mutex_);
  return Bytes();
}

size_t ModelPool::Waiting() const {
  size_t waiting = 0;
  for (const std::unique_ptr<Entry>& entry : entries_) waiting += entry->waiters.size();
  return waiting;
}

size_t ModelPool::in_use() const {
  const std::lock_guard lock(mutex_);
  size_t in_use = Waiting();
  for (const std::unique_ptr<Entry>& entry : entries_) in_use += entry->in_use;
  return in_use;
}

// Its loop has stopped.
void ModelPool::TellEnded(HostedModel& hosted) const {
  if (options_.ended && !std::exchange(hosted.told, true)) options_.ended(*hosted.served.engine);
}

size_t ModelPool::Stop(double seconds) {
  size_t cut = 0;
  {
    std::unique_lock lock(mutex_);
    stopping_ = true;
    cut = Waiting();
    for (size_t i = 0; i < size(); ++i) Refuse(i, ShuttingDown(), lock);
    for (const std::unique_ptr<Entry>& entry : entries_) {
      if (entry->hosted != nullptr) entry->hosted->loop->BeginStop(seconds);
    }
    changed_.notify_all();
    watch_.notify_all();
  }
  loader_.Join();
  watcher_.Join();
  for (const std::unique_ptr<Entry>& entry : entries_) {
    if (entry->hosted == nullptr) continue;
    entry->hosted->loop->Stop(seconds);
    TellEnded(*entry->hosted);
    cut += entry->hosted->loop->cut();
  }
  return cut;
}

// Hands models that are ready to those that wait for them, one after the other: if memory fails, the others still wait. False: nobody
// waited for such a model, and the lock was held throughout.
bool ModelPool::Resume(std::unique_lock<std::mutex>& lock) {
  bool resumed = false;
  for (size_t i = 0; i < size(); ++i) {
    Entry& entry = *entries_[i];
    while (IsReady(entry) && !entry.waiters.empty()) {
      ModelLease lease = Lease(i);  // before the waiter is taken; nothing throws with the lock held and a lease in hand
      std::optional<Waiter> waiter(std::move(entry.waiters.front()));
      entry.waiters.erase(entry.waiters.begin());
      lock.unlock();
      resumed = true;
      try {
        waiter->go(std::move(lease));
      } catch (const std::exception&) {
        Tell(*waiter,
             {.status = 503, .message = "not enough memory for this request", .type = "server_error", .code = "no_room"});
      }
      waiter.reset();
      lock.lock();
    }
  }
  return resumed;
}

void ModelPool::Refuse(size_t model, const ApiError& error, std::unique_lock<std::mutex>& lock) {
  std::vector<Waiter> refused = std::exchange(entries_[model]->waiters, {});
  lock.unlock();
  for (const Waiter& waiter : refused) Tell(waiter, error);
  refused.clear();
  lock.lock();
}

// The models that requests wait for, in the order in which they were wanted.
std::vector<size_t> ModelPool::Wanted() const {
  std::vector<size_t> wanted;
  for (size_t i = 0; i < size(); ++i) {
    if (!entries_[i]->waiters.empty()) wanted.push_back(i);
  }
  std::ranges::sort(wanted, {}, [&](size_t i) { return entries_[i]->wanted; });
  return wanted;
}

void ModelPool::Warn(const std::string& line) const {
  const std::lock_guard lock(warn_mutex_);
  if (options_.warn) options_.warn(line);
}

Result<std::unique_ptr<HostedModel>> ModelPool::Host(size_t model, bool alone, bool starting) {
  const ModelSource& source = entries_[model]->source;
  TALLY_ASSIGN_OR_RETURN(ReadyModel ready, source.load(alone, [this] { return stopping_.load(); }));
  auto hosted = std::make_unique<HostedModel>();
  hosted->engine = std::move(ready.engine);
  hosted->served = std::move(ready.served);
  hosted->served.tally = false;  // bills are asked for
  if (hosted->engine != nullptr) hosted->served.engine = hosted->engine.get();
  hosted->served.name = source.name;
  Engine& engine = *hosted->served.engine;
  std::unique_ptr<PrefixFiles> files;
  if (!options_.cache_folder.empty()) {
    const bool several = size() > 1;
    const std::string folder = several ? options_.cache_folder + "/" + FolderName(source.name) : options_.cache_folder;
    Result<std::unique_ptr<PrefixFiles>> opened = PrefixFiles::Open(engine, folder, options_.cache_bytes / size(),
                                                                    options_.cache_options + " " + std::string(engine.target()),
                                                                    [this](const std::string& line) { Warn(line); });
    // Later the model answers all the same. Clients are not told: the message has the folder.
    if (!opened.ok() && starting) return opened.status();
    if (!opened.ok()) Warn(Printable(source.name) + " keeps no conversations: " + opened.status().message());
    if (opened.ok()) files = std::move(*opened);
  }
  hosted->loop = std::make_unique<EngineLoop>(engine, options_.loop, *entries_[model]->metrics,
                                              LiveFeed(engine, source.name, options_.roofs), std::move(files));
  TALLY_RETURN_IF_ERROR(hosted->loop->Start());
  return hosted;
}

// Without the lock.
Status ModelPool::Load(size_t model, bool alone, bool starting) {
  Result<std::unique_ptr<HostedModel>> hosted = NoRoom("there is not enough memory to load the model");
  try {
    hosted = Host(model, alone, starting);
  } catch (const std::bad_alloc&) {
  } catch (const std::exception& error) {
    Warn(Printable(entries_[model]->source.name) + ": " + Printable(error.what()));  // which may name files
    hosted = Status(StatusCode::kInternal, "an internal error");
  }
  const std::lock_guard lock(mutex_);
  Entry& entry = *entries_[model];
  entry.state = hosted.ok() ? ModelState::kLoaded : ModelState::kUnloaded;
  entry.error = hosted.ok() ? "" : hosted.status().message();
  if (!hosted.ok()) return hosted.status();
  entry.refusal.reset();
  ++entry.loads;
  entry.used = ++clock_;
  entry.hosted = std::move(*hosted);
  const Engine& engine = *entry.hosted->served.engine;
  entry.description = engine.model().Description();
  entry.source.bytes = engine.memory_plan().total();
  entry.source.context = engine.context();
  return {};
}

void ModelPool::Drop(size_t model, std::unique_lock<std::mutex>& lock) {
  Entry& entry = *entries_[model];
  lock.unlock();
  entry.hosted->loop->Stop(0);  // nobody uses it, and `leaving` keeps everybody off
  TellEnded(*entry.hosted);
  lock.lock();
  std::unique_ptr<HostedModel> hosted = std::move(entry.hosted);
  entry.leaving = false;
  entry.state = ModelState::kUnloaded;
  ++entry.drops;
  lock.unlock();
  hosted.reset();
  lock.lock();
}

// Which models are to give way to one that is not in memory, the first of them first; none: it fits. kIdle: only idle ones. kUnneeded: only
// idle ones that are not leaving, whose room is another's. Nullopt: that is not enough.
std::optional<std::vector<size_t>> ModelPool::FindVictims(size_t model, Victims of) const {
  std::vector<size_t> order;
  size_t hosted = 0;
  for (size_t i = 0; i < size(); ++i) {
    const Entry& entry = *entries_[i];
    if (entry.hosted == nullptr) continue;
    ++hosted;
    if (of != Victims::kAny && (entry.in_use > 0 || (of == Victims::kUnneeded && entry.leaving))) continue;
    order.push_back(i);
  }
  std::ranges::sort(order, {}, [&](size_t i) {
    const Entry& entry = *entries_[i];
    return std::tuple(!entry.leaving, entry.in_use > 0, entry.used);
  });
  const uint64_t taken = Bytes(), wanted = entries_[model]->source.bytes;
  uint64_t given_up = 0;
  std::vector<size_t> victims;
  // With nothing else in memory any model fits: it may take a little more than was planned.
  const auto fits = [&] {
    return victims.size() == hosted || SaturatingAdd(taken - std::min(taken, given_up), wanted) <= options_.bytes;
  };
  for (size_t i = 0; i < order.size() && !fits(); ++i) {
    victims.push_back(order[i]);
    given_up += entries_[order[i]]->source.bytes;
  }
  if (!fits()) return std::nullopt;
  return victims;
}

// Others stay. busy_only: an idle one goes on until the busy ones are done.
void ModelPool::SetLeaving(const std::vector<size_t>& models, bool busy_only) {
  for (size_t i = 0; i < size(); ++i) {
    Entry& entry = *entries_[i];
    entry.leaving = std::ranges::find(models, i) != models.end() && (!busy_only || entry.in_use > 0 || entry.leaving);
  }
}

// Drops what is in the model's way, or loads it. False: there is no room without models that may not be dropped.
bool ModelPool::Place(size_t model, Victims of, std::unique_lock<std::mutex>& lock) {
  const std::optional<std::vector<size_t>> victims = FindVictims(model, of);
  if (!victims) return false;
  if (of == Victims::kIdle) {
    SetLeaving(*victims, /*busy_only=*/false);
    if (Resume(lock)) return true;  // those that stay after all; the rest may be different now
  }
  if (victims->empty()) {
    LoadFor(model, lock);
  } else {
    entries_[victims->front()]->leaving = true;
    Drop(victims->front(), lock);
  }
  return true;
}

void ModelPool::LoadFor(size_t model, std::unique_lock<std::mutex>& lock) {
  Entry& entry = *entries_[model];
  entry.state = ModelState::kLoading;
  const bool alone = Bytes() == 0;
  lock.unlock();
  const Status loaded = Load(model, alone, /*starting=*/false);
  if (!loaded.ok() && !stopping_) Warn(Printable(entry.source.name) + " cannot be loaded: " + loaded.message());
  lock.lock();
  if (loaded.ok()) return;
  const bool no_room = loaded.code() == StatusCode::kNoRoom;
  const ApiError error{.status = no_room ? 503 : 500,
                       .message = "the model " + Quote(entry.source.name) + " cannot be loaded: " + loaded.message(),
                       .type = "server_error",
                       .code = no_room ? "no_room" : "model_not_loaded"};
  entry.refusal = error;
  entry.refused = MonotonicSeconds();
  Refuse(model, error, lock);
}

// One turn of the loader.
void ModelPool::Turn(std::unique_lock<std::mutex>& lock) {
  const std::vector<size_t> wanted = Wanted();
  if (wanted.empty() || entries_[wanted[0]]->hosted != nullptr) SetLeaving({}, /*busy_only=*/false);
  if (Resume(lock)) return;
  if (!wanted.empty()) {
    if (Place(wanted[0], Victims::kIdle, lock)) return;
    SetLeaving(FindVictims(wanted[0], Victims::kAny).value_or(std::vector<size_t>()), /*busy_only=*/true);
    if (Resume(lock)) return;
    for (size_t i = 1; i < wanted.size(); ++i) {
      if (entries_[wanted[i]]->hosted == nullptr && Place(wanted[i], Victims::kUnneeded, lock)) return;
    }
  }
  changed_.wait(lock);
}

void ModelPool::Run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    try {
      Turn(lock);
    } catch (const std::exception&) {  // no memory: once more, soon
      if (!lock.owns_lock()) lock.lock();
      changed_.wait_for(lock, kLook);
    }
  }
}

// Takes one out that has no client any more, or no time.
std::optional<std::pair<ModelPool::Waiter, ApiError>> ModelPool::TakeEnded() {
  const double now = MonotonicSeconds(), seconds = options_.loop.deadline_seconds;
  for (const std::unique_ptr<Entry>& entry : entries_) {
    for (size_t i = 0; i < entry->waiters.size(); ++i) {
      Waiter& waiter = entry->waiters[i];
      const bool left = waiter.left(), late = seconds > 0 && now > waiter.arrived + seconds;
      if (!left && !late) continue;
      ApiError error{.status = 504,
                     .message = "the request's model was not loaded within its time",
                     .type = "server_error",
                     .code = "deadline_exceeded"};
      if (left) error = {.status = kClientLeft, .message = "the client has left"};
      std::pair<Waiter, ApiError> ended(std::move(waiter), std::move(error));
      entry->waiters.erase(entry->waiters.begin() + static_cast<std::ptrdiff_t>(i));
      return ended;
    }
  }
  return std::nullopt;
}

void ModelPool::Watch() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (Waiting() == 0) {
      watch_.wait(lock);
      continue;
    }
    watch_.wait_for(lock, kLook);
    try {
      while (auto ended = TakeEnded()) {
        changed_.notify_all();
        lock.unlock();
        Tell(ended->first, ended->second);
        ended.reset();
        lock.lock();
      }
    } catch (const std::exception&) {  // no memory: once more, soon
    }
    if (!lock.owns_lock()) lock.lock();
  }
}

}  // namespace tally
