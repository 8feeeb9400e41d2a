// SPDX-License-Identifier: Apache-2.0
#include "engine/machine/communicator.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <vector>

#include "engine/base/format.h"
#include "engine/base/shared_library.h"
#include "engine/machine/communicator_plugin.h"
#include "engine/machine/cores.h"
#include "engine/machine/kept_file.h"
#include "engine/machine/machine.h"
#include "engine/machine/plugin_communicator.h"

#ifndef TALLY_LIBRARY_FOLDER  // from the program's folder
#define TALLY_LIBRARY_FOLDER "../lib"
#endif

namespace tally {
namespace {

constexpr const char* kPluginFile = "libtally_mpi.so";

// "" if it is not set.
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

Result<TransportSettings> ReadSettings() {
  TransportSettings s;
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
  if (file.empty()) {
    return {nullptr, BadInput("this tally has no " + std::string(kPluginFile) +
                              ", by which ranks speak (build it where Open MPI is installed: scripts/install_deps.sh --mpi)")};
  }
  SharedLibrary library(kPluginFile, "libopenmpi3", {file.c_str()});
  const TallyTransportFunction get = library.Find(TALLY_TRANSPORT_SYMBOL);
  if (!library.status().ok()) return {nullptr, library.status()};
  const TallyTransport* const transport = get();
  if (transport->version != TALLY_TRANSPORT_VERSION) {
    return {nullptr, BadInput(Printable(file) + " is of another version of tally")};
  }
  return {transport, {}};
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
    const CoreSet cores = options.keep_binding ? CoreSet() : CoresToDivide(launch);
    if (cores.count() > 0) TALLY_RETURN_IF_ERROR(UseCores(cores));
    return std::unique_ptr<Communicator>();
  }
  // A failure to start often hits all ranks, and they cannot tell each other. Rank 0 reports it first, and its end ends the others.
  const auto failed = [&](const Status& why) -> Status {
    SleepFor(SpeaksAfter(launch.rank));
    if (why.message().starts_with("rank ")) return why;
    return BadInput("rank " + std::to_string(launch.rank) + " on " + HostName() + ": " + why.message());
  };
  const Result<TransportSettings> settings = ReadSettings();
  if (!settings.ok()) return failed(settings.status());
  const Plugin plugin = LoadPlugin();
  if (plugin.transport == nullptr) {
    return failed(
        BadInput("one of " + std::to_string(launch.ranks) + " ranks of " + launch.launcher + ": " + plugin.status.message()));
  }
  auto communicator = std::make_unique<PluginCommunicator>(*plugin.transport, *settings);
  if (const Status s = communicator->Start(launch, options); !s.ok()) {
    (void)communicator.release();  // MPI is left as it is: its end would wait for the other ranks
    return failed(s);
  }
  return std::unique_ptr<Communicator>(std::move(communicator));
}

Result<std::vector<std::string>> GatherBytes(Communicator& ranks, std::string_view own, bool to_first) {
  const size_t n = static_cast<size_t>(ranks.ranks());
  std::vector<uint64_t> sizes(n);
  const std::vector<uint64_t> eights(n, sizeof(uint64_t));
  const uint64_t size = own.size();
  TALLY_RETURN_IF_ERROR(
      ranks.AllGather(eights, reinterpret_cast<const uint8_t*>(&size), reinterpret_cast<uint8_t*>(sizes.data())));
  uint64_t total = 0;
  for (const uint64_t s : sizes) total += s;
  const bool receives = !to_first || ranks.rank() == 0;
  std::string all(receives ? total : 0, '\0');
  const auto* const from = reinterpret_cast<const uint8_t*>(own.data());
  auto* const to = reinterpret_cast<uint8_t*>(all.data());
  if (total > 0) TALLY_RETURN_IF_ERROR(to_first ? ranks.Gather(sizes, from, to) : ranks.AllGather(sizes, from, to));
  std::vector<std::string> parts;
  for (size_t r = 0, at = 0; receives && r < n; at += sizes[r], ++r) parts.push_back(all.substr(at, sizes[r]));
  return parts;
}

Status Together(Communicator& ranks, const Status& own) {
  TALLY_RETURN_IF_ERROR(ranks.AwaitAll());
  const std::string text = own.ok() ? "" : std::string(1, static_cast<char>('0' + static_cast<int>(own.code()))) + own.message();
  TALLY_ASSIGN_OR_RETURN(const std::vector<std::string> all, GatherBytes(ranks, text));
  for (size_t r = 0; r < all.size(); ++r) {
    if (all[r].empty()) continue;
    return {static_cast<StatusCode>(all[r][0] - '0'), ranks.Place(static_cast<int>(r)) + ": " + all[r].substr(1)};
  }
  return {};
}

Status AgreeOn(Communicator& ranks, std::span<const std::pair<std::string_view, std::string>> facts) {
  std::string own;
  for (const auto& [name, value] : facts) own += std::string(name) + '\0' + value + '\0';
  TALLY_ASSIGN_OR_RETURN(const std::vector<std::string> all, GatherBytes(ranks, own));
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
  SleepFor(5);
  for (;;) ranks.Abort(exit_code);
}

Result<LinkSpeed> MeasureLink(Communicator& ranks) {
  const size_t n = static_cast<size_t>(ranks.ranks());
  if (n < 2) return LinkSpeed{};
  struct Size {
    uint64_t bytes;  // of a rank
    int turns;
    double seconds;
    double received;
  };
  constexpr uint64_t kSmall = 4096, kLarge = uint64_t{1} << 20;
  std::array<Size, 2> sizes = {{{kSmall, 41, 0, 0}, {std::max(4 * kSmall, kLarge / (n - 1)), 9, 0, 0}}};
  for (Size& size : sizes) {
    const std::vector<uint64_t> bytes(n, size.bytes);
    std::vector<uint8_t> all(size.bytes * n);
    const uint8_t* const own = all.data() + size.bytes * static_cast<size_t>(ranks.rank());
    std::vector<double> times;
    for (int turn = -2; turn < size.turns; ++turn) {  // connections are made in the first
      const double begun = MonotonicSeconds();
      TALLY_RETURN_IF_ERROR(ranks.AllGather(bytes, own, all.data()));
      if (turn >= 0) times.push_back(MonotonicSeconds() - begun);
    }
    const auto quarter = times.begin() + static_cast<ptrdiff_t>(times.size() / 4);  // other programs can only make it slower
    std::nth_element(times.begin(), quarter, times.end());
    size.seconds = *quarter;
    size.received = static_cast<double>(size.bytes * (n - 1));
  }
  const Size &small = sizes[0], &large = sizes[1];
  LinkSpeed link;
  link.bytes_per_s = (large.received - small.received) / std::max(large.seconds - small.seconds, 1e-9);
  link.latency_s = std::max(small.seconds - small.received / link.bytes_per_s, 1e-7);
  std::array<uint8_t, sizeof link> text{};
  std::memcpy(text.data(), &link, sizeof link);
  TALLY_RETURN_IF_ERROR(ranks.Broadcast(text, Communicator::Wait::kStep));
  std::memcpy(&link, text.data(), sizeof link);
  return link;
}

}  // namespace tally
