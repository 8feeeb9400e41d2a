// SPDX-License-Identifier: Apache-2.0
// Pictures over the steps of a run.
#include "engine/page/run_figures.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "engine/page/axis.h"
#include "engine/page/charts.h"

namespace tally::page {
namespace {

uint64_t BytesOf(const ReportData& run, const ReportWork& work, std::string_view kind) {
  for (size_t i = 0; i < run.byte_kinds.size() && i < work.bytes.size(); ++i) {
    if (run.byte_kinds[i] == kind) return work.bytes[i];
  }
  return 0;
}

uint64_t WeightBytes(const ReportData& run, const ReportWork& work) { return BytesOf(run, work, "weights packed"); }
// Keys and values, and the states of recurrent layers.
uint64_t KvBytes(const ReportData& run, const ReportWork& work) {
  uint64_t bytes = 0;
  for (const char* kind : {"KV read", "KV written", "state read", "state written"}) bytes += BytesOf(run, work, kind);
  return bytes;
}

double StepSeconds(const ReportStep& step) { return Seconds(step.all.ns); }

// Steps of one phase, several neighbours together where there are many; the values are means of one token.
struct StepPoint {
  double depth = 0, seconds = 0;
  std::vector<double> flops, bytes;  // by component
  double weight_bytes = 0, kv_bytes = 0;
  double disk_bytes = 0, span = 0;  // seconds of the step, waiting for the disk included
};
struct StepPoints {
  std::string phase;
  std::vector<StepPoint> points;
  size_t steps_each = 1;
};

constexpr size_t kMostPoints = 240;

void AddStep(const ReportData& run, const ReportStep& step, double of_step, StepPoint& point) {
  const double of_token = of_step / Real(step.rows - step.taken_back);
  point.depth += Real(step.context) * of_step;
  point.seconds += StepSeconds(step) * of_token;
  point.weight_bytes += Real(WeightBytes(run, step.all)) * of_token;
  point.kv_bytes += Real(KvBytes(run, step.all)) * of_token;
  point.disk_bytes += Real(BytesOf(run, step.all, "weights from disk")) * of_token;
  point.span += Seconds(step.span_ns) * of_token;
  point.flops.resize(run.components.size());
  point.bytes.resize(run.components.size());
  for (size_t c = 0; c < run.components.size() && c < step.by_component.size(); ++c) {
    point.flops[c] += Real(step.by_component[c].flops) * of_token;
    point.bytes[c] += Real(MovedBytes(run, step.by_component[c])) * of_token;
  }
}

StepPoints PointsOf(const ReportData& run) {
  StepPoints all;
  all.phase = MainPhase(run);
  std::vector<const ReportStep*> steps;
  for (const ReportStep& step : run.steps) {
    if (step.phase == all.phase && step.rows > 0) steps.push_back(&step);
  }
  all.steps_each = std::max<size_t>(1, (steps.size() + kMostPoints - 1) / kMostPoints);
  for (size_t first = 0; first < steps.size(); first += all.steps_each) {
    const size_t end = std::min(first + all.steps_each, steps.size());
    StepPoint point;
    for (size_t i = first; i < end; ++i) AddStep(run, *steps[i], 1 / static_cast<double>(end - first), point);
    all.points.push_back(std::move(point));
  }
  return all;
}

std::string PointsNote(const StepPoints& steps) {
  return steps.steps_each == 1 ? "" : " Each point is the mean of " + std::to_string(steps.steps_each) + " steps.";
}

// A component or several; their share of the run.
struct ComponentShare {
  std::string name;
  std::vector<size_t> of;
  double share = 0;
};

// The largest first; those below 1 % together as the last one.
std::vector<ComponentShare> LargestComponents(const ReportData& run, const std::vector<double>& sums) {
  constexpr double kLeast = 0.01;
  constexpr size_t kMost = 7;
  const double all = std::accumulate(sums.begin(), sums.end(), 0.0);
  std::vector<size_t> order(sums.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return sums[a] > sums[b]; });
  std::vector<ComponentShare> largest;
  ComponentShare rest;
  for (const size_t c : order) {
    if (sums[c] <= 0) continue;
    const double share = sums[c] / all;
    if (share >= kLeast && largest.size() < kMost) {
      largest.push_back({run.components[c].name, {c}, share});
    } else {
      rest.of.push_back(c);
      rest.share += share;
    }
  }
  if (rest.of.empty()) return largest;
  rest.name = run.components[rest.of[0]].name;
  if (rest.of.size() == 2) rest.name += ", " + run.components[rest.of[1]].name;
  if (rest.of.size() > 2) rest.name = std::to_string(rest.of.size()) + " others";
  largest.push_back(std::move(rest));
  return largest;
}

struct Quantity {
  const char* name;  // of the figure
  const char* noun;  // "FLOPs"
  const char* unit;  // "FLOP"
  std::vector<double> StepPoint::*values;
};

// An area for each component over the depth of the steps.
std::optional<Figure> ComponentsFigure(const ReportData& run, const Quantity& quantity) {
  const StepPoints steps = PointsOf(run);
  std::vector<double> sums(run.components.size());
  double all = 0;
  for (const StepPoint& point : steps.points) {
    for (size_t c = 0; c < sums.size(); ++c) sums[c] += (point.*quantity.values)[c], all += (point.*quantity.values)[c];
  }
  if (all <= 0) return std::nullopt;
  const std::vector<ComponentShare> largest = LargestComponents(run, sums);

  const std::string noun = quantity.noun, mean = Si(all / static_cast<double>(steps.points.size()), quantity.unit);
  LineChart chart;
  chart.x_name = "depth";
  chart.y_name = noun + " a token";
  chart.stacked = true;
  Figure figure{quantity.name,
                noun + " of a token of " + steps.phase + ", by component",
                "Mean " + mean + " a token of " + steps.phase + ": ",
                {},
                {}};
  figure.data = {figure.title, {"depth"}, {}};
  for (size_t s = 0; s < largest.size(); ++s) {
    chart.series.push_back({largest[s].name, {}, "fill-" + std::to_string(s % 2 == 0 ? 1 + s / 2 % 2 : 3 + s / 2 % 2)});
    figure.data.columns.push_back(largest[s].name);
    figure.summary += (s > 0 ? ", " : "") + largest[s].name + " " + Percent(largest[s].share);
  }
  figure.summary += "." + PointsNote(steps);
  figure.data.columns.emplace_back("all");
  for (const StepPoint& point : steps.points) {
    chart.x.push_back(point.depth);
    std::vector<Cell> row = {CountCell(Whole(point.depth))};
    double column = 0;
    for (size_t s = 0; s < largest.size(); ++s) {
      double sum = 0;
      for (const size_t c : largest[s].of) sum += (point.*quantity.values)[c];
      chart.series[s].values.push_back(sum);
      row.push_back(CountCell(Whole(sum)));
      column += sum;
    }
    row.push_back(CountCell(Whole(column)));
    figure.data.rows.push_back(std::move(row));
    figure.extent = std::max(figure.extent, column);
  }
  figure.draw = Drawn(std::move(chart), DrawLines);
  return figure;
}

}  // namespace

uint64_t MovedBytes(const ReportData& run, const ReportWork& work) { return WeightBytes(run, work) + KvBytes(run, work); }

std::string MainPhase(const ReportData& run) {
  for (const char* phase : {"decode", "prefill", "mixed"}) {
    if (std::any_of(run.steps.begin(), run.steps.end(), [&](const ReportStep& step) { return step.phase == phase; }))
      return phase;
  }
  return "decode";
}

PhaseMeans MeansOf(const ReportData& run, std::string_view phase) {
  PhaseMeans means;
  for (const ReportStep& step : run.steps) {
    if (step.phase != phase) continue;
    means.shallowest = means.steps == 0 ? step.context : std::min(means.shallowest, step.context);
    means.deepest = std::max(means.deepest, step.context);
    ++means.steps;
    means.tokens += step.rows - step.taken_back;
    means.flops += Real(step.all.flops);
    means.bytes += Real(MovedBytes(run, step.all));
    means.seconds += StepSeconds(step);
  }
  const double tokens = Real(std::max<uint64_t>(means.tokens, 1));
  means.flops /= tokens;
  means.bytes /= tokens;
  means.seconds /= tokens;
  return means;
}

std::optional<Figure> FlopsFigure(const ReportData& run) {
  return ComponentsFigure(run, {"flops", "FLOPs", "FLOP", &StepPoint::flops});
}
std::optional<Figure> BytesFigure(const ReportData& run) {
  return ComponentsFigure(run, {"bytes", "Bytes", "B", &StepPoint::bytes});
}

std::optional<Figure> DepthFigure(const ReportData& run) {
  const StepPoints steps = PointsOf(run);
  LineChart chart;
  chart.x_name = "depth";
  chart.y_name = "bytes a token";
  chart.stacked = true;
  chart.series = {{"weights", {}, "fill-1"}, {"KV cache", {}, "fill-3"}};
  Table table{"Bytes of a token by depth", {"depth", "weights", "KV read and written", "share of KV"}, {}};
  double extent = 0;
  for (const StepPoint& point : steps.points) {
    const double all = point.weight_bytes + point.kv_bytes;
    chart.x.push_back(point.depth);
    chart.series[0].values.push_back(point.weight_bytes);
    chart.series[1].values.push_back(point.kv_bytes);
    extent = std::max(extent, all);
    table.rows.push_back({CountCell(Whole(point.depth)), CountCell(Whole(point.weight_bytes)), CountCell(Whole(point.kv_bytes)),
                          PercentCell(Share(point.kv_bytes, all))});
  }
  if (extent <= 0) return std::nullopt;
  const StepPoint &first = steps.points.front(), &last = steps.points.back();
  const auto kv = [](const StepPoint& p) { return Percent(Share(p.kv_bytes, p.weight_bytes + p.kv_bytes)); };
  std::string summary = "At depth " + Thousands(Whole(first.depth)) + " the KV cache is " + kv(first) + " of the bytes";
  if (steps.points.size() > 1) summary += ", at depth " + Thousands(Whole(last.depth)) + ", " + kv(last);
  const double roof = run.roofs.known ? run.roofs.read : 0;
  if (roof > 0) {
    summary += ". At the roof, " + Si(roof, "B/s") + ", that is at most " +
               Decimal(roof / (first.weight_bytes + first.kv_bytes)) + " tokens a second";
    if (steps.points.size() > 1) summary += ", and " + Decimal(roof / (last.weight_bytes + last.kv_bytes)) + " at the end";
  }
  return Figure{"weights-and-kv",
                "Bytes of a token of " + steps.phase + " over its depth",
                summary + "." + PointsNote(steps),
                Drawn(chart, DrawLines),
                std::move(table),
                extent};
}

std::optional<Figure> BandwidthFigure(const ReportData& run) {
  const StepPoints steps = PointsOf(run);
  const double roof = run.roofs.known ? run.roofs.read : 0;
  LineChart chart;
  chart.x_name = "depth";
  chart.y_name = "bytes a second";
  chart.dots = true;
  chart.series = {{steps.phase, {}, "accent"}};
  if (roof > 0) chart.levels = {{"roof " + Si(roof, "B/s"), roof}};
  Table table{"Bytes a second by depth", {"depth", "bytes a token", "time in the ops, a token", "bytes a second"}, {}};
  if (roof > 0) table.columns.emplace_back("of the roof");
  const bool disk = std::any_of(steps.points.begin(), steps.points.end(), [](const StepPoint& p) { return p.disk_bytes > 0; });
  if (disk) {
    chart.series.push_back({"from disk", {}, "grey"});
    table.columns.insert(table.columns.end(),
                         {"bytes from disk, a token", "time of the step, a token", "bytes from disk a second"});
  }
  double bytes = 0, seconds = 0, disk_bytes = 0, span = 0, extent = roof;
  for (const StepPoint& point : steps.points) {
    const double moved = point.weight_bytes + point.kv_bytes, rate = Share(moved, point.seconds);
    bytes += moved;
    seconds += point.seconds;
    extent = std::max(extent, rate);
    chart.x.push_back(point.depth);
    chart.series[0].values.push_back(rate);
    table.rows.push_back(
        {CountCell(Whole(point.depth)), CountCell(Whole(moved)), SiCell(point.seconds, "s"), SiCell(rate, "B/s")});
    if (roof > 0) table.rows.back().push_back(PercentCell(rate / roof));
    if (!disk) continue;
    const double from_disk = Share(point.disk_bytes, point.span);
    disk_bytes += point.disk_bytes;
    span += point.span;
    chart.series[1].values.push_back(from_disk);
    for (Cell cell : {CountCell(Whole(point.disk_bytes)), SiCell(point.span, "s"), SiCell(from_disk, "B/s")}) {
      table.rows.back().push_back(std::move(cell));
    }
  }
  if (seconds <= 0) return std::nullopt;
  std::string summary = "Weights and KV cache together, over the time in the ops: mean " + Si(bytes / seconds, "B/s");
  if (roof > 0) {
    summary += ", " + Percent(bytes / seconds / roof) + " of the roof, " + Si(roof, "B/s");
    if (!run.roofs.how.empty()) summary += " (" + run.roofs.how + ")";
  }
  if (disk) {
    summary += std::string("; ") + (run.experts.empty() ? "layers" : "experts") +
               " from disk, over the steps' time with its waits: mean " + Si(Share(disk_bytes, span), "B/s");
  }
  return Figure{"bandwidth",
                "Bytes a second of " + steps.phase + (roof > 0 ? ", under the roof" : ""),
                summary + "." + PointsNote(steps),
                Drawn(chart, DrawLines),
                std::move(table),
                extent};
}

}  // namespace tally::page
