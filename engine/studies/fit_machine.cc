// SPDX-License-Identifier: Apache-2.0
// The machines of fit.h: described in words, or measured and kept.
#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "engine/base/format.h"
#include "engine/kernels/op.h"
#include "engine/machine/kept_file.h"
#include "engine/machine/machine.h"
#include "engine/machine/parallel.h"
#include "engine/machine/roofs.h"
#include "engine/studies/fit.h"
#include "engine/studies/speed_roofs.h"

namespace tally {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kLeastAmount = 1e5;  // of bytes, or of what is done in a second: "ram=16" lacks its unit

std::optional<size_t> UnitNamed(std::string_view key) {
  for (const FitUnit unit : {FitUnit::kF32, FitUnit::kBF16, FitUnit::kInt8}) {
    if (kFitUnitNames[static_cast<size_t>(unit)] == key) return static_cast<size_t>(unit);
  }
  return std::nullopt;
}

Status SetPart(std::string_view key, std::string_view value, FitMachine& m) {
  const auto wrong = [&](const std::string& wanted) {
    return BadInput("--machine: " + std::string(key) + "=" + Printable(value, 40) + " is not " + wanted);
  };
  if (key == "ram") {
    const double bytes = ParseAmount(value, {"B"});
    if (bytes < kLeastAmount) return wrong("a size such as 16GiB");
    m.total = m.available = static_cast<uint64_t>(bytes);
    return {};
  }
  if (key == "read") {
    m.read = ParseAmount(value, {"/s", "B"});
    return m.read >= kLeastAmount ? Status() : wrong("a rate such as 50GB/s");
  }
  if (key == "disk") {
    const Result<FitDisk> disk = ParseDisk(value);
    if (disk.ok()) m.disk = *disk;
    return disk.ok() ? Status() : wrong("a rate such as 3GB/s");
  }
  if (key == "threads") {
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), m.threads);
    const bool number = error == std::errc() && end == value.data() + value.size();
    m.threads_assumed = false;
    return number && m.threads >= 1 && m.threads <= kMaxThreads ? Status() : wrong("a number of threads");
  }
  if (key == "int8dot") {
    m.int8_dots = value != "none";
    return m.int8_dots ? wrong("none, the only value it has") : Status();
  }
  const std::optional<size_t> unit = UnitNamed(key);
  if (!unit) {
    return BadInput("--machine: there is no " + Quote(key) +
                    " of a machine: it is of ram, read, disk, f32, bf16, int8, int8dot and threads, as in " +
                    "ram=16GiB,read=50GB/s,int8=1T,f32=250G");
  }
  if (key == "bf16" && value == "none") {
    m.bf16_dots = false;
    return {};
  }
  m.peaks[*unit] = ParseAmount(value, {"/s", "FLOP", "OP"});
  if (m.peaks[*unit] < kLeastAmount) return wrong("a number of operations a second such as 500G");
  if (key == "int8") m.peaks[static_cast<size_t>(FitUnit::kNarrow)] = m.peaks[*unit];
  return {};
}

// ---- measured

constexpr int kVersion = 3;  // of the file; 2 had no ranges
constexpr int kMoments = 5;
constexpr double kMomentSeconds = 0.2;  // of each roof; all of them take about two seconds

// A rate of a machine, its range, and its name in the file.
struct KeptRate {
  const char* key;
  double* rate;
  RateRange* range;
};
std::array<KeptRate, 1 + kFitUnits> RatesOf(FitMachine& m) {
  return {{{"read", &m.read, &m.read_range},
           {"f32", &m.peaks[0], &m.peak_ranges[0]},
           {"bf16", &m.peaks[1], &m.peak_ranges[1]},
           {"int8", &m.peaks[2], &m.peak_ranges[2]},
           {"int8_narrow", &m.peaks[3], &m.peak_ranges[3]}}};
}
std::array<double, 1 + kFitUnits> InOrder(double read, const ArithmeticPeaks& p) {
  return {read, p.f32, p.bf16, p.int8, p.int8_narrow};
}

void Widen(RateRange& range, double low, double high) {
  if (low > 0) range.low = range.low > 0 ? std::min(range.low, low) : low;
  range.high = std::max(range.high, high);
}
// Of a best moment: the range alone.
void WidenTo(const std::array<double, 1 + kFitUnits>& best, FitMachine& m) {
  const auto rates = RatesOf(m);
  for (size_t i = 0; i < rates.size(); ++i) Widen(*rates[i].range, 0, best[i]);
}
// Where nothing is kept, a benchmark's medians are taken.
void FillIn(const std::array<double, 1 + kFitUnits>& medians, FitMachine& m) {
  const auto rates = RatesOf(m);
  for (size_t i = 0; i < rates.size(); ++i) {
    if (*rates[i].rate == 0) *rates[i].rate = medians[i];
    Widen(*rates[i].range, medians[i], medians[i]);
  }
}
// What was reached holds, since it was held for a whole measurement.
void Reach(const std::array<double, 1 + kFitUnits>& reached, FitMachine& m) {
  const auto rates = RatesOf(m);
  for (size_t i = 0; i < rates.size(); ++i) {
    *rates[i].rate = std::max(*rates[i].rate, reached[i]);
    Widen(*rates[i].range, 0, reached[i]);
  }
}

// Whether the bytes of a step cannot come from caches, which are faster than the memory.
bool IsFromMemory(double bytes, const FitMachine& m) { return m.caches > 0 && bytes > static_cast<double>(m.caches); }

// The peaks around a prefill, raised to what it did itself.
ArithmeticPeaks PeaksReached(const PrefillSpeed& p) {
  ArithmeticPeaks reached;
  const auto reach = [&](Arith type, double ArithmeticPeaks::*peak) {
    if (p.flops_by_type[static_cast<size_t>(type)] > 0) reached.*peak = p.peaks.*peak * p.ratio_of_peak;
  };
  reach(Arith::kF32, &ArithmeticPeaks::f32);
  reach(Arith::kBF16, &ArithmeticPeaks::bf16);
  reach(Arith::kInt8, p.narrow ? &ArithmeticPeaks::int8_narrow : &ArithmeticPeaks::int8);
  return reached;
}

Status MeasureRates(int threads, FitMachine& m) {
  Team team(threads);
  TALLY_RETURN_IF_ERROR(team.status());
  TALLY_ASSIGN_OR_RETURN(const RoofMemory memory, MemoryForRoof(uint64_t{1} << 30));
  ReadRoof read(team, memory.bytes);
  std::array<std::vector<double>, 1 + kFitUnits> moments;
  for (int i = 0; i < kMoments; ++i) {
    const double bytes = read.Measure(kMomentSeconds / 2);
    const auto now = InOrder(bytes, MeasurePeaks(team, kMomentSeconds));
    for (size_t r = 0; r < now.size(); ++r) moments[r].push_back(now[r]);
  }
  const auto rates = RatesOf(m);
  for (size_t r = 0; r < rates.size(); ++r) {
    *rates[r].rate = Median(moments[r]);
    const auto [low, high] = std::ranges::minmax(moments[r]);
    Widen(*rates[r].range, low, high);
  }
  return {};
}

// This machine without its rates.
FitMachine Unmeasured(int threads) {
  FitMachine m;
  m.target = HwyTargetName();
  m.bf16_dots = HwyTargetHasBf16Dot();
  m.int8_dots = HwyTargetHasInt8Dot();
  m.caches = CacheBytes();
  m.threads = threads;
  m.total = TotalMemoryBytes();
  m.available = std::min(AvailableMemoryBytes(), m.total);
  return m;
}

// What is kept of a machine's instruction set, threads and boot.
class KeptRates {
 public:
  // Nothing is kept without a directory, or where the boot is unknown.
  KeptRates(const std::string& directory, const FitMachine& m)
      : directory_(directory), name_("machine-" + m.target + "-" + std::to_string(m.threads) + ".json"), boot_(BootId()) {}

  // Gives `m` the rates that are kept. True if MeasureRates was among what they come from.
  bool Read(FitMachine& m) const {
    const std::optional<std::string> text = usable() ? ReadKeptFile(directory_ + "/" + name_) : std::nullopt;
    const Json j = text ? Json::parse(*text, nullptr, false) : Json();
    if (!j.is_object()) return false;
    const auto is = [&](const char* key, const Json& value) { return j.contains(key) && j[key] == value; };
    if (!is("tally_machine", kVersion) || !is("boot", boot_) || !is("target", m.target) || !is("threads", m.threads))
      return false;
    const bool measured = is("measured", true);
    FitMachine kept;
    for (const auto& [key, rate, range] : RatesOf(kept)) {
      const std::string name = key;
      for (const auto& [of, number] : {std::pair{name, rate}, {name + "_low", &range->low}, {name + "_high", &range->high}}) {
        if (!j.contains(of) || !j[of].is_number()) return false;
        *number = j[of].get<double>();
        const bool may_lack = !measured || rate == &kept.peaks[1];
        if (!(*number >= 0 && *number < 1e18) || (*number == 0 && !may_lack)) return false;
      }
    }
    m.read = kept.read;
    m.peaks = kept.peaks;
    m.read_range = kept.read_range;
    m.peak_ranges = kept.peak_ranges;
    return measured;
  }

  void Write(FitMachine m, bool measured) const {
    if (!usable()) return;
    Json j = {{"tally_machine", kVersion}, {"boot", boot_}, {"target", m.target}, {"threads", m.threads}, {"measured", measured}};
    for (const auto& [key, rate, range] : RatesOf(m)) {
      const std::string name = key;
      j[name] = *rate;
      j[name + "_low"] = range->low;
      j[name + "_high"] = range->high;
    }
    WriteKeptFile(directory_, name_, j.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
  }

 private:
  bool usable() const { return !directory_.empty() && !boot_.empty(); }

  const std::string directory_, name_, boot_;
};

}  // namespace

Result<FitMachine> ParseMachine(std::string_view text) {
  FitMachine m;
  m.threads = 8;
  m.threads_assumed = true;
  std::set<std::string_view> given;
  for (bool more = true; more;) {
    const size_t comma = text.find(',');
    more = comma != std::string_view::npos;
    std::string_view part = text.substr(0, comma);
    text.remove_prefix(more ? comma + 1 : text.size());
    while (part.starts_with(' ')) part.remove_prefix(1);
    while (part.ends_with(' ')) part.remove_suffix(1);
    const size_t equal = part.find('=');
    if (equal == std::string_view::npos) {
      return BadInput("--machine: " + Quote(part) + " is not KEY=VALUE, as in ram=16GiB,read=50GB/s,int8=1T,f32=250G");
    }
    const std::string_view key = part.substr(0, equal);
    if (!given.insert(key).second) return BadInput("--machine: " + Quote(key) + " is there twice");
    TALLY_RETURN_IF_ERROR(SetPart(key, part.substr(equal + 1), m));
  }
  return m;
}

Result<FitMachine> MeasureMachine(const std::string& directory, int threads, bool anew) {
  Team team(threads);
  TALLY_RETURN_IF_ERROR(team.status());
  FitMachine before = Unmeasured(team.threads());
  const KeptRates kept(directory, before);
  if (kept.Read(before) && !anew) return before;
  FitMachine now = Unmeasured(team.threads());
  TALLY_RETURN_IF_ERROR(MeasureRates(now.threads, now));
  FitMachine both = now;
  const auto of_before = RatesOf(before), of_both = RatesOf(both);
  for (size_t i = 0; i < of_both.size(); ++i) {
    Widen(*of_both[i].range, of_before[i].range->low, of_before[i].range->high);
    if (!anew) *of_both[i].rate = std::max(*of_both[i].rate, *of_before[i].rate);  // what a bench reached
  }
  kept.Write(both, true);
  return anew ? now : both;
}

std::optional<FitMachine> FindMachine(const std::string& directory, int threads) {
  FitMachine m = Unmeasured(threads);
  (void)KeptRates(directory, m).Read(m);
  return m.read > 0 ? std::optional(std::move(m)) : std::nullopt;
}

void KeepBestRates(const std::string& directory, const SpeedReport& report) {
  for (const MeasuredRoofs& best : report.best) {
    FitMachine m = Unmeasured(best.threads);
    m.target = report.target;
    const KeptRates kept(directory, m);
    const bool measured = kept.Read(m);
    for (const MeasuredRoofs& median : report.roofs) {
      if (median.threads == m.threads) FillIn(InOrder(median.bandwidth, median.peaks), m);
    }
    WidenTo(InOrder(best.bandwidth, best.peaks), m);
    for (const DecodeSpeed& d : report.decode) {
      if (d.threads == m.threads && IsFromMemory(d.bytes_per_token * static_cast<double>(d.batch), m))
        Reach(InOrder(d.bytes_per_token * d.rate.median, {}), m);
    }
    for (const PrefillSpeed& p : report.prefill) {
      if (p.threads == m.threads) Reach(InOrder(0, PeaksReached(p)), m);
    }
    kept.Write(m, measured);
  }
}

void KeepBestRates(const std::string& directory, const books::RunFigures& run) {
  std::optional<FitMachine> m = FindMachine(directory, run.threads);
  const double rate = run.decode_gigabytes_per_second * 1e9;
  if (!m || rate <= m->read) return;
  const double step_seconds = run.generate_seconds / static_cast<double>(std::max<uint64_t>(run.decode_steps, 1));
  if (!IsFromMemory(rate * step_seconds, *m)) return;
  const KeptRates kept(directory, *m);
  const bool measured = kept.Read(*m);
  Reach(InOrder(rate, {}), *m);
  kept.Write(*m, measured);
}

}  // namespace tally
