// SPDX-License-Identifier: Apache-2.0
#include "engine/serve/work_queue.h"

#include <algorithm>
#include <utility>

namespace tally {

Status WorkQueue::Start(int threads) {
  for (int i = 0; i < threads; ++i) {
    threads_.push_back(std::make_unique<ServiceThread>());
    if (!threads_.back()->Start([this] { Run(); })) return BadInput("the server cannot start: the system refuses it a thread");
  }
  return {};
}

bool WorkQueue::Add(const std::string& client, std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  if (stopped_ || work_.size() >= most_waiting_ || work_.SizeOf(client) >= std::max<size_t>(1, most_waiting_ / 2)) return false;
  work_.Push(client, std::move(work));
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
  while (!work_.empty()) work_.Pop()();
}

void WorkQueue::Run() {
  for (;;) {
    std::function<void()> work;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return stopped_ || !work_.empty(); });
      if (stopped_) return;
      work = work_.Pop();
    }
    work();
  }
}

}  // namespace tally
