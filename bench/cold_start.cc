// SPDX-License-Identifier: Apache-2.0
// How near a cold load of weights comes to the disk's own rate:
//   cold_start MODEL... [--rounds N] [--threads N] [--readers N]
// Each round drops the files from the page cache and reads them past it with several readers, then drops them again and loads the weights.
// Medians of rounds; the ratio is of the two rates of a round. Then the weights are loaded from the page cache: the fingerprints
// must agree. The exit code is 1 if one does not.
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "engine/machine/machine.h"
#include "engine/machine/parallel.h"
#include "engine/weights/fingerprint.h"
#include "engine/weights/plan.h"
#include "engine/weights/weights.h"
#include "loaders/inventory/file_reader.h"
#include "loaders/loaders.h"
#include "models/family.h"

namespace tally {
namespace {

struct Options {
  std::vector<std::string> models;
  int rounds = 5, threads = 0, readers = 4;
};

double Median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + static_cast<int64_t>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

double CpuSeconds() {
  struct rusage use = {};
  (void)::getrusage(RUSAGE_SELF, &use);
  const auto seconds = [](const timeval& t) { return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec); };
  return seconds(use.ru_utime) + seconds(use.ru_stime);
}

struct Spent {
  double wall = Now(), cpu = CpuSeconds();
  void Stop() {
    wall = Now() - wall;
    cpu = CpuSeconds() - cpu;
  }
};

// The most memory since the last ForgetPeak, where the system can forget it.
void ForgetPeak() { std::ofstream("/proc/self/clear_refs") << "5"; }

class Bench {
 public:
  explicit Bench(const Options& options) : options_(options), team_(options.threads) {}

  Status Run(const std::string& model) {
    files_.clear();
    bytes_ = 0;
    TALLY_ASSIGN_OR_RETURN(const Inventory inventory, ReadCheckpoint(model));
    TALLY_ASSIGN_OR_RETURN(const ModelSpec spec, ReadModelSpec(inventory));
    TALLY_ASSIGN_OR_RETURN(const WeightPlan plan, PlanWeights(inventory, spec, 0));
    for (const InventoryFile& file : inventory.files) {
      TALLY_ASSIGN_OR_RETURN(FileReader reader, FileReader::Open(file.path));
      files_.push_back(std::move(reader));
    }
    for (const FileReader& file : files_) bytes_ += file.size();
    const double gb = 1e-9 * static_cast<double>(bytes_);
    std::vector<double> disk, load, ratio, cpu, peak;
    uint64_t fingerprint = 0;
    bool agree = true;
    for (int r = 0; r < options_.rounds; ++r) {
      TALLY_ASSIGN_OR_RETURN(const Spent of_disk, Cold([&] { return ReadAll(); }));
      TALLY_RETURN_IF_ERROR(TouchMemory(plan.packed_bytes()));
      ForgetPeak();
      const uint64_t before = ResidentBytes();
      uint64_t found = 0, most = 0;
      TALLY_RETURN_IF_ERROR(Cold([&] { return Load(inventory, plan, &most, &found); }).status());
      const Spent of_load = of_load_;
      agree = agree && (r == 0 || found == fingerprint);
      fingerprint = found;
      disk.push_back(gb / of_disk.wall);
      load.push_back(gb / of_load.wall);
      ratio.push_back(of_disk.wall / of_load.wall);
      cpu.push_back(of_load.cpu / gb);
      peak.push_back(1e-6 * (static_cast<double>(most) - static_cast<double>(before) - static_cast<double>(plan.packed_bytes())));
    }
    std::vector<double> warm, warm_cpu;
    TALLY_RETURN_IF_ERROR(ReadThroughCache());
    for (int r = 0; r < options_.rounds; ++r) {
      TALLY_RETURN_IF_ERROR(TouchMemory(plan.packed_bytes()));
      uint64_t found = 0, most = 0;
      TALLY_RETURN_IF_ERROR(Load(inventory, plan, &most, &found));
      agree = agree && found == fingerprint;
      warm.push_back(gb / of_load_.wall);
      warm_cpu.push_back(of_load_.cpu / gb);
    }
    std::printf("%s: %.2f GB, disk %.2f GB/s, cold load %.2f GB/s, ratio %.3f (", model.c_str(), gb, Median(disk), Median(load),
                Median(ratio));
    std::sort(ratio.begin(), ratio.end());
    std::printf("%.3f to %.3f), CPU %.3f s/GB, %.0f MB above the weights; cached %.2f GB/s, CPU %.3f s/GB; fingerprints %s\n",
                ratio.front(), ratio.back(), Median(cpu), Median(peak), Median(warm), Median(warm_cpu),
                agree ? "agree" : "DIFFER");
    std::fflush(stdout);
    return agree ? Status() : InternalError("the cold load and the load from the page cache differ");
  }

 private:
  // Drops the files from the page cache, then times fn.
  template <class Fn>
  Result<Spent> Cold(const Fn& fn) {
    for (const FileReader& file : files_) {
      file.Forget(0, 0);
      if (file.CachedBytes(0, file.size()) > file.size() / 100) {
        return BadInput(file.path() + ": the page cache keeps it; is it just written (sync), or used by another process?");
      }
    }
    Spent spent;
    TALLY_RETURN_IF_ERROR(fn());
    spent.Stop();
    return spent;
  }

  // A virtual machine's host may have taken free memory back, and gives it again, slowly, when it is first used: that is no part of a load.
  // More than the least, since the next to ask need not get the same pages.
  static Status TouchMemory(uint64_t least) {
    const uint64_t bytes = std::max(least + least / 2, std::min(uint64_t{4} << 30, AvailableMemoryBytes() / 4));
    TALLY_ASSIGN_OR_RETURN(const AnonymousMemory memory, AnonymousMemory::Allocate(bytes, true));
    for (uint64_t at = 0; at < bytes; at += kWeightPage) memory.data()[at] = 1;
    return {};
  }

  Status ReadAll() {
    constexpr uint64_t kPiece = uint64_t{4} << 20;
    const auto readers = static_cast<size_t>(options_.readers);
    if (room_.size() == 0) {
      TALLY_ASSIGN_OR_RETURN(room_, AnonymousMemory::Allocate(readers * kPiece, true));
    }
    std::atomic<uint64_t> next{0}, reader{0};
    std::atomic<bool> failed{false};
    const auto read = [&] {
      uint8_t* const room = room_.data() + reader++ * kPiece;
      for (;;) {
        uint64_t at = next++ * kPiece;
        size_t f = 0;
        while (f < files_.size() && at >= (files_[f].size() + kPiece - 1) / kPiece * kPiece) {
          at -= (files_[f].size() + kPiece - 1) / kPiece * kPiece;
          ++f;
        }
        if (f == files_.size()) return;
        if (!files_[f].ReadDirect(at, {room, std::min(kPiece, files_[f].size() - at)}).ok()) failed = true;
      }
    };
    RunBeside(options_.readers, read, [](int) {});
    return failed ? BadInput("a file cannot be read") : Status();
  }

  Status ReadThroughCache() const {
    std::vector<uint8_t> room(uint64_t{1} << 20);
    for (const FileReader& file : files_) {
      for (uint64_t at = 0; at < file.size(); at += room.size()) {
        TALLY_RETURN_IF_ERROR(file.ReadAt(at, {room.data(), std::min<uint64_t>(room.size(), file.size() - at)}));
      }
    }
    return {};
  }

  Status Load(const Inventory& inventory, const WeightPlan& plan, uint64_t* peak, uint64_t* fingerprint) {
    of_load_ = Spent();
    TALLY_ASSIGN_OR_RETURN(const PackedWeights weights, LoadWeights(inventory, plan, team_, nullptr));
    of_load_.Stop();
    *peak = PeakResidentBytes();
    *fingerprint = FingerprintOf(weights, team_);
    return {};
  }

  const Options& options_;
  Team team_;
  AnonymousMemory room_;
  std::vector<FileReader> files_;
  uint64_t bytes_ = 0;
  Spent of_load_;  // the last; without its fingerprint
};

int Main(int argc, char** argv) {
  Options options;
  CLI::App app{"how near a cold load of weights comes to the disk's own rate"};
  app.add_option("MODEL", options.models)->required();
  app.add_option("--rounds", options.rounds)->check(CLI::Range(1, 1000));
  app.add_option("--threads", options.threads)->check(CLI::Range(0, kMaxThreads));
  app.add_option("--readers", options.readers)->check(CLI::Range(1, 64));
  CLI11_PARSE(app, argc, argv);
  Bench bench(options);
  for (const std::string& model : options.models) {
    if (const Status status = bench.Run(model); !status.ok()) {
      std::fprintf(stderr, "cold_start: %s\n", status.message().c_str());
      return status.code() == StatusCode::kInternal ? 1 : 2;
    }
  }
  return 0;
}

}  // namespace
}  // namespace tally

int main(int argc, char** argv) { return tally::Main(argc, argv); }
