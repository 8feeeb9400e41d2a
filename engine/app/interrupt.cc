// SPDX-License-Identifier: Apache-2.0
#include "engine/app/interrupt.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <initializer_list>

namespace tally::app {
namespace {

std::atomic<int> g_signal{0};
std::atomic<bool> g_conversation{false}, g_terminal_changed{false};
std::atomic<int> g_wake_read{-1}, g_wake_write{-1};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free, "written by a signal handler");

void Wake() {
  const int before = errno, fd = g_wake_write.load(std::memory_order_relaxed);
  if (fd >= 0 && ::write(fd, "", 1) < 0) errno = before;  // full: it is readable already
  errno = before;
}

extern "C" void OnSignal(int signal) {
  if (signal == SIGINT && g_conversation.load(std::memory_order_relaxed)) {
    int none = 0;
    g_signal.compare_exchange_strong(none, SIGINT, std::memory_order_relaxed);  // an end that was asked for stays
  } else {
    g_signal.store(signal, std::memory_order_relaxed);
    std::signal(signal, SIG_DFL);
  }
  Wake();
}

extern "C" void OnTerminalChange(int) {
  g_terminal_changed.store(true, std::memory_order_relaxed);
  Wake();
}

constexpr std::initializer_list<int> kEnds = {SIGINT, SIGTERM, SIGHUP};

// A signal that the parent had ignored (a background job's SIGINT) stays ignored.
void Handle(int signal, void (*handler)(int)) {
  if (std::signal(signal, handler) == SIG_IGN) std::signal(signal, SIG_IGN);
}

}  // namespace

void InstallInterruptHandlers() {
  for (const int signal : kEnds) Handle(signal, OnSignal);
}

void RemoveInterruptHandlers() {
  for (const int signal : kEnds) Handle(signal, SIG_DFL);
}

bool Interrupted() { return g_signal.load(std::memory_order_relaxed) != 0; }

int InterruptExitCode() {
  const int signal = g_signal.load(std::memory_order_relaxed);
  return 128 + (signal != 0 ? signal : SIGINT);
}

bool BeginConversation() {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) return false;
  for (const int fd : ends) {
    ::fcntl(fd, F_SETFD, FD_CLOEXEC);
    ::fcntl(fd, F_SETFL, O_NONBLOCK);
  }
  g_wake_read = ends[0];
  g_wake_write = ends[1];
  g_conversation = true;
  for (const int signal : kEnds) Handle(signal, OnSignal);
  for (const int signal : {SIGWINCH, SIGCONT}) Handle(signal, OnTerminalChange);
  return true;
}

bool TakeInterrupt() {
  int taken = SIGINT;
  return g_signal.compare_exchange_strong(taken, 0, std::memory_order_relaxed);
}

bool Terminated() {
  const int signal = g_signal.load(std::memory_order_relaxed);
  return signal != 0 && signal != SIGINT;
}

int WakeDescriptor() { return g_wake_read.load(std::memory_order_relaxed); }

bool TakeWakeUp() {
  std::array<char, 64> bytes{};
  while (::read(WakeDescriptor(), bytes.data(), bytes.size()) > 0) {
  }
  return g_terminal_changed.exchange(false, std::memory_order_relaxed);
}

}  // namespace tally::app
