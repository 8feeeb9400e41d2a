// SPDX-License-Identifier: Apache-2.0
// HTTP/1.1 (RFC 9110, RFC 9112): whole requests go to a handler, and answers come from any thread, whole or piece by piece. Every size,
// number and time that a client could stretch has a limit.
//
// One thread does all reading and writing. A request whose handler has not answered yet costs it nothing. A request that is refused while
// more of it may come (http_syntax.h: 400; too long: 413, 431; too slow: 408) gets its answer, and its connection ends. What the client
// still sends is then read and dropped for a while, since many clients read an answer only after they have sent everything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "engine/base/status.h"
#include "engine/serve/http_syntax.h"

namespace tally {

struct HttpLimits {
  uint32_t connections = 256;              // at once; beyond: 503
  uint32_t connections_per_address = 128;  // beyond: 429
  size_t header_bytes = size_t{32} << 10;  // of a request's line and headers; beyond: 431
  size_t body_bytes = size_t{8} << 20;     // of a request; beyond: 413
  // Of all requests that have not been answered, half of them of one address; beyond: 503.
  size_t bodies_bytes = size_t{128} << 20;
  uint64_t dropped_bytes = uint64_t{256} << 20;  // of what comes after the last answer of a connection; beyond: it is cut
  uint32_t dropped_seconds = 30;                 // the same
  uint32_t request_seconds = 60;  // a connection that has brought no whole request for so long: 408, closed if none has begun
  uint32_t write_seconds = 30;    // a client that takes nothing of its answer for so long has left
  size_t unread_bytes = size_t{4} << 20;  // of a streamed answer; a client that leaves more unread has left
};

struct HttpRequest {
  std::string method = {}, path = {};  // path: without the query
  std::string query = {};              // behind the path's "?", as it came
  HttpHeaders headers = {};
  std::string body = {};
  std::string address = {};  // of the client, without its port; through a Unix socket "unix:UID", its user
  double arrived = 0;        // MonotonicSeconds() when its headers had come
};

struct HttpAnswer {
  int status = 200;
  HttpHeaders headers = {};  // besides those of HTTP itself
  std::string body = {};
};

// A request on its way to its answer. May be used by several threads at once. One that is dropped without an answer is answered 500.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;
  // The body may be moved out by whoever has the exchange first.
  virtual HttpRequest& request() = 0;
  // The first answer counts, and after Begin none.
  virtual void Answer(HttpAnswer answer) = 0;
  // A streamed answer: Begin (whose body goes out first), Write as often as there is something, End. `whole` false: the connection is
  // cut, so that the client sees that something is missing.
  virtual void Begin(HttpAnswer head) = 0;
  virtual void Write(std::string_view bytes) = 0;
  virtual void End(bool whole) = 0;
  // The client has closed its side or reads too slowly: nobody reads an answer. A client that half-closes its connection before it has its
  // answer has left too: from here both look the same.
  virtual bool left() const = 0;
};

struct HttpHandlers {
  // Called when a request's body is still to come. An answer refuses the request, and the body is dropped. Called on the server's thread,
  // as `request` is: both must return soon.
  std::function<std::optional<HttpAnswer>(const HttpRequest& head)> admit = {};
  std::function<void(std::shared_ptr<HttpExchange> exchange)> request = {};
  // The answer when the server itself refuses a request, of which `head` has what is known.
  std::function<HttpAnswer(const HttpRequest& head, int status, const std::string& message)> refuse = {};
};

// A socket that listens, closed with the object.
class Listener {
 public:
  // `host`: a name or an address, "127.0.0.1", "::1", "0.0.0.0". Port 0: any that is free. kBadInput: no such host, a port that is in use
  // or not allowed.
  static Result<Listener> Open(const std::string& host, uint16_t port);
  // A Unix socket, a file at `path` with the permissions that the umask leaves; who may write it may connect. It is removed with the last
  // of the listener and file(). A socket that is there is replaced if nobody answers on it. kBadInput: somebody does, what is there is no
  // socket, a path that is too long or not allowed.
  static Result<Listener> OpenUnix(const std::string& path);
  Listener(Listener&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)),
        address_(std::move(other.address_)),
        port_(other.port_),
        file_(std::move(other.file_)) {}
  Listener& operator=(Listener&& other) noexcept {
    std::swap(fd_, other.fd_);
    address_.swap(other.address_);
    port_ = other.port_;
    file_.swap(other.file_);
    return *this;
  }
  ~Listener();
  const std::string& address() const { return address_; }  // "127.0.0.1"; the path of a Unix socket
  uint16_t port() const { return port_; }                  // 0: a Unix socket
  bool is_unix() const { return file_ != nullptr; }
  bool loopback() const;  // only programs of this machine reach it
  // Keeps the file of a Unix socket.
  std::shared_ptr<const void> file() const { return file_; }
  int fd() const { return fd_; }
  int Release() { return std::exchange(fd_, -1); }

 private:
  Listener() = default;
  int fd_ = -1;
  std::string address_;
  uint16_t port_ = 0;
  std::shared_ptr<const void> file_;
};
// True for an address, not a name: 127.0.0.0/8 or ::1.
bool IsLoopback(const std::string& address);

class HttpServer {
 public:
  // Begins to accept. kBadInput, kNoRoom: the system refuses what it takes.
  static Result<std::unique_ptr<HttpServer>> Start(Listener listener, const HttpLimits& limits, HttpHandlers handlers);
  virtual ~HttpServer() = default;  // as Stop(0)
  // Accepts no more connections. Existing ones continue.
  virtual void StopAccepting() = 0;
  // Waits, at most so many seconds, until answers that have been given are read, then closes all connections. No handler is called after it
  // returns.
  virtual void Stop(double seconds) = 0;
  virtual size_t connections() const = 0;
};

}  // namespace tally
