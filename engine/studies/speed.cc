// SPDX-License-Identifier: Apache-2.0
#include "engine/studies/speed.h"

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <utility>

#include "engine/machine/machine.h"
#include "engine/studies/speed_points.h"
#include "engine/weights/weights.h"

namespace tally {
namespace {

int64_t Largest(const std::vector<int64_t>& list) { return list.empty() ? 0 : *std::max_element(list.begin(), list.end()); }

// Positions of the longest sequence.
int64_t Positions(const SpeedOptions& o) { return Largest(o.depths) + std::max(Largest(o.prompts), Largest(o.generate)); }

Status CheckSpeedOptions(const SpeedOptions& o) {
  constexpr int64_t kMost = int64_t{1} << 30;
  const auto within = [](const std::vector<int64_t>& list, int64_t least, int64_t most) {
    return std::all_of(list.begin(), list.end(), [&](int64_t n) { return n >= least && n <= most; });
  };
  if ((o.prompts.empty() && o.generate.empty()) || o.depths.empty() || o.batches.empty() || o.threads.empty() || o.kv.empty()) {
    return BadInput("a benchmark needs a prompt or tokens to generate, and a depth, a batch, a number of threads and a KV type");
  }
  if (!within(o.prompts, 1, kMost) || !within(o.generate, 1, kMost)) {
    return BadInput("prompts and tokens to generate must be 1 to 2^30");
  }
  if (!within(o.depths, 0, kMost)) return BadInput("depths must be 0 to 2^30 tokens");
  if (!within(o.batches, 1, 65536)) return BadInput("batches must be 1 to 65536 sequences");
  if (o.rounds < 1) return BadInput("a benchmark needs at least one round");
  if (!(o.roof_seconds > 0 && o.roof_seconds <= 3600)) {
    return BadInput("a roof is measured for more than 0 and at most 3600 seconds, not " + std::to_string(o.roof_seconds));
  }
  return {};
}

// The engines of a grid, what is measured on them, and the roofs of their numbers of threads.
class Grid {
 public:
  explicit Grid(const SpeedOptions& options) : options_(options) {}

  Result<SpeedReport> Measure(const SpeedEngineMaker& maker, const EngineOptions& load) {
    SpeedReport report;
    TALLY_RETURN_IF_ERROR(MakeEngines(maker, load));
    MakeTasks();
    total_ = static_cast<int64_t>(runs_.size() + tasks_.size() * (1 + static_cast<size_t>(options_.rounds)));
    TALLY_RETURN_IF_ERROR(Verify(report.verified));
    TALLY_RETURN_IF_ERROR(Fill());
    for (const auto& task : tasks_) {
      TALLY_RETURN_IF_ERROR(Announce("first run: " + task->Name()));
      const double begin = MonotonicSeconds();
      TALLY_RETURN_IF_ERROR(task->Warm());
      expected_.push_back({options_.rounds, MonotonicSeconds() - begin + kRoofsOfPoint * options_.roof_seconds});
      ++done_;
    }
    report.peak_resident = PeakResidentBytes();
    const ProbedWeights* const probed = runs_.front().engine().probe().weights();
    const std::span<const uint8_t> weights = probed != nullptr ? probed->packed->arena() : std::span<const uint8_t>();
    TALLY_ASSIGN_OR_RETURN(const RoofMemory memory, MemoryForRoof(options_.roof_bytes, weights));
    TALLY_RETURN_IF_ERROR(MakeRoofs(memory.bytes));
    for (int32_t round = 0; round < options_.rounds; ++round) TALLY_RETURN_IF_ERROR(Round(round));
    for (const auto& task : tasks_) task->Report(report);
    for (const auto& [threads, roofs] : roofs_) {
      report.roofs.push_back(roofs->Median());
      report.best.push_back(roofs->Best());
    }
    report.memory.packed_weights = runs_.front().engine().model().memory_plan().packed_weights;
    report.memory.context = runs_.front().engine().context();
    for (const SpeedRun& run : runs_) {
      report.memory.kv += run.engine().memory_plan().kv;
      report.memory.scratch += run.engine().memory_plan().scratch;
      report.used_blas = report.used_blas || run.engine().used_blas();
    }
    report.target = runs_.front().engine().target();
    return report;
  }

 private:
  Status Announce(const std::string& next) const {
    if (options_.interrupted && options_.interrupted()) return {StatusCode::kInterrupted, "interrupted"};
    if (options_.progress) options_.progress({done_, total_, next, SecondsLeft()});
    return {};
  }

  // -1 until every point was run once.
  double SecondsLeft() const {
    double left = 0;
    for (const Expected& e : expected_) left += e.left * e.seconds;
    return expected_.size() == tasks_.size() ? left : -1;
  }

  Status MakeEngines(const SpeedEngineMaker& maker, const EngineOptions& given) {
    EngineOptions load = SpeedLoadOptions(given, options_);
    for (const std::optional<KvType>& kv : options_.kv) {
      for (const int threads : options_.threads) {
        load.threads = threads;
        load.kv = kv;
        TALLY_ASSIGN_OR_RETURN(std::shared_ptr<Engine> engine, maker(load));
        if (Positions(options_) > engine->context()) {
          return BadInput("the longest sequence of the benchmark has " + std::to_string(Positions(options_)) +
                          " tokens and does not fit the context of " + std::to_string(engine->context()));
        }
        runs_.emplace_back(std::move(engine), options_);
      }
    }
    return {};
  }

  // Points in the order of the report.
  void MakeTasks() {
    const auto place = [this](SpeedRun& run, int64_t depth, int64_t batch, int64_t tokens) {
      return &places_.emplace_back(SpeedPlace{&run, nullptr, depth, batch, tokens});
    };
    for (SpeedRun& run : runs_) {
      for (const int64_t tokens : options_.prompts) {
        for (const int64_t depth : options_.depths) tasks_.push_back(NewPrefillTask(place(run, depth, 1, tokens)));
      }
      for (const int64_t tokens : options_.generate) {
        for (const int64_t batch : options_.batches) {
          for (const int64_t depth : options_.depths) tasks_.push_back(NewDecodeTask(place(run, depth, batch, tokens)));
        }
      }
    }
  }

  Status Verify(std::string& verified) {
    std::map<KvType, std::vector<float>> expected;
    std::set<int> threads;
    for (SpeedRun& run : runs_) {
      TALLY_RETURN_IF_ERROR(Announce("checking"));
      TALLY_ASSIGN_OR_RETURN(verified, run.Verify(expected[run.engine().kv_type()]));
      threads.insert(run.engine().threads());
    }
    if (threads.size() < 2) return {};
    std::string counts;
    for (const int n : threads) counts += (counts.empty() ? "" : ", ") + std::to_string(n);
    verified += ", on " + counts + " threads alike";
    return {};
  }

  Status Fill() {
    const std::string all = " of " + std::to_string(Largest(options_.depths)) + " tokens";
    for (SpeedRun& run : runs_) {
      int64_t filled = 0;
      const auto announce = [&](int64_t tokens) {
        filled += tokens;
        if (options_.progress) options_.progress({done_, total_, "filling the KV cache: " + std::to_string(filled) + all});
      };
      TALLY_RETURN_IF_ERROR(run.Fill(announce));
      ++done_;
    }
    return {};
  }

  Status MakeRoofs(std::span<const uint8_t> memory) {
    for (SpeedPlace& place : places_) {
      std::unique_ptr<MomentaryRoofs>& roofs = roofs_[place.run->engine().threads()];
      if (roofs == nullptr) {
        roofs = std::make_unique<MomentaryRoofs>(place.run->engine().threads(), memory, options_.roof_seconds);
        TALLY_RETURN_IF_ERROR(roofs->status());
      }
      place.roofs = roofs.get();
    }
    return {};
  }

  // Every second round goes backwards, so that a drift of the machine falls on all points alike.
  Status Round(int32_t round) {
    for (size_t i = 0; i < tasks_.size(); ++i) {
      const size_t at = round % 2 == 0 ? i : tasks_.size() - 1 - i;
      SpeedTask& task = *tasks_[at];
      TALLY_RETURN_IF_ERROR(
          Announce("round " + std::to_string(round + 1) + " of " + std::to_string(options_.rounds) + ": " + task.Name()));
      const double begin = MonotonicSeconds();
      TALLY_RETURN_IF_ERROR(task.Measure());
      expected_[at] = {options_.rounds - 1 - round, MonotonicSeconds() - begin};
      ++done_;
    }
    return {};
  }

  const SpeedOptions& options_;
  std::deque<SpeedRun> runs_;  // whose addresses stay; KV type by KV type
  std::deque<SpeedPlace> places_;
  std::map<int, std::unique_ptr<MomentaryRoofs>> roofs_;  // by threads
  std::vector<std::unique_ptr<SpeedTask>> tasks_;
  static constexpr double kRoofsOfPoint = 3;  // about so many measurements of roofs belong to a point
  struct Expected {
    int32_t left = 0;    // rounds
    double seconds = 0;  // of each
  };
  std::vector<Expected> expected_;  // by task, those that were run
  int64_t done_ = 0, total_ = 0;
};

}  // namespace

EngineOptions SpeedLoadOptions(EngineOptions load, const SpeedOptions& options) {
  const int64_t batch = options.generate.empty() ? 1 : std::max<int64_t>(1, Largest(options.batches));
  std::set<int64_t> depths(options.depths.begin(), options.depths.end());
  depths.erase(0);
  if (load.context == 0) load.context = Positions(options);
  load.sequences = static_cast<int32_t>(batch + static_cast<int64_t>(depths.size()));
  load.max_logit_rows = batch;
  if (load.max_batch > 0 || batch > EngineOptions::kBatchRows) load.max_batch = std::max(load.max_batch, batch);
  if (!options.threads.empty()) load.threads = options.threads.front();
  if (!options.kv.empty()) load.kv = options.kv.front();
  return load;
}

Result<SpeedReport> MeasureSpeed(const SpeedEngineMaker& maker, const EngineOptions& load, const SpeedOptions& options) {
  TALLY_RETURN_IF_ERROR(CheckSpeedOptions(options));
  return Grid(options).Measure(maker, load);
}

Result<SpeedReport> MeasureSpeed(std::shared_ptr<const Model> model, const EngineOptions& load, const SpeedOptions& options) {
  const SpeedEngineMaker maker = [&](const EngineOptions& wanted) -> Result<std::shared_ptr<Engine>> {
    TALLY_ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine, NewEngine(model, wanted));
    return std::shared_ptr<Engine>(std::move(engine));
  };
  return MeasureSpeed(maker, load, options);
}

}  // namespace tally
