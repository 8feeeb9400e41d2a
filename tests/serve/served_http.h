// SPDX-License-Identifier: Apache-2.0
// An HTTP server whose handler is the test.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "engine/serve/http_server.h"
#include "tests/serve/client.h"

namespace tally {

// Answers "/echo" with the body, and keeps the other exchanges for the test.
class ServedHttp {
 public:
  explicit ServedHttp(const HttpLimits& limits = {}) {
    Result<Listener> listener = Listener::Open("127.0.0.1", 0);
    EXPECT_TRUE(listener.ok());
    port = listener->port();
    HttpHandlers handlers;
    handlers.admit = [](const HttpRequest& head) {
      return head.path == "/never" ? std::optional(HttpAnswer{.status = 403, .body = "never"}) : std::nullopt;
    };
    handlers.request = [this](std::shared_ptr<HttpExchange> exchange) {
      ++requests;
      if (exchange->request().path == "/echo") return exchange->Answer({.body = exchange->request().body});
      const std::lock_guard lock(mutex_);
      kept_.push_back(std::move(exchange));
      came_.notify_all();
    };
    handlers.refuse = [](const HttpRequest&, int status, const std::string& message) {
      return HttpAnswer{.status = status, .body = message};
    };
    Result<std::unique_ptr<HttpServer>> started = HttpServer::Start(std::move(*listener), limits, std::move(handlers));
    EXPECT_TRUE(started.ok()) << started.status().message();
    server = std::move(*started);
  }
  ~ServedHttp() {
    kept_.clear();
    server->Stop(0);
  }
  std::shared_ptr<HttpExchange> Next() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(came_.wait_for(lock, std::chrono::seconds(20), [&] { return !kept_.empty(); }));
    if (kept_.empty()) return nullptr;
    std::shared_ptr<HttpExchange> next = std::move(kept_.front());
    kept_.erase(kept_.begin());
    return next;
  }

  uint16_t port = 0;
  std::unique_ptr<HttpServer> server;
  std::atomic<int> requests{0};  // that have come to the handler

 private:
  std::mutex mutex_;
  std::condition_variable came_;
  std::vector<std::shared_ptr<HttpExchange>> kept_;
};

}  // namespace tally
