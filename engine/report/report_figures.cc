// SPDX-License-Identifier: Apache-2.0
#include "engine/report/report_figures.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <utility>

#include "engine/report/axis.h"
#include "engine/report/charts.h"

namespace tally::report {
namespace {

uint64_t Total(const std::vector<ModelPart>& parts) {
  return std::accumulate(parts.begin(), parts.end(), uint64_t{0}, [](uint64_t sum, const ModelPart& p) { return sum + p.parameters; });
}

uint64_t Sum(const std::vector<uint64_t>& values) { return std::accumulate(values.begin(), values.end(), uint64_t{0}); }
double Sum(const std::vector<double>& values) { return std::accumulate(values.begin(), values.end(), 0.0); }

double Share(double part, double whole) { return whole > 0 ? part / whole : 0; }
double Share(uint64_t part, uint64_t whole) { return Share(static_cast<double>(part), static_cast<double>(whole)); }

// Decode steps, several neighbours together where there are many: the values are means of one token.
struct DecodePoint {
  double position = 0, seconds = 0;
  std::vector<double> flops, bytes;
  double weight_bytes = 0, kv_bytes = 0;
};
struct DecodePoints {
  std::vector<DecodePoint> points;
  size_t steps_each = 1;
};

constexpr size_t kMostPoints = 240;

void AddScaled(std::vector<double>& sums, const std::vector<double>& values, double factor) {
  sums.resize(std::max(sums.size(), values.size()));
  for (size_t i = 0; i < values.size(); ++i) sums[i] += values[i] * factor;
}

DecodePoints PointsOfDecode(const ReportData& run) {
  std::vector<const StepCost*> steps;
  for (const StepCost& step : run.steps) {
    if (step.decode && step.rows > 0) steps.push_back(&step);
  }
  DecodePoints all;
  all.steps_each = std::max<size_t>(1, (steps.size() + kMostPoints - 1) / kMostPoints);
  for (size_t first = 0; first < steps.size(); first += all.steps_each) {
    const size_t end = std::min(first + all.steps_each, steps.size());
    DecodePoint point;
    for (size_t i = first; i < end; ++i) {
      const StepCost& step = *steps[i];
      const double steps_here = static_cast<double>(end - first), of_token = 1 / (steps_here * static_cast<double>(step.rows));
      point.position += static_cast<double>(step.position) / steps_here;
      point.seconds += step.seconds * of_token;
      AddScaled(point.flops, step.flops, of_token);
      AddScaled(point.bytes, step.bytes, of_token);
      point.weight_bytes += step.weight_bytes * of_token;
      point.kv_bytes += step.kv_bytes * of_token;
    }
    all.points.push_back(std::move(point));
  }
  return all;
}

std::string PointsNote(const DecodePoints& decode) {
  return decode.steps_each == 1 ? "" : " Each point is the mean of " + std::to_string(decode.steps_each) + " steps.";
}

// Every component's share of the run, the largest first; those below 1 % together as the last one.
struct ComponentShare {
  std::string name;
  std::vector<size_t> of;  // components
  double share = 0;
};

std::vector<ComponentShare> LargestComponents(const std::vector<std::string>& names, const std::vector<double>& sums) {
  constexpr double kLeast = 0.01;
  constexpr size_t kMost = 7;
  std::vector<size_t> order(names.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return sums[a] > sums[b]; });
  std::vector<ComponentShare> largest;
  ComponentShare rest;
  for (const size_t c : order) {
    const double share = Share(sums[c], Sum(sums));
    if (sums[c] <= 0) continue;
    if (share >= kLeast && largest.size() < kMost) {
      largest.push_back({names[c], {c}, share});
    } else {
      rest.of.push_back(c);
      rest.share += share;
    }
  }
  if (rest.of.size() == 1) rest.name = names[rest.of[0]];
  if (rest.of.size() > 1) rest.name = std::to_string(rest.of.size()) + " others";
  if (!rest.of.empty()) largest.push_back(rest);
  return largest;
}

// An area for each component over the positions of the decode steps.
std::optional<Figure> ComponentsFigure(const ReportData& run, const std::string& name, const std::string& unit,
                                       std::vector<double> DecodePoint::*values) {
  const DecodePoints decode = PointsOfDecode(run);
  std::vector<double> sums(run.components.size());
  for (const DecodePoint& point : decode.points) AddScaled(sums, point.*values, 1);
  sums.resize(run.components.size());
  if (Sum(sums) <= 0) return std::nullopt;
  const std::vector<ComponentShare> largest = LargestComponents(run.components, sums);

  LineChart chart;
  chart.x_name = "position";
  chart.y_name = unit + " a token";
  chart.stacked = true;
  for (const DecodePoint& point : decode.points) chart.x.push_back(point.position);
  DataTable table{unit + " of a decode token by component", {"position"}, {}};
  for (size_t s = 0; s < largest.size(); ++s) {
    const std::string css_class = "fill-" + std::to_string(1 + (s % 2 == 0 ? s / 2 % 2 : 2 + s / 2 % 2));
    chart.series.push_back({largest[s].name, {}, css_class});
    table.head.push_back(largest[s].name);
  }
  table.head.emplace_back("all");
  for (const DecodePoint& point : decode.points) {
    std::vector<Cell> row = {CountCell(static_cast<uint64_t>(point.position + 0.5))};
    double all = 0;
    for (size_t s = 0; s < largest.size(); ++s) {
      double sum = 0;
      for (const size_t c : largest[s].of) sum += (point.*values)[c];
      chart.series[s].values.push_back(sum);
      row.push_back(CountCell(static_cast<uint64_t>(sum + 0.5)));
      all += sum;
    }
    row.push_back(CountCell(static_cast<uint64_t>(all + 0.5)));
    table.rows.push_back(std::move(row));
  }
  std::string summary = "Mean " + Si(Sum(sums) / static_cast<double>(decode.points.size()), unit == "bytes" ? "B" : "FLOP") + " a decode token: ";
  for (size_t s = 0; s < largest.size(); ++s) {
    summary += (s > 0 ? ", " : "") + largest[s].name + " " + Percent(largest[s].share);
  }
  return Figure{name, unit + " of a decode token, by component", summary + "." + PointsNote(decode),
                [chart](double width) { return DrawLines(chart, width); }, std::move(table)};
}

}  // namespace

DecodeMeans MeansOfDecode(const ReportData& run) {
  DecodeMeans means;
  for (const StepCost& step : run.steps) {
    if (!step.decode) continue;
    means.tokens += static_cast<double>(step.rows);
    means.flops += Sum(step.flops);
    means.bytes += step.weight_bytes + step.kv_bytes;
    means.seconds += step.seconds;
  }
  if (means.tokens > 0) means.flops /= means.tokens, means.bytes /= means.tokens, means.seconds /= means.tokens;
  return means;
}

std::vector<OpTime> TimesByOp(const ReportData& run) {
  std::map<std::string, OpTime> by_name;
  for (const OpRow& op : run.ops) {
    const std::string name = op.component + ", " + op.op;
    OpTime& time = by_name[name];
    time.name = name;
    time.calls += op.calls;
    time.seconds += op.seconds;
  }
  std::vector<OpTime> times;
  for (auto& [name, time] : by_name) {
    if (time.seconds > 0) times.push_back(std::move(time));
  }
  std::stable_sort(times.begin(), times.end(), [](const OpTime& a, const OpTime& b) { return a.seconds > b.seconds; });
  return times;
}

std::optional<Figure> ParametersFigure(const ReportData& run) {
  const uint64_t total = Total(run.parts);
  if (total == 0) return std::nullopt;
  TrackChart chart;
  DataTable table{"Parameters by part and convention", {"part", "all", "share"}, {}};
  for (const ModelPart& part : run.parts) {
    chart.parts.push_back({part.name, part.parameters});
    table.rows.push_back({part.name, CountCell(part.parameters), PercentCell(Share(part.parameters, total))});
  }
  table.rows.push_back({"sum", CountCell(total), PercentCell(1)});
  std::string summary = "The upper bar is all " + Thousands(total) + " parameters by where they live. Blue is what each line counts.";
  for (const CountedParameters& c : run.conventions) {
    const uint64_t sum = Sum(c.counted);
    chart.tracks.push_back({c.name, Thousands(sum) + " · " + Percent(Share(sum, total)), c.counted});
    table.head.push_back(c.name);
    for (size_t i = 0; i < run.parts.size(); ++i) table.rows[i].push_back(CountCell(c.counted[i]));
    table.rows.back().push_back(CountCell(sum));
    if (!c.meaning.empty()) summary += " " + c.name + ": " + c.meaning + ".";
  }
  return Figure{"parameters", "Parameters by part, and those that each convention counts", summary,
                [chart](double width) { return DrawTracks(chart, width); }, std::move(table)};
}

std::optional<Figure> FlopsFigure(const ReportData& run) { return ComponentsFigure(run, "flops", "FLOPs", &DecodePoint::flops); }
std::optional<Figure> BytesFigure(const ReportData& run) { return ComponentsFigure(run, "bytes", "bytes", &DecodePoint::bytes); }

std::optional<Figure> DepthFigure(const ReportData& run) {
  const DecodePoints decode = PointsOfDecode(run);
  if (decode.points.empty()) return std::nullopt;
  LineChart chart;
  chart.x_name = "position";
  chart.y_name = "bytes a token";
  chart.stacked = true;
  chart.series = {{"weights", {}, "fill-1"}, {"KV cache", {}, "fill-3"}};
  DataTable table{"Bytes of a decode token by position", {"position", "weights", "KV read and written", "share of KV"}, {}};
  for (const DecodePoint& point : decode.points) {
    chart.x.push_back(point.position);
    chart.series[0].values.push_back(point.weight_bytes);
    chart.series[1].values.push_back(point.kv_bytes);
    table.rows.push_back({CountCell(static_cast<uint64_t>(point.position + 0.5)), CountCell(static_cast<uint64_t>(point.weight_bytes + 0.5)),
                          CountCell(static_cast<uint64_t>(point.kv_bytes + 0.5)),
                          PercentCell(Share(point.kv_bytes, point.weight_bytes + point.kv_bytes))});
  }
  const DecodePoint &first = decode.points.front(), &last = decode.points.back();
  const auto part = [](const DecodePoint& p) { return Percent(Share(p.kv_bytes, p.weight_bytes + p.kv_bytes)); };
  const std::string summary = "From position " + Thousands(static_cast<uint64_t>(first.position + 0.5)) + " to " +
                              Thousands(static_cast<uint64_t>(last.position + 0.5)) + " the KV cache's part of the bytes goes from " +
                              part(first) + " to " + part(last) + "." + PointsNote(decode);
  return Figure{"depth", "Bytes of a decode token over its position", summary, [chart](double width) { return DrawLines(chart, width); },
                std::move(table)};
}

std::optional<Figure> BandwidthFigure(const ReportData& run) {
  const DecodePoints decode = PointsOfDecode(run);
  LineChart chart;
  chart.x_name = "position";
  chart.y_name = "bytes a second";
  chart.dots = true;
  chart.series = {{"decode", {}, "accent"}};
  DataTable table{"Bytes a second of decode by position", {"position", "bytes a token", "time a token", "bytes a second"}, {}};
  const double roof = run.roofs.bytes_per_second;
  if (roof > 0) table.head.emplace_back("of the roof");
  double bytes = 0, seconds = 0;
  for (const DecodePoint& point : decode.points) {
    const double moved = point.weight_bytes + point.kv_bytes, rate = Share(moved, point.seconds);
    bytes += moved;
    seconds += point.seconds;
    chart.x.push_back(point.position);
    chart.series[0].values.push_back(rate);
    table.rows.push_back({CountCell(static_cast<uint64_t>(point.position + 0.5)), CountCell(static_cast<uint64_t>(moved + 0.5)),
                          SiCell(point.seconds, "s"), SiCell(rate, "B/s")});
    if (roof > 0) table.rows.back().push_back(PercentCell(rate / roof));
  }
  if (seconds <= 0) return std::nullopt;
  std::string summary = "Weights and KV cache together: mean " + Si(bytes / seconds, "B/s");
  if (roof > 0) {
    chart.levels = {{"roof " + Si(roof, "B/s"), roof}};
    summary += ", " + Percent(bytes / seconds / roof) + " of the roof, " + Si(roof, "B/s") + " (" + run.roofs.how + ")";
  }
  return Figure{"bandwidth", "Bytes a second of decode, under the roof", summary + "." + PointsNote(decode),
                [chart](double width) { return DrawLines(chart, width); }, std::move(table)};
}

std::optional<Figure> ExpertsFigure(const ReportData& run) {
  HeatMap map{"layer", "expert", "tokens", {}, 0, {}};
  for (const LayerExperts& layer : run.experts) map.columns = std::max(map.columns, layer.tokens.size());
  if (map.columns == 0) return std::nullopt;
  DataTable table{"Tokens routed to each expert", {"layer"}, {}};
  for (size_t e = 0; e < map.columns; ++e) table.head.push_back("expert " + std::to_string(e));
  uint64_t most = 0, idle = 0;
  std::string busiest;
  for (const LayerExperts& layer : run.experts) {
    map.rows.push_back(std::to_string(layer.layer));
    std::vector<Cell> row = {Cell(map.rows.back(), static_cast<double>(layer.layer))};
    for (size_t e = 0; e < map.columns; ++e) {
      const uint64_t tokens = e < layer.tokens.size() ? layer.tokens[e] : 0;
      map.values.push_back(static_cast<double>(tokens));
      row.push_back(CountCell(tokens));
      if (tokens > most) most = tokens, busiest = "expert " + std::to_string(e) + " of layer " + map.rows.back();
      if (tokens == 0 && e < layer.tokens.size()) ++idle;
    }
    table.rows.push_back(std::move(row));
  }
  const std::string summary = "The most tokens, " + Thousands(most) + ", went to " + busiest + ". " +
                              (idle == 0 ? "Every expert was used." : Thousands(idle) + " of " + Thousands(map.values.size()) + " were not used.");
  return Figure{"experts", "Tokens routed to each expert of each layer", summary,
                [map](double width) { return DrawHeatMap(map, width); }, std::move(table)};
}

std::optional<Figure> ExpertUnionFigure(const ReportData& run) {
  LineChart chart;
  chart.x_name = "layer";
  chart.y_name = "experts read by a step";
  chart.series = {{"measured", {}, "accent"}, {"uniform", {}, "grey"}};
  DataTable table{"Experts that a step reads, by layer", {"layer", "measured, mean of the steps", "expected of uniform routing"}, {}};
  double measured = 0, expected = 0;
  for (const LayerExperts& layer : run.experts) {
    chart.x.push_back(static_cast<double>(layer.layer));
    chart.series[0].values.push_back(layer.mean_union);
    chart.series[1].values.push_back(layer.expected_union);
    measured += layer.mean_union;
    expected += layer.expected_union;
    table.rows.push_back({Cell(std::to_string(layer.layer), static_cast<double>(layer.layer)), Cell(Decimal(layer.mean_union), layer.mean_union),
                          Cell(Decimal(layer.expected_union), layer.expected_union)});
  }
  if (measured <= 0) return std::nullopt;
  const double layers = static_cast<double>(run.experts.size());
  const std::string summary = "A step reads the experts that its tokens choose between them: " + Decimal(measured / layers) +
                              " a layer, where uniform routing is expected to read " + Decimal(expected / layers) + ".";
  return Figure{"union", "Experts read by a step, and what uniform routing expects", summary,
                [chart](double width) { return DrawLines(chart, width); }, std::move(table)};
}

std::optional<Figure> RooflineFigure(const ReportData& run) {
  RooflineChart chart;
  chart.bytes_per_second = run.roofs.bytes_per_second;
  for (const MachineRoofs::Peak& peak : run.roofs.peaks) {
    if (peak.flops_per_second > 0) chart.peaks.push_back({peak.name + " " + Si(peak.flops_per_second, "FLOP/s"), peak.flops_per_second});
  }
  DataTable table{"Ops by class: work, traffic and time", {"ops", "phase", "FLOPs", "bytes", "time", "FLOPs a byte", "FLOP/s", "bytes a second"}, {}};
  for (const OpClass& ops : run.op_classes) {
    if (ops.seconds <= 0 || ops.flops <= 0 || ops.bytes <= 0) continue;
    const double intensity = ops.flops / ops.bytes, rate = ops.flops / ops.seconds;
    const std::string phase = ops.decode ? "decode" : "prefill";
    chart.marks.push_back({ops.name, ops.name + ", " + phase + ": " + Si(rate, "FLOP/s") + " at " + Decimal(intensity) + " FLOPs a byte",
                           intensity, rate, ops.decode ? "accent" : "hollow"});
    table.rows.push_back({ops.name, phase, SiCell(ops.flops, "FLOP"), SiCell(ops.bytes, "B"), SiCell(ops.seconds, "s"),
                          Cell(Decimal(intensity), intensity), SiCell(rate, "FLOP/s"), SiCell(ops.bytes / ops.seconds, "B/s")});
  }
  if (chart.marks.empty()) return std::nullopt;
  std::string summary = "Filled: decode. Hollow: prefill. Work that is useful, bytes as packed.";
  if (!run.roofs.how.empty()) summary += " Roofs: " + run.roofs.how + ".";
  return Figure{"roofline", "Classes of ops under the machine's roofs", summary, [chart](double width) { return DrawRoofline(chart, width); },
                std::move(table)};
}

std::optional<Figure> TimeFigure(const ReportData& run) {
  constexpr size_t kMost = 12;
  const std::vector<OpTime> times = TimesByOp(run);
  if (times.empty()) return std::nullopt;
  double all = 0;
  for (const OpTime& time : times) all += time.seconds;
  BarChart chart;
  DataTable table{"Time by op", {"op", "calls", "time", "share"}, {}};
  double rest = 0;
  for (size_t i = 0; i < times.size(); ++i) {
    const OpTime& time = times[i];
    const std::string share = Percent(time.seconds / all);
    table.rows.push_back({time.name, CountCell(time.calls), SiCell(time.seconds, "s"), PercentCell(time.seconds / all)});
    if (i < kMost) {
      chart.bars.push_back({time.name, time.seconds, Si(time.seconds, "s") + " · " + share, Thousands(time.calls) + " calls", "bar"});
    } else {
      rest += time.seconds;
    }
  }
  if (times.size() > kMost) {
    chart.bars.push_back({std::to_string(times.size() - kMost) + " others", rest, Si(rest, "s") + " · " + Percent(rest / all), {}, "bar"});
  }
  const std::string summary = "Ops took " + Si(all, "s") + ", " + Percent(times[0].seconds / all) + " of it " + times[0].name + ".";
  return Figure{"time", "Time by op", summary, [chart](double width) { return DrawBars(chart, width); }, std::move(table)};
}

std::vector<Figure> AllFigures(const ReportData& run) {
  std::vector<Figure> all;
  for (const auto make : {ParametersFigure, FlopsFigure, BytesFigure, DepthFigure, BandwidthFigure, ExpertsFigure, ExpertUnionFigure,
                          RooflineFigure, TimeFigure}) {
    if (std::optional<Figure> figure = make(run)) all.push_back(std::move(*figure));
  }
  return all;
}

}  // namespace tally::report
