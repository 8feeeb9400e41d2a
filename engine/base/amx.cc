// SPDX-License-Identifier: Apache-2.0
#include "engine/base/amx.h"

#include <atomic>

#include "engine/base/x86_features.h"

#if defined(__linux__) && defined(__x86_64__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace tally {
namespace {

bool Ask() {
  if (!DetectX86Features().amx) return false;
#if defined(__linux__) && defined(__x86_64__)
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM; the number of the state component
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

std::atomic<bool>& Use() {
  static std::atomic<bool> use{true};
  return use;
}

}  // namespace

bool AmxAvailable() {
  static const bool available = Ask();
  return available;
}

bool AmxInUse() { return AmxAvailable() && Use().load(std::memory_order_relaxed); }
void UseAmx(bool use) { Use().store(use, std::memory_order_relaxed); }

}  // namespace tally
