// SPDX-License-Identifier: Apache-2.0
// What mpi_test starts under mpirun: `ranks SCENARIO [N]`. Prints a line for rank 0 to be compared, or one error.
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "engine/machine/communicator.h"
#include "engine/machine/cores.h"
#include "engine/machine/machine.h"

namespace tally {
namespace {

using Wait = Communicator::Wait;

[[noreturn]] void Say(Communicator& ranks, const Status& status) {
  std::fprintf(stderr, "error: %s\n", status.message().c_str());
  for (;;) ranks.Abort(2);
}

void Check(Communicator& ranks, const Status& status) {
  if (!status.ok()) Say(ranks, status);
}

uint8_t Byte(int rank, uint64_t i) { return static_cast<uint8_t>(static_cast<uint64_t>(rank) * 37 + i * 7 + (i >> 8) + 1); }

// All-gathers and gathers of `bytes` from each rank, from a buffer of its own or from its place.
bool Gathers(Communicator& ranks, const std::vector<uint64_t>& bytes) {
  uint64_t sum = 0, begin = 0;
  for (size_t r = 0; r < bytes.size(); ++r) {
    if (r == static_cast<size_t>(ranks.rank())) begin = sum;
    sum += bytes[r];
  }
  const uint64_t mine = bytes[static_cast<size_t>(ranks.rank())];
  bool good = true;
  for (const bool in_place : {false, true}) {
    for (const bool to_all : {true, false}) {
      std::vector<uint8_t> own(mine + 1), all(sum + 1, 0);
      for (uint64_t i = 0; i < mine; ++i) (in_place ? all[begin + i] : own[i]) = Byte(ranks.rank(), i);
      const uint8_t* const from = in_place ? all.data() + begin : own.data();
      const bool root = ranks.rank() == 0;
      const Communicator::Traffic before = ranks.traffic();
      const uint64_t others = bytes.size() - 1;
      Check(ranks, to_all ? ranks.AllGather(bytes, from, all.data()) : ranks.Gather(bytes, from, all.data()));
      good = good &&
             ranks.traffic().sent - before.sent == mine * (to_all ? others
                                                           : root ? 0
                                                                  : 1) &&
             ranks.traffic().received - before.received == (to_all || root ? sum - mine : 0);
      if (!to_all && !root) continue;
      uint64_t at = 0;
      for (size_t r = 0; r < bytes.size(); ++r) {
        for (uint64_t i = 0; i < bytes[r]; ++i) good = good && all[at++] == Byte(static_cast<int>(r), i);
      }
      good = good && all[sum] == 0;
    }
  }
  return good;
}

int Collectives(Communicator& ranks) {
  const auto n = static_cast<size_t>(ranks.ranks());
  bool good = true;
  for (const uint64_t size : {0ull, 1ull, 13ull, 4096ull, 16384ull, 100'003ull, 700'001ull})
    good &= Gathers(ranks, std::vector<uint64_t>(n, size));
  std::vector<uint64_t> ragged(n), last(n, 0);
  for (size_t r = 0; r < n; ++r) ragged[r] = r % 3 == 1 ? 0 : 999 * r + 5;
  last[n - 1] = 70'000;
  good &= Gathers(ranks, ragged) && Gathers(ranks, last);
  for (const uint64_t size : {0ull, 1ull, 77'777ull}) {
    for (const Wait wait : {Wait::kStep, Wait::kIdle}) {
      std::vector<uint8_t> data(size);
      for (uint64_t i = 0; i < size && ranks.rank() == 0; ++i) data[i] = Byte(3, i);
      const Communicator::Traffic before = ranks.traffic();
      Check(ranks, ranks.Broadcast(data, wait));
      good = good && ranks.traffic().sent - before.sent == (ranks.rank() == 0 ? size * (n - 1) : 0) &&
             ranks.traffic().received - before.received == (ranks.rank() == 0 ? 0 : size);
      for (uint64_t i = 0; i < size; ++i) good = good && data[i] == Byte(3, i);
    }
  }
  Check(ranks, ranks.AwaitAll());
  Check(ranks, Together(ranks, good ? Status() : InternalError("wrong bytes")));
  const Communicator::Traffic t = ranks.traffic();
  std::printf("traffic %d %llu %llu\n", ranks.rank(), static_cast<unsigned long long>(t.sent),
              static_cast<unsigned long long>(t.received));
  return 0;
}

// Everybody waits in vain for a rank that does `what`.
int Fault(Communicator& ranks, std::string_view what, int victim) {
  for (int step = 0;; ++step) {
    std::vector<uint64_t> bytes(static_cast<size_t>(ranks.ranks()), 1000);
    std::vector<uint8_t> own(1000), all(1000 * bytes.size());
    if (step == 20 && ranks.rank() == victim) {
      if (what == "kill") ::raise(SIGKILL);
      if (what == "stop") ::raise(SIGSTOP);
      if (what == "exit") Say(ranks, BadInput(ranks.Place(ranks.rank()) + ": no room"));
      if (what == "abort") ranks.Abort(7);
      // NOLINTNEXTLINE(concurrency-mt-unsafe)
      if (what == "cut" && std::system("ip link set eth0 down") != 0) Say(ranks, InternalError("no link to cut"));
    }
    Check(ranks, ranks.AllGather(bytes, own.data(), all.data()));
    std::vector<uint8_t> plan(64);
    Check(ranks, ranks.Broadcast(plan, Wait::kIdle));
  }
}

void EndTogether(Communicator& ranks, const Status& status) {
  if (status.ok()) return;
  if (ranks.rank() == 0) Say(ranks, status);
  AwaitAbort(ranks, 2);
}

int Agree(Communicator& ranks, int odd) {
  std::vector<std::pair<std::string_view, std::string>> facts = {{"tally", "0.2.0"}, {"instruction set", "AVX2"}};
  EndTogether(ranks, AgreeOn(ranks, facts));
  EndTogether(ranks, Together(ranks, {}));
  if (odd >= 100) EndTogether(ranks, Together(ranks, ranks.rank() == odd - 100 ? NoRoom("8 GiB are missing") : Status()));
  if (ranks.rank() == odd) facts[1].second = "SSE4";
  EndTogether(ranks, AgreeOn(ranks, facts));
  return 0;
}

double CpuSeconds() {
  rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

// Rank 0 is idle for half a second: what do the others' waits take of a core?
int Idle(Communicator& ranks) {
  Check(ranks, ranks.AwaitAll());
  const double cpu = CpuSeconds();
  if (ranks.rank() == 0) ::usleep(500'000);
  std::vector<uint8_t> data(16);
  Check(ranks, ranks.Broadcast(data, Wait::kIdle));
  if (ranks.rank() == 1) std::printf("idle %.4f\n", CpuSeconds() - cpu);
  return 0;
}

// The median time of an all-gather of so many bytes a rank.
double Median(Communicator& ranks, uint64_t size, int turns) {
  const std::vector<uint64_t> bytes(static_cast<size_t>(ranks.ranks()), size);
  std::vector<uint8_t> all(size * bytes.size());
  std::vector<double> times;
  for (int i = 0; i < turns; ++i) {
    const double begun = MonotonicSeconds();
    Check(ranks, ranks.AllGather(bytes, all.data() + size * static_cast<size_t>(ranks.rank()), all.data()));
    times.push_back(MonotonicSeconds() - begun);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

int Link(Communicator& ranks) {
  Result<LinkSpeed> link = MeasureLink(ranks);
  if (!link.ok()) Say(ranks, link.status());
  const double small = Median(ranks, 16384, 301);
  if (ranks.rank() == 0)
    std::printf("link %.2f us %.4f GB/s; 16 KB %.2f us\n", link->latency_s * 1e6, link->bytes_per_s / 1e9, small * 1e6);
  return 0;
}

int Sizes(Communicator& ranks) {
  for (const uint64_t size : {8ull, 1024ull, 4096ull, 16384ull, 65536ull, 262144ull, 1048576ull, 8388608ull}) {
    const double time = Median(ranks, size, size > 100'000 ? 21 : 301);
    if (ranks.rank() == 0) std::printf("%8llu bytes a rank: %.2f us\n", static_cast<unsigned long long>(size), time * 1e6);
  }
  return 0;
}

int Main(std::string_view scenario, int n) {
  if (scenario == "late" && DetectLaunch().rank == n) ::raise(SIGSTOP);
  CommunicatorOptions options;
  options.keep_binding = scenario == "binding";
  Result<std::unique_ptr<Communicator>> started = StartCommunicator(options);
  if (!started.ok()) {
    std::fprintf(stderr, "error: %s\n", started.status().message().c_str());
    return 2;
  }
  if (scenario == "cores" || scenario == "binding") {
    std::string line = "cores " + std::to_string(DetectLaunch().rank) + " of " + std::to_string(AvailableCores()) + ":";
    for (const int core : OwnCores().cores()) line += " " + std::to_string(core);
    std::printf("%s\n", line.c_str());
    if (*started != nullptr) std::printf("host of rank 1 is that of %d\n", (*started)->Host(1));
    return 0;
  }
  if (*started == nullptr) {
    std::printf("alone\n");
    return 0;
  }
  Communicator& ranks = **started;
  if (scenario == "collectives") return Collectives(ranks);
  if (scenario == "agree") return Agree(ranks, n);
  if (scenario == "idle") return Idle(ranks);
  if (scenario == "link") return Link(ranks);
  if (scenario == "sizes") return Sizes(ranks);
  return Fault(ranks, scenario, n);
}

}  // namespace
}  // namespace tally

int main(int argc, char** argv) { return tally::Main(argc > 1 ? argv[1] : "", argc > 2 ? std::atoi(argv[2]) : 0); }
