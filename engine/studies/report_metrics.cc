// SPDX-License-Identifier: Apache-2.0
#include "engine/studies/report_metrics.h"

#include <algorithm>
#include <cstdio>
#include <numeric>

#include "counters/books/books.h"
#include "engine/studies/run_info.h"

namespace tally {
namespace {

using Flops = std::array<uint64_t, kFitUnits>;

constexpr const char* kReadRoof = "measured read bandwidth";

uint64_t All(const Flops& flops) { return std::accumulate(flops.begin(), flops.end(), uint64_t{0}); }

double PeakOf(size_t unit, const ReportRoofs& roofs) {
  for (const ReportRoofs::Peak& p : roofs.peaks) {
    if (p.type == kReportUnits[unit]) return p.per_second;
  }
  return unit == static_cast<size_t>(FitUnit::kBF16) ? PeakOf(static_cast<size_t>(FitUnit::kF32), roofs) : 0;
}

std::string Text(const char* format, double x, const char* unit) {
  char text[64];
  std::snprintf(text, sizeof text, format, x, unit);
  return text;
}

std::string RateText(double per_second, bool bytes) {
  if (bytes) return Text("%.2f %s", per_second / 1e9, "GB/s");
  return Text("%.1f %s", per_second / 1e9, "GFLOP/s");
}

void FillIn(ReportMetric& m) {
  if (!(m.seconds > 0 && m.denominator > 0)) return;
  m.value = m.numerator / m.seconds / m.denominator;
  m.with_numbers = books::WithThousands(m.numerator) + (m.bytes ? " bytes / " : " FLOPs / ") + Text("%.6f %s", m.seconds, "s") +
                   " / " + RateText(m.denominator, m.bytes);
}

ReportMetric OfBytes(const MetricInput& in, const ReportRoofs& roofs, uint64_t bytes) {
  ReportMetric m;
  m.phase = in.phase;
  m.bytes = true;
  m.numerator = static_cast<double>(bytes);
  m.seconds = in.seconds;
  m.denominator = roofs.known ? roofs.read : 0;
  m.denominator_name = kReadRoof;
  return m;
}

ReportMetric OfFlops(const MetricInput& in, const ReportRoofs& roofs, double flops, const Flops& mix) {
  ReportMetric m;
  m.phase = in.phase;
  m.numerator = flops;
  m.seconds = in.seconds;
  m.denominator = roofs.known ? PeakOfMix(mix, roofs) : 0;
  m.denominator_name = "measured peak of the mix: " + MixName(mix);
  return m;
}

}  // namespace

double PeakOfMix(const Flops& flops, const ReportRoofs& roofs) {
  double seconds = 0;
  for (size_t u = 0; u < flops.size(); ++u) {
    if (flops[u] == 0) continue;
    const double peak = PeakOf(u, roofs);
    if (!(peak > 0)) return 0;
    seconds += static_cast<double>(flops[u]) / peak;
  }
  return seconds > 0 ? static_cast<double>(All(flops)) / seconds : 0;
}

std::string MixName(const Flops& flops) {
  std::array<size_t, kFitUnits> order{};
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return flops[a] > flops[b]; });
  std::string text;
  const double all = static_cast<double>(All(flops));
  for (const size_t u : order) {
    if (flops[u] == 0) continue;
    std::string name(kReportUnits[u]);
    if (flops[u] == All(flops)) return name;
    text += (text.empty() ? "" : ", ") + name + Text(" %.1f %s", 100 * static_cast<double>(flops[u]) / all, "%");
  }
  return text;
}

std::vector<ReportMetric> Metrics(const MetricInput& in, const ReportRoofs& roofs) {
  std::vector<ReportMetric> metrics;
  const auto add = [&](ReportMetric m, const char* name, const char* source, const char* meaning, const char* formula) {
    m.name = name;
    m.source = source;
    m.meaning = meaning;
    m.formula = formula;
    FillIn(m);
    metrics.push_back(std::move(m));
  };
  add(OfBytes(in, roofs, in.moved), "S-MBU", "MoE-CAP, arXiv 2412.07067",
      "The bytes that the steps had to read: of the experts those that their tokens chose, each once a step.",
      "(weights read, the union of a step's tokens, + KV read and written) / time in the ops / read bandwidth");
  if (in.dense > 0) {
    add(OfBytes(in, roofs, in.dense), "MBU", "Databricks, LLM Inference Performance Engineering, 2023",
        "The same if every step had read all weights: what is said of dense models. Of a sparse model it may exceed 100 %.",
        "(all weights, each step, + KV read and written) / time in the ops / read bandwidth");
  }
  if (All(in.useful) > 0) {
    add(OfFlops(in, roofs, static_cast<double>(All(in.useful)), in.useful), "S-MFU", "MoE-CAP, arXiv 2412.07067",
        "The FLOPs that the mathematics needs, all k experts of a token counted, masked positions not.",
        "useful FLOPs / time in the ops / peak");
    if (in.palm_flops > 0) {
      add(OfFlops(in, roofs, in.palm_flops, in.useful), "MFU", "PaLM, arXiv 2204.02311, appendix B, forward pass",
          "N is every parameter, T the positions after a row's step: of a sparse model it counts experts that did not run.",
          "rows (2 N + 4 L H Q T) / time in the ops / peak");
    }
    add(OfFlops(in, roofs, static_cast<double>(All(in.executed)), in.executed), "HFU", "PaLM, arXiv 2204.02311, section 4.1",
        "The FLOPs that the kernels executed: padding, masked lanes and conversions included.",
        "executed FLOPs / time in the ops / peak");
  }
  return metrics;
}

}  // namespace tally
