// SPDX-License-Identifier: Apache-2.0
// A request and its answer, between the thread of the HTTP server and the threads that answer.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "engine/serve/http_server.h"

namespace tally {

// The part of a server that its exchanges use. They own it together, so that it lives as long as any of them.
class HttpCore {
 public:
  HttpCore(const HttpLimits& http_limits, HttpHandlers http_handlers) : limits(http_limits), handlers(std::move(http_handlers)) {}
  ~HttpCore();
  HttpCore(const HttpCore&) = delete;
  HttpCore& operator=(const HttpCore&) = delete;
  Status Open();  // before the rest is used

  const HttpLimits limits;
  const HttpHandlers handlers;

  // --- any thread

  // Counts `n` bytes of a body from `address`. False: all bodies together, or those from this address, are then over their limit.
  bool AddBodyBytes(const std::string& address, size_t n);
  void DropBodyBytes(const std::string& address, size_t n);
  void Wake();  // the server's thread looks for news

  // --- the server's thread

  int wake_descriptor() const { return read_; }  // readable after Wake()
  void TakeWakeUp();

 private:
  std::mutex mutex_;  // of the next two
  size_t bodies_ = 0;
  std::map<std::string, size_t> bodies_of_;  // by address; none is 0
  std::atomic<bool> woken_{false};
  int read_ = -1, write_ = -1;  // of a pipe
};

// An answer's head: status line, Date, how its body ends, `headers`. length: of the body; none: it is not told.
enum class BodyEnd : uint8_t { kLength, kChunks, kClose };
std::string AnswerHead(const HttpAnswer& answer, BodyEnd end, size_t length, bool keep_alive);

class Exchange {
 public:
  Exchange(std::shared_ptr<HttpCore> core, HttpRequest request, bool version_1_0);
  ~Exchange() { Complete(/*read=*/false); }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;
  HttpRequest& request() { return request_; }

  // --- the server's thread

  // Counts bytes that were added to the request's body. False: all bodies together are too long.
  bool CountBody(size_t bytes);
  // The answer once the body has come, which is dropped.
  void RefuseLater(HttpAnswer answer) { refused_ = std::move(answer); }
  bool refused() const { return refused_.has_value(); }
  // The request has come whole: it goes to the handler, or is refused.
  static void HandOver(const std::shared_ptr<Exchange>& exchange);
  // Whether there may be something to Pull since the last call.
  bool TakeNews() { return news_.exchange(false); }
  // Appends what is to be sent next.
  enum class Pulled : uint8_t { kNothing, kSome, kLast, kCut };
  Pulled Pull(bool keep_alive, std::string* out);
  void Leave();              // the client has gone, or does not read
  void Complete(bool read);  // nothing is sent any more; `read`: the answer went out whole

  // --- any thread

  void Answer(HttpAnswer answer);
  void Begin(HttpAnswer head);
  void Write(std::string_view bytes);
  void End(bool whole);
  void Abandon();  // nobody will answer
  bool left() const;
  bool answered() const;  // or its answer has begun

 private:
  enum class State : uint8_t { kOpen, kWhole, kStreamed, kEnded };
  // With the lock held.
  void Tell();
  void ForgetBody() {
    if (counted_ > 0) core_->DropBodyBytes(request_.address, std::exchange(counted_, 0));
  }

  const std::shared_ptr<HttpCore> core_;
  HttpRequest request_;
  const bool is_head_, version_1_0_;
  std::optional<HttpAnswer> refused_;
  std::atomic<bool> news_{false};
  mutable std::mutex mutex_;  // of what follows
  size_t counted_ = 0;        // of HttpCore::AddBodyBytes
  bool left_ = false, cut_ = false, head_out_ = false;
  State state_ = State::kOpen;
  HttpAnswer answer_;
  std::string unread_;  // of a streamed answer, from read_ on
  size_t read_ = 0;
};

}  // namespace tally
