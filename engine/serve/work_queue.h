// SPDX-License-Identifier: Apache-2.0
// A few threads that do what would keep the HTTP thread or the engine waiting: parsing bodies, rendering templates, tokenizing.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/base/status.h"
#include "engine/serve/service_thread.h"
#include "engine/serve/turn_queue.h"

namespace tally {

class WorkQueue {
 public:
  // At most `most_waiting` items wait, at most half of them for one client.
  explicit WorkQueue(size_t most_waiting) : most_waiting_(most_waiting) {}
  ~WorkQueue() { Stop(); }
  // kBadInput: the system has no thread left.
  Status Start(int threads);
  // False: too much waits, or the queue has been stopped.
  [[nodiscard]] bool Add(const std::string& client, std::function<void()> work);
  // Finishes the work in progress, then runs waiting work on this thread: work checks whether the server ends.
  void Stop();

 private:
  void Run();

  const size_t most_waiting_;
  std::mutex mutex_;
  std::condition_variable wake_;
  TurnQueue<std::function<void()>> work_;
  bool stopped_ = false;
  std::vector<std::unique_ptr<ServiceThread>> threads_;
};

}  // namespace tally
