// SPDX-License-Identifier: Apache-2.0
// Times each op of a model's plan alone, in the step where it belongs:
//   replay MODEL [--prompt N] [--op NAME] [--component NAME] [--layer L] [--phase prefill|decode] [--all]
// A prompt of N tokens is run, then one token; each op is repeated on the data that it has there. Without --all, one op of each kind
// (phase, component, op). Every result is compared with the scalar reference's before it is timed. Between repetitions a buffer larger
// than the caches is read, so that weights come from memory, as in a step.
//   replay --experts RUN.jsonl
// Decides again which experts a run with --weights-budget and --ledger RUN.jsonl read from disk, from the experts that its rows chose, and
// compares hits, misses, first uses and bytes of every layer and step. Exit code 3: they differ.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "engine/session/stepper.h"
#include "engine/studies/expert_replay.h"
#include "engine/studies/report.h"

namespace tally {
namespace {

struct Options {
  std::string model, op, component, phase, experts;
  int64_t layer = -2, prompt = 128;
  int threads = 0, repetitions = 15;
  bool all = false;
};

double Median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + static_cast<int64_t>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

std::vector<float> Copied(Mat<const float> m) {
  std::vector<float> values;
  for (int64_t r = 0; r < m.rows; ++r) values.insert(values.end(), m.Row(r), m.Row(r) + m.cols);
  return values;
}

// The memory that a run of an op changes, as it was before: its output, rates in place, and of recurrent layers states and rows.
class Before {
 public:
  Before(const PlannedOp& planned, Mat<const float> output) {
    Keep(output);
    std::visit([this](const auto& op) { KeepOthers(op); }, planned.op);
  }
  void Restore() const {
    for (const auto& [at, bytes] : kept_) std::memcpy(at, bytes.data(), bytes.size());
  }

 private:
  void Keep(Mat<const float> m) {
    for (int64_t r = 0; r < m.rows; ++r)
      Keep(reinterpret_cast<const uint8_t*>(m.Row(r)), static_cast<size_t>(m.cols) * sizeof(float));
  }
  void Keep(const uint8_t* p, size_t bytes) {
    if (p != nullptr) kept_.emplace_back(const_cast<uint8_t*>(p), std::vector<uint8_t>(p, p + bytes));
  }
  template <class Op>
  void KeepOthers(const Op& op) {
    if constexpr (std::is_same_v<Op, RatesOp>) {
      Keep(op.x);
      if (!op.beta.empty()) Keep(op.beta);
    }
    if constexpr (requires { op.states; }) {
      for (const StateRun& run : op.runs.runs) {
        const StateTable& table = op.states[static_cast<size_t>(run.table)];
        Keep(table.to, op.layout.state_bytes());
        Keep(table.mid, op.layout.state_bytes());
        for (int64_t b = run.position / kStateRows; b * kStateRows < run.position + run.rows; ++b) {
          Keep(table.rows[b], op.layout.rows_bytes());
        }
      }
    }
  }

  std::vector<std::pair<uint8_t*, std::vector<uint8_t>>> kept_;
};

// The largest difference over the largest value.
double Difference(const std::vector<float>& a, const std::vector<float>& b) {
  double largest = 0, difference = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    largest = std::max<double>(largest, std::fabs(b[i]));
    difference = std::max<double>(difference, std::fabs(a[i] - b[i]));
    if (std::isnan(a[i]) != std::isnan(b[i])) return INFINITY;
  }
  return largest > 0 ? difference / largest : difference;
}

class Replayer {
 public:
  explicit Replayer(const Options& options) : options_(options), flush_(size_t{64} << 20, 1) {}

  Status Run() {
    EngineOptions load;
    load.threads = options_.threads;
    load.context = options_.prompt + 1;
    load.max_batch = options_.prompt;
    TALLY_ASSIGN_OR_RETURN(const auto model, LoadModel(options_.model, load));
    TALLY_ASSIGN_OR_RETURN(stepper_, Stepper::Create(std::dynamic_pointer_cast<const LoadedModel>(model), load));
    stepper_->SetRecorder([this](const OpRecord& r) {
      op_ = r.op;
      useful_ = r.useful;
      nanoseconds_ = r.nanoseconds;
    });
    stepper_->decoder().SetAround([this](const PlannedOp& planned, Mat<const float> output, const std::function<Status()>& run) {
      return Time(planned, output, run);
    });
    std::printf("%s, %d threads\n  phase   layer component        op                    us   GFLOP/s     GB/s\n",
                model->Description().c_str(), stepper_->threads());
    TALLY_ASSIGN_OR_RETURN(const int32_t sequence, stepper_->NewSequence());
    std::vector<BatchRow> rows;
    for (int64_t i = 0; i < options_.prompt; ++i) {
      rows.push_back({static_cast<int32_t>((i * 7919 + 13) % model->recipe().vocab), sequence, i + 1 == options_.prompt});
    }
    TALLY_RETURN_IF_ERROR(Step(rows));
    const BatchRow next{.token = 1, .sequence = sequence, .want_logits = true, .generated = true};
    return Step({&next, 1});
  }

 private:
  Status Step(std::span<const BatchRow> rows) {
    TALLY_ASSIGN_OR_RETURN(const StepOutput out, stepper_->Step(rows));
    return out.failed.empty() ? Status() : out.failed.front().status;
  }
  bool Wanted(const PlannedOp& planned, std::string_view phase) {
    const Site site = planned.sites[0];
    if (!options_.op.empty() && op_ != options_.op) return false;
    if (!options_.component.empty() && ComponentName(site.component) != options_.component) return false;
    if (!options_.phase.empty() && phase != options_.phase) return false;
    if (options_.layer != -2 && site.layer != options_.layer) return false;
    const std::string kind = std::string(phase) + std::string(ComponentName(site.component)) + std::string(op_);
    return options_.all || kinds_.insert(kind).second;
  }

  Status Time(const PlannedOp& planned, Mat<const float> output, const std::function<Status()>& run) {
    const Before before(planned, output);
    TALLY_RETURN_IF_ERROR(run());
    const Executor& executor = stepper_->executor();
    const std::string_view phase = kPhaseNames[static_cast<size_t>(executor.phase())];
    if (!Wanted(planned, phase)) return {};
    const std::vector<float> after = Copied(output);
    const std::string at = std::string(ComponentName(planned.sites[0].component)) + " " + std::string(op_);
    before.Restore();
    stepper_->executor().SetImpl(ImplChoice::kRef);
    TALLY_RETURN_IF_ERROR(run());
    stepper_->executor().SetImpl(ImplChoice::kAuto);
    if (const double difference = Difference(after, Copied(output)); !(difference <= 1e-3)) {
      return InternalError(at + ": its result is " + std::to_string(difference) + " from the reference's");
    }
    std::vector<double> times;
    for (int i = 0; i < options_.repetitions; ++i) {
      before.Restore();
      sink_ += std::accumulate(flush_.begin(), flush_.end(), uint64_t{0});
      TALLY_RETURN_IF_ERROR(run());
      times.push_back(static_cast<double>(nanoseconds_));
    }
    const double ns = std::max(1.0, Median(times));
    const uint64_t bytes = useful_.TotalBytes() - useful_.Bytes(ByteKind::kWeightsStored);  // what is read is what was packed
    std::printf("  %-8s %4d  %-16s %-12s %11.1f %9.2f %8.2f\n", std::string(phase).c_str(), planned.sites[0].layer,
                std::string(ComponentName(planned.sites[0].component)).c_str(), std::string(op_).c_str(), ns / 1e3,
                static_cast<double>(useful_.TotalFlops()) / ns, static_cast<double>(bytes) / ns);
    return {};
  }

  const Options& options_;
  std::vector<uint8_t> flush_;
  uint64_t sink_ = 0;
  std::unique_ptr<Stepper> stepper_;
  std::set<std::string> kinds_;
  // Of the last run.
  std::string_view op_;
  Cost useful_;
  uint64_t nanoseconds_ = 0;
};

Result<bool> ReplayRouting(const std::string& path) {
  TALLY_ASSIGN_OR_RETURN(const RunReport run, ReadLedger(path));
  if (run.expert_steps().empty()) return BadInput(path + ": a run with all experts in memory");
  const ExpertReplay replay = ReplayExperts(run.expert_steps());
  std::printf("  layer  slots   steps          hits        misses    first uses       bytes from disk\n");
  for (const ExpertReplay::Layer& l : replay.layers) {
    const ExpertUses& u = l.recorded;
    std::printf("  %5d %6lld %7llu %13llu %13llu %13llu %21llu%s\n", l.layer, static_cast<long long>(l.slots),
                static_cast<unsigned long long>(l.steps), static_cast<unsigned long long>(u.hits),
                static_cast<unsigned long long>(u.misses), static_cast<unsigned long long>(u.first_uses),
                static_cast<unsigned long long>(u.disk_bytes), l.differing > 0 ? "  differs" : "");
  }
  std::printf("%llu layers of steps compared, %llu differ\n%s", static_cast<unsigned long long>(replay.compared),
              static_cast<unsigned long long>(replay.differing), replay.agrees() ? "" : (replay.first + "\n").c_str());
  return replay.agrees();
}

}  // namespace
}  // namespace tally

int main(int argc, char** argv) {
  tally::Options options;
  CLI::App app("Times the ops of a model's plan alone");
  app.add_option("MODEL", options.model, "GGUF file or directory");
  app.add_option("--experts", options.experts, "the ledger of a run with --weights-budget: its experts from disk again");
  app.add_option("--prompt", options.prompt, "tokens before the one that is decoded")->check(CLI::Range(1, 1 << 20));
  app.add_option("--op", options.op, "only this op");
  app.add_option("--component", options.component, "only at this component");
  app.add_option("--phase", options.phase, "prefill or decode");
  app.add_option("--layer", options.layer, "only in this layer (-1: outside)");
  app.add_option("--threads", options.threads, "0: all cores")->check(CLI::Range(0, 1024));
  app.add_option("--repetitions", options.repetitions, "timed runs, of which the median is shown")->check(CLI::Range(1, 100000));
  app.add_flag("--all", options.all, "every op, not one of each kind");
  CLI11_PARSE(app, argc, argv);
  if (options.model.empty() == options.experts.empty()) {
    std::fprintf(stderr, "replay: a model, or --experts and a ledger\n");
    return 2;
  }
  if (!options.experts.empty()) {
    const tally::Result<bool> agrees = tally::ReplayRouting(options.experts);
    if (!agrees.ok()) std::fprintf(stderr, "replay: %s\n", agrees.status().message().c_str());
    return !agrees.ok() ? 2 : *agrees ? 0 : 3;
  }
  const tally::Status status = tally::Replayer(options).Run();
  if (!status.ok()) std::fprintf(stderr, "replay: %s\n", status.message().c_str());
  return status.ok() ? 0 : 1;
}
