// SPDX-License-Identifier: Apache-2.0
#include "engine/machine/roofs.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <vector>

#include "engine/machine/machine.h"
#include "engine/machine/roof_loops.h"

namespace tally {
namespace {

double Median(std::vector<double> v) {
  if (v.empty()) return 0;
  std::nth_element(v.begin(), v.begin() + static_cast<ptrdiff_t>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

// Seconds that the team takes when every thread makes `iterations` of the loop.
double TimeLoop(Team& team, const ArithmeticLoop& loop, int64_t iterations) {
  auto body = [&](int, int64_t begin, int64_t end) { loop.run(iterations * (end - begin)); };
  const double start = MonotonicSeconds();
  team.RunEach(body);
  return MonotonicSeconds() - start;
}

// Operations per second: the median of repetitions of about 2 ms, long beside the start of a team, short
// beside a neighbour's turn.
double MeasureLoop(Team& team, const ArithmeticLoop& loop, double seconds) {
  constexpr double kRepetition = 2e-3;
  int64_t iterations = 1000;
  const auto alone = [&] {  // on this thread, so that a slow start of the team does not pass for work
    const double start = MonotonicSeconds();
    loop.run(iterations);
    return MonotonicSeconds() - start;
  };
  while (std::min({alone(), alone(), alone()}) < kRepetition && iterations < int64_t{1} << 40) iterations *= 2;
  const double ops = static_cast<double>(loop.ops) * static_cast<double>(iterations) * team.threads();
  std::vector<double> rates;
  const double end = MonotonicSeconds() + seconds;
  do {
    rates.push_back(ops / std::max(TimeLoop(team, loop, iterations), 1e-9));
  } while (MonotonicSeconds() < end);
  return Median(std::move(rates));
}

// Bytes per second of one pass over whole blocks of `memory`, handed out as a matrix's panels are: what a slow core has left,
// others take.
double ReadPass(Team& team, std::span<const uint8_t> memory, ReadAhead ahead) {
  constexpr size_t kBlock = ReadRoof::kBlock;
  const int64_t blocks = static_cast<int64_t>(memory.size() / kBlock);
  std::atomic<uint64_t> sink{0};
  auto body = [&](int, int64_t first, int64_t last) {
    const size_t bytes = static_cast<size_t>(last - first) * kBlock;
    sink.fetch_xor(ReadAll(memory.data() + static_cast<size_t>(first) * kBlock, bytes, ahead));
  };
  const double start = MonotonicSeconds();
  constexpr int64_t kChunk = (512 << 10) / kBlock;
  team.Run(blocks, std::clamp<int64_t>(blocks / (team.threads() * 4), 1, kChunk), body);
  return static_cast<double>(blocks) * kBlock / std::max(MonotonicSeconds() - start, 1e-9);
}

constexpr std::array<ReadAhead, 5> kAhead = {{{0, 0}, {1024, 0}, {2048, 0}, {4096, 0}, {1024, 4096}}};
constexpr size_t kFewestPasses = 3;  // of each, in a measurement of a moment
static_assert(kFewestPasses * kAhead.size() < ReadRoof::kParts);

// The rate of the best of the prefetch distances, each in at least `fewest` passes over what next() gives.
template <class Next>
double BestRate(Team& team, size_t fewest, double seconds, const Next& next) {
  std::array<std::vector<double>, kAhead.size()> rates;
  const double end = MonotonicSeconds() + seconds;
  do {  // interleaved, so that a slow moment of the machine falls on all of them
    for (size_t i = 0; i < kAhead.size(); ++i) rates[i].push_back(ReadPass(team, next(), kAhead[i]));
  } while (rates[0].size() < fewest || MonotonicSeconds() < end);
  double best = 0;
  for (std::vector<double>& of_one : rates) best = std::max(best, Median(std::move(of_one)));
  return best;
}

}  // namespace

double ReadBandwidth(Team& team, std::span<const uint8_t> memory, double seconds) {
  if (memory.size() < ReadRoof::kBlock) return 0;
  return BestRate(team, 1, seconds, [&] { return memory; });
}

double ReadRoof::Measure(double seconds) {
  const size_t part = memory_.size() / kParts / kBlock * kBlock;
  if (part == 0) return 0;
  return BestRate(team_, kFewestPasses, seconds, [&] {
    next_ = (next_ + 1) % kParts;
    return memory_.subspan(next_ * part, part);
  });
}

ArithmeticPeaks MeasurePeaks(Team& team, double seconds) {
  std::vector<ArithmeticLoop> loops = X86Loops();
  if (loops.empty()) {
    loops = PortableLoops();
    for (const ArithmeticLoop& loop : ArmLoops()) loops.push_back(loop);
  }
  ArithmeticPeaks peaks;
  const auto keep = [](double rate, const char* instruction, double& best, const char*& name) {
    if (rate > best) best = rate, name = instruction;
  };
  for (const ArithmeticLoop& loop : loops) {
    const double rate = MeasureLoop(team, loop, seconds / static_cast<double>(loops.size()));
    switch (loop.kind) {
      case PeakKind::kF32: keep(rate, loop.instruction, peaks.f32, peaks.f32_instruction); break;
      case PeakKind::kBF16: keep(rate, loop.instruction, peaks.bf16, peaks.bf16_instruction); break;
      case PeakKind::kInt8: keep(rate, loop.instruction, peaks.int8, peaks.int8_instruction); break;
      case PeakKind::kInt8Narrow: keep(rate, loop.instruction, peaks.int8_narrow, peaks.int8_narrow_instruction); break;
    }
  }
  // A type's peak is at least a wider type's, since its products can be made as those. Intel's vdpbf16ps is slower than f32.
  if (peaks.bf16 > 0) keep(peaks.f32, peaks.f32_instruction, peaks.bf16, peaks.bf16_instruction);
  keep(peaks.int8, peaks.int8_instruction, peaks.int8_narrow, peaks.int8_narrow_instruction);
  return peaks;
}

}  // namespace tally
