// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <memory>
#include <string>
#include <system_error>

#include "engine/base/format.h"
#include "engine/base/system_error.h"
#include "engine/serve/http_server.h"

namespace tally {
namespace {

std::string NumericAddress(const sockaddr* address, socklen_t size) {
  std::array<char, NI_MAXHOST> text{};
  if (::getnameinfo(address, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0) return "";
  return text.data();
}

}  // namespace

Listener::~Listener() {
  if (fd_ >= 0) ::close(fd_);
}

Result<Listener> Listener::Open(const std::string& host, uint16_t port) {
  const std::string place = Printable(host) + ":" + std::to_string(port);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int failed = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (failed != 0) return BadInput("cannot listen on " + place + ": " + ::gai_strerror(failed));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> list(found, ::freeaddrinfo);
  int error = 0;
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
    Listener listener;
    listener.fd_ = ::socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
    const int on = 1;
    sockaddr_storage bound{};
    socklen_t size = sizeof bound;
    if (listener.fd_ < 0 || ::setsockopt(listener.fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        ::bind(listener.fd_, a->ai_addr, a->ai_addrlen) != 0 || ::listen(listener.fd_, SOMAXCONN) != 0 ||
        ::getsockname(listener.fd_, reinterpret_cast<sockaddr*>(&bound), &size) != 0) {
      error = errno;
      continue;
    }
    listener.address_ = NumericAddress(reinterpret_cast<const sockaddr*>(&bound), size);
    listener.port_ = ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6*>(&bound)->sin6_port
                                                       : reinterpret_cast<const sockaddr_in*>(&bound)->sin_port);
    return listener;
  }
  return SystemError("cannot listen on " + place, error);
}

bool IsLoopback(const std::string& address) {
  in_addr v4{};
  if (::inet_pton(AF_INET, address.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6{};
  return ::inet_pton(AF_INET6, address.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

bool Listener::loopback() const { return IsLoopback(address_); }

}  // namespace tally
