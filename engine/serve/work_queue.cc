// SPDX-License-Identifier: Apache-2.0
#include "engine/serve/work_queue.h"

#include <algorithm>
#include <utility>

namespace tally {

Status WorkQueue::Start(int threads) {
  for (int i = 0; i < threads; ++i) {
    threads_.push_back(std::make_unique<ServiceThread>());
    if (!threads_.back()->Start([this] { Run(); })) return NoRoom("the server cannot start: the system refuses it a thread");
  }
  return {};
}

bool WorkQueue::Add(const std::string& client, std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  if (stopped_ || work_.size() >= most_waiting_ || work_.SizeOf(client) >= std::max<size_t>(1, most_waiting_ / 2)) return false;
  work_.Push(client, {client, std::move(work)});
  wake_.notify_one();
  return true;
}

bool WorkQueue::AddAgain(const std::string& client, std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  if (stopped_) return false;
  work_.Push(client, {client, std::move(work)});
  wake_.notify_one();
  return true;
}

void WorkQueue::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    wake_.notify_all();
  }
  for (const std::unique_ptr<ServiceThread>& thread : threads_) thread->Join();
  while (!work_.empty()) work_.Pop().work();
}

std::optional<WorkQueue::Item> WorkQueue::Next() {
  std::optional<Item> next = work_.PopOf([&](const std::string& client) {
    const auto running = running_.find(client);
    return running == running_.end() || running->second < at_once_;
  });
  if (next) ++running_[next->client];
  return next;
}

void WorkQueue::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    std::optional<Item> item;
    wake_.wait(lock, [&] { return stopped_ || (item = Next()); });
    if (item) {
      lock.unlock();
      item->work();
      item->work = {};
      lock.lock();
      const auto running = running_.find(item->client);
      if (--running->second == 0) running_.erase(running);
      wake_.notify_one();  // the client may have its next
    }
    if (stopped_) return;
  }
}

}  // namespace tally
