// SPDX-License-Identifier: Apache-2.0
#include "engine/machine/communicator.h"

#include <sched.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <system_error>
#include <type_traits>
#include <vector>

#include "engine/base/format.h"
#include "engine/base/shared_library.h"
#include "engine/machine/communicator_plugin.h"
#include "engine/machine/cores.h"
#include "engine/machine/machine.h"
#include "engine/machine/parallel.h"

#ifndef TALLY_LIBRARY_FOLDER  // from the program's folder
#define TALLY_LIBRARY_FOLDER "../lib"
#endif

namespace tally {
namespace {

constexpr const char* kPluginFile = "libtally_mpi.so";
constexpr double kNoticed = 2;  // seconds in which mpirun has ended all others when one has ended (1 is usual)
constexpr double kApart = .25;  // seconds between the ends of two ranks' patience, so that one speaks

// "" where it is not set.
std::string Variable(const char* name) {
  const char* const text = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): before threads are started
  return text == nullptr ? "" : text;
}

int Number(const char* name, int fallback) {
  const std::string text = Variable(name);
  int n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  return error == std::errc() && end == text.data() + text.size() && n >= 0 ? n : fallback;
}

void Sleep(double seconds) {
  const auto nanoseconds = static_cast<int64_t>(seconds * 1e9);
  const timespec time = {nanoseconds / 1'000'000'000, nanoseconds % 1'000'000'000};
  ::nanosleep(&time, nullptr);
}

// Rank 0's go for all.
struct Settings {
  double timeout = 30;     // seconds
  double delay = 0;        // seconds
  double bytes_per_s = 0;  // 0: no limit
  bool slower() const { return delay > 0 || bytes_per_s > 0; }
};

Result<Settings> ReadSettings() {
  Settings s;
  const auto positive = [](const char* name, double unit, double& value) -> Status {
    const std::string text = Variable(name);
    if (text.empty()) return {};
    char* end = nullptr;
    const double n = std::strtod(text.c_str(), &end);
    if (end == text.c_str() || *end != '\0' || !(n > 0) || n > 1e9)
      return BadInput(std::string(name) + "=" + text + ": a number");
    value = n * unit;
    return {};
  };
  TALLY_RETURN_IF_ERROR(positive("TALLY_MPI_TIMEOUT", 1, s.timeout));
  TALLY_RETURN_IF_ERROR(positive("TALLY_MPI_DELAY_US", 1e-6, s.delay));
  if (const std::string text = Variable("TALLY_MPI_BANDWIDTH"); !text.empty()) {
    s.bytes_per_s = ParseAmount(text, {"/s", "B"});
    if (s.bytes_per_s <= 0) return BadInput("TALLY_MPI_BANDWIDTH=" + text + ": an amount such as 1GB/s");
  }
  return s;
}

// What a rank tells all others first.
struct Greeting {
  uint64_t bytes = sizeof(Greeting);
  int64_t node = 0;  // the lowest rank of its host
  std::array<char, 64> host{};
  Settings settings;
  CoreSet cores;      // that it may divide with the others of its host
  int64_t quota = 0;  // CPUs that its control group allows at once
};
static_assert(std::is_trivially_copyable_v<Greeting>);

class PluginCommunicator : public Communicator {
 public:
  PluginCommunicator(const TallyTransport& transport, const Settings& settings) : transport_(transport), settings_(settings) {}
  PluginCommunicator(const PluginCommunicator&) = delete;
  PluginCommunicator& operator=(const PluginCommunicator&) = delete;
  ~PluginCommunicator() override {
    // A rank that hangs here is waited for as long as one that is busy: who is killed, ends all.
    if (started_ && failure_.ok() && AwaitAll().ok()) (void)transport_.finish();
  }

  Status Start(const Launch& launch, const CommunicatorOptions& options);

  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }
  std::string Place(int rank) const override {
    const std::string text = "rank " + std::to_string(rank);
    return rank >= 0 && static_cast<size_t>(rank) < hosts_.size() ? text + " on " + hosts_[static_cast<size_t>(rank)] : text;
  }

  Status AllGather(std::span<const uint64_t> bytes, const uint8_t* own, uint8_t* all) override;
  Status Gather(std::span<const uint64_t> bytes, const uint8_t* own, uint8_t* all) override;
  Status Broadcast(std::span<uint8_t> data, Wait wait) override;
  Status AwaitAll() override;
  Traffic traffic() const override { return traffic_; }
  const Status& status() const override { return failure_; }
  [[noreturn]] void Abort(int exit_code) override {
    transport_.abort(exit_code);
    for (;;) ::raise(SIGKILL);  // it does not return
  }

 private:
  using List = std::span<const uint64_t>;

  Status Join();
  Status DivideCores(std::span<const Greeting> greetings, const CommunicatorOptions& options);
  void CopyOwn(List bytes, const uint8_t* own, uint8_t* all) const;

  // Of a call: what it is, for messages, and the bytes that it brings this rank.
  struct Call {
    const char* name;
    Wait wait = Wait::kStep;
    uint64_t received = 0;
    double begun = 0;
  };
  // Begins transfers; errors are kept until Finish.
  void Send(int to, const void* data, uint64_t bytes);
  void Receive(int from, void* data, uint64_t bytes);
  Status Finish(const Call& call);
  bool Await(const Call& call);  // false: failure_ says why
  void Fail(std::string message);
  void Yield() const { ::sched_yield(); }

  // A slower network than there is, on one machine, whose ranks read the same clock: with a latency L and a bandwidth B, a call that
  // brings this rank n bytes returns L + n / B after the last rank whose bytes they are has called, or when it really is done, if that
  // is later. So each rank also sends the time at which it calls: 8 bytes, which the traffic does not count. A call that brings nothing
  // is not delayed.
  void StampSend(int to);
  void StampReceive(int from);
  void Delay(const Call& call) const;

  const TallyTransport& transport_;
  Settings settings_;
  bool started_ = false;
  bool crowded_ = false;  // more ranks on this host than cores
  int rank_ = 0, ranks_ = 1, node_ = 0;
  std::vector<std::string> hosts_;
  Status failure_;
  bool broken_ = false;  // a transfer could not begin
  Traffic traffic_;
  double stamp_ = 0;            // when this rank called
  std::vector<double> stamps_;  // when the others did
};

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
  while (MonotonicSeconds() < end) {
    if (crowded_) Yield();  // another rank computes on this core
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
  const double patience = settings_.timeout + kApart * std::min(rank_, 20);
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
      Sleep(pause);
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
    Yield();
  }
}

void PluginCommunicator::CopyOwn(List bytes, const uint8_t* own, uint8_t* all) const {
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
  for (int d = 1; d < ranks_ && mine > 0; ++d) {  // each begins with its neighbour, so that nobody is everybody's first
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

// The transport's own start knows no deadline: a rank that does not come is waited for on a thread of its own.
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

constexpr std::array<const char*, 8> kDaemons = {"mpirun",  "mpiexec", "orterun",         "orted",
                                                 "prterun", "prted",   "hydra_pmi_proxy", "mpiexec.hydra"};

CoreSet CoresToDivide(const Launch& launch) { return launch.launcher == "Slurm" ? OwnCores() : CoresOfLauncher(kDaemons); }

// Share k of n of these cores, and of the control group's quota.
Status TakeShare(const CoreSet& cores, int k, int n) {
  if (const int quota = CoresOfControlGroup(); quota < cores.count()) LimitAvailableCores(std::max(1, quota / n));
  return cores.count() == 0 ? Status() : UseCores(ShareOfCores(PhysicalCoresOf(cores), k, n));
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
    hosts_.push_back(Printable(std::string(g.host.data(), ::strnlen(g.host.data(), g.host.size()))));
  }
  settings_ = all[0].settings;
  stamps_.assign(all.size(), 0.0);
  started_ = true;
  return DivideCores(all, options);
}

// The plug-in's file and what kept it from being loaded.
struct Plugin {
  const TallyTransport* transport = nullptr;
  Status status;
};

Plugin LoadPlugin() {
  namespace fs = std::filesystem;
  std::string file = Variable("TALLY_MPI_PLUGIN");
  if (file.empty()) {
    const fs::path folder = fs::path(ModuleFile()).parent_path();
    std::error_code error;
    for (const fs::path& path : {folder / kPluginFile, folder / TALLY_LIBRARY_FOLDER / kPluginFile}) {
      if (file.empty() && fs::exists(path, error)) file = path.string();
    }
  }
  if (file.empty()) file = kPluginFile;  // where the system's loader looks
  SharedLibrary library(kPluginFile, "libopenmpi3", {file.c_str()});
  const TallyTransportFunction get = library.Find(TALLY_TRANSPORT_SYMBOL);
  if (!library.status().ok()) return {nullptr, library.status()};
  const TallyTransport* const transport = get();
  if (transport->version != TALLY_TRANSPORT_VERSION) {
    return {nullptr, BadInput(Printable(file) + " is of another version of tally")};
  }
  return {transport, {}};
}

// All ranks' texts.
Result<std::vector<std::string>> Texts(Communicator& ranks, const std::string& own) {
  const size_t n = static_cast<size_t>(ranks.ranks());
  const std::vector<uint64_t> eights(n, sizeof(uint64_t));
  std::vector<uint64_t> sizes(n);
  const uint64_t size = own.size();
  TALLY_RETURN_IF_ERROR(
      ranks.AllGather(eights, reinterpret_cast<const uint8_t*>(&size), reinterpret_cast<uint8_t*>(sizes.data())));
  uint64_t sum = 0;
  for (const uint64_t s : sizes) sum += s;
  std::vector<uint8_t> all(sum);
  TALLY_RETURN_IF_ERROR(ranks.AllGather(sizes, reinterpret_cast<const uint8_t*>(own.data()), all.data()));
  std::vector<std::string> texts;
  size_t at = 0;
  for (const uint64_t s : sizes) {
    texts.emplace_back(all.begin() + static_cast<ptrdiff_t>(at), all.begin() + static_cast<ptrdiff_t>(at + s));
    at += s;
  }
  return texts;
}

}  // namespace

Launch DetectLaunch() {
  Launch launch;
  const auto is = [&](const char* launcher, int rank, int ranks) {
    if (rank < 0 || ranks <= 0 || rank >= ranks) return false;
    launch = {launcher, rank, ranks};
    return true;
  };
  if (is("Open MPI", Number("OMPI_COMM_WORLD_RANK", -1), Number("OMPI_COMM_WORLD_SIZE", 0))) return launch;
  // In a batch script SLURM_PROCID is 0 without srun; what srun starts has PMIx's or PMI's variables, too.
  const bool srun = !Variable("PMIX_RANK").empty() || !Variable("PMI_RANK").empty();
  const int tasks = Number("SLURM_STEP_NUM_TASKS", Number("SLURM_NTASKS", 0));
  if (srun && is("Slurm", Number("SLURM_PROCID", -1), tasks)) return launch;
  if (is("MPICH", Number("PMI_RANK", -1), Number("PMI_SIZE", 0))) return launch;
  return launch;
}

Result<std::unique_ptr<Communicator>> StartCommunicator(const CommunicatorOptions& options) {
  const Launch launch = DetectLaunch();
  if (launch.launcher.empty()) return std::unique_ptr<Communicator>();
  if (launch.ranks == 1) {
    if (!options.keep_binding) TALLY_RETURN_IF_ERROR(TakeShare(CoresToDivide(launch), 0, 1));
    return std::unique_ptr<Communicator>();
  }
  // What keeps one rank from starting often keeps all, and nobody can say so to the others: rank 0 speaks first, and its end is theirs.
  const auto failed = [&](const Status& why) -> Status {
    if (launch.rank > 0) Sleep(kNoticed + kApart * std::min(launch.rank, 20));
    if (why.message().starts_with("rank ")) return why;
    return BadInput("rank " + std::to_string(launch.rank) + " on " + HostName() + ": " + why.message());
  };
  const Result<Settings> settings = ReadSettings();
  if (!settings.ok()) return failed(settings.status());
  const Plugin plugin = LoadPlugin();
  if (plugin.transport == nullptr) {
    return failed(BadInput(std::to_string(launch.ranks) + " ranks of " + launch.launcher +
                           " need libtally_mpi.so, which is built where Open MPI is installed (scripts/install_deps.sh --mpi): " +
                           plugin.status.message()));
  }
  auto communicator = std::make_unique<PluginCommunicator>(*plugin.transport, *settings);
  if (const Status s = communicator->Start(launch, options); !s.ok()) {
    (void)communicator.release();  // MPI is left as it is: its end would wait for the other ranks
    return failed(s);
  }
  return std::unique_ptr<Communicator>(std::move(communicator));
}

Status Together(Communicator& ranks, const Status& own) {
  TALLY_RETURN_IF_ERROR(ranks.AwaitAll());
  const std::string text = own.ok() ? "" : std::string(1, static_cast<char>('0' + static_cast<int>(own.code()))) + own.message();
  TALLY_ASSIGN_OR_RETURN(const std::vector<std::string> all, Texts(ranks, text));
  for (size_t r = 0; r < all.size(); ++r) {
    if (all[r].empty()) continue;
    return {static_cast<StatusCode>(all[r][0] - '0'), ranks.Place(static_cast<int>(r)) + ": " + all[r].substr(1)};
  }
  return {};
}

Status AgreeOn(Communicator& ranks, std::span<const std::pair<std::string_view, std::string>> facts) {
  std::string own;
  for (const auto& [name, value] : facts) own += std::string(name) + '\0' + value + '\0';
  TALLY_ASSIGN_OR_RETURN(const std::vector<std::string> all, Texts(ranks, own));
  const auto differs = [&](const std::string& text) { return text != all[0]; };
  const auto other = std::find_if(all.begin(), all.end(), differs);
  if (other == all.end()) return {};
  const auto split = [](const std::string& text) {
    std::vector<std::string> parts;
    for (size_t at = 0, end = 0; (end = text.find('\0', at)) != text.npos; at = end + 1)
      parts.push_back(text.substr(at, end - at));
    return parts;
  };
  const std::vector<std::string> first = split(all[0]), second = split(*other);
  size_t at = 0;
  while (at < first.size() && at < second.size() && first[at] == second[at]) ++at;
  const auto part = [&](const std::vector<std::string>& parts) {
    return at < parts.size() ? Printable(parts[at]) : std::string("nothing");
  };
  const std::string name = at % 2 == 1 && at < first.size() ? Printable(first[at - 1]) + " " : "";
  const auto more = std::count_if(all.begin(), all.end(), differs) - 1;
  return BadInput(ranks.Place(static_cast<int>(other - all.begin())) + " has " + name + part(second) + ", " + ranks.Place(0) +
                  " has " + part(first) + ": all ranks must run the same" +
                  (more > 0 ? " (" + std::to_string(more) + " more rank" + (more > 1 ? "s differ)" : " differs)") : ""));
}

void AwaitAbort(Communicator& ranks, int exit_code) {
  Sleep(5);
  for (;;) ranks.Abort(exit_code);
}

Result<LinkSpeed> MeasureLink(Communicator& ranks) {
  struct Size {
    uint64_t bytes;
    int turns;
  };
  constexpr std::array<Size, 3> kSizes = {{{4096, 25}, {65536, 15}, {1048576, 5}}};
  std::array<double, kSizes.size()> seconds{};
  const size_t n = static_cast<size_t>(ranks.ranks());
  for (size_t s = 0; s < kSizes.size(); ++s) {
    const std::vector<uint64_t> bytes(n, kSizes[s].bytes);
    std::vector<uint8_t> all(kSizes[s].bytes * n);
    const uint8_t* const own = all.data() + kSizes[s].bytes * static_cast<size_t>(ranks.rank());
    std::vector<double> times;
    for (int turn = -1; turn < kSizes[s].turns; ++turn) {
      const double begun = MonotonicSeconds();
      TALLY_RETURN_IF_ERROR(ranks.AllGather(bytes, own, all.data()));
      if (turn >= 0) times.push_back(MonotonicSeconds() - begun);
    }
    std::nth_element(times.begin(), times.begin() + static_cast<ptrdiff_t>(times.size() / 2), times.end());
    seconds[s] = times[times.size() / 2];
  }
  const auto received = [&](size_t s) { return static_cast<double>(kSizes[s].bytes * (n - 1)); };
  LinkSpeed link;
  link.bytes_per_s = (received(2) - received(1)) / std::max(seconds[2] - seconds[1], 1e-9);
  link.latency_s = std::max(seconds[0] - received(0) / link.bytes_per_s, 1e-7);
  std::array<uint8_t, sizeof link> text;
  std::memcpy(text.data(), &link, sizeof link);
  TALLY_RETURN_IF_ERROR(ranks.Broadcast(text, Communicator::Wait::kStep));
  std::memcpy(&link, text.data(), sizeof link);
  return link;
}

}  // namespace tally
