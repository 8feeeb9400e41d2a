// SPDX-License-Identifier: Apache-2.0
#include "engine/serve/work_queue.h"

#include <utility>

namespace tally {

Status WorkQueue::Start(int threads) {
  for (int i = 0; i < threads; ++i) {
    threads_.push_back(std::make_unique<ServiceThread>());
    if (!threads_.back()->Start([this] { Run(); })) return BadInput("the server cannot start: the system refuses it a thread");
  }
  return {};
}

bool WorkQueue::Add(std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  if (stopped_ || work_.size() >= most_waiting_) return false;
  work_.push_back(std::move(work));
  wake_.notify_one();
  return true;
}

void WorkQueue::Stop() {
  std::deque<std::function<void()>> dropped;
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    dropped.swap(work_);
    wake_.notify_all();
  }
  for (const std::unique_ptr<ServiceThread>& thread : threads_) thread->Join();
  for (const std::function<void()>& work : dropped) work();
}

void WorkQueue::Run() {
  for (;;) {
    std::function<void()> work;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return stopped_ || !work_.empty(); });
      if (stopped_) return;
      work = std::move(work_.front());
      work_.pop_front();
    }
    work();
  }
}

}  // namespace tally
