// SPDX-License-Identifier: Apache-2.0
#include "engine/app/interrupt.h"

#include <atomic>
#include <csignal>
#include <initializer_list>

namespace tally::app {
namespace {

std::atomic<int> g_signal{0};
static_assert(std::atomic<int>::is_always_lock_free, "written by a signal handler");

extern "C" void OnSignal(int signal) {
  g_signal.store(signal, std::memory_order_relaxed);
  std::signal(signal, SIG_DFL);
}

}  // namespace

void InstallInterruptHandlers() {
  for (const int signal : {SIGINT, SIGTERM}) {
    // A signal that the parent had ignored (a background job's SIGINT) stays ignored.
    if (std::signal(signal, OnSignal) == SIG_IGN) std::signal(signal, SIG_IGN);
  }
}

void RemoveInterruptHandlers() {
  for (const int signal : {SIGINT, SIGTERM}) {
    if (std::signal(signal, SIG_DFL) == SIG_IGN) std::signal(signal, SIG_IGN);
  }
}

bool Interrupted() { return g_signal.load(std::memory_order_relaxed) != 0; }

int InterruptExitCode() {
  const int signal = g_signal.load(std::memory_order_relaxed);
  return 128 + (signal != 0 ? signal : SIGINT);
}

}  // namespace tally::app
