// SPDX-License-Identifier: Apache-2.0
// A hub of the test's own on 127.0.0.1: the API and files of one repository, and what servers do wrong.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cctype>
#include <functional>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/digest.h"

namespace tally::hub {

inline std::span<const uint8_t> BytesOf(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

inline std::string Sha256Of(const std::string& text) {
  Digest digest = Digest::Sha256();
  digest.Add(BytesOf(text));
  return digest.Hex();
}

inline std::string GitSha1Of(const std::string& text) {
  Digest digest = Digest::GitBlob(text.size());
  digest.Add(BytesOf(text));
  return digest.Hex();
}

struct Asked {
  std::string method, path;                    // path with its query
  std::map<std::string, std::string> headers;  // names in lower case
  std::string Header(const std::string& name) const {
    const auto at = headers.find(name);
    return at == headers.end() ? "" : at->second;
  }
};

struct Answer {
  int status = 200;
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;
  long long content_length = -1;  // -1: the body's; -2: none is said
  size_t cut_after = SIZE_MAX;    // bytes of the body after which the connection is closed
  bool silent = false;            // nothing more is sent, and the connection stays open
};

// One listening socket and a thread for each connection; one request a connection.
class HttpServer {
 public:
  using Handler = std::function<Answer(const Asked&)>;
  explicit HttpServer(Handler handler) : handler_(std::move(handler)) {
    listening_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(listening_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 || listen(listening_, 16) != 0) std::abort();
    socklen_t length = sizeof address;
    getsockname(listening_, reinterpret_cast<sockaddr*>(&address), &length);
    port_ = ntohs(address.sin_port);
    accepting_ = std::thread([this] { Accept(); });
  }
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;
  ~HttpServer() {
    stop_ = true;
    accepting_.join();
    for (std::thread& t : connections_) t.join();
    close(listening_);
  }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  int port() const { return port_; }
  std::vector<Asked> asked() {
    const std::lock_guard<std::mutex> guard(mutex_);
    return asked_;
  }
  size_t Count(const std::string& part) {  // requests whose path holds it
    size_t n = 0;
    for (const Asked& a : asked()) n += a.path.find(part) != std::string::npos;
    return n;
  }

 private:
  void Accept() {
    while (!stop_) {
      pollfd waiting{listening_, POLLIN, 0};
      if (poll(&waiting, 1, 20) <= 0) continue;
      const int fd = accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC);
      if (fd >= 0) connections_.emplace_back([this, fd] { Serve(fd); });
    }
  }
  bool ReadSome(int fd, std::string& text) {
    while (!stop_) {
      pollfd waiting{fd, POLLIN, 0};
      if (poll(&waiting, 1, 20) <= 0) continue;
      char piece[4096];
      const ssize_t n = recv(fd, piece, sizeof piece, 0);
      if (n <= 0) return false;
      text.append(piece, static_cast<size_t>(n));
      return true;
    }
    return false;
  }
  void Serve(int fd) {
    std::string text;
    while (text.find("\r\n\r\n") == std::string::npos) {
      if (!ReadSome(fd, text)) {
        close(fd);
        return;
      }
    }
    Asked asked;
    size_t at = text.find("\r\n");
    const std::string line = text.substr(0, at);
    asked.method = line.substr(0, line.find(' '));
    asked.path = line.substr(asked.method.size() + 1, line.rfind(' ') - asked.method.size() - 1);
    for (at += 2; text.compare(at, 2, "\r\n") != 0;) {
      const size_t end = text.find("\r\n", at), colon = text.find(':', at);
      std::string name = text.substr(at, colon - at);
      for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      asked.headers[name] = text.substr(colon + 2, end - colon - 2);
      at = end + 2;
    }
    {
      const std::lock_guard<std::mutex> guard(mutex_);
      asked_.push_back(asked);
    }
    const Answer answer = handler_(asked);
    std::string head = "HTTP/1.1 " + std::to_string(answer.status) + " X\r\nConnection: close\r\n";
    for (const auto& [name, value] : answer.headers) head += name + ": " + value + "\r\n";
    const long long length = answer.content_length == -1 ? static_cast<long long>(answer.body.size()) : answer.content_length;
    if (length >= 0) head += "Content-Length: " + std::to_string(length) + "\r\n";
    Send(fd, head + "\r\n");
    Send(fd, answer.body.substr(0, answer.cut_after));
    while (answer.silent && ReadSome(fd, text)) {
    }
    shutdown(fd, SHUT_WR);
    while (!answer.silent && ReadSome(fd, text)) {  // until the other side has read it all
    }
    close(fd);
  }
  void Send(int fd, const std::string& text) {
    for (size_t done = 0; done < text.size();) {
      const ssize_t n = send(fd, text.data() + done, text.size() - done, MSG_NOSIGNAL);
      if (n <= 0) return;
      done += static_cast<size_t>(n);
    }
  }

  Handler handler_;
  int listening_ = -1, port_ = 0;
  std::atomic<bool> stop_ = false;
  std::thread accepting_;
  std::vector<std::thread> connections_;
  std::mutex mutex_;
  std::vector<Asked> asked_;
};

// The repository org/name with these files. `meddle` may change the n-th answer to a request for a path (from 0).
class HubServer {
 public:
  struct Stored {
    std::string bytes;
    bool lfs = false;
  };
  using Meddle = std::function<void(const Asked&, size_t n, Answer&)>;
  static constexpr const char* kCommit = "0123456789abcdef0123456789abcdef01234567";

  std::map<std::string, Stored> files;
  Meddle meddle;
  bool storage_elsewhere = false;  // LFS files are redirected to another port, as the hub does to its storage
  bool ranges = true;
  std::string required_token;

  HubServer() : storage_([this](const Asked& a) { return Storage(a); }), hub_([this](const Asked& a) { return Handle(a); }) {}
  std::string url() const { return hub_.url(); }
  HttpServer& hub() { return hub_; }
  HttpServer& storage() { return storage_; }

  // The digest that the hub has for a file.
  std::string DigestOf(const Stored& file) const {
    const std::lock_guard<std::mutex> guard(mutex_);
    std::string& digest = digests_[{std::hash<std::string>()(file.bytes), file.lfs}];
    if (digest.empty()) digest = file.lfs ? Sha256Of(file.bytes) : GitSha1Of(file.bytes);
    return digest;
  }

  nlohmann::json Listing() const {
    nlohmann::json siblings = nlohmann::json::array();
    for (const auto& [path, f] : files) {
      const std::string digest = DigestOf(f), other(40, '0');
      nlohmann::json one = {{"rfilename", path}, {"size", f.bytes.size()}, {"blobId", f.lfs ? other : digest}};
      if (f.lfs) one["lfs"] = {{"sha256", digest}, {"size", f.bytes.size()}, {"pointerSize", 130}};
      siblings.push_back(std::move(one));
    }
    return {{"id", "org/name"}, {"sha", kCommit}, {"private", false}, {"gated", false}, {"siblings", siblings}};
  }

 private:
  Answer Whole(const Asked& asked, const Stored& file) const {
    Answer answer;
    const std::string range = asked.Header("range");
    size_t first = 0, last = file.bytes.size() - 1;
    if (ranges && range.starts_with("bytes=")) {
      first = std::stoull(range.substr(6));
      const std::string end = range.substr(range.find('-') + 1);
      if (!end.empty()) last = std::min<size_t>(last, std::stoull(end));
      answer.status = 206;
      answer.headers.emplace_back("Content-Range", "bytes " + std::to_string(first) + "-" + std::to_string(last) + "/" +
                                                       std::to_string(file.bytes.size()));
    }
    answer.body = file.bytes.substr(first, last - first + 1);
    return answer;
  }
  Answer Storage(const Asked& asked) {
    const auto at = files.find(asked.path.substr(std::string("/storage/").size()));
    Answer answer = at == files.end() ? Answer{404, {}, ""} : Whole(asked, at->second);
    Change(asked, answer);
    return answer;
  }
  Answer Handle(const Asked& asked) {
    Answer answer;
    const std::string resolve = std::string("/org/name/resolve/") + kCommit + "/";
    if (!required_token.empty() && asked.Header("authorization") != "Bearer " + required_token) {
      answer.status = 401;
      answer.body = "Invalid username or password. You sent: " + asked.Header("authorization");
    } else if (asked.path == "/api/models/org/name/revision/main?blobs=true") {
      answer.body = Listing().dump();
      answer.headers.emplace_back("Content-Type", "application/json");
    } else if (asked.path.starts_with(resolve) && files.contains(asked.path.substr(resolve.size()))) {
      const std::string path = asked.path.substr(resolve.size());
      const Stored& file = files.at(path);
      if (file.lfs && storage_elsewhere) {
        answer.status = 302;
        answer.headers.emplace_back("Location", storage_.url() + "/storage/" + path);
        answer.body = "Found. Redirecting";
      } else {
        answer = Whole(asked, file);
      }
      answer.headers.emplace_back("X-Repo-Commit", kCommit);
      answer.headers.emplace_back("ETag", "\"" + (file.lfs ? "pointer" : DigestOf(file)) + "\"");
      if (file.lfs) {
        answer.headers.emplace_back("X-Linked-Etag", "\"" + DigestOf(file) + "\"");
        answer.headers.emplace_back("X-Linked-Size", std::to_string(file.bytes.size()));
      }
    } else {
      answer.status = 404;
      answer.headers.emplace_back("X-Error-Code", asked.path.starts_with("/api/") ? "RepoNotFound" : "EntryNotFound");
    }
    Change(asked, answer);
    return answer;
  }
  void Change(const Asked& asked, Answer& answer) {
    if (!meddle) return;
    size_t n = 0;
    {
      const std::lock_guard<std::mutex> guard(mutex_);
      n = times_[asked.path]++;
    }
    meddle(asked, n, answer);
  }

  mutable std::mutex mutex_;
  std::map<std::string, size_t> times_;
  mutable std::map<std::pair<size_t, bool>, std::string> digests_;
  HttpServer storage_, hub_;  // last: their threads use the rest
};

}  // namespace tally::hub
