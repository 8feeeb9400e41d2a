// Runs lines of a ledger file (tally run --ledger) again, each alone and with random data of its shapes, and times them:
//   replay FILE.jsonl [--line N...] [--op NAME] [--component NAME] [--layer L] [--phase prefill|decode] [--all]
// Without --line and --all, one line of each kind (phase, component, op, shapes). Every op's result is compared with the scalar
// reference's and its cost with what was logged before it is timed. Weights are laid out several times and read in turn, so that
// small ones do not come from a cache that the engine would not find them in.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "bench/replay_op.h"

namespace tally {
namespace {

using Json = nlohmann::json;

struct Options {
  std::string file, op, component, phase;
  std::vector<int64_t> lines;
  int64_t layer = -2;
  int threads = 0, repetitions = 15;
  int64_t weight_mebibytes = 512;
  bool all = false, verify = true;
};

// What tells one kind of op from another.
std::string Kind(const Json& line) {
  std::string kind = line.at("phase").get<std::string>() + " " + line.at("component").get<std::string>() + " " +
                     line.at("op").get<std::string>();
  for (const Json& o : line.at("operands")) kind += " " + o.at("type").get<std::string>() + o.at("shape").dump();
  return kind;
}

double Median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + static_cast<int64_t>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

class Replayer {
 public:
  explicit Replayer(const Options& options) : options_(options), team_(options.threads) {}

  // False: the line cannot be replayed, or not with the result and the cost that it should have.
  bool Line(int64_t number, const Json& line) {
    const auto fail = [&](const std::string& why) {
      std::fprintf(stderr, "replay: line %ld: %s\n", static_cast<long>(number), why.c_str());
      return false;
    };
    auto built = BuildReplay(line, team_, static_cast<size_t>(options_.weight_mebibytes) << 20);
    if (!built.ok()) return fail(built.status().message());
    ReplayOp& op = *built.value();
    Executor executor(team_, nullptr);
    Cost useful;
    uint64_t nanoseconds = 0;
    executor.SetRecorder([&](const OpRecord& r) {
      useful = r.useful;
      nanoseconds = r.nanoseconds;
    });
    const auto run = [&] { return op.Run(executor); };
    Status status = run();
    if (!status.ok()) return fail(status.message());
    if (const std::string differs = CostDifference(useful, line); !differs.empty()) return fail(differs);
    if (options_.verify) {
      const ReplayOp::Made got = op.Output();
      op.Reset();
      executor.SetImpl(ImplChoice::kRef);
      status = run();
      executor.SetImpl(ImplChoice::kAuto);
      if (!status.ok()) return fail(status.message());
      const double difference = DifferenceOf(got, op.Output());
      if (!(difference <= 1e-3)) return fail("its result is " + std::to_string(difference) + " from the reference's");
      op.Reset();
    }
    std::vector<double> times;
    for (int i = 0; i < options_.repetitions + 2; ++i) {
      status = run();
      if (!status.ok()) return fail(status.message());
      if (i >= 2) times.push_back(static_cast<double>(nanoseconds));  // the first two warm up
    }
    const double ns = Median(times), logged = line.at("ns").get<double>();
    const uint64_t bytes = useful.TotalBytes() - useful.Bytes(ByteKind::kWeightsStored);  // what is read is what was packed
    std::printf("%7ld  %-8s %4d  %-16s %-12s %11.1f %11.1f %7.2f %9.2f %8.2f\n", static_cast<long>(number),
                line.at("phase").get<std::string>().c_str(), line.at("layer").get<int>(),
                line.at("component").get<std::string>().c_str(), line.at("op").get<std::string>().c_str(), logged / 1e3, ns / 1e3,
                logged > 0 ? ns / logged : 0, static_cast<double>(useful.TotalFlops()) / ns, static_cast<double>(bytes) / ns);
    return true;
  }

  bool Wanted(int64_t number, const Json& line) {
    if (!options_.lines.empty()) return std::find(options_.lines.begin(), options_.lines.end(), number) != options_.lines.end();
    if (!options_.op.empty() && line.at("op") != options_.op) return false;
    if (!options_.component.empty() && line.at("component") != options_.component) return false;
    if (!options_.phase.empty() && line.at("phase") != options_.phase) return false;
    if (options_.layer != -2 && line.at("layer") != options_.layer) return false;
    return options_.all || kinds_.insert(Kind(line)).second;
  }

 private:
  const Options& options_;
  Team team_;
  std::set<std::string> kinds_;
};

int Main(const Options& options) {
  std::ifstream file(options.file);
  if (!file) {
    std::fprintf(stderr, "replay: cannot read '%s'\n", options.file.c_str());
    return 2;
  }
  Replayer replayer(options);
  std::printf("   line  phase   layer component        op             logged us   replay us   ratio   GFLOP/s     GB/s\n");
  int64_t number = 0, ran = 0;
  bool good = true;
  for (std::string text; std::getline(file, text);) {
    ++number;
    try {
      const Json line = Json::parse(text);
      if (line.at("version") != 1) throw std::runtime_error("of a version other than 1");
      if (!replayer.Wanted(number, line)) continue;
      ++ran;
      good = replayer.Line(number, line) && good;
    } catch (const std::exception& e) {
      std::fprintf(stderr, "replay: line %ld: not a line of a ledger: %s\n", static_cast<long>(number), e.what());
      return 2;
    }
  }
  if (ran == 0) {
    std::fprintf(stderr, "replay: '%s' has no such line\n", options.file.c_str());
    return 2;
  }
  return good ? 0 : 1;
}

}  // namespace
}  // namespace tally

int main(int argc, char** argv) {
  tally::Options options;
  CLI::App app("Times the ops of a ledger file alone");
  app.add_option("FILE", options.file, "written by tally run --ledger")->required();
  app.add_option("--line", options.lines, "these lines, from 1");
  app.add_option("--op", options.op, "lines of this op");
  app.add_option("--component", options.component, "lines of this component");
  app.add_option("--phase", options.phase, "prefill or decode");
  app.add_option("--layer", options.layer, "lines of this layer (-1: outside)");
  app.add_option("--threads", options.threads, "0: all cores");
  app.add_option("--repetitions", options.repetitions, "timed runs, of which the median is shown")->check(CLI::Range(1, 100000));
  app.add_option("--weight-memory", options.weight_mebibytes, "MiB that copies of the weights may take")
      ->check(CLI::Range(1, 1 << 20));
  app.add_flag("--all", options.all, "every line, not one of each kind");
  app.add_flag("!--no-verify", options.verify, "do not compare results with the scalar reference");
  CLI11_PARSE(app, argc, argv);
  return tally::Main(options);
}
