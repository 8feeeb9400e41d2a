// SPDX-License-Identifier: Apache-2.0
// What keeping the books costs: the same steps with the ledger on and off, in turn, so that a machine that drifts drifts for both.
//   ledger_overhead [MODEL.gguf] [--pairs N] [--prefill P] [--tokens T]
// "Off" charges nothing; an op's amounts are looked at even so, to decide whether threads share it. Prints the median of the pairs'
// ratios on / off with the middle half of them, for decoding T tokens one after the other and for a prefill of P, and the same for
// off / off, which is what the machine's noise alone makes of it. Logits of both must be the same bits.
//
// What decodes keeps its ledger on or off from token to token, so a run of them is what is timed: were it switched at every token, the
// books would also pay for having been out of the caches for two tokens.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "engine/base/format.h"
#include "engine/session/loaded_model.h"

namespace tally {
namespace {

struct Options {
  std::string model;
  int64_t pairs = 100, prefill = 128, tokens = 64;
  int threads = 0;
};

class Overhead {
 public:
  explicit Overhead(const Options& options) : options_(options), team_(options.threads) {}

  Status Run() {
    std::string path = options_.model;
    if (path.empty()) {
      TALLY_ASSIGN_OR_RETURN(path, DemoModelPath());
    }
    LoadOptions load;
    load.threads = options_.threads;
    load.context = options_.prefill + options_.tokens + 1;
    TALLY_ASSIGN_OR_RETURN(const auto model, LoadModel(path, load));
    const auto& loaded = static_cast<const LoadedModel&>(*model);
    TALLY_ASSIGN_OR_RETURN(rope_, loaded.MakeRope(load.context));
    TALLY_ASSIGN_OR_RETURN(stepper_, Stepper::Create(loaded.Source(rope_), loaded.weights().infos(), team_,
                                                     MakeStepperOptions(loaded.recipe(), load)));
    std::printf("%s, %d threads\n", model->Description().c_str(), team_.threads());
    TALLY_ASSIGN_OR_RETURN(sequence_, stepper_->cache().NewSequence());
    vocab_ = loaded.recipe().vocab;
    for (int64_t i = 0; i < options_.prefill; ++i) prompt_.push_back(Row(i, i + 1 == options_.prefill));
    double ignored = 0;
    TALLY_RETURN_IF_ERROR(Time({prompt_}, true, 0, ignored));
    std::vector<std::vector<BatchRow>> tokens;
    for (int64_t i = 0; i < options_.tokens; ++i) tokens.push_back({Row(options_.prefill + i, true)});
    TALLY_RETURN_IF_ERROR(Compare("decode", tokens, options_.prefill, options_.pairs));
    return Compare("prefill", {prompt_}, 0, std::max<int64_t>(5, options_.pairs * options_.tokens / options_.prefill));
  }

 private:
  BatchRow Row(int64_t i, bool logits) const {
    return {static_cast<int32_t>((i * 7919 + 13) % vocab_), sequence_, logits, !logits || i >= options_.prefill};
  }

  // The steps, from `length` positions on.
  Status Time(const std::vector<std::vector<BatchRow>>& steps, bool ledger, int64_t length, double& seconds) {
    TALLY_RETURN_IF_ERROR(stepper_->cache().Truncate(sequence_, length));
    stepper_->executor().SetLedger(ledger ? &stepper_->ledger() : nullptr);
    std::vector<float> now;
    now.reserve(static_cast<size_t>(vocab_) * steps.size());
    seconds = 0;
    for (const std::vector<BatchRow>& rows : steps) {
      const auto start = std::chrono::steady_clock::now();
      TALLY_ASSIGN_OR_RETURN(const StepOutput out, stepper_->Step(rows));
      seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      if (!out.failed.empty()) return out.failed.front().status;
      now.insert(now.end(), out.logits.Row(0), out.logits.Row(0) + out.logits.cols);
    }
    if (last_length_ == length && (last_.size() != now.size() || std::memcmp(last_.data(), now.data(), now.size() * 4) != 0)) {
      return InternalError("the logits differ with the ledger on and off");
    }
    last_ = std::move(now);
    last_length_ = length;
    return {};
  }

  Status Compare(const char* what, const std::vector<std::vector<BatchRow>>& steps, int64_t length, int64_t pairs) {
    std::vector<double> ratios, noise, alone, costs;
    double on = 0, off = 0, again = 0;
    std::mt19937 random(1);
    std::array<size_t, 3> order = {0, 1, 2};
    for (int64_t i = 0; i < pairs + 2; ++i) {
      // Three runs in any order: what a run finds in the caches is what the one before left there.
      std::shuffle(order.begin(), order.end(), random);
      double* const times[] = {&on, &off, &again};
      for (const size_t which : order) {
        TALLY_RETURN_IF_ERROR(Time(steps, which == 0, length, *times[which]));
      }
      if (i < 2) continue;  // the first ones warm up
      ratios.push_back(on / off);
      costs.push_back(on - off);
      alone.push_back(off * 1e6 / static_cast<double>(steps.size()));
      noise.push_back(again / off);
    }
    std::nth_element(alone.begin(), alone.begin() + static_cast<int64_t>(alone.size() / 2), alone.end());
    stepper_->ledger().Reset();
    TALLY_RETURN_IF_ERROR(Time(steps, true, length, on));
    const Phase phase = stepper_->ledger().last_step().phase;
    const uint64_t ops = stepper_->ledger().total(phase).ops / stepper_->ledger().steps(phase);
    std::printf("%-8s off        median %.1f us a step of %llu ops\n", what, alone[alone.size() / 2],
                static_cast<unsigned long long>(ops));
    Print(what, "on / off", ratios);
    std::nth_element(costs.begin(), costs.begin() + static_cast<int64_t>(costs.size() / 2), costs.end());
    std::printf("%-8s the books  median %.0f ns an op\n", what,
                costs[costs.size() / 2] * 1e9 / static_cast<double>(steps.size()) / static_cast<double>(ops));
    Print(what, "off / off", noise);
    return {};
  }

  static void Print(const char* what, const char* ratio, std::vector<double> v) {
    std::sort(v.begin(), v.end());
    const auto at = [&](double q) { return v[static_cast<size_t>(q * static_cast<double>(v.size() - 1))]; };
    std::printf("%-8s %-10s median %.4f   middle half %.4f to %.4f   %zu pairs\n", what, ratio, at(0.5), at(0.25), at(0.75),
                v.size());
  }

  const Options& options_;
  Team team_;
  RopePair rope_;
  std::unique_ptr<Stepper> stepper_;
  std::vector<BatchRow> prompt_;
  int32_t sequence_ = 0;
  int64_t vocab_ = 1;
  std::vector<float> last_;
  int64_t last_length_ = -1;  // of last_
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
  app.add_option("--threads", options.threads, "0: all cores")->check(CLI::Range(0, 1024));
  CLI11_PARSE(app, argc, argv);
  const tally::Status status = tally::Overhead(options).Run();
  if (!status.ok()) std::fprintf(stderr, "ledger_overhead: %s\n", status.message().c_str());
  return status.ok() ? 0 : 1;
}
