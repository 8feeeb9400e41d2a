// SPDX-License-Identifier: Apache-2.0
#include "engine/serve/http_server.h"

#include <microhttpd.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <new>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/machine/machine.h"
#include "engine/serve/service_thread.h"

namespace tally {
namespace {

constexpr std::chrono::milliseconds kWatchEvery{100};
constexpr size_t kConnectionMemory = 2;  // times header_bytes: what comes in, and what goes out

std::string AddressOf(MHD_Connection* connection) {
  const MHD_ConnectionInfo* const info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
  if (info == nullptr || info->client_addr == nullptr) return "";
  const sockaddr* const address = info->client_addr;
  const socklen_t size = address->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  std::array<char, NI_MAXHOST> text{};
  if (::getnameinfo(address, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0) return "";
  return text.data();
}

int SocketOf(MHD_Connection* connection) {
  const MHD_ConnectionInfo* const info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
  return info != nullptr ? info->connect_fd : -1;
}

// The other side has closed the connection, or its half of it.
bool HasClosed(int fd) {
#ifdef POLLRDHUP
  constexpr short kClosed = POLLRDHUP | POLLHUP | POLLERR;
#else
  constexpr short kClosed = POLLHUP | POLLERR;
#endif
  pollfd state{fd, kClosed, 0};
  return ::poll(&state, 1, 0) > 0 && (state.revents & kClosed) != 0;
}

// A connection, from its beginning to its end.
struct Connection {
  int fd = -1;
  double since = 0;   // when it began, or its last answer was out
  bool busy = false;  // its request has come whole, and is not answered yet
};

class Exchange;

class Daemon final : public HttpServer {
 public:
  Daemon(const HttpLimits& limits, HttpHandlers handlers) : limits_(limits), handlers_(std::move(handlers)) {}
  ~Daemon() override { Stop(0); }
  Status Begin(Listener listener);
  void StopAccepting() override;
  void Stop(double seconds) override;
  size_t connections() const override {
    const std::lock_guard lock(mutex_);
    return connections_.size();
  }

  // --- for its exchanges

  const HttpLimits& limits() const { return limits_; }
  const HttpHandlers& handlers() const { return handlers_; }
  bool accepting() const { return accepting_.load(std::memory_order_relaxed); }
  bool AddBodyBytes(size_t n) { return bodies_.fetch_add(n) + n <= limits_.bodies_bytes; }
  void DropBodyBytes(size_t n) { bodies_.fetch_sub(n); }
  void SetBusy(MHD_Connection* connection, bool busy);
  void Enter(const std::shared_ptr<Exchange>& exchange) {
    const std::lock_guard lock(mutex_);
    exchanges_.insert(exchange);
  }
  void Leave(const std::shared_ptr<Exchange>& exchange) {
    const std::lock_guard lock(mutex_);
    exchanges_.erase(exchange);
    changed_.notify_all();
  }

 private:
  static MHD_Result OnAccess(void* self, MHD_Connection* connection, const char* url, const char* method, const char* version,
                             const char* data, size_t* data_size, void** state) noexcept;
  static void OnCompleted(void* self, MHD_Connection* connection, void** state, MHD_RequestTerminationCode code) noexcept;
  static void OnConnection(void* self, MHD_Connection* connection, void** context, MHD_ConnectionNotificationCode code) noexcept;
  MHD_Result Access(MHD_Connection* connection, const char* url, const char* method, const char* data, size_t* data_size,
                    void** state);
  void Watch();
  std::vector<std::shared_ptr<Exchange>> Exchanges() const {
    const std::lock_guard lock(mutex_);
    return {exchanges_.begin(), exchanges_.end()};
  }

  const HttpLimits limits_;
  const HttpHandlers handlers_;
  MHD_Daemon* daemon_ = nullptr;
  std::atomic<bool> accepting_{true};
  std::atomic<size_t> bodies_{0};
  mutable std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::set<Connection*> connections_;
  std::set<std::shared_ptr<Exchange>> exchanges_;  // whose requests have come whole, until MHD is done with them
  bool stopped_ = false;
  ServiceThread watcher_;
};

// The library's side of an exchange. MHD's thread suspends the connection if there is nothing to send. The thread that brings something
// resumes it. Both under the lock, so that no wake-up is lost.
class Exchange : public std::enable_shared_from_this<Exchange> {
 public:
  Exchange(Daemon& server, MHD_Connection* connection, std::string method, std::string path)
      : server_(server), connection_(connection), fd_(SocketOf(connection)) {
    request_.method = std::move(method);
    request_.path = std::move(path);
    request_.arrived = MonotonicSeconds();
    request_.address = AddressOf(connection);
    MHD_get_connection_values(connection, MHD_HEADER_KIND, AddHeader, &request_.headers);
  }
  ~Exchange() { server_.DropBodyBytes(counted_); }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  HttpRequest& request() { return request_; }

  // --- MHD's thread

  // False: the connection is to be closed.
  bool AddBody(const char* data, size_t size) {
    body_size_ += size;
    if (refused_) return body_size_ <= 2 * server_.limits().body_bytes;
    counted_ += size;
    if (!server_.AddBodyBytes(size)) {
      Refuse(server_.handlers().refuse(request_, 503, "too many requests at once: try again later"));
    } else if (body_size_ > server_.limits().body_bytes) {
      Refuse(server_.handlers().refuse(request_, 413, TooLong()));
    } else {
      request_.body.append(data, size);
    }
    return true;
  }
  std::string TooLong() const { return "the body is longer than " + std::to_string(server_.limits().body_bytes) + " bytes"; }
  void Refuse(HttpAnswer answer) {
    refused_ = std::move(answer);
    std::string().swap(request_.body);
  }
  bool refused() const { return refused_.has_value(); }
  void AnswerRefused() { Answer(std::move(*refused_)); }
  bool handed_over = false;  // the handler has it

  // Queues the answer, or suspends the connection until there is one.
  MHD_Result Continue() {
    bool whole = false;
    {
      const std::lock_guard lock(mutex_);
      if (left_ || cut_) return MHD_NO;
      if (state_ == State::kOpen) {
        suspended_ = true;
        MHD_suspend_connection(connection_);
        return MHD_YES;
      }
      whole = state_ == State::kWhole;
    }
    // Without the lock: MHD has one of its own for a response, and holds it when it calls Read. The answer's head changes no more.
    MHD_Response* response = nullptr;
    if (whole) {
      response = MHD_create_response_from_buffer(answer_.body.size(), answer_.body.data(), MHD_RESPMEM_MUST_COPY);
      std::string().swap(answer_.body);
    } else {
      auto owner = std::make_unique<std::shared_ptr<Exchange>>(shared_from_this());
      response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, kPiece, OnRead, owner.get(), OnReadEnd);
      if (response != nullptr) (void)owner.release();
    }
    if (response == nullptr) return MHD_NO;
    bool good = true;
    for (const auto& [name, value] : answer_.headers) {
      good = good && MHD_add_response_header(response, name.c_str(), value.c_str()) == MHD_YES;
    }
    if (!server_.accepting()) good = good && MHD_add_response_header(response, "Connection", "close") == MHD_YES;
    const MHD_Result queued = good ? MHD_queue_response(connection_, static_cast<unsigned>(answer_.status), response) : MHD_NO;
    MHD_destroy_response(response);
    return queued;
  }
  // MHD is done with the request, answered or not.
  void Complete(bool read) {
    const std::lock_guard lock(mutex_);
    connection_ = nullptr;
    fd_ = -1;
    left_ = left_ || !read || state_ == State::kOpen || state_ == State::kStreamed;
    Forget();
  }

  // --- any thread

  void Answer(HttpAnswer answer) {
    const std::lock_guard lock(mutex_);
    if (state_ != State::kOpen) return;
    answer_ = std::move(answer);
    state_ = State::kWhole;
    Forget();
    Resume();
  }
  void Begin(HttpAnswer head) {
    const std::lock_guard lock(mutex_);
    if (state_ != State::kOpen) return;
    answer_ = std::move(head);
    unread_ = std::move(answer_.body);
    state_ = State::kStreamed;
    Resume();
  }
  void Write(std::string_view bytes) {
    const std::lock_guard lock(mutex_);
    if (state_ != State::kStreamed || left_) return;
    if (unread_.size() - read_ > server_.limits().unread_bytes) {
      SetLeft();
      std::string().swap(unread_);
      read_ = 0;
      return;
    }
    if (read_ > kPiece && read_ > unread_.size() / 2) {
      unread_.erase(0, read_);
      read_ = 0;
    }
    unread_ += bytes;
    Resume();
  }
  void End(bool whole) {
    const std::lock_guard lock(mutex_);
    if (state_ != State::kStreamed) return;
    state_ = State::kEnded;
    cut_ = cut_ || !whole;
    Resume();
  }
  // Called if nobody will answer the request.
  void Abandon() {
    Answer(server_.handlers().refuse(request_, 500, "the request was dropped"));
    End(/*whole=*/false);
  }
  bool left() const {
    const std::lock_guard lock(mutex_);
    return left_;
  }
  void LookWhetherLeft() {
    const std::lock_guard lock(mutex_);
    if (fd_ >= 0 && !left_ && HasClosed(fd_)) SetLeft();
  }
  // Called when the server ends.
  void Cut() {
    const std::lock_guard lock(mutex_);
    cut_ = true;
    Resume();
  }

 private:
  enum class State : uint8_t { kOpen, kWhole, kStreamed, kEnded };
  static constexpr size_t kPiece = 16384;

  static MHD_Result AddHeader(void* headers, MHD_ValueKind, const char* name, const char* value) noexcept {
    try {
      static_cast<HttpHeaders*>(headers)->emplace_back(AsciiLower(name), value != nullptr ? value : "");
    } catch (const std::bad_alloc&) {
      return MHD_NO;
    }
    return MHD_YES;
  }
  static ssize_t OnRead(void* owner, uint64_t, char* buffer, size_t size) noexcept {
    return (*static_cast<std::shared_ptr<Exchange>*>(owner))->Read(buffer, size);
  }
  static void OnReadEnd(void* owner) noexcept { delete static_cast<std::shared_ptr<Exchange>*>(owner); }
  ssize_t Read(char* buffer, size_t size) {
    const std::lock_guard lock(mutex_);
    const size_t n = std::min(size, unread_.size() - read_);
    if (left_) return MHD_CONTENT_READER_END_WITH_ERROR;
    if (n > 0) {
      std::memcpy(buffer, unread_.data() + read_, n);
      read_ += n;
      if (read_ == unread_.size()) unread_.clear(), read_ = 0;
      return static_cast<ssize_t>(n);
    }
    if (cut_) return MHD_CONTENT_READER_END_WITH_ERROR;
    if (state_ == State::kEnded) return MHD_CONTENT_READER_END_OF_STREAM;
    suspended_ = true;
    MHD_suspend_connection(connection_);
    return 0;
  }
  // The following are called with the lock held.
  void Resume() {
    if (std::exchange(suspended_, false) && connection_ != nullptr) MHD_resume_connection(connection_);
  }
  void SetLeft() {
    left_ = true;
    if (fd_ >= 0) ::shutdown(fd_, SHUT_RDWR);  // MHD closes it
    Resume();
  }
  // The body is not needed any more.
  void Forget() { server_.DropBodyBytes(std::exchange(counted_, 0)); }

  Daemon& server_;
  HttpRequest request_;
  std::optional<HttpAnswer> refused_;
  size_t body_size_ = 0;
  mutable std::mutex mutex_;  // of what follows
  size_t counted_ = 0;        // of Daemon::AddBodyBytes
  MHD_Connection* connection_;
  int fd_;
  bool suspended_ = false, left_ = false, cut_ = false;
  State state_ = State::kOpen;
  HttpAnswer answer_;
  std::string unread_;  // from read_ on
  size_t read_ = 0;
};

// The handler's side of an exchange.
class Handle final : public HttpExchange {
 public:
  explicit Handle(std::shared_ptr<Exchange> exchange) : exchange_(std::move(exchange)) {}
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() override { exchange_->Abandon(); }
  HttpRequest& request() override { return exchange_->request(); }
  void Answer(HttpAnswer answer) override { exchange_->Answer(std::move(answer)); }
  void Begin(HttpAnswer head) override { exchange_->Begin(std::move(head)); }
  void Write(std::string_view bytes) override { exchange_->Write(bytes); }
  void End(bool whole) override { exchange_->End(whole); }
  bool left() const override { return exchange_->left(); }

 private:
  const std::shared_ptr<Exchange> exchange_;
};

Status Daemon::Begin(Listener listener) {
  const auto memory = static_cast<size_t>(limits_.header_bytes * kConnectionMemory);
  daemon_ = MHD_start_daemon(MHD_USE_POLL | MHD_USE_INTERNAL_POLLING_THREAD | MHD_ALLOW_SUSPEND_RESUME, 0, nullptr, nullptr,
                             OnAccess, this, MHD_OPTION_LISTEN_SOCKET, listener.fd(), MHD_OPTION_NOTIFY_COMPLETED, OnCompleted,
                             this, MHD_OPTION_NOTIFY_CONNECTION, OnConnection, this, MHD_OPTION_CONNECTION_LIMIT,
                             static_cast<unsigned>(limits_.connections), MHD_OPTION_PER_IP_CONNECTION_LIMIT,
                             static_cast<unsigned>(limits_.connections_per_address), MHD_OPTION_CONNECTION_MEMORY_LIMIT, memory,
                             MHD_OPTION_CONNECTION_TIMEOUT, static_cast<unsigned>(limits_.write_seconds), MHD_OPTION_END);
  if (daemon_ == nullptr) return BadInput("the HTTP server cannot start: the system refuses it memory, a thread or descriptors");
  (void)listener.Release();
  if (!watcher_.Start([this] { Watch(); })) return BadInput("the HTTP server cannot start: the system refuses it a thread");
  return {};
}

void Daemon::StopAccepting() {
  if (daemon_ == nullptr || !accepting_.exchange(false)) return;
  const MHD_socket fd = MHD_quiesce_daemon(daemon_);
  if (fd == MHD_INVALID_SOCKET) return;
  ::shutdown(fd, SHUT_RDWR);  // at once: MHD's thread may be waiting on it
  ::close(fd);
}

void Daemon::Stop(double seconds) {
  if (daemon_ == nullptr) return;
  StopAccepting();
  {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return exchanges_.empty(); });
    stopped_ = true;
    changed_.notify_all();
  }
  watcher_.Join();
  for (const std::shared_ptr<Exchange>& exchange : Exchanges()) exchange->Cut();
  MHD_stop_daemon(daemon_);
  daemon_ = nullptr;
}

void Daemon::SetBusy(MHD_Connection* connection, bool busy) {
  const MHD_ConnectionInfo* const info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
  if (info == nullptr || info->socket_context == nullptr) return;
  const std::lock_guard lock(mutex_);
  auto* const known = static_cast<Connection*>(info->socket_context);
  known->busy = busy;
  known->since = MonotonicSeconds();
}

// Closes connections that bring no request, and finds the clients that have left: MHD does not look at suspended connections.
void Daemon::Watch() {
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      if (changed_.wait_for(lock, kWatchEvery, [&] { return stopped_; })) return;
      const double oldest = MonotonicSeconds() - limits_.request_seconds;
      for (Connection* c : connections_) {
        if (!c->busy && c->since < oldest) ::shutdown(c->fd, SHUT_RDWR);
      }
    }
    for (const std::shared_ptr<Exchange>& exchange : Exchanges()) exchange->LookWhetherLeft();
  }
}

void Daemon::OnConnection(void* self, MHD_Connection* connection, void** context, MHD_ConnectionNotificationCode code) noexcept {
  auto& server = *static_cast<Daemon*>(self);
  try {
    const std::lock_guard lock(server.mutex_);
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
      auto started = std::make_unique<Connection>(Connection{.fd = SocketOf(connection), .since = MonotonicSeconds()});
      server.connections_.insert(started.get());
      *context = started.release();
    } else if (*context != nullptr) {  // before MHD closes the socket
      auto* const ended = static_cast<Connection*>(*context);
      server.connections_.erase(ended);
      delete ended;
      *context = nullptr;
    }
  } catch (const std::bad_alloc&) {
    *context = nullptr;
  }
}

void Daemon::OnCompleted(void* self, MHD_Connection* connection, void** state, MHD_RequestTerminationCode code) noexcept {
  const std::unique_ptr<std::shared_ptr<Exchange>> exchange(static_cast<std::shared_ptr<Exchange>*>(*state));
  *state = nullptr;
  if (exchange == nullptr) return;
  auto& server = *static_cast<Daemon*>(self);
  (*exchange)->Complete(code == MHD_REQUEST_TERMINATED_COMPLETED_OK);
  server.SetBusy(connection, false);
  server.Leave(*exchange);
}

MHD_Result Daemon::OnAccess(void* self, MHD_Connection* connection, const char* url, const char* method, const char*,
                            const char* data, size_t* data_size, void** state) noexcept {
  try {
    return static_cast<Daemon*>(self)->Access(connection, url, method, data, data_size, state);
  } catch (const std::exception&) {  // no memory: this connection ends
    return MHD_NO;
  }
}

MHD_Result Daemon::Access(MHD_Connection* connection, const char* url, const char* method, const char* data, size_t* data_size,
                          void** state) {
  if (*state == nullptr) {
    auto made = std::make_shared<Exchange>(*this, connection, method, url);
    *state = new std::shared_ptr<Exchange>(made);
    const HttpHeaders& headers = made->request().headers;
    if (const std::optional<std::string_view> length = FindHeader(headers, "content-length")) {
      uint64_t bytes = 0;
      const auto [end, error] = std::from_chars(length->data(), length->data() + length->size(), bytes);
      if (error != std::errc() || end != length->data() + length->size() || bytes > limits_.body_bytes) {
        made->Answer(handlers_.refuse(made->request(), 413, made->TooLong()));
        return made->Continue();  // without reading it
      }
    }
    if (std::optional<HttpAnswer> refused = handlers_.admit ? handlers_.admit(made->request()) : std::nullopt) {
      made->Refuse(std::move(*refused));
      if (FindHeader(headers, "expect")) {
        made->AnswerRefused();
        return made->Continue();
      }
    }
    return MHD_YES;
  }
  const std::shared_ptr<Exchange> exchange = *static_cast<std::shared_ptr<Exchange>*>(*state);
  if (*data_size > 0) {
    const bool go_on = exchange->AddBody(data, *data_size);
    *data_size = 0;
    return go_on ? MHD_YES : MHD_NO;
  }
  if (!std::exchange(exchange->handed_over, true)) {
    SetBusy(connection, true);
    Enter(exchange);
    if (exchange->refused()) {
      exchange->AnswerRefused();
    } else {
      handlers_.request(std::make_shared<Handle>(exchange));
    }
  }
  return exchange->Continue();
}

}  // namespace

std::string AsciiLower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

std::optional<std::string_view> FindHeader(const HttpHeaders& headers, std::string_view name) {
  for (const auto& [key, value] : headers) {
    if (key == name) return value;
  }
  return std::nullopt;
}

Result<std::unique_ptr<HttpServer>> HttpServer::Start(Listener listener, const HttpLimits& limits, HttpHandlers handlers) {
  auto server = std::make_unique<Daemon>(limits, std::move(handlers));
  TALLY_RETURN_IF_ERROR(server->Begin(std::move(listener)));
  return std::unique_ptr<HttpServer>(std::move(server));
}

}  // namespace tally
