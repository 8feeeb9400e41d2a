// SPDX-License-Identifier: Apache-2.0
// A client of HTTP for tests: a socket, and what a real client does with one, or should not.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cctype>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace tally {

struct HttpReply {
  int status = 0;                                   // 0: the connection ended without one
  std::map<std::string, std::string> headers = {};  // names in small letters
  std::string body = {};
  bool whole = false;  // its end was there
};

class TestClient {
 public:
  explicit TestClient(uint16_t port, int receive_bytes = 0) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    // Before it connects: afterwards the window is agreed on.
    if (receive_bytes > 0) setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const timeval most = {.tv_sec = 20, .tv_usec = 0};
    setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof most);
    connected_ = connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0;
  }
  // Of a Unix socket.
  explicit TestClient(const std::string& path) : fd_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un to{};
    to.sun_family = AF_UNIX;
    path.copy(to.sun_path, sizeof to.sun_path - 1);
    connected_ = connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0;
  }
  TestClient(const TestClient&) = delete;
  TestClient& operator=(const TestClient&) = delete;
  ~TestClient() { Close(); }

  bool connected() const { return connected_; }
  void Close() {
    if (fd_ >= 0) close(std::exchange(fd_, -1));
  }
  void HalfClose() const { shutdown(fd_, SHUT_WR); }
  bool Send(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t n = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }
  // A request with its Host and the length of its body.
  bool Ask(const std::string& method, const std::string& path, const std::string& body = "",
           const std::string& headers = "") const {
    const bool has_host = headers.find("Host:") != headers.npos;
    return Send(method + " " + path + " HTTP/1.1\r\n" + (has_host ? "" : "Host: localhost\r\n") + headers +
                (method == "POST" ? "Content-Length: " + std::to_string(body.size()) + "\r\n" : "") + "\r\n" + body);
  }
  // Whether bytes, or the end, come within so many seconds.
  bool Readable(double seconds) const {
    pollfd p{fd_, POLLIN, 0};
    return !left_.empty() || poll(&p, 1, static_cast<int>(seconds * 1000)) > 0;
  }
  // The other side closes the connection, or has, within so many seconds.
  bool Ends(double seconds) {
    while (Readable(seconds)) {
      if (!Fill()) return true;
      left_.clear();
    }
    return false;
  }
  // Until some of the answer has come that has `text` in it, so many times. False: it ended without, or two minutes have passed.
  bool ReadUntil(std::string_view text, int times = 1) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(2);
    const auto there = [&] {
      size_t at = 0;
      for (int i = 0; i < times && at != left_.npos; ++i) at = left_.find(text, i == 0 ? 0 : at + text.size());
      return at != left_.npos;
    };
    while (!there()) {
      if (std::chrono::steady_clock::now() > end || !Readable(60) || !Fill()) return false;
    }
    return true;
  }
  const std::string& Peek() const { return left_; }  // what has come and was not read
  HttpReply Read() {
    HttpReply reply;
    if (!ReadUntil("\r\n\r\n")) return reply;
    const size_t head = left_.find("\r\n\r\n");
    const std::string text = left_.substr(0, head + 2);
    left_.erase(0, head + 4);
    reply.status = std::atoi(text.substr(9, 3).c_str());
    for (size_t at = text.find("\r\n") + 2; at < text.size();) {
      const size_t end = text.find("\r\n", at), colon = text.find(':', at);
      std::string name = text.substr(at, colon - at);
      for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      reply.headers[name] = text.substr(colon + 2, end - colon - 2);
      at = end + 2;
    }
    if (reply.headers.contains("transfer-encoding")) {
      reply.whole = ReadChunks(&reply.body);
    } else {
      const size_t size = std::strtoull(reply.headers["content-length"].c_str(), nullptr, 10);
      while (left_.size() < size && Readable(60) && Fill()) {
      }
      reply.body = left_.substr(0, size);
      reply.whole = reply.body.size() == size;
      left_.erase(0, size);
    }
    return reply;
  }
  HttpReply Post(const std::string& path, const std::string& body, const std::string& headers = "") {
    EXPECT_TRUE(Ask("POST", path, body, headers));
    return Read();
  }
  HttpReply Get(const std::string& path, const std::string& headers = "") {
    EXPECT_TRUE(Ask("GET", path, "", headers));
    return Read();
  }

 private:
  bool Fill() {
    char piece[16384];
    const ssize_t n = recv(fd_, piece, sizeof piece, 0);
    if (n > 0) left_.append(piece, static_cast<size_t>(n));
    return n > 0;
  }
  bool ReadChunks(std::string* body) {
    for (;;) {
      if (!ReadUntil("\r\n")) return false;
      const size_t line = left_.find("\r\n"), size = std::strtoull(left_.c_str(), nullptr, 16);
      while (left_.size() < line + 2 + size + 2) {
        if (!Readable(60) || !Fill()) return false;
      }
      *body += left_.substr(line + 2, size);
      left_.erase(0, line + 2 + size + 2);
      if (size == 0) return true;
    }
  }

  int fd_;
  bool connected_ = false;
  std::string left_;  // what was read and not used
};

inline HttpReply Get(uint16_t port, const std::string& path, const std::string& headers = "") {
  return TestClient(port).Get(path, headers);
}
inline HttpReply Post(uint16_t port, const std::string& path, const std::string& body, const std::string& headers = "") {
  return TestClient(port).Post(path, body, headers);
}

// Waits until it holds, at most five seconds. It is not asked again once it has held: what it asks for may be over by then.
inline bool Becomes(const std::function<bool()>& holds) {
  for (int i = 0; i < 500; ++i) {
    if (holds()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

// The data of the events of a stream.
inline std::vector<std::string> EventsOf(const std::string& body) {
  std::vector<std::string> events;
  constexpr std::string_view kData = "data: ";
  for (size_t at = 0; (at = body.find(kData, at)) != body.npos;) {
    const size_t end = body.find("\n\n", at);
    events.push_back(body.substr(at + kData.size(), end - at - kData.size()));
    at = end;
  }
  return events;
}

}  // namespace tally
