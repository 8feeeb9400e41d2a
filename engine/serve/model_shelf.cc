// SPDX-License-Identifier: Apache-2.0
#include "engine/serve/model_shelf.h"

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
constexpr int kClientLeft = 499;

ApiError Stopping() {
  return {.status = 503, .message = "the server is shutting down", .type = "server_error", .code = "shutting_down"};
}

// One that there is no memory to tell loses its exchange, which its client sees.
void Tell(const ModelShelf::Waiter& waiter, const ApiError& error) {
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

ModelShelf::ModelShelf(std::vector<ModelSource> sources, ShelfOptions options) : options_(std::move(options)) {
  for (ModelSource& source : sources) {
    entries_.push_back(std::make_unique<Entry>());
    entries_.back()->source = std::move(source);
  }
}

Status ModelShelf::Start() {
  for (const std::unique_ptr<Entry>& entry : entries_) {
    const ModelSource& source = entry->source;
    if (source.bytes <= options_.bytes) continue;
    return NoRoom(Printable(source.name) + " takes " + GibText(source.bytes, Rounding::kUp) +
                  ", and all models together may take " + GibText(options_.bytes, Rounding::kDown));
  }
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (SaturatingAdd(Bytes(), entries_[i]->source.bytes) <= options_.bytes) TALLY_RETURN_IF_ERROR(Load(i, /*alone=*/true));
  }
  if (size() == 1) return {};
  if (loader_.Start([this] { Run(); }) && watcher_.Start([this] { Watch(); })) return {};
  return NoRoom("the server cannot start: the system refuses it a thread");
}

std::optional<size_t> ModelShelf::Find(std::string_view name) const {
  if (size() == 1 || name.empty()) return 0;
  for (size_t i = 0; i < size(); ++i) {
    if (entries_[i]->source.name == name) return i;
  }
  return std::nullopt;
}

std::string ModelShelf::Names() const {
  std::string names;
  for (const std::unique_ptr<Entry>& entry : entries_) names += (names.empty() ? "" : ", ") + Quote(entry->source.name);
  return names;
}

struct ModelShelf::Hold {
  ~Hold() {
    if (shelf != nullptr) shelf->Release(model);
  }
  ModelShelf* shelf = nullptr;
  size_t model = 0;
};

ModelLease ModelShelf::Lease(size_t model) {
  Entry& entry = *entries_[model];
  auto hold = std::make_shared<Hold>();
  hold->shelf = this;
  hold->model = model;
  ++entry.in_use;
  entry.used = ++clock_;
  return {std::move(hold), entry.hosted.get()};
}

void ModelShelf::Release(size_t model) {
  const std::lock_guard lock(mutex_);
  Entry& entry = *entries_[model];
  entry.used = ++clock_;
  if (--entry.in_use == 0) changed_.notify_all();
}

ModelLease ModelShelf::Take(size_t model) {
  const std::lock_guard lock(mutex_);
  return IsReady(*entries_[model]) ? Lease(model) : nullptr;
}

std::optional<ApiError> ModelShelf::Wait(size_t model, Waiter waiter) {
  std::unique_lock lock(mutex_);
  if (stopping_) return Stopping();
  Entry& entry = *entries_[model];
  if (IsReady(entry)) {
    ModelLease lease = Lease(model);
    lock.unlock();
    waiter.go(std::move(lease));
    return std::nullopt;
  }
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

std::optional<size_t> ModelShelf::Latest() const {
  const std::lock_guard lock(mutex_);
  std::optional<size_t> latest;
  for (size_t i = 0; i < size(); ++i) {
    if (entries_[i]->hosted != nullptr && (!latest || entries_[i]->used > entries_[*latest]->used)) latest = i;
  }
  return latest;
}

void ModelShelf::Each(const std::function<void(size_t model, HostedModel& hosted)>& call) const {
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < size(); ++i) {
    if (entries_[i]->hosted != nullptr) call(i, *entries_[i]->hosted);
  }
}

bool ModelShelf::With(size_t model, const std::function<void(HostedModel& hosted)>& call) const {
  const std::lock_guard lock(mutex_);
  if (entries_[model]->hosted == nullptr) return false;
  call(*entries_[model]->hosted);
  return true;
}

std::vector<ModelShelf::Figures> ModelShelf::All() const {
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

uint64_t ModelShelf::Bytes() const {
  uint64_t bytes = 0;
  for (const std::unique_ptr<Entry>& entry : entries_) {
    if (entry->hosted != nullptr) bytes = SaturatingAdd(bytes, entry->source.bytes);
  }
  return bytes;
}

uint64_t ModelShelf::bytes() const {
  const std::lock_guard lock(mutex_);
  return Bytes();
}

size_t ModelShelf::Waiting() const {
  size_t waiting = 0;
  for (const std::unique_ptr<Entry>& entry : entries_) waiting += entry->waiters.size();
  return waiting;
}

size_t ModelShelf::in_use() const {
  const std::lock_guard lock(mutex_);
  size_t in_use = Waiting();
  for (const std::unique_ptr<Entry>& entry : entries_) in_use += entry->in_use;
  return in_use;
}

size_t ModelShelf::Stop(double seconds) {
  size_t cut = 0;
  {
    std::unique_lock lock(mutex_);
    stopping_ = true;
    cut = Waiting();
    for (size_t i = 0; i < size(); ++i) Refuse(i, Stopping(), lock);
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
    cut += entry->hosted->loop->cut();
  }
  return cut;
}

// Hands the model to all that wait for it.
void ModelShelf::Resume(size_t model, std::unique_lock<std::mutex>& lock) {
  std::vector<std::pair<Waiter, ModelLease>> ready;
  for (Waiter& waiter : std::exchange(entries_[model]->waiters, {})) ready.emplace_back(std::move(waiter), Lease(model));
  lock.unlock();
  for (auto& [waiter, lease] : ready) {
    try {
      waiter.go(std::move(lease));
    } catch (const std::exception&) {
      Tell(waiter, {.status = 503, .message = "not enough memory for this request", .type = "server_error", .code = "no_room"});
    }
  }
  ready.clear();
  lock.lock();
}

void ModelShelf::Refuse(size_t model, const ApiError& error, std::unique_lock<std::mutex>& lock) {
  std::vector<Waiter> refused = std::exchange(entries_[model]->waiters, {});
  lock.unlock();
  for (const Waiter& waiter : refused) Tell(waiter, error);
  refused.clear();
  lock.lock();
}

// The model that was wanted first, of those that are not in memory.
std::optional<size_t> ModelShelf::NextWanted() const {
  std::optional<size_t> next;
  for (size_t i = 0; i < size(); ++i) {
    const Entry& entry = *entries_[i];
    if (!entry.waiters.empty() && (!next || entry.wanted < entries_[*next]->wanted)) next = i;
  }
  return next;
}

void ModelShelf::Warn(const std::string& line) const {
  const std::lock_guard lock(warn_mutex_);
  if (options_.warn) options_.warn(line);
}

Result<std::unique_ptr<HostedModel>> ModelShelf::Host(size_t model, bool alone) {
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
    TALLY_ASSIGN_OR_RETURN(files, PrefixFiles::Open(engine, folder, options_.cache_bytes / size(),
                                                    options_.cache_options + " " + std::string(engine.target()),
                                                    [this](const std::string& line) { Warn(line); }));
  }
  hosted->loop = std::make_unique<EngineLoop>(engine, options_.loop, *entries_[model]->metrics,
                                              LiveFeed(engine, source.name, options_.roofs), std::move(files));
  TALLY_RETURN_IF_ERROR(hosted->loop->Start());
  return hosted;
}

// Without the lock.
Status ModelShelf::Load(size_t model, bool alone) {
  Result<std::unique_ptr<HostedModel>> hosted = NoRoom("there is not enough memory to load the model");
  try {
    hosted = Host(model, alone);
  } catch (const std::bad_alloc&) {
  } catch (const std::exception& error) {
    hosted = Status(StatusCode::kInternal, Printable(error.what()));
  }
  const std::lock_guard lock(mutex_);
  Entry& entry = *entries_[model];
  entry.state = hosted.ok() ? ModelState::kLoaded : ModelState::kUnloaded;
  entry.error = hosted.ok() ? "" : hosted.status().message();
  if (!hosted.ok()) return hosted.status();
  ++entry.loads;
  entry.used = ++clock_;
  entry.hosted = std::move(*hosted);
  const Engine& engine = *entry.hosted->served.engine;
  entry.description = engine.model().Description();
  entry.source.bytes = engine.memory_plan().total();
  entry.source.context = engine.context();
  return {};
}

void ModelShelf::Drop(size_t model, std::unique_lock<std::mutex>& lock) {
  Entry& entry = *entries_[model];
  lock.unlock();
  entry.hosted->loop->Stop(0);  // nobody uses it, and `leaving` keeps everybody off
  lock.lock();
  std::unique_ptr<HostedModel> hosted = std::move(entry.hosted);
  entry.leaving = false;
  entry.state = ModelState::kUnloaded;
  ++entry.drops;
  lock.unlock();
  hosted.reset();
  lock.lock();
}

// Until there is room for the model. False: nobody waits for it any more.
bool ModelShelf::MakeRoom(size_t model, std::unique_lock<std::mutex>& lock) {
  const Entry& wanted = *entries_[model];
  const auto fits = [&](uint64_t given_up) {
    const uint64_t taken = Bytes(), left = taken - std::min(taken, given_up);
    return left == 0 || SaturatingAdd(left, wanted.source.bytes) <= options_.bytes;
  };
  while (!stopping_ && !wanted.waiters.empty() && !fits(0)) {
    std::vector<size_t> order;
    for (size_t i = 0; i < size(); ++i) {
      if (entries_[i]->hosted != nullptr) order.push_back(i);
    }
    // Idle ones first, then those that are leaving already, then the least recently used.
    const auto rank = [&](size_t i) {
      const Entry& entry = *entries_[i];
      return std::tuple(entry.in_use > 0, !entry.leaving, entry.used);
    };
    std::ranges::sort(order, {}, rank);
    uint64_t given_up = 0;
    for (const size_t i : order) {
      entries_[i]->leaving = !fits(given_up);
      if (entries_[i]->leaving) given_up += entries_[i]->source.bytes;
    }
    if (!order.empty() && entries_[order[0]]->in_use == 0) {
      Drop(order[0], lock);
    } else {
      changed_.wait(lock);
    }
  }
  for (const std::unique_ptr<Entry>& entry : entries_) entry->leaving = false;
  return !stopping_ && !wanted.waiters.empty();
}

void ModelShelf::LoadFor(size_t model, std::unique_lock<std::mutex>& lock) {
  Entry& entry = *entries_[model];
  entry.state = ModelState::kLoading;
  const bool alone = Bytes() == 0;
  lock.unlock();
  const Status loaded = Load(model, alone);
  if (!loaded.ok() && !stopping_) Warn(Printable(entry.source.name) + " cannot be loaded: " + loaded.message());
  lock.lock();
  if (loaded.ok() || entry.waiters.empty()) return;
  const bool no_room = loaded.code() == StatusCode::kNoRoom;
  Refuse(model,
         {.status = no_room ? 503 : 500,
          .message = "the model " + Quote(entry.source.name) + " cannot be loaded: " + loaded.message(),
          .type = "server_error",
          .code = no_room ? "no_room" : "model_not_loaded"},
         lock);
}

// One turn of the loader.
void ModelShelf::Turn(std::unique_lock<std::mutex>& lock) {
  const std::optional<size_t> next = NextWanted();
  if (!next) {
    changed_.wait(lock);
  } else if (IsReady(*entries_[*next])) {
    Resume(*next, lock);
  } else if (MakeRoom(*next, lock)) {
    LoadFor(*next, lock);
  }
}

void ModelShelf::Run() {
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

// Takes those out that have no client any more, or no time.
std::vector<std::pair<ModelShelf::Waiter, ApiError>> ModelShelf::TakeEnded() {
  const double now = MonotonicSeconds(), seconds = options_.loop.deadline_seconds;
  std::vector<std::pair<Waiter, ApiError>> ended;
  for (const std::unique_ptr<Entry>& entry : entries_) {
    for (size_t i = 0; i < entry->waiters.size();) {
      Waiter& waiter = entry->waiters[i];
      const bool left = waiter.left(), late = seconds > 0 && now > waiter.arrived + seconds;
      if (!left && !late) {
        ++i;
        continue;
      }
      ApiError error{.status = 504,
                     .message = "the request's model was not loaded within its time",
                     .type = "server_error",
                     .code = "deadline_exceeded"};
      if (left) error = {.status = kClientLeft, .message = "the client has left"};
      ended.emplace_back(std::move(waiter), std::move(error));
      entry->waiters.erase(entry->waiters.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  return ended;
}

void ModelShelf::Watch() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (Waiting() == 0) {
      watch_.wait(lock);
      continue;
    }
    watch_.wait_for(lock, kLook);
    try {
      std::vector<std::pair<Waiter, ApiError>> ended = TakeEnded();
      if (ended.empty()) continue;
      changed_.notify_all();
      lock.unlock();
      for (const auto& [waiter, error] : ended) Tell(waiter, error);
      ended.clear();
    } catch (const std::exception&) {  // no memory: once more, soon
    }
    if (!lock.owns_lock()) lock.lock();
  }
}

}  // namespace tally
