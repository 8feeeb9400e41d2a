// SPDX-License-Identifier: Apache-2.0
#include "engine/hub/client.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <utility>

#include "engine/base/format.h"

namespace tally::hub {
namespace {

constexpr int kMaxRedirects = 8;
constexpr int kMaxAttempts = 5;                        // without progress between them
constexpr size_t kMaxIgnoredBytes = size_t{64} << 10;  // of a body that nobody reads
constexpr size_t kMinSecretBytes = 8;                  // a shorter piece of a token tells nothing

bool IsGood(int status) { return status == 200 || status == 206; }
bool IsRedirect(int status) { return status == 301 || status == 302 || status == 303 || status == 307 || status == 308; }
bool IsTransient(int status) { return status == 408 || status == 429 || status >= 500; }

void TakeHubsHeaders(const Response& r, Reply& reply) {
  const auto take = [&](std::string& into, std::string_view header) {
    if (const std::string_view value = r.Header(header); !value.empty()) into = value;
  };
  take(reply.commit, "x-repo-commit");
  take(reply.linked_size, "x-linked-size");
  take(reply.etag, "x-linked-etag");
  reply.etag = EtagValue(reply.etag);
}

class Taker : public Receiver {
 public:
  Taker(const Client::Body& body, const Poll& poll, bool hub, Reply& reply)
      : body_(body), poll_(poll), hub_(hub), reply_(reply) {}
  bool Body(const Response& response, std::span<const uint8_t> bytes) override {
    if (IsGood(response.status)) {
      if (!begun_ && hub_) TakeHubsHeaders(response, reply_);
      if (!begun_) reply_.exchange.response = response;
      begun_ = true;
      return body_(reply_, bytes);
    }
    ignored_ += bytes.size();
    return ignored_ <= kMaxIgnoredBytes;
  }
  bool GoOn() override { return poll_(); }

 private:
  const Client::Body& body_;
  const Poll& poll_;
  const bool hub_;
  Reply& reply_;
  bool begun_ = false;
  size_t ignored_ = 0;
};

// The meaning of an error answer, for the user. X-Error-Code is the hub's.
std::string Meaning(const Response& r, const Name& name, const Settings& settings, const std::string& host) {
  const std::string_view code = r.Header("x-error-code");
  const std::string page = host + "/" + name.repository();
  if (code == "GatedRepo") {
    return "its owner wants its terms accepted first: at " + page + ", then set HF_TOKEN to a token of " + host +
           "/settings/tokens";
  }
  if (r.status == 401 || r.status == 403) {
    if (settings.token.empty()) {
      return host + " knows no such repository, or wants to know who asks: check the name, or set HF_TOKEN to a token of " +
             host + "/settings/tokens (answer " + std::to_string(r.status) + ")";
    }
    const Result<Url> endpoint = ParseUrl(settings.endpoint);
    if (endpoint.ok() && !MaySendToken(*endpoint, *endpoint)) {
      return host + " wants to know who asks, and a token is not sent over http (answer " + std::to_string(r.status) + ")";
    }
    return host + " knows no such repository, or the token has no access to it (answer " + std::to_string(r.status) + ")";
  }
  if (code == "EntryNotFound") return host + " has no such file there (answer 404)";
  if (r.status == 404) return host + " knows no such repository (answer 404)";
  if (r.status == 429) return host + " wants fewer requests (answer 429): later, or with a token in HF_TOKEN";
  return host + " answers " + std::to_string(r.status) + (r.status >= 500 ? ": it has trouble of its own; later" : "");
}

}  // namespace

Status WithoutToken(const Status& status, std::string_view token) {
  const std::string& message = status.message();
  const size_t least = std::min(token.size(), kMinSecretBytes);
  if (status.ok() || token.empty()) return status;
  std::string text;
  for (size_t at = 0; at < message.size();) {
    const std::string_view rest = std::string_view(message).substr(at);
    if (rest.size() < least || token.find(rest.substr(0, least)) == token.npos) {
      text += message[at++];
      continue;
    }
    size_t length = least;
    while (length < rest.size() && token.find(rest.substr(0, length + 1)) != token.npos) ++length;
    text += "***";
    at += length;
  }
  return Status(status.code(), std::move(text));
}

bool Sleep(double seconds, const Poll& poll) {
  for (; seconds > 0; seconds -= 0.1) {
    if (!poll()) return false;
    const auto piece = static_cast<long>(std::min(seconds, 0.1) * 1e9);
    const timespec time{0, piece};
    ::nanosleep(&time, nullptr);
  }
  return poll();
}

Result<Client> Client::Make(const Settings& settings, std::unique_ptr<Transport> transport) {
  TALLY_ASSIGN_OR_RETURN(Url endpoint, ParseUrl(settings.endpoint));
  return Client(settings, std::move(endpoint), std::move(transport));
}

std::string Client::host() const { return endpoint_.text().substr(endpoint_.scheme.size() + 3); }

Reply Client::Get(const std::string& path, const std::string& range, const Body& body, const Poll& poll) {
  Reply reply;
  Url url = endpoint_;
  url.path += path;
  for (int redirects = 0;; ++redirects) {
    // Requests to this machine use no proxy: over http the token would go to it in the clear.
    Request request{url.text(), MaySendToken(endpoint_, url) ? settings_.token : "", range, IsLoopback(url.host)};
    const bool hub = url.origin() == endpoint_.origin();
    Taker taker(body, poll, hub, reply);
    reply.exchange = {};
    Exchange exchange = transport_->Send(request, taker);
    const Response& r = exchange.response;
    if (hub) TakeHubsHeaders(r, reply);
    const std::string location(r.Header("location"));
    const bool redirect = IsRedirect(r.status) && !location.empty() && (exchange.whole || exchange.stopped) && poll();
    reply.exchange = std::move(exchange);
    if (!redirect) return reply;
    if (redirects == kMaxRedirects) {
      reply.refused = BadInput("more than " + std::to_string(kMaxRedirects) + " redirects");
      return reply;
    }
    Result<Url> next = ResolveRedirect(url, location);
    if (!next.ok()) {
      reply.refused = next.status();
      return reply;
    }
    url = std::move(next).value();
  }
}

Status Attempts::Again(const Reply& reply, const Name& name, const Poll& poll) {
  if (!poll()) return Status(StatusCode::kInterrupted, "interrupted");
  if (!reply.refused.ok()) return BadInput(what_ + ": " + reply.refused.message());
  const Exchange& e = reply.exchange;
  const Settings& settings = client_.settings();
  const int status = e.response.status;
  const bool answered = status != 0 && !IsGood(status);
  const std::string why = what_ + ": " +
                          (answered ? Meaning(e.response, name, settings, client_.host())
                                    : client_.host() + ": " + Printable(e.trouble.empty() ? "cut off" : e.trouble));
  if (answered ? !IsTransient(status) : e.hopeless) return BadInput(why);
  if (++failed_ == kMaxAttempts) return BadInput(why + "; given up after " + std::to_string(kMaxAttempts) + " attempts");
  double wait = settings.retry_seconds * std::ldexp(1, failed_ - 1);
  if (const auto asked = RetryAfterSeconds(e.response.Header("retry-after")); answered && asked) wait = std::max(wait, *asked);
  if (wait > settings.longest_wait) {
    return BadInput(why + "; it asks to wait " + std::to_string(static_cast<long long>(std::min(wait, 1e9))) + " seconds");
  }
  if (!Sleep(wait, poll)) return Status(StatusCode::kInterrupted, "interrupted");
  return {};
}

Result<std::string> Client::GetText(const std::string& path, uint64_t max_bytes, const Name& what, const Poll& poll) {
  Attempts attempts(*this, what.repository());
  for (;;) {
    std::string text;
    bool too_long = false;
    const Reply reply = Get(
        path, "",
        [&](const Reply&, std::span<const uint8_t> bytes) {
          too_long = bytes.size() > max_bytes - text.size();
          if (!too_long) text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
          return !too_long;
        },
        poll);
    if (too_long) return BadInput(what.repository() + ": " + host() + " answers with more than " + BytesText(max_bytes));
    if (reply.exchange.whole && reply.exchange.response.status == 200 && reply.refused.ok()) return text;
    TALLY_RETURN_IF_ERROR(attempts.Again(reply, what, poll));
  }
}

}  // namespace tally::hub
