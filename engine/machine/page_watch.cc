// SPDX-License-Identifier: Apache-2.0
#include "engine/machine/page_watch.h"

#include <signal.h>
#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include "engine/base/system_error.h"
#include "engine/machine/machine.h"
#include "engine/machine/parallel.h"

namespace tally {

// A thread that reads faults at most once on a page, which is open when it returns. A thread that keeps faulting is writing.
constexpr uint16_t kMostFaults = 4 * kMaxThreads;

struct PageWatch::Range {
  uintptr_t begin = 0;
  size_t bytes = 0, page = 0;
  std::vector<std::atomic<uint16_t>> faults;  // of each page
  std::atomic<bool> on{false};
  std::atomic<int> error{0};  // errno of the first page that could not be opened

  bool Protect(uintptr_t from, size_t length, int protection) const {
    return mprotect(reinterpret_cast<void*>(from), length, protection) == 0;  // NOLINT(performance-no-int-to-ptr)
  }
  bool ProtectAll(int protection) const { return Protect(begin, bytes, protection); }

  // In a signal handler. False: not a touch that we wait for.
  bool Fault(uintptr_t at) {
    if (!on.load(std::memory_order_relaxed) || at < begin || at - begin >= bytes) return false;
    const size_t i = (at - begin) / page;
    if (faults[i].load(std::memory_order_relaxed) >= kMostFaults) return false;
    faults[i].fetch_add(1, std::memory_order_relaxed);
    if (Protect(begin + i * page, page, PROT_READ)) return true;
    int none = 0;
    error.compare_exchange_strong(none, errno, std::memory_order_relaxed);
    return ProtectAll(PROT_READ);  // a single mapping is always possible
  }

  // A signal handler cannot be given an argument, so it reads a global. This is the libraries' only one, and the reason for one watch at a
  // time.
  static std::atomic<Range*> watched;
  static void OnFault(int signal, siginfo_t* info, void* context);
};
static_assert(std::atomic<void*>::is_always_lock_free && std::atomic<uint16_t>::is_always_lock_free, "used in a signal handler");

std::atomic<PageWatch::Range*> PageWatch::Range::watched{nullptr};

namespace {

constexpr std::array<int, 2> kSignals = {SIGSEGV, SIGBUS};  // Linux sends the first, macOS the second
std::array<struct sigaction, 2> g_previous;

// Does what would have happened without this handler.
void PassOn(int signal, siginfo_t* info, void* context) {
  const struct sigaction& previous = g_previous[signal == kSignals[0] ? 0 : 1];
  if ((previous.sa_flags & SA_SIGINFO) != 0) {
    previous.sa_sigaction(signal, info, context);
  } else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
    previous.sa_handler(signal);
  } else {
    sigaction(signal, &previous, nullptr);
    if (info->si_code <= 0) raise(signal);  // sent by a process; a fault just happens again
  }
}

Status Refused(const std::string& what, int error) {
  return NoRoom("the system refused to " + what + ": " + SystemErrorText(error) +
                (error == ENOMEM ? " (too many mappings: the limit is vm.max_map_count)" : ""));
}

}  // namespace

void PageWatch::Range::OnFault(int signal, siginfo_t* info, void* context) {
  const int saved = errno;
  Range* const range = watched.load(std::memory_order_relaxed);
  const bool ours = range != nullptr && info->si_code > 0 && range->Fault(reinterpret_cast<uintptr_t>(info->si_addr));
  errno = saved;
  if (!ours) PassOn(signal, info, context);
}

PageWatch::PageWatch(std::unique_ptr<Range> range, size_t page) : range_(std::move(range)), page_(page) {}

Result<std::unique_ptr<PageWatch>> PageWatch::New(const void* begin, size_t bytes) {
  auto range = std::make_unique<Range>();
  range->begin = reinterpret_cast<uintptr_t>(begin);
  range->page = SystemPageBytes();
  if (bytes == 0 || range->begin % range->page != 0) {
    return BadInput("pages cannot be watched: " + std::to_string(bytes) + " bytes that start " +
                    std::to_string(range->begin % range->page) + " bytes into a page");
  }
  const size_t pages = (bytes + range->page - 1) / range->page;
  range->bytes = pages * range->page;
  range->faults = std::vector<std::atomic<uint16_t>>(pages);
  Range* none = nullptr;
  if (!Range::watched.compare_exchange_strong(none, range.get())) {
    return BadInput("pages are being watched already: one watch at a time in a process");
  }
  const size_t page = range->page;
  std::unique_ptr<PageWatch> watch(new PageWatch(std::move(range), page));
  struct sigaction action = {};
  action.sa_sigaction = Range::OnFault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &action, &g_previous[i]);
  return watch;
}

PageWatch::~PageWatch() {
  if (range_->on.load()) (void)range_->ProtectAll(PROT_READ);
  for (size_t i = 0; i < kSignals.size(); ++i) {
    struct sigaction now = {};
    // A handler that was installed after ours stays. It may still call ours, which then passes the signal on.
    if (sigaction(kSignals[i], nullptr, &now) == 0 && now.sa_sigaction == Range::OnFault) {
      sigaction(kSignals[i], &g_previous[i], nullptr);
    }
  }
  Range::watched.store(nullptr);
}

Status PageWatch::Start() {
  for (std::atomic<uint16_t>& n : range_->faults) n.store(0, std::memory_order_relaxed);
  range_->error.store(0);
  range_->on.store(true);
  if (range_->ProtectAll(PROT_NONE)) return {};
  const int error = errno;
  range_->on.store(false);
  (void)range_->ProtectAll(PROT_READ);
  return Refused("protect " + std::to_string(range_->bytes) + " bytes", error);
}

Result<std::vector<bool>> PageWatch::Stop() {
  if (!range_->on.load()) return InternalError("a watch was stopped that was not started");
  const bool opened = range_->ProtectAll(PROT_READ);
  const int closed = errno, error = range_->error.load();
  range_->on.store(false);
  if (!opened) return Refused("open " + std::to_string(range_->bytes) + " bytes again", closed);
  if (error != 0) return Refused("open a page that was touched", error);
  std::vector<bool> touched(range_->faults.size());
  for (size_t i = 0; i < touched.size(); ++i) touched[i] = range_->faults[i].load(std::memory_order_relaxed) > 0;
  return touched;
}

}  // namespace tally
