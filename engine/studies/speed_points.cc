// SPDX-License-Identifier: Apache-2.0
#include "engine/studies/speed_points.h"

#include <algorithm>
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

// What the samples, of so many rows each, took from disk.
template <class Sample>
void AddDisk(const std::vector<Sample>& samples, int64_t rows, SpeedPoint& point) {
  double bytes = 0;
  for (const Sample& s : samples) {
    point.experts += s.experts;
    bytes += s.disk_bytes;
  }
  point.disk_bytes_per_token = bytes / static_cast<double>(rows) / static_cast<double>(std::max<size_t>(1, samples.size()));
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
    point.flops_by_type = samples_.back().by_type;  // the same in every round
    point.flops = samples_.back().flops;
    point.peaks = Median(rounds_.Of(peaks));
    point.narrow = place_.run->narrow();
    point.ratio_of_peak = rounds_.MedianOf([&](size_t i) { return AtPeak(samples_[i], peaks(i)) / samples_[i].seconds; });
    AddDisk(samples_, place_.tokens, point);
    report.prefill.push_back(point);
  }

 private:
  double AtPeak(const PrefillSample& s, const ArithmeticPeaks& peaks) const {
    return SecondsAtPeak(s.by_type, peaks, place_.run->narrow());
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
    AddDisk(samples_, place_.tokens * place_.batch, point);
    report.decode.push_back(point);
  }

 private:
  const SpeedPlace& place_;
  Rounds rounds_;
  std::vector<DecodeSample> samples_;
};

}  // namespace

std::unique_ptr<SpeedTask> NewPrefillTask(const SpeedPlace* place) { return std::make_unique<PrefillTask>(place); }
std::unique_ptr<SpeedTask> NewDecodeTask(const SpeedPlace* place) { return std::make_unique<DecodeTask>(place); }
}  // namespace tally
