// SPDX-License-Identifier: Apache-2.0
#include "engine/serve/http_exchange.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>
#include <utility>

namespace tally {
namespace {

constexpr size_t kPiece = size_t{64} << 10;  // of a streamed answer that is sent as one chunk

const char* ReasonPhrase(int status) {
  constexpr std::pair<int, const char*> kReasons[] = {{200, "OK"},
                                                      {204, "No Content"},
                                                      {308, "Permanent Redirect"},
                                                      {400, "Bad Request"},
                                                      {401, "Unauthorized"},
                                                      {403, "Forbidden"},
                                                      {404, "Not Found"},
                                                      {405, "Method Not Allowed"},
                                                      {408, "Request Timeout"},
                                                      {413, "Content Too Large"},
                                                      {415, "Unsupported Media Type"},
                                                      {429, "Too Many Requests"},
                                                      {431, "Request Header Fields Too Large"},
                                                      {500, "Internal Server Error"},
                                                      {503, "Service Unavailable"},
                                                      {504, "Gateway Timeout"},
                                                      {505, "HTTP Version Not Supported"}};
  for (const auto& [code, reason] : kReasons) {
    if (code == status) return reason;
  }
  return "";
}

// "Sat, 31 Jan 2026 12:00:00 GMT", in no language of the user's.
std::string DateText() {
  constexpr const char* kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  constexpr const char* kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  if (::gmtime_r(&now, &utc) == nullptr) return "";
  std::array<char, 64> text{};
  (void)std::snprintf(text.data(), text.size(), "%s, %02d %s %d %02d:%02d:%02d GMT", kDays[utc.tm_wday], utc.tm_mday,
                      kMonths[utc.tm_mon], utc.tm_year + 1900, utc.tm_hour, utc.tm_min, utc.tm_sec);
  return text.data();
}

void AddHeaderLine(std::string_view name, std::string_view value, std::string* head) {
  head->append(name).append(": ");
  for (const char c : value) *head += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? ' ' : c;
  head->append("\r\n");
}

// The handler's side of an exchange.
class ExchangeHandle final : public HttpExchange {
 public:
  explicit ExchangeHandle(std::shared_ptr<Exchange> exchange) : exchange_(std::move(exchange)) {}
  ExchangeHandle(const ExchangeHandle&) = delete;
  ExchangeHandle& operator=(const ExchangeHandle&) = delete;
  ~ExchangeHandle() override { exchange_->Abandon(); }
  HttpRequest& request() override { return exchange_->request(); }
  void Answer(HttpAnswer answer) override { exchange_->Answer(std::move(answer)); }
  void Begin(HttpAnswer head) override { exchange_->Begin(std::move(head)); }
  void Write(std::string_view bytes) override { exchange_->Write(bytes); }
  void End(bool whole) override { exchange_->End(whole); }
  bool left() const override { return exchange_->left(); }

 private:
  const std::shared_ptr<Exchange> exchange_;
};

}  // namespace

std::string AnswerHead(const HttpAnswer& answer, BodyEnd end, size_t length, bool keep_alive) {
  std::string head = "HTTP/1.1 " + std::to_string(answer.status) + " " + ReasonPhrase(answer.status) + "\r\n";
  AddHeaderLine("Date", DateText(), &head);
  if (end == BodyEnd::kChunks) AddHeaderLine("Transfer-Encoding", "chunked", &head);
  if (end == BodyEnd::kLength && answer.status != 204) AddHeaderLine("Content-Length", std::to_string(length), &head);
  if (!keep_alive) AddHeaderLine("Connection", "close", &head);
  for (const auto& [name, value] : answer.headers) AddHeaderLine(name, value, &head);
  return head + "\r\n";
}

Status HttpCore::Open() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0)
    return NoRoom("the HTTP server cannot start: the system refuses it descriptors");
  read_ = ends[0];
  write_ = ends[1];
  return {};
}

HttpCore::~HttpCore() {
  if (read_ >= 0) ::close(read_);
  if (write_ >= 0) ::close(write_);
}

bool HttpCore::AddBodyBytes(const std::string& address, size_t n) {
  const std::lock_guard lock(mutex_);
  bodies_ += n;
  size_t& own = bodies_of_[address];
  own += n;
  return bodies_ <= limits.bodies_bytes && own <= limits.bodies_bytes / 2;
}

void HttpCore::DropBodyBytes(const std::string& address, size_t n) {
  const std::lock_guard lock(mutex_);
  bodies_ -= n;
  const auto own = bodies_of_.find(address);
  if ((own->second -= n) == 0) bodies_of_.erase(own);
}

void HttpCore::Wake() {
  if (!woken_.exchange(true)) (void)!::write(write_, "", 1);
}

void HttpCore::TakeWakeUp() {
  std::array<char, 64> bytes{};
  while (::read(read_, bytes.data(), bytes.size()) > 0) {
  }
  woken_ = false;
}

Exchange::Exchange(std::shared_ptr<HttpCore> core, HttpRequest request, bool version_1_0)
    : core_(std::move(core)), request_(std::move(request)), is_head_(request_.method == "HEAD"), version_1_0_(version_1_0) {}

bool Exchange::CountBody(size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (bytes == 0) return true;
  const bool fits = core_->AddBodyBytes(request_.address, bytes);
  counted_ += bytes;
  return fits;
}

void Exchange::HandOver(const std::shared_ptr<Exchange>& exchange) {
  if (exchange->refused_) return exchange->Answer(std::move(*exchange->refused_));
  exchange->core_->handlers.request(std::make_shared<ExchangeHandle>(exchange));
}

Exchange::Pulled Exchange::Pull(bool keep_alive, std::string* out) {
  const std::lock_guard lock(mutex_);
  if (left_) return Pulled::kCut;
  if (state_ == State::kOpen) return cut_ ? Pulled::kCut : Pulled::kNothing;
  const bool whole = state_ == State::kWhole, first = !std::exchange(head_out_, true);
  if (first) {
    *out += AnswerHead(answer_,
                       whole          ? BodyEnd::kLength
                       : version_1_0_ ? BodyEnd::kClose
                                      : BodyEnd::kChunks,
                       answer_.body.size(), keep_alive && (whole || !version_1_0_));
    if (is_head_) {
      left_ = !whole;
      return Pulled::kLast;
    }
    if (whole) {
      *out += std::exchange(answer_.body, {});
      return Pulled::kLast;
    }
  }
  if (const size_t n = std::min(kPiece, unread_.size() - read_); n > 0) {
    if (!version_1_0_) {
      std::array<char, 20> size{};
      (void)std::snprintf(size.data(), size.size(), "%zx\r\n", n);
      *out += size.data();
    }
    out->append(unread_, read_, n);
    if (!version_1_0_) *out += "\r\n";
    read_ += n;
    if (read_ == unread_.size()) unread_.clear(), read_ = 0;
    return Pulled::kSome;
  }
  if (first) return Pulled::kSome;
  if (cut_) return Pulled::kCut;
  if (state_ != State::kEnded) return Pulled::kNothing;
  if (!version_1_0_) *out += "0\r\n\r\n";
  return Pulled::kLast;
}

void Exchange::Leave() {
  const std::lock_guard lock(mutex_);
  left_ = true;
}

void Exchange::Complete(bool read) {
  const std::lock_guard lock(mutex_);
  left_ = left_ || !read;
  std::string().swap(unread_);
  read_ = 0;
  ForgetBody();
}

void Exchange::Tell() {
  if (!news_.exchange(true)) core_->Wake();
}

void Exchange::Answer(HttpAnswer answer) {
  const std::lock_guard lock(mutex_);
  if (state_ != State::kOpen) return;
  answer_ = std::move(answer);
  state_ = State::kWhole;
  ForgetBody();
  Tell();
}

void Exchange::Begin(HttpAnswer head) {
  const std::lock_guard lock(mutex_);
  if (state_ != State::kOpen) return;
  answer_ = std::move(head);
  unread_ = std::exchange(answer_.body, {});
  state_ = State::kStreamed;
  Tell();
}

void Exchange::Write(std::string_view bytes) {
  const std::lock_guard lock(mutex_);
  if (state_ != State::kStreamed || left_) return;
  if (unread_.size() - read_ > core_->limits.unread_bytes) {
    left_ = true;
    std::string().swap(unread_);
    read_ = 0;
  } else {
    if (read_ > kPiece && read_ > unread_.size() / 2) {
      unread_.erase(0, read_);
      read_ = 0;
    }
    unread_ += bytes;
  }
  Tell();
}

void Exchange::End(bool whole) {
  const std::lock_guard lock(mutex_);
  if (state_ != State::kStreamed) return;
  state_ = State::kEnded;
  cut_ = cut_ || !whole;
  Tell();
}

void Exchange::Abandon() {
  if (answered()) return End(/*whole=*/false);
  Answer(core_->handlers.refuse(request_, 500, "the request was dropped"));
}

bool Exchange::left() const {
  const std::lock_guard lock(mutex_);
  return left_;
}

bool Exchange::answered() const {
  const std::lock_guard lock(mutex_);
  return state_ != State::kOpen;
}

}  // namespace tally
