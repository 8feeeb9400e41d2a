// SPDX-License-Identifier: Apache-2.0
#include "engine/serve/http_server.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <exception>
#include <limits>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "engine/machine/machine.h"
#include "engine/serve/http_exchange.h"
#include "engine/serve/service_thread.h"

namespace tally {
namespace {

constexpr size_t kReceive = size_t{64} << 10;  // bytes taken from a connection before others have their turn
constexpr int kAcceptAtOnce = 64;              // connections
constexpr double kNoDescriptorsSeconds = 0.1;  // until it is tried again
constexpr double kRefusedSeconds = 5;          // within which a connection that is one too many brings the request to be refused
constexpr double kQuietSeconds = 5;            // after the last answer, until a connection that sends nothing and stays is cut
constexpr double kIdleSeconds = 0.25;          // after an answer, until a connection without a request may be closed to make room
constexpr double kSilentSeconds = 2;           // the same, of a connection that has not sent anything
constexpr double kNever = std::numeric_limits<double>::infinity();

#ifdef POLLRDHUP
constexpr short kClosed = POLLRDHUP | POLLHUP | POLLERR;
constexpr short kWatchClose = POLLRDHUP;
#else
constexpr short kClosed = POLLHUP | POLLERR;
constexpr short kWatchClose = 0;
#endif

std::string AddressText(int fd, const sockaddr* address, socklen_t size) {
  if (address->sa_family == AF_UNIX) {
#ifdef SO_PEERCRED
    ucred peer{};
    socklen_t length = sizeof peer;
    if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0) return "unix:" + std::to_string(peer.uid);
#endif
    return "unix";
  }
  std::array<char, NI_MAXHOST> text{};
  if (::getnameinfo(address, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0) return "";
  return text.data();
}

struct Connection {
  // kHead, kBody: of a request that comes. kAnswer: one that has come. kDropping: the last answer is out. kEnded: to be forgotten.
  enum class Stage : uint8_t { kHead, kBody, kAnswer, kDropping, kEnded };

  Connection(int socket, std::string from, double now) : fd(socket), address(std::move(from)), since(now) {}
  ~Connection() { ::close(fd); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  const int fd;
  const std::string address;
  Stage stage = Stage::kHead;
  int too_many = 0;           // the status by which its request is refused, because there are too many connections; 0: it is not
  bool served = false;        // it has had an answer
  bool begun = false;         // kHead: some of a request has come
  bool skipped_line = false;  // kHead: an empty one
  bool keep_alive = true;
  double
      since;  // kHead, kBody: when the request began; before, when the connection did, or its last answer was out. kDropping: when it began
  double moved = 0;        // kAnswer, kDropping: when it last took or brought something
  std::string in, out;     // bytes that have come and were not used; that are to be sent
  size_t scanned = 0;      // of `in`, for the end of a head
  uint64_t dropped = 0;    // kDropping: bytes
  HttpHead head;           // kBody
  ChunkReader chunks;      // kBody
  uint64_t body_left = 0;  // kBody, if not in chunks
  uint64_t body_size = 0;
  bool answer_ended = false;  // kAnswer: `out` is the rest
  std::shared_ptr<Exchange> exchange;
};
using Stage = Connection::Stage;

class PollServer final : public HttpServer {
 public:
  PollServer(const HttpLimits& limits, HttpHandlers handlers) : core_(std::make_shared<HttpCore>(limits, std::move(handlers))) {}
  ~PollServer() override { Stop(0); }
  Status Begin(Listener listener);
  void StopAccepting() override;
  void Stop(double seconds) override;
  size_t connections() const override { return count_; }

 private:
  const HttpLimits& limits() const { return core_->limits; }

  // --- the server's thread

  void Run();
  double Deadline(const Connection& c) const;
  short Events(const Connection& c) const;
  void Expire(Connection& c);
  void Accept(double now);
  void Add(std::unique_ptr<Connection> added, double now);
  int TooMany(const Connection& another, double now);
  bool MakeRoom(const std::string& address, double now);
  void Serve(Connection& c, short events);
  void Receive(Connection& c);
  void Advance(Connection& c);
  bool TakeHead(Connection& c);
  bool TakeBody(Connection& c);
  bool SendAnswer(Connection& c);
  bool Flush(Connection& c);
  void Drop(Connection& c);
  void BeginRequest(Connection& c);
  void Refuse(Connection& c, const HttpFault& fault);
  void End(Connection& c);

  const std::shared_ptr<HttpCore> core_;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::vector<char> buffer_ = std::vector<char>(kReceive);
  double accept_after_ = 0;
  std::atomic<bool> accepting_{true}, stopped_{false};
  std::atomic<size_t> count_{0};
  mutable std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  int listener_ = -1;
  std::shared_ptr<const void> socket_file_;
  size_t in_progress_ = 0;  // requests that have come whole, and whose answers are not out
  ServiceThread thread_;
};

Status PollServer::Begin(Listener listener) {
  TALLY_RETURN_IF_ERROR(core_->Open());
  const int flags = ::fcntl(listener.fd(), F_GETFL);
  if (flags < 0 || ::fcntl(listener.fd(), F_SETFL, flags | O_NONBLOCK) != 0)
    return BadInput("the HTTP server cannot start: its socket cannot be used");
  socket_file_ = listener.file();
  listener_ = listener.Release();
  if (!thread_.Start([this] { Run(); })) return NoRoom("the HTTP server cannot start: the system refuses it a thread");
  return {};
}

void PollServer::StopAccepting() {
  const std::lock_guard lock(mutex_);
  if (!accepting_.exchange(false)) return;
  if (listener_ >= 0) {
    ::shutdown(listener_, SHUT_RDWR);
    ::close(std::exchange(listener_, -1));
    socket_file_.reset();
  }
  core_->Wake();
}

void PollServer::Stop(double seconds) {
  StopAccepting();
  {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return in_progress_ == 0; });
  }
  stopped_ = true;
  core_->Wake();
  thread_.Join();
  for (const std::unique_ptr<Connection>& c : connections_) End(*c);
  connections_.clear();
  count_ = 0;
}

// When it is to be expired.
double PollServer::Deadline(const Connection& c) const {
  switch (c.stage) {
    case Stage::kHead:
    case Stage::kBody: return c.since + (c.too_many != 0 ? kRefusedSeconds : limits().request_seconds);
    case Stage::kAnswer: return c.out.empty() ? kNever : c.moved + limits().write_seconds;
    case Stage::kDropping: return std::min(c.since + limits().dropped_seconds, c.moved + kQuietSeconds);
    case Stage::kEnded: break;
  }
  return kNever;
}

short PollServer::Events(const Connection& c) const {
  const short out = c.out.empty() ? 0 : POLLOUT;
  if (c.stage != Stage::kAnswer) return static_cast<short>(POLLIN | out);
  // An answer that is whole goes out to a client that has closed its half.
  return c.answer_ended ? out : static_cast<short>(kWatchClose | out);
}

void PollServer::Expire(Connection& c) {
  const bool asks = c.stage == Stage::kBody || (c.stage == Stage::kHead && c.begun);
  if (!asks) return End(c);
  Refuse(c, {408, "the request has not come whole within " + std::to_string(limits().request_seconds) + " seconds"});
  Advance(c);
}

void PollServer::Run() {
  std::vector<pollfd> polls;
  while (!stopped_) {
    double now = MonotonicSeconds(), next = kNever;
    polls.assign(1, {core_->wake_descriptor(), POLLIN, 0});
    {
      const std::lock_guard lock(mutex_);
      const bool listens = accepting_ && now >= accept_after_;
      polls.push_back({listens ? listener_ : -1, POLLIN, 0});
    }
    if (accept_after_ > now) next = accept_after_;
    for (const std::unique_ptr<Connection>& c : connections_) {
      polls.push_back({c->fd, Events(*c), 0});
      next = std::min(next, Deadline(*c));
    }
    const double wait = std::ceil(std::clamp((next - now) * 1000, 0.0, 60'000.0));
    if (::poll(polls.data(), polls.size(), static_cast<int>(wait)) < 0) continue;  // by a signal
    now = MonotonicSeconds();
    if (polls[0].revents != 0) core_->TakeWakeUp();
    size_t in_progress = 0;
    for (size_t i = 0; i < connections_.size(); ++i) {
      Connection& c = *connections_[i];
      try {
        // TakeNews is called in any case: an exchange whose news are not taken does not wake this thread again.
        const bool news = c.exchange != nullptr && c.exchange->TakeNews();
        if (polls[i + 2].revents != 0 || news) Serve(c, polls[i + 2].revents);
        if (Deadline(c) <= now) Expire(c);
      } catch (const std::exception&) {  // no memory: this connection ends
        End(c);
      }
      if (c.stage == Stage::kAnswer) ++in_progress;
    }
    std::erase_if(connections_, [](const std::unique_ptr<Connection>& c) { return c->stage == Stage::kEnded; });
    if (polls[1].revents != 0) Accept(now);
    count_ = connections_.size();
    const std::lock_guard lock(mutex_);
    in_progress_ = in_progress;
    if (in_progress == 0) changed_.notify_all();
  }
}

void PollServer::Accept(double now) {
  for (int i = 0; i < kAcceptAtOnce; ++i) {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    int fd = -1;
    {
      const std::lock_guard lock(mutex_);
      if (!accepting_) return;
      fd = ::accept4(listener_, reinterpret_cast<sockaddr*>(&address), &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
    }
    if (fd < 0) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) accept_after_ = now + kNoDescriptorsSeconds;
      if (errno != ECONNABORTED && errno != EINTR) return;
      continue;
    }
    const int on = 1;
    (void)::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    std::unique_ptr<Connection> made;
    try {
      made = std::make_unique<Connection>(fd, AddressText(fd, reinterpret_cast<const sockaddr*>(&address), size), now);
    } catch (const std::exception&) {
      ::close(fd);
      continue;
    }
    try {
      Add(std::move(made), now);
    } catch (const std::exception&) {  // no memory: it has been closed
      return;
    }
  }
}

// A connection beyond the limits is not closed at once. It may send a request, which is refused if there still is no room: clients read
// an answer to a request, but take an answer that comes before it for an error. If too many such connections wait, further ones get the
// answer at once.
void PollServer::Add(std::unique_ptr<Connection> added, double now) {
  const auto others = static_cast<size_t>(std::ranges::count_if(
      connections_, [](const std::unique_ptr<Connection>& c) { return c->too_many != 0 || c->stage == Stage::kDropping; }));
  added->too_many = TooMany(*added, now);
  if (added->too_many != 0 && others >= limits().connections_per_address) {
    Refuse(*added, {});
    return Advance(*added);
  }
  connections_.push_back(std::move(added));
}

// The status by which another connection is refused; 0: there is room for it, or has been made.
int PollServer::TooMany(const Connection& another, double now) {
  size_t all = 0, of_address = 0;
  for (const std::unique_ptr<Connection>& c : connections_) {
    if (c->too_many != 0 || c->stage == Stage::kDropping || c->stage == Stage::kEnded) continue;
    ++all;
    if (c->address == another.address) ++of_address;
  }
  if (of_address >= limits().connections_per_address) return MakeRoom(another.address, now) ? 0 : 429;
  return all < limits().connections || MakeRoom("", now) ? 0 : 503;
}

// Closes the connection that has been without a request for the longest time. `address`: among those from there; empty: among all.
bool PollServer::MakeRoom(const std::string& address, double now) {
  Connection* oldest = nullptr;
  for (const std::unique_ptr<Connection>& c : connections_) {
    if (c->stage != Stage::kHead || c->begun || (!address.empty() && c->address != address)) continue;
    const double idle = c->served ? kIdleSeconds : kSilentSeconds;
    if (c->since <= now - idle && (oldest == nullptr || c->since < oldest->since)) oldest = c.get();
  }
  if (oldest != nullptr) End(*oldest);
  return oldest != nullptr;
}

void PollServer::Serve(Connection& c, short events) {
  switch (c.stage) {
    case Stage::kHead:
    case Stage::kBody:
      if ((events & POLLOUT) != 0) (void)Flush(c);
      if ((events & (POLLIN | POLLHUP | POLLERR)) != 0) Receive(c);
      break;
    case Stage::kAnswer:
      if (c.answer_ended ? (events & POLLERR) != 0 : (events & kClosed) != 0 || c.exchange->left()) {
        End(c);
      } else {
        Advance(c);
      }
      break;
    case Stage::kDropping: Drop(c); break;
    case Stage::kEnded: break;
  }
}

void PollServer::Receive(Connection& c) {
  const ssize_t n = ::recv(c.fd, buffer_.data(), buffer_.size(), 0);
  if (n > 0) {
    if (!std::exchange(c.begun, true)) c.since = MonotonicSeconds();
    c.in.append(buffer_.data(), static_cast<size_t>(n));
    Advance(c);
  } else if (n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) {
    End(c);
  }
}

void PollServer::Advance(Connection& c) {
  for (bool more = true; more;) {
    switch (c.stage) {
      case Stage::kHead: more = TakeHead(c); break;
      case Stage::kBody: more = TakeBody(c); break;
      case Stage::kAnswer: more = SendAnswer(c); break;
      default: more = false; break;
    }
  }
}

// This and the next two: whether there may be more to do.
bool PollServer::TakeHead(Connection& c) {
  constexpr std::string_view kEmptyLine = "\r\n";  // one before a request is skipped (RFC 9112, section 2.2)
  if (c.scanned == 0 && !c.skipped_line && c.in == kEmptyLine.substr(0, 1)) return false;
  if (c.scanned == 0 && !c.skipped_line && c.in.starts_with(kEmptyLine)) {
    c.in.erase(0, kEmptyLine.size());
    c.skipped_line = true;
  }
  size_t size = 0;
  std::optional<HttpFault> fault = FindHeadEnd(c.in, c.scanned, &size);
  c.scanned = c.in.size();
  if (!fault && (size > limits().header_bytes || (size == 0 && c.in.size() > limits().header_bytes))) {
    fault = {431, "the headers are longer than " + std::to_string(limits().header_bytes) + " bytes"};
  }
  c.head = {};
  if (!fault && size == 0) return false;
  if (!fault) fault = ReadHead(std::string_view(c.in).substr(0, size), &c.head);
  if (fault) {
    Refuse(c, *fault);
    return true;
  }
  c.in.erase(0, size);
  c.scanned = 0;
  BeginRequest(c);
  return true;
}

void PollServer::BeginRequest(Connection& c) {
  c.exchange = std::make_shared<Exchange>(core_,
                                          HttpRequest{.method = std::move(c.head.method),
                                                      .path = std::move(c.head.path),
                                                      .query = std::move(c.head.query),
                                                      .headers = std::move(c.head.headers),
                                                      .address = c.address,
                                                      .arrived = MonotonicSeconds()},
                                          c.head.version_1_0);
  c.stage = Stage::kBody;
  c.keep_alive = c.head.keep_alive;
  c.chunks = {};
  c.body_left = c.head.chunked ? 0 : c.head.length;
  c.body_size = 0;
  if (c.too_many != 0) c.too_many = TooMany(c, MonotonicSeconds());
  if (c.too_many != 0) return Refuse(c, {});
  if (c.body_left > limits().body_bytes)
    return Refuse(c, {413, "the body is longer than " + std::to_string(limits().body_bytes) + " bytes"});
  const bool has_body = c.head.chunked || c.body_left > 0;
  if (std::optional<HttpAnswer> refused = core_->handlers.admit ? core_->handlers.admit(c.exchange->request()) : std::nullopt) {
    if (has_body && c.head.expects_continue) {  // the body is not asked for
      c.keep_alive = false;
      c.exchange->Answer(std::move(*refused));
      c.stage = Stage::kAnswer;
      return;
    }
    c.exchange->RefuseLater(std::move(*refused));
  } else if (has_body && c.head.expects_continue && c.in.empty()) {
    c.out += "HTTP/1.1 100 Continue\r\n\r\n";
    (void)Flush(c);
  }
}

bool PollServer::TakeBody(Connection& c) {
  std::string piece;
  size_t taken = 0;
  if (c.head.chunked) {
    if (const std::optional<HttpFault> fault = c.chunks.Read(c.in, &piece, &taken)) {
      Refuse(c, *fault);
      return true;
    }
  } else {
    taken = static_cast<size_t>(std::min<uint64_t>(c.body_left, c.in.size()));
    piece.assign(c.in, 0, taken);
    c.body_left -= taken;
  }
  c.in.erase(0, taken);
  c.body_size += piece.size();
  if (c.body_size > limits().body_bytes) {
    Refuse(c, {413, "the body is longer than " + std::to_string(limits().body_bytes) + " bytes"});
    return true;
  }
  if (!c.exchange->refused()) {
    if (!c.exchange->CountBody(piece.size())) {
      Refuse(c, {503, "too many requests at once: try again later"});
      return true;
    }
    c.exchange->request().body += piece;
  }
  if (c.head.chunked ? !c.chunks.ended() : c.body_left > 0) return false;
  c.stage = Stage::kAnswer;
  Exchange::HandOver(c.exchange);
  return true;
}

// Answers a request that may have come in part, and reads no further request of the connection.
void PollServer::Refuse(Connection& c, const HttpFault& fault) {
  const HttpFault& why = c.too_many == 0     ? fault
                         : c.too_many == 429 ? HttpFault{429, "too many connections from this address: try again later"}
                                             : HttpFault{503, "too many connections: try again later"};
  if (c.exchange == nullptr) {
    c.exchange = std::make_shared<Exchange>(core_,
                                            HttpRequest{.method = c.head.method,
                                                        .path = c.head.path,
                                                        .query = c.head.query,
                                                        .address = c.address,
                                                        .arrived = MonotonicSeconds()},
                                            c.head.version_1_0);
  }
  c.keep_alive = false;
  c.stage = Stage::kAnswer;
  if (c.exchange->refused()) return Exchange::HandOver(c.exchange);  // its head alone was reason enough
  c.exchange->Answer(core_->handlers.refuse(c.exchange->request(), why.status, why.message));
}

// Sends what is there. False: the rest has to wait, or the connection has ended.
bool PollServer::Flush(Connection& c) {
  size_t sent = 0;
  while (sent < c.out.size()) {
    const ssize_t n = ::send(c.fd, c.out.data() + sent, c.out.size() - sent, MSG_NOSIGNAL);
    if (n > 0) {
      sent += static_cast<size_t>(n);
      c.moved = MonotonicSeconds();
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      break;
    } else if (errno != EINTR) {
      End(c);
      return false;
    }
  }
  c.out.erase(0, sent);
  return c.out.empty();
}

bool PollServer::SendAnswer(Connection& c) {
  c.keep_alive = c.keep_alive && accepting_;
  while (Flush(c)) {
    if (c.answer_ended) {
      c.exchange->Complete(/*read=*/true);
      c.exchange.reset();
      c.answer_ended = false;
      c.served = true;
      c.begun = !c.in.empty();
      c.skipped_line = false;
      c.since = c.moved = MonotonicSeconds();
      c.stage = c.keep_alive ? Stage::kHead : Stage::kDropping;
      if (c.keep_alive) return !c.in.empty();
      std::string().swap(c.in);
      ::shutdown(c.fd, SHUT_WR);
      return false;
    }
    c.moved = MonotonicSeconds();
    switch (c.exchange->Pull(c.keep_alive, &c.out)) {
      case Exchange::Pulled::kNothing: return false;
      case Exchange::Pulled::kSome: break;
      case Exchange::Pulled::kLast: c.answer_ended = true; break;
      case Exchange::Pulled::kCut: End(c); return false;
    }
  }
  return false;
}

// A connection that is closed with bytes unread is reset, and the answer may be lost with it. So they are read first.
void PollServer::Drop(Connection& c) {
  const ssize_t n = ::recv(c.fd, buffer_.data(), buffer_.size(), 0);
  if (n > 0) {
    c.dropped += static_cast<uint64_t>(n);
    c.moved = MonotonicSeconds();
    if (c.dropped > limits().dropped_bytes) End(c);
  } else if (n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) {
    End(c);
  }
}

void PollServer::End(Connection& c) {
  if (c.exchange != nullptr) c.exchange->Complete(/*read=*/false);
  c.exchange.reset();
  c.stage = Stage::kEnded;
  std::string().swap(c.in);
  std::string().swap(c.out);
  ::shutdown(c.fd, SHUT_RDWR);
}

}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::Start(Listener listener, const HttpLimits& limits, HttpHandlers handlers) {
  auto server = std::make_unique<PollServer>(limits, std::move(handlers));
  TALLY_RETURN_IF_ERROR(server->Begin(std::move(listener)));
  return std::unique_ptr<HttpServer>(std::move(server));
}

}  // namespace tally
