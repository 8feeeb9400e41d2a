// SPDX-License-Identifier: Apache-2.0
// What keeping the books costs: the same steps with the ledger on and off, in turn, so that a machine that drifts drifts for both.
//   ledger_overhead [MODEL.gguf] [--pairs N] [--prefill P] [--tokens T] [--requests R] [--threads N] [--cpu]
// "Off" charges nothing; an op's amounts are looked at even so, to decide whether threads share it. "Bills" has a bill for each request
// besides. Prints the medians of the ratios on / off and bills / off with the middle half of them, and the same for off / off, which is
// what the machine's noise alone makes of it: for decoding T tokens of one request one after the other, the same of R requests in one
// batch, and for a prefill of P. Logits must be the same bits.
//
// The bars, on / off as bills / off: at most 0.5 % for a model of 1B, 3 % for the bundled one.
//
// What decodes keeps its ledger as it is from token to token, so a run of them is what is timed: were it switched at every token, the
// books would also pay for having been out of the caches for two tokens.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <random>
#include <string>
#include <vector>

#include "engine/base/format.h"
#include "engine/session/stepper.h"

namespace tally {
namespace {

struct Options {
  std::string model;
  int64_t pairs = 100, prefill = 128, tokens = 64;
  int requests = 8, threads = 0;
  bool cpu = false;
};

enum class Books { kOff, kOn, kBills };

class Overhead {
 public:
  explicit Overhead(const Options& options) : options_(options) {}

  Status Run() {
    std::string path = options_.model;
    if (path.empty()) {
      TALLY_ASSIGN_OR_RETURN(path, DemoModelPath());
    }
    EngineOptions load;
    load.threads = options_.threads;
    load.context = options_.prefill + options_.tokens + 1;
    load.sequences = options_.requests;
    load.max_logit_rows = options_.requests;
    TALLY_ASSIGN_OR_RETURN(const auto model, LoadModel(path, load));
    TALLY_ASSIGN_OR_RETURN(stepper_, Stepper::Create(std::dynamic_pointer_cast<const LoadedModel>(model), load));
    std::printf("%s, %d threads\n", model->Description().c_str(), stepper_->threads());
    vocab_ = model->recipe().vocab;
    for (int i = 0; i < options_.requests; ++i) {
      TALLY_ASSIGN_OR_RETURN(const int32_t sequence, stepper_->NewSequence());
      requests_.push_back({sequence, stepper_->ledger().OpenBill()});
      TALLY_RETURN_IF_ERROR(stepper_->Step(Prompt(i)).status());
    }
    const int64_t prefills = std::max<int64_t>(5, options_.pairs * options_.tokens / options_.prefill);
    TALLY_RETURN_IF_ERROR(Compare("decode", Decode(1), options_.prefill, options_.pairs));
    TALLY_RETURN_IF_ERROR(Compare("batch", Decode(options_.requests), options_.prefill, options_.pairs));
    return Compare("prefill", {Prompt(0)}, 0, prefills);
  }

 private:
  using Steps = std::vector<std::vector<BatchRow>>;
  struct Request {
    int32_t sequence, bill;
  };

  BatchRow Row(int request, int64_t position, bool logits) const {
    return {.token = static_cast<int32_t>((position * 7919 + request * 31 + 13) % vocab_),
            .sequence = requests_[static_cast<size_t>(request)].sequence,
            .want_logits = logits,
            .generated = position >= options_.prefill,
            .bill = requests_[static_cast<size_t>(request)].bill};
  }
  std::vector<BatchRow> Prompt(int request) const {
    std::vector<BatchRow> rows;
    for (int64_t i = 0; i < options_.prefill; ++i) rows.push_back(Row(request, i, i + 1 == options_.prefill));
    return rows;
  }
  // A row of each of the first `requests` requests a step.
  Steps Decode(int requests) const {
    Steps steps(static_cast<size_t>(options_.tokens));
    for (int64_t i = 0; i < options_.tokens; ++i) {
      for (int r = 0; r < requests; ++r) steps[static_cast<size_t>(i)].push_back(Row(r, options_.prefill + i, true));
    }
    return steps;
  }

  // The steps, from `length` positions on.
  Status Time(Steps steps, Books books, int64_t length, double& seconds) {
    for (const Request& r : requests_) {
      TALLY_RETURN_IF_ERROR(stepper_->Truncate(r.sequence, std::min(length, stepper_->Length(r.sequence))));
    }
    stepper_->executor().SetLedger(books != Books::kOff ? &stepper_->ledger() : nullptr);
    std::vector<float> now;
    now.reserve(static_cast<size_t>(vocab_) * steps.size() * steps[0].size());
    seconds = 0;
    for (std::vector<BatchRow>& rows : steps) {
      for (BatchRow& row : rows) row.bill = books == Books::kBills ? row.bill : kNoBill;
      const double start = Seconds();
      TALLY_ASSIGN_OR_RETURN(const StepOutput out, stepper_->Step(rows));
      seconds += Seconds() - start;
      if (!out.failed.empty()) return out.failed.front().status;
      now.insert(now.end(), out.logits.Row(0), out.logits.Row(0) + out.logits.rows * out.logits.cols);
    }
    if (!last_.empty() && (last_.size() != now.size() || std::memcmp(last_.data(), now.data(), now.size() * 4) != 0)) {
      return InternalError("the logits differ with the ledger on and off");
    }
    last_ = std::move(now);
    return {};
  }

  double Seconds() const {
    if (options_.cpu) return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }

  static double Median(std::vector<double> v) {
    std::nth_element(v.begin(), v.begin() + static_cast<int64_t>(v.size() / 2), v.end());
    return v[v.size() / 2];
  }

  Status Compare(const char* what, const Steps& steps, int64_t length, int64_t pairs) {
    last_.clear();
    std::array<double, 4> times{};  // off, on, bills, off again
    std::array<std::vector<double>, 4> ratios, costs;
    std::vector<double> alone;
    std::mt19937 random(1);
    std::array<size_t, 4> order = {0, 1, 2, 3};
    for (int64_t i = 0; i < pairs + 2; ++i) {
      // In any order: what a run finds in the caches is what the one before left there.
      std::shuffle(order.begin(), order.end(), random);
      for (const size_t which : order) TALLY_RETURN_IF_ERROR(Time(steps, static_cast<Books>(which % 3), length, times[which]));
      if (i < 2) continue;  // the first ones warm up
      for (size_t which = 1; which < 4; ++which) {
        ratios[which].push_back(times[which] / times[0]);
        costs[which].push_back(times[which] - times[0]);
      }
      alone.push_back(times[0] * 1e6 / static_cast<double>(steps.size()));
    }
    stepper_->ledger().Reset();
    TALLY_RETURN_IF_ERROR(Time(steps, Books::kOn, length, times[0]));
    const Phase phase = stepper_->ledger().last_step().phase;
    const double ops =
        static_cast<double>(stepper_->ledger().total(phase).ops) / static_cast<double>(stepper_->ledger().steps(phase));
    const auto per_op = [&](size_t which) { return Median(costs[which]) * 1e9 / static_cast<double>(steps.size()) / ops; };
    std::printf("%-8s off         median %.1f us a step of %.0f ops and %zu rows\n", what, Median(alone), ops, steps[0].size());
    Print(what, "on / off", ratios[1]);
    Print(what, "bills / off", ratios[2]);
    std::printf("%-8s the books   median %.0f ns an op, with bills %.0f ns\n", what, per_op(1), per_op(2));
    Print(what, "off / off", ratios[3]);
    return {};
  }

  static void Print(const char* what, const char* ratio, std::vector<double> v) {
    std::sort(v.begin(), v.end());
    const auto at = [&](double q) { return v[static_cast<size_t>(q * static_cast<double>(v.size() - 1))]; };
    std::printf("%-8s %-11s median %.4f   middle half %.4f to %.4f   %zu pairs\n", what, ratio, at(0.5), at(0.25), at(0.75),
                v.size());
  }

  const Options& options_;
  std::unique_ptr<Stepper> stepper_;
  std::vector<Request> requests_;
  int64_t vocab_ = 1;
  std::vector<float> last_;  // logits of the last run of these steps
};

}  // namespace
}  // namespace tally

int main(int argc, char** argv) {
  tally::Options options;
  CLI::App app("Times steps with the ledger on and off");
  app.add_option("MODEL", options.model, "GGUF file or directory (without: the bundled model)");
  app.add_option("--pairs", options.pairs, "runs to compare")->check(CLI::Range(5, 1000000));
  app.add_option("--prefill", options.prefill, "tokens of the prompt")->check(CLI::Range(2, 100000));
  app.add_option("--tokens", options.tokens, "decoded in a run")->check(CLI::Range(1, 10000));
  app.add_option("--requests", options.requests, "decoded in one batch")->check(CLI::Range(1, 256));
  app.add_option("--threads", options.threads, "0: all cores")->check(CLI::Range(0, 1024));
  app.add_flag("--cpu", options.cpu, "processor time instead of the clock's: for --threads 1 where other programs run");
  CLI11_PARSE(app, argc, argv);
  const tally::Status status = tally::Overhead(options).Run();
  if (!status.ok()) std::fprintf(stderr, "ledger_overhead: %s\n", status.message().c_str());
  return status.ok() ? 0 : 1;
}
