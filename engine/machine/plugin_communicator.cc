// SPDX-License-Identifier: Apache-2.0
#include "engine/machine/plugin_communicator.h"

#include <sched.h>
#include <signal.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>

#include "engine/base/format.h"
#include "engine/machine/kept_file.h"
#include "engine/machine/machine.h"
#include "engine/machine/parallel.h"

namespace tally {

double SpeaksAfter(int rank) { return 2. * std::min(rank, 2) + .25 * std::min(std::max(rank - 2, 0), 20); }

CoreSet CoresToDivide(const Launch& launch) {
  constexpr std::array<const char*, 8> kDaemons = {"mpirun",  "mpiexec", "orterun",         "orted",
                                                   "prterun", "prted",   "hydra_pmi_proxy", "mpiexec.hydra"};
  return launch.launcher == "Slurm" ? OwnCores() : CoresOfLauncher(kDaemons);
}

struct PluginCommunicator::Greeting {
  uint64_t bytes = sizeof(Greeting);
  int64_t node = 0;  // the lowest rank of its host
  std::array<char, 64> host{};
  TransportSettings settings;
  CoreSet cores;      // that it may divide with the others of its host
  int64_t quota = 0;  // CPUs that its control group allows at once
};

PluginCommunicator::~PluginCommunicator() {
  // Waits without a deadline, since a hung rank looks like a busy one. Killing it ends all ranks.
  if (started_ && failure_.ok() && AwaitAll().ok()) (void)transport_.finish();
}

std::string PluginCommunicator::Place(int rank) const {
  const std::string text = "rank " + std::to_string(rank);
  return rank >= 0 && static_cast<size_t>(rank) < hosts_.size() ? text + " on " + hosts_[static_cast<size_t>(rank)] : text;
}

void PluginCommunicator::Abort(int exit_code) {
  // It does not return, unless it waits for a host that cannot be reached.
  constexpr double kAbort = 3;
  (void)RunWithin(kAbort, [this, exit_code] { transport_.abort(exit_code); });
  for (;;) ::raise(SIGKILL);
}

void PluginCommunicator::Fail(std::string message) {
  if (failure_.ok()) failure_ = BadInput(Place(rank_) + ": " + std::move(message));
}

void PluginCommunicator::Send(int to, const void* data, uint64_t bytes) {
  broken_ = broken_ || transport_.send(to, data, bytes) != 0;
  traffic_.sent += bytes;
}

void PluginCommunicator::Receive(int from, void* data, uint64_t bytes) {
  broken_ = broken_ || transport_.receive(from, data, bytes) != 0;
  traffic_.received += bytes;
}

void PluginCommunicator::StampSend(int to) {
  if (started_ && settings_.slower()) broken_ = broken_ || transport_.send(to, &stamp_, sizeof stamp_) != 0;
}

void PluginCommunicator::StampReceive(int from) {
  if (!started_ || !settings_.slower()) return;
  broken_ = broken_ || transport_.receive(from, &stamps_[static_cast<size_t>(from)], sizeof(double)) != 0;
}

void PluginCommunicator::Delay(const Call& call) const {
  double last = call.begun;
  for (const double stamp : stamps_) last = std::max(last, stamp);
  last = std::min(last, MonotonicSeconds());  // another machine's clock
  const double end =
      last + settings_.delay + (settings_.bytes_per_s > 0 ? static_cast<double>(call.received) / settings_.bytes_per_s : 0);
  // Spins, as Open MPI does while it waits for a network. It sleeps if another rank computes on this core.
  constexpr double kWakes = 150e-6;
  for (double left; (left = end - MonotonicSeconds()) > 0;) {
    if (!crowded_) continue;
    if (left > 2 * kWakes) {
      SleepFor(left - kWakes);
    } else {
      ::sched_yield();
    }
  }
}

Status PluginCommunicator::Finish(const Call& call) {
  if (broken_) {
    Fail(std::string(call.name) + ": " + Printable(transport_.error()));
  } else if (Await(call) && started_ && settings_.slower() && call.received > 0) {
    Delay(call);
  }
  return failure_;
}

// Polls. In a step: without a pause at first, then leaving the core to others who want it. Idle: with growing pauses.
bool PluginCommunicator::Await(const Call& call) {
  constexpr int kSpins = 100;                      // polls, some 20 microseconds
  constexpr double kSpin = 1e-3, kLongest = 2e-3;  // seconds, of an idle wait
  const double patience = settings_.timeout + SpeaksAfter(rank_);
  double begun = 0, pause = 50e-6;
  for (int64_t polls = 0;; ++polls) {
    int done = 0;
    if (transport_.test(&done) != 0) {
      Fail(std::string(call.name) + ": " + Printable(transport_.error()));
      return false;
    }
    if (done != 0) return true;
    if (polls < kSpins && !crowded_) continue;
    const double now = MonotonicSeconds();
    if (begun == 0) begun = now;
    if (call.wait == Wait::kIdle && now - begun > kSpin) {
      SleepFor(pause);
      pause = std::min(kLongest, 1.25 * pause);
      continue;
    }
    if (call.wait == Wait::kStep && now - begun > patience) {
      const int silent = transport_.silent();
      if (silent < 0) continue;  // the last has just come
      std::array<char, 32> seconds{};
      (void)std::to_chars(seconds.data(), seconds.data() + seconds.size() - 1, settings_.timeout);
      Fail(Place(silent) + " has been silent for " + seconds.data() + " s (" + call.name + "): it hangs, or cannot be reached");
      return false;
    }
    ::sched_yield();
  }
}

void PluginCommunicator::CopyOwn(std::span<const uint64_t> bytes, const uint8_t* own, uint8_t* all) const {
  uint64_t at = 0;
  for (int r = 0; r < rank_; ++r) at += bytes[static_cast<size_t>(r)];
  if (const uint64_t n = bytes[static_cast<size_t>(rank_)]; n > 0 && own != all + at) std::memcpy(all + at, own, n);
}

Status PluginCommunicator::AllGather(std::span<const uint64_t> bytes, const uint8_t* own, uint8_t* all) {
  if (!failure_.ok()) return failure_;
  Call call{"all-gather"};
  call.begun = stamp_ = MonotonicSeconds();
  uint64_t at = 0;
  for (int r = 0; r < ranks_; at += bytes[static_cast<size_t>(r++)]) {
    const uint64_t n = bytes[static_cast<size_t>(r)];
    if (r == rank_ || n == 0) continue;
    StampReceive(r);
    Receive(r, all + at, n);
    call.received += n;
  }
  const uint64_t mine = bytes[static_cast<size_t>(rank_)];
  for (int d = 1; d < ranks_ && mine > 0; ++d) {  // each rank begins with its next one, so that no rank is everybody's first
    const int to = (rank_ + d) % ranks_;
    StampSend(to);
    Send(to, own, mine);
  }
  CopyOwn(bytes, own, all);
  return Finish(call);
}

Status PluginCommunicator::Gather(std::span<const uint64_t> bytes, const uint8_t* own, uint8_t* all) {
  if (!failure_.ok()) return failure_;
  Call call{"gather"};
  call.begun = stamp_ = MonotonicSeconds();
  if (rank_ == 0) {
    uint64_t at = bytes[0];
    for (int r = 1; r < ranks_; at += bytes[static_cast<size_t>(r++)]) {
      const uint64_t n = bytes[static_cast<size_t>(r)];
      if (n == 0) continue;
      StampReceive(r);
      Receive(r, all + at, n);
      call.received += n;
    }
    CopyOwn(bytes, own, all);
  } else if (const uint64_t n = bytes[static_cast<size_t>(rank_)]; n > 0) {
    StampSend(0);
    Send(0, own, n);
  }
  return Finish(call);
}

Status PluginCommunicator::Broadcast(std::span<uint8_t> data, Wait wait) {
  if (!failure_.ok()) return failure_;
  if (data.empty()) return {};
  Call call{"broadcast", wait};
  call.begun = stamp_ = MonotonicSeconds();
  if (rank_ == 0) {
    call.wait = Wait::kStep;  // the others wait for it, or come within a step's time
    for (int r = 1; r < ranks_; ++r) {
      StampSend(r);
      Send(r, data.data(), data.size());
    }
  } else {
    StampReceive(0);
    Receive(0, data.data(), data.size());
    call.received = data.size();
  }
  return Finish(call);
}

Status PluginCommunicator::AwaitAll() {
  if (!failure_.ok()) return failure_;
  for (int r = 0; r < ranks_; ++r) {
    if (r != rank_) Receive(r, nullptr, 0);
  }
  for (int r = 0; r < ranks_; ++r) {
    if (r != rank_) Send(r, nullptr, 0);
  }
  return Finish({"a wait for all", Wait::kIdle});
}

// The transport's own start has no deadline, so a thread of its own runs it.
Status PluginCommunicator::Join() {
  struct Joined {
    int rank = 0, ranks = 1, node = 0, error = 0;
  };
  const auto joined = std::make_shared<Joined>();
  const TallyTransport* const transport = &transport_;
  const auto join = [joined, transport] { joined->error = transport->start(&joined->rank, &joined->ranks, &joined->node); };
  if (!RunWithin(settings_.timeout, join)) {
    return BadInput("other ranks have not come for " + std::to_string(static_cast<int>(settings_.timeout)) +
                    " s: they hang, or cannot be reached");
  }
  if (joined->error != 0) return BadInput(Printable(transport_.error()));
  rank_ = joined->rank;
  ranks_ = joined->ranks;
  node_ = joined->node;
  return {};
}

Status PluginCommunicator::DivideCores(std::span<const Greeting> greetings, const CommunicatorOptions& options) {
  const Greeting& own = greetings[static_cast<size_t>(rank_)];
  int before = 0, sharing = 0, here = 0;
  for (int r = 0; r < ranks_; ++r) {
    const Greeting& g = greetings[static_cast<size_t>(r)];
    if (g.node != own.node) continue;
    ++here;
    if (!(g.cores == own.cores)) continue;
    ++sharing;
    if (r < rank_) ++before;
  }
  crowded_ = std::min<int64_t>(own.cores.count(), own.quota) < sharing;
  if (options.keep_binding) return {};
  if (own.quota < own.cores.count()) LimitAvailableCores(std::max<int>(1, static_cast<int>(own.quota) / here));
  return own.cores.count() == 0 ? Status() : UseCores(ShareOfCores(PhysicalCoresOf(own.cores), before, sharing));
}

Status PluginCommunicator::Start(const Launch& launch, const CommunicatorOptions& options) {
  TALLY_RETURN_IF_ERROR(Join());
  if (ranks_ != launch.ranks) {
    return BadInput(launch.launcher + " has started " + std::to_string(launch.ranks) +
                    " ranks, and the plug-in's MPI library sees " + std::to_string(ranks_) + ": it is not the launcher's (" +
                    Printable(transport_.library(), 60) + ")");
  }
  static_assert(std::is_trivially_copyable_v<Greeting>);
  Greeting own;
  own.node = node_;
  own.settings = settings_;
  own.cores = CoresToDivide(launch);
  own.quota = CoresOfControlGroup();
  const std::string host = HostName();
  std::copy_n(host.begin(), std::min(host.size(), own.host.size() - 1), own.host.begin());
  std::vector<Greeting> all(static_cast<size_t>(ranks_));
  const std::vector<uint64_t> bytes(all.size(), sizeof(Greeting));
  if (const Status s = AllGather(bytes, reinterpret_cast<const uint8_t*>(&own), reinterpret_cast<uint8_t*>(all.data()));
      !s.ok()) {
    return BadInput(s.message() + " (at start: do all ranks run the same tally?)");
  }
  for (const Greeting& g : all) {
    if (g.bytes != sizeof(Greeting)) return BadInput(Place(static_cast<int>(&g - all.data())) + " runs another version of tally");
    nodes_.push_back(static_cast<int>(g.node));
    hosts_.push_back(Printable(std::string(g.host.data(), ::strnlen(g.host.data(), g.host.size()))));
  }
  settings_ = all[0].settings;
  stamps_.assign(all.size(), 0.0);
  started_ = true;
  return DivideCores(all, options);
}

}  // namespace tally
