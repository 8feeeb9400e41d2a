// SPDX-License-Identifier: Apache-2.0
// A few threads that do what would keep the HTTP thread or the engine waiting: parsing bodies, rendering templates, tokenizing.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/status.h"
#include "engine/serve/service_thread.h"
#include "engine/serve/turn_queue.h"

namespace tally {

class WorkQueue {
 public:
  // At most `most_waiting` items wait, at most half of them for one client, and at most `at_once` of a client are done at once.
  explicit WorkQueue(size_t most_waiting, size_t at_once = SIZE_MAX) : most_waiting_(most_waiting), at_once_(at_once) {}
  ~WorkQueue() { Stop(); }
  // kNoRoom: the system has no thread left.
  Status Start(int threads);
  // False: too much waits, or the queue has been stopped.
  [[nodiscard]] bool Add(const std::string& client, std::function<void()> work);
  // The same, however much waits: for work that has been taken in before. False: the queue has been stopped.
  [[nodiscard]] bool AddAgain(const std::string& client, std::function<void()> work);
  // Waits for the work in progress, then runs all waiting items on the calling thread. An item must itself check whether the
  // server is stopping.
  void Stop();

 private:
  void Run();

  struct Item {
    std::string client;
    std::function<void()> work;
  };
  std::optional<Item> Next();  // with the lock held; nullopt: each client with waiting items has `at_once` running

  const size_t most_waiting_, at_once_;
  std::mutex mutex_;
  std::condition_variable wake_;
  TurnQueue<Item> work_;
  std::map<std::string, size_t> running_;  // by client; none is 0
  bool stopped_ = false;
  std::vector<std::unique_ptr<ServiceThread>> threads_;
};

}  // namespace tally
