// SPDX-License-Identifier: Apache-2.0
// Requests that wait until a file of PrefixFiles has been read for them. Files are read and checked on a thread of their own: the engine's
// thread copies what they hold and no more, so that the others' tokens do not wait for it.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "engine/serve/prefix_files.h"
#include "engine/serve/work_queue.h"
#include "engine/session/request.h"

namespace tally {

// Used by the engine's thread, except as stated.
class PrefixLoads {
 public:
  // `wake` is called by another thread when there is something to take. `files` must outlive this.
  PrefixLoads(PrefixFiles& files, std::function<void()> wake) : files_(files), wake_(std::move(wake)) {}
  ~PrefixLoads() { Stop(); }
  // kNoRoom: the system has no thread left.
  Status Start() { return reader_.Start(1); }
  // Any thread: reads no more files.
  void Stop();

  // True: the request waits for a file, until TakeReady gives it.
  bool Begin(const std::shared_ptr<Request>& request);
  // Requests for which the engine now remembers what files held.
  std::vector<std::shared_ptr<Request>> TakeReady();
  bool ready() const { return ready_ > 0; }  // any thread
  size_t waiting() const;                    // requests

 private:
  struct Load {
    std::unique_ptr<PrefixFiles::Found> found;
    std::vector<std::shared_ptr<Request>> requests = {};
    Status checked = {};
    std::atomic<bool> done{false};  // `checked` is known
  };

  PrefixFiles& files_;
  const std::function<void()> wake_;
  std::vector<std::shared_ptr<Load>> loads_;
  std::atomic<int> ready_{0};
  std::atomic<bool> stopping_{false};
  WorkQueue reader_{4096};
};

}  // namespace tally
