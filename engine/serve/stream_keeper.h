// SPDX-License-Identifier: Apache-2.0
// Keeps streamed answers from being silent: proxies and clients take a silent connection for dead (nginx after 60 s, some clients after
// 20). It writes on a thread of its own, so that neither a long step of the engine nor a queue keeps it.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/base/status.h"
#include "engine/serve/http_server.h"
#include "engine/serve/service_thread.h"

namespace tally {

class StreamKeeper {
 public:
  // `seconds`: the longest time between two writes to a stream; an eighth more may pass.
  explicit StreamKeeper(double seconds) : seconds_(seconds) {}
  ~StreamKeeper() { Stop(); }
  // kNoRoom: the system has no thread left.
  Status Start();
  void Stop();  // writes no more
  // Any thread. Returns an exchange to use in place of `exchange`. Once its answer has begun, `sign` is written whenever nothing else has
  // been for the keeper's seconds. Each Write must be whole events, as `sign` may come between any two.
  std::shared_ptr<HttpExchange> Keep(std::shared_ptr<HttpExchange> exchange, std::string sign);

 private:
  class Kept;

  void Run();

  const double seconds_;
  std::mutex mutex_;  // of what follows
  std::condition_variable wake_;
  std::vector<std::weak_ptr<Kept>> kept_;
  bool stopping_ = false;
  ServiceThread thread_;
};

}  // namespace tally
