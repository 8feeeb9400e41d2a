// SPDX-License-Identifier: Apache-2.0
// A thread of the server. No other file in serve starts one.
#pragma once

#include <functional>
#include <memory>

namespace tally {

class ServiceThread {
 public:
  // False: the system has no thread left; `run` is not called.
  [[nodiscard]] bool Start(std::function<void()> run);
  // Waits until it has run; at once if it was not started.
  void Join();
  ServiceThread();
  ~ServiceThread();

 private:
  struct Thread;
  std::unique_ptr<Thread> thread_;
};

}  // namespace tally
