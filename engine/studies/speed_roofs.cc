// SPDX-License-Identifier: Apache-2.0
#include "engine/studies/speed_roofs.h"

#include <algorithm>
#include <string>

namespace tally {
namespace {

constexpr uint64_t kFewestRoofBytes = uint64_t{64} << 20;
constexpr double ArithmeticPeaks::*kPeaks[] = {&ArithmeticPeaks::f32, &ArithmeticPeaks::bf16, &ArithmeticPeaks::int8,
                                               &ArithmeticPeaks::int8_narrow};

}  // namespace

double Median(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  const size_t n = x.size();
  return n == 0 ? 0 : n % 2 == 1 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

Result<RoofMemory> MemoryForRoof(uint64_t wanted, std::span<const uint8_t> weights) {
  const bool large = weights.size() >= wanted;
  const uint64_t bytes = large ? wanted : std::min(wanted, AvailableMemoryBytes() / 4);
  if (bytes < kFewestRoofBytes) {
    return NoRoom("too little memory to measure its bandwidth: " + std::to_string(bytes) + " bytes, at least " +
                  std::to_string(kFewestRoofBytes) + " are needed");
  }
  RoofMemory memory;
  memory.bytes = weights.subspan(0, large ? bytes : 0);
  if (large) return memory;
  TALLY_ASSIGN_OR_RETURN(memory.own, AnonymousMemory::Allocate(bytes, true));
  for (size_t i = 0; i < memory.own.size(); i += 64)
    memory.own.data()[i] = static_cast<uint8_t>(i >> 6);  // pages of our own, not the zero page
  memory.own.CollapseToHugePages();
  memory.bytes = {memory.own.data(), memory.own.size()};
  return memory;
}

ArithmeticPeaks MomentaryRoofs::Peaks() {
  peaks_.push_back(MeasurePeaks(team_, seconds_ / 2));
  return peaks_.back();
}

double MomentaryRoofs::Bandwidth() {
  bandwidths_.push_back(read_.Measure(seconds_ / kPieces));
  return bandwidths_.back();
}

MeasuredRoofs MomentaryRoofs::Median() const { return {team_.threads(), tally::Median(bandwidths_), tally::Median(peaks_)}; }

MeasuredRoofs MomentaryRoofs::Best() const {
  MeasuredRoofs best{team_.threads(), 0, {}};
  for (const double bandwidth : bandwidths_) best.bandwidth = std::max(best.bandwidth, bandwidth);
  for (const ArithmeticPeaks& peaks : peaks_) RaisePeaks(peaks, best.peaks);
  return best;
}

ArithmeticPeaks Mean(const ArithmeticPeaks& a, const ArithmeticPeaks& b) {
  ArithmeticPeaks mean = a;  // with its names: the best instructions of a moment
  for (double ArithmeticPeaks::*peak : kPeaks) {
    mean.*peak = (a.*peak + b.*peak) / 2;
  }
  return mean;
}

ArithmeticPeaks Median(std::span<const ArithmeticPeaks> peaks) {
  if (peaks.empty()) return {};
  ArithmeticPeaks median = peaks.back();
  for (double ArithmeticPeaks::*peak : kPeaks) {
    std::vector<double> values;
    for (const ArithmeticPeaks& p : peaks) values.push_back(p.*peak);
    median.*peak = Median(std::move(values));
  }
  return median;
}

void RaisePeaks(const ArithmeticPeaks& moment, ArithmeticPeaks& best) {
  for (double ArithmeticPeaks::*peak : kPeaks) {
    best.*peak = std::max(best.*peak, moment.*peak);
  }
}

double SecondsAtPeak(const std::array<double, kAriths>& flops, const ArithmeticPeaks& peaks, bool narrow) {
  const double by_type[kAriths] = {peaks.f32, peaks.bf16 > 0 ? peaks.bf16 : peaks.f32, narrow ? peaks.int8_narrow : peaks.int8};
  double seconds = 0;
  for (int a = 0; a < kAriths; ++a) seconds += by_type[a] > 0 ? flops[static_cast<size_t>(a)] / by_type[a] : 0;
  return seconds;
}

}  // namespace tally
