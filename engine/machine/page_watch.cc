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

struct PageWatch::Ranges {
  struct Range {
    uintptr_t begin = 0;
    size_t bytes = 0, first = 0;  // whole pages; the first page's number
  };
  std::vector<Range> all;
  size_t page = 0;
  std::vector<std::atomic<uint16_t>> faults;  // of each page
  std::atomic<bool> on{false};
  std::atomic<int> error{0};  // errno of the first page that could not be opened

  static bool Protect(uintptr_t from, size_t length, int protection) {
    return mprotect(reinterpret_cast<void*>(from), length, protection) == 0;  // NOLINT(performance-no-int-to-ptr)
  }
  bool ProtectAll(int protection) const {
    bool done = true;
    for (const Range& r : all) done = Protect(r.begin, r.bytes, protection) && done;
    return done;
  }

  // In a signal handler. False: not a touch that we wait for.
  bool Fault(uintptr_t at) {
    if (!on.load(std::memory_order_relaxed)) return false;
    for (const Range& r : all) {
      if (at < r.begin || at - r.begin >= r.bytes) continue;
      const size_t i = (at - r.begin) / page;
      if (faults[r.first + i].load(std::memory_order_relaxed) >= kMostFaults) return false;
      faults[r.first + i].fetch_add(1, std::memory_order_relaxed);
      if (Protect(r.begin + i * page, page, PROT_READ)) return true;
      int none = 0;
      error.compare_exchange_strong(none, errno, std::memory_order_relaxed);
      return Protect(r.begin, r.bytes, PROT_READ);  // a single mapping is always possible
    }
    return false;
  }
  std::vector<bool> Touched(size_t first, size_t count) const {
    std::vector<bool> touched(count);
    for (size_t i = 0; i < count; ++i) touched[i] = faults[first + i].load(std::memory_order_relaxed) > 0;
    return touched;
  }

  // A signal handler cannot be given an argument, so it reads a global. This is the libraries' only one, and the reason for one watch at a
  // time.
  static std::atomic<Ranges*> watched;
  static void OnFault(int signal, siginfo_t* info, void* context);
};
static_assert(std::atomic<void*>::is_always_lock_free && std::atomic<uint16_t>::is_always_lock_free, "used in a signal handler");

std::atomic<PageWatch::Ranges*> PageWatch::Ranges::watched{nullptr};

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

void PageWatch::Ranges::OnFault(int signal, siginfo_t* info, void* context) {
  const int saved = errno;
  Ranges* const ranges = watched.load(std::memory_order_relaxed);
  const bool ours = ranges != nullptr && info->si_code > 0 && ranges->Fault(reinterpret_cast<uintptr_t>(info->si_addr));
  errno = saved;
  if (!ours) PassOn(signal, info, context);
}

PageWatch::PageWatch(std::unique_ptr<Ranges> ranges, size_t page) : ranges_(std::move(ranges)), page_(page) {}

Result<std::unique_ptr<PageWatch>> PageWatch::New(const uint8_t* begin, size_t bytes) {
  const std::span<const uint8_t> range(begin, bytes);
  return New({&range, 1});
}

Result<std::unique_ptr<PageWatch>> PageWatch::New(std::span<const std::span<const uint8_t>> all) {
  auto ranges = std::make_unique<Ranges>();
  const size_t page = ranges->page = SystemPageBytes();
  size_t pages = 0;
  for (const std::span<const uint8_t> r : all) {
    const auto begin = reinterpret_cast<uintptr_t>(r.data());
    if (r.empty() || begin % page != 0) {
      return BadInput("pages cannot be watched: " + std::to_string(r.size()) + " bytes that start " +
                      std::to_string(begin % page) + " bytes into a page");
    }
    const size_t n = (r.size() + page - 1) / page;
    ranges->all.push_back({begin, n * page, pages});
    pages += n;
  }
  ranges->faults = std::vector<std::atomic<uint16_t>>(pages);
  Ranges* none = nullptr;
  if (!Ranges::watched.compare_exchange_strong(none, ranges.get())) {
    return BadInput("pages are being watched already: one watch at a time in a process");
  }
  std::unique_ptr<PageWatch> watch(new PageWatch(std::move(ranges), page));
  struct sigaction action = {};
  action.sa_sigaction = Ranges::OnFault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &action, &g_previous[i]);
  return watch;
}

PageWatch::~PageWatch() {
  if (ranges_->on.load()) (void)ranges_->ProtectAll(PROT_READ);
  for (size_t i = 0; i < kSignals.size(); ++i) {
    struct sigaction now = {};
    // A handler that was installed after ours stays. It may still call ours, which then passes the signal on.
    if (sigaction(kSignals[i], nullptr, &now) == 0 && now.sa_sigaction == Ranges::OnFault) {
      sigaction(kSignals[i], &g_previous[i], nullptr);
    }
  }
  Ranges::watched.store(nullptr);
}

Status PageWatch::Start() {
  for (std::atomic<uint16_t>& n : ranges_->faults) n.store(0, std::memory_order_relaxed);
  ranges_->error.store(0);
  ranges_->on.store(true);
  if (ranges_->ProtectAll(PROT_NONE)) return {};
  const int error = errno;
  ranges_->on.store(false);
  (void)ranges_->ProtectAll(PROT_READ);
  return Refused("protect " + std::to_string(ranges_->faults.size()) + " pages", error);
}

bool PageWatch::started() const { return ranges_->on.load(); }

Result<std::vector<bool>> PageWatch::Take(size_t first, size_t count) {
  if (!ranges_->on.load()) return InternalError("pages were taken from a watch that was not started");
  for (const Ranges::Range& r : ranges_->all) {
    const size_t at = first - r.first, pages = r.bytes / page_;
    if (first < r.first || at > pages || count > pages - at) continue;
    if (!Ranges::Protect(r.begin + at * page_, count * page_, PROT_NONE)) {
      return Refused("protect " + std::to_string(count) + " pages again", errno);
    }
    std::vector<bool> touched = ranges_->Touched(first, count);
    for (size_t i = 0; i < count; ++i) ranges_->faults[first + i].store(0, std::memory_order_relaxed);
    return touched;
  }
  return InternalError("pages were taken that are not watched");
}

Result<std::vector<bool>> PageWatch::Stop() {
  if (!ranges_->on.load()) return InternalError("a watch was stopped that was not started");
  const bool opened = ranges_->ProtectAll(PROT_READ);
  const int closed = errno, error = ranges_->error.load();
  ranges_->on.store(false);
  if (!opened) return Refused("open " + std::to_string(ranges_->faults.size()) + " pages again", closed);
  if (error != 0) return Refused("open a page that was touched", error);
  return ranges_->Touched(0, ranges_->faults.size());
}

}  // namespace tally
