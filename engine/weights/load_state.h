// SPDX-License-Identifier: Apache-2.0
// What the threads of a load share: progress, the first failure, the order to stop. Internal to weights.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <utility>

#include "engine/base/status.h"
#include "engine/weights/weights.h"

namespace tally {

class LoadState {
 public:
  LoadState(uint64_t total, const LoadProgress& progress) : total_(total), progress_(progress) {}

  bool stopped() const { return stop_.load(std::memory_order_relaxed); }

  // Keeps the failure of the lowest item.
  void Fail(int64_t item, Status status) {
    std::lock_guard lock(mutex_);
    if (status_.ok() || item < failed_item_) {
      failed_item_ = item;
      status_ = std::move(status);
    }
    stop_.store(true, std::memory_order_relaxed);
  }

  // Only thread 0, the caller, reports progress.
  void Done(int thread, uint64_t bytes) {
    done_.fetch_add(bytes, std::memory_order_relaxed);
    if (thread == 0) Report();
  }

  // Runs fn. An exception must not pass through the team: it is kept.
  void Guard(const std::function<void()>& fn) {
    try {
      fn();
    } catch (...) {
      Fail(-1, InternalError("an exception"));
      std::lock_guard lock(mutex_);
      thrown_ = std::current_exception();
    }
  }

  // Called after the threads are done. Rethrows an exception that was kept.
  Status Finish() {
    Report();
    if (thrown_) std::rethrow_exception(thrown_);
    return status_;
  }

 private:
  void Report() {
    if (!progress_ || stopped()) return;
    bool go_on = false;
    Guard([&] { go_on = progress_(done_.load(std::memory_order_relaxed), total_); });
    if (!go_on) Fail(-1, {StatusCode::kInterrupted, "loading was interrupted"});
  }

  const uint64_t total_;
  const LoadProgress& progress_;
  std::atomic<uint64_t> done_{0};
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  int64_t failed_item_ = -1;  // -1: none, or interrupted
  Status status_;
  std::exception_ptr thrown_;
};

}  // namespace tally
