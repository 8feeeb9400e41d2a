// SPDX-License-Identifier: Apache-2.0
#include "engine/studies/speed_points.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "engine/studies/speed_rounds.h"

namespace tally {
namespace {

std::string Counted(int64_t n, const std::string& what) { return std::to_string(n) + " " + what + (n == 1 ? "" : "s"); }

std::string Described(const SpeedPlace& p, SpeedWork work) {
  const Engine& engine = p.run->engine();
  return std::string(kSpeedWorkNames[static_cast<size_t>(work)]) + " " + std::to_string(p.tokens) + ", " +
         Counted(engine.threads(), "thread") + ", " + std::string(kKvTypeNames[static_cast<size_t>(engine.kv_type())]) +
         (p.depth > 0 ? ", depth " + std::to_string(p.depth) : "") +
         (work == SpeedWork::kDecode && p.batch > 1 ? ", batch " + std::to_string(p.batch) : "");
}

template <class Point>
Point Begin(const SpeedPlace& p, const Rounds& rounds) {
  Point point;
  point.threads = p.run->engine().threads();
  point.kv = p.run->engine().kv_type();
  point.depth = p.depth;
  point.batch = p.batch;
  point.tokens = p.tokens;
  point.rounds = rounds.count();
  point.kept = rounds.kept();
  return point;
}

class PrefillTask final : public SpeedTask {
 public:
  explicit PrefillTask(const SpeedPlace* place) : place_(*place) {}
  std::string Name() const override { return Described(place_, SpeedWork::kPrefill); }
  Status Warm() override { return place_.run->Prefill(place_.tokens, place_.depth, nullptr).status(); }
  Status Measure() override {
    TALLY_ASSIGN_OR_RETURN(const PrefillSample s, place_.run->Prefill(place_.tokens, place_.depth, place_.roofs));
    const double before = AtPeak(s, s.before), after = AtPeak(s, s.after);
    rounds_.Add(std::min(before, after), std::max(before, after));
    samples_.push_back(s);
    return {};
  }
  void Report(SpeedReport& report) const override {
    auto point = Begin<PrefillSpeed>(place_, rounds_);
    const auto peaks = [&](size_t i) { return Mean(samples_[i].before, samples_[i].after); };
    point.rate = rounds_.RateOf([&](size_t i) { return static_cast<double>(place_.tokens) / samples_[i].seconds; });
    point.flops_by_type = samples_.back().flops;  // the same in every round
    point.flops = std::accumulate(point.flops_by_type.begin(), point.flops_by_type.end(), 0.0);
    point.peaks = Median(rounds_.Of(peaks));
    point.ratio_of_peak = rounds_.MedianOf([&](size_t i) { return AtPeak(samples_[i], peaks(i)) / samples_[i].seconds; });
    report.prefill.push_back(point);
  }

 private:
  double AtPeak(const PrefillSample& s, const ArithmeticPeaks& peaks) const {
    return SecondsAtPeak(s.flops, peaks, place_.run->narrow());
  }
  const SpeedPlace& place_;
  Rounds rounds_;
  std::vector<PrefillSample> samples_;
};

class DecodeTask final : public SpeedTask {
 public:
  explicit DecodeTask(const SpeedPlace* place) : place_(*place) {}
  std::string Name() const override { return Described(place_, SpeedWork::kDecode); }
  Status Warm() override { return place_.run->Decode(place_.tokens, place_.depth, place_.batch, nullptr).status(); }
  Status Measure() override {
    TALLY_ASSIGN_OR_RETURN(const DecodeSample s, place_.run->Decode(place_.tokens, place_.depth, place_.batch, place_.roofs));
    rounds_.Add(s.least_bandwidth, s.most_bandwidth);
    samples_.push_back(s);
    return {};
  }
  void Report(SpeedReport& report) const override {
    auto point = Begin<DecodeSpeed>(place_, rounds_);
    const double rows = static_cast<double>(place_.tokens * place_.batch);
    const auto at = [&](double DecodeSample::*field) { return [this, field](size_t i) { return samples_[i].*field; }; };
    point.rate = rounds_.RateOf([&](size_t i) { return rows / samples_[i].seconds; });
    point.bytes_per_token = samples_.back().bytes / rows;  // the same in every round
    point.bandwidth = rounds_.MedianOf([&](size_t i) { return samples_[i].readable / samples_[i].seconds; });
    point.ratio_of_bandwidth = rounds_.MedianOf([&](size_t i) { return samples_[i].bytes / samples_[i].readable; });
    point.sampled_seconds = rounds_.MedianOf(at(&DecodeSample::sampled_seconds));
    point.greedy_seconds = rounds_.MedianOf(at(&DecodeSample::greedy_seconds));
    report.decode.push_back(point);
  }

 private:
  const SpeedPlace& place_;
  Rounds rounds_;
  std::vector<DecodeSample> samples_;
};

// A round: alone, beside the neighbour, beside it with one thread; roofs before and after, while the neighbour rests.
class BusyTask final : public SpeedTask {
 public:
  BusyTask(const SpeedPlace* place, SpeedWork work, SpeedRun* one_thread, SpeedNeighbour* neighbour, double seconds)
      : place_(*place), work_(work), one_thread_(*one_thread), neighbour_(*neighbour), seconds_(seconds) {}
  std::string Name() const override { return Described(place_, work_) + ", beside " + neighbour_.name(); }
  Status Warm() override {
    TALLY_RETURN_IF_ERROR(Rate(*place_.run, 0).status());
    return Rate(one_thread_, 0).status();
  }
  Status Measure() override {
    Sample s;
    const double before = Roof();
    TALLY_ASSIGN_OR_RETURN(s.quiet, Rate(*place_.run, seconds_));
    TALLY_RETURN_IF_ERROR(neighbour_.Begin(work_));
    const Result<double> rate = Rate(*place_.run, seconds_);
    const Result<double> other = neighbour_.End();
    TALLY_ASSIGN_OR_RETURN(s.rate, rate);  // first: an interrupted measurement may have ended the neighbour too
    TALLY_ASSIGN_OR_RETURN(s.other, other);
    TALLY_RETURN_IF_ERROR(neighbour_.Begin(work_));
    const Result<double> one_thread = Rate(one_thread_, seconds_);
    const Status ended = neighbour_.End().status();
    TALLY_ASSIGN_OR_RETURN(s.one_thread, one_thread);
    TALLY_RETURN_IF_ERROR(ended);
    const double after = Roof();
    rounds_.Add(std::min(before, after), std::max(before, after));
    samples_.push_back(s);
    return {};
  }
  void Report(SpeedReport& report) const override {
    auto point = Begin<BusySpeed>(place_, rounds_);
    point.beside = neighbour_.name();
    point.work = work_;
    point.rate = rounds_.RateOf([&](size_t i) { return samples_[i].rate; });
    point.quiet = rounds_.RateOf([&](size_t i) { return samples_[i].quiet; });
    point.one_thread = rounds_.RateOf([&](size_t i) { return samples_[i].one_thread; });
    point.other = rounds_.RateOf([&](size_t i) { return samples_[i].other; });
    point.ratio_of_quiet = rounds_.MedianOf([&](size_t i) { return samples_[i].rate / samples_[i].quiet; });
    point.ratio_of_one_thread = rounds_.MedianOf([&](size_t i) { return samples_[i].rate / samples_[i].one_thread; });
    point.together_of_quiet =
        rounds_.MedianOf([&](size_t i) { return (samples_[i].rate + samples_[i].other) / samples_[i].quiet; });
    report.busy.push_back(point);
  }

 private:
  struct Sample {
    double quiet = 0, rate = 0, one_thread = 0, other = 0;  // tokens/s
  };
  // The work over and over for at least `seconds`: tokens per second.
  Result<double> Rate(SpeedRun& run, double seconds) {
    double spent = 0, tokens = 0;
    do {
      if (work_ == SpeedWork::kPrefill) {
        TALLY_ASSIGN_OR_RETURN(const PrefillSample s, run.Prefill(place_.tokens, place_.depth, nullptr));
        spent += s.seconds;
        tokens += static_cast<double>(place_.tokens);
      } else {
        TALLY_ASSIGN_OR_RETURN(const DecodeSample s, run.Decode(place_.tokens, place_.depth, place_.batch, nullptr));
        spent += s.seconds;
        tokens += static_cast<double>(place_.tokens * place_.batch);
      }
    } while (spent < seconds);
    return tokens / spent;
  }
  double Roof() {
    if (work_ == SpeedWork::kDecode) return place_.roofs->Bandwidth();
    const ArithmeticPeaks peaks = place_.roofs->Peaks();
    return std::max({peaks.f32, peaks.bf16, peaks.int8});
  }

  const SpeedPlace& place_;
  SpeedWork work_;
  SpeedRun& one_thread_;
  SpeedNeighbour& neighbour_;
  double seconds_;
  Rounds rounds_;
  std::vector<Sample> samples_;
};

}  // namespace

std::unique_ptr<SpeedTask> NewPrefillTask(const SpeedPlace* place) { return std::make_unique<PrefillTask>(place); }
std::unique_ptr<SpeedTask> NewDecodeTask(const SpeedPlace* place) { return std::make_unique<DecodeTask>(place); }
std::unique_ptr<SpeedTask> NewBusyTask(const SpeedPlace* place, SpeedWork work, SpeedRun* one_thread, SpeedNeighbour* neighbour,
                                       double seconds) {
  return std::make_unique<BusyTask>(place, work, one_thread, neighbour, seconds);
}

}  // namespace tally
