// SPDX-License-Identifier: Apache-2.0
#include "engine/serve/service_thread.h"

#include <system_error>
#include <thread>
#include <utility>

namespace tally {

struct ServiceThread::Thread {
  std::thread thread;
};

ServiceThread::ServiceThread() = default;
ServiceThread::~ServiceThread() { Join(); }

bool ServiceThread::Start(std::function<void()> run) {
  try {
    thread_ = std::make_unique<Thread>(Thread{std::thread(std::move(run))});
  } catch (const std::system_error&) {
    return false;
  }
  return true;
}

void ServiceThread::Join() {
  if (thread_ == nullptr) return;
  thread_->thread.join();
  thread_.reset();
}

}  // namespace tally
