// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <system_error>

#include "engine/base/file_lock.h"
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

// Held while a socket's file is made or removed: what one server has found there holds until it has acted. 0, or an error of FileLock.
int LockPath(const std::string& path, FileLock* lock) {
  constexpr unsigned kOwnerOnly = 0600;
  const int locked = lock->Take(path + ".opening", kOwnerOnly, FileLock::After::kRemove);
  return NoFileLocks(locked) ? 0 : locked;
}

// A socket at a path, removed with the object unless another has taken its place.
class SocketFile {
 public:
  // An open descriptor, so that no other file gets the inode's number.
  explicit SocketFile(std::string path) : path_(std::move(path)), fd_(::open(path_.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC)) {}
  SocketFile(const SocketFile&) = delete;
  SocketFile& operator=(const SocketFile&) = delete;
  ~SocketFile() {
    try {
      Remove();
    } catch (const std::exception&) {  // it stays, and the next server replaces it
    }
    if (fd_ >= 0) ::close(fd_);
  }

 private:
  void Remove() const {
    struct stat made {};
    struct stat now {};
    FileLock lock;
    if (LockPath(path_, &lock) != 0) return;  // who opens it replaces it
    if (fd_ < 0 || ::fstat(fd_, &made) != 0 || ::lstat(path_.c_str(), &now) != 0) return;
    if (now.st_dev == made.st_dev && now.st_ino == made.st_ino) (void)::unlink(path_.c_str());
  }

  const std::string path_;
  const int fd_;
};

// Removes a socket on which nobody answers.
Status RemoveStale(const sockaddr_un& address, const std::string& place) {
  struct stat there {};
  if (::lstat(address.sun_path, &there) != 0) return {};
  if (!S_ISSOCK(there.st_mode)) return BadInput(place + ": there is a file that is no socket");
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return SystemError(place, errno);
  const int error = ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ? 0 : errno;
  ::close(fd);
  if (error == 0 || error == EAGAIN) return BadInput(place + ": another program answers there");
  if (error != ECONNREFUSED) return SystemError(place, error);
  return ::unlink(address.sun_path) == 0 || errno == ENOENT ? Status() : SystemError(place, errno);
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

Result<Listener> Listener::OpenUnix(const std::string& path) {
  const std::string place = "cannot listen on " + Printable(path);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty()) return BadInput("cannot listen on a socket without a path");
  if (path.size() >= sizeof address.sun_path) {
    return BadInput(place + ": the path of a socket has at most " + std::to_string(sizeof address.sun_path - 1) + " bytes");
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  FileLock lock;
  const int locked = LockPath(path, &lock);
  if (locked == EWOULDBLOCK) return BadInput(place + ": another program begins to listen there");
  if (locked != 0) return SystemError(place, locked);
  TALLY_RETURN_IF_ERROR(RemoveStale(address, place));
  Listener listener;
  listener.fd_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (listener.fd_ < 0 || ::bind(listener.fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return SystemError(place, errno);
  }
  if (::listen(listener.fd_, SOMAXCONN) != 0) {
    const int error = errno;
    (void)::unlink(path.c_str());
    return SystemError(place, error);
  }
  listener.address_ = path;
  listener.file_ = std::make_shared<const SocketFile>(path);
  return listener;
}

bool IsLoopback(const std::string& address) {
  in_addr v4{};
  if (::inet_pton(AF_INET, address.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6{};
  return ::inet_pton(AF_INET6, address.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

bool Listener::loopback() const { return is_unix() || IsLoopback(address_); }

}  // namespace tally
