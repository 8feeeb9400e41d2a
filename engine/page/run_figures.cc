// SPDX-License-Identifier: Apache-2.0
#include "engine/page/run_figures.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "engine/page/axis.h"
#include "engine/page/charts.h"

namespace tally::page {
namespace {

struct Part {
  std::string name;
  ReportParameters parameters = {};
};

// Components by their parts, in the order in which a reader looks for them.
std::vector<Part> PartsOf(const ReportData& run) {
  std::vector<Part> parts;
  for (const char* name :
       {"embedding", "embedding and head", "attention projections", "feed-forward", "experts", "router", "norms", "head"})
    parts.push_back({name});
  for (const ReportComponent& c : run.components) {
    auto part = std::find_if(parts.begin(), parts.end(), [&](const Part& p) { return p.name == c.part; });
    if (part == parts.end()) part = parts.insert(part, {c.part});
    for (size_t i = 0; i < kReportConventions; ++i) part->parameters[i] += c.parameters[i];
  }
  std::erase_if(parts, [](const Part& p) { return p.parameters[0] == 0; });
  return parts;
}

// How many parameters a convention counts of a part; a decode step's are a mean.
uint64_t Counted(const ReportData& run, const ReportParameters& parameters, size_t convention) {
  if (convention != static_cast<size_t>(ReportConvention::kTouchedDecode)) return parameters[convention];
  return run.decode_steps > 0 ? Whole(Real(parameters[convention]) / Real(run.decode_steps)) : 0;
}

}  // namespace

std::vector<OpTime> TimesByOp(const ReportData& run) {
  std::map<std::string, OpTime> by_name;
  for (const ReportRow& row : run.rows) {
    const std::string name = row.component + ", " + row.op;
    OpTime& time = by_name[name];
    time.name = name;
    time.runs += row.runs;
    time.seconds += Seconds(row.work.ns);
  }
  std::vector<OpTime> times;
  for (auto& [name, time] : by_name) {
    if (time.seconds > 0) times.push_back(std::move(time));
  }
  std::stable_sort(times.begin(), times.end(), [](const OpTime& a, const OpTime& b) { return a.seconds > b.seconds; });
  return times;
}

std::optional<Figure> ParametersFigure(const ReportData& run) {
  const std::vector<Part> parts = PartsOf(run);
  uint64_t total = 0;
  for (const Part& part : parts) total += part.parameters[0];
  if (total == 0) return std::nullopt;
  TrackChart chart;
  Table table{"Parameters by part and convention", {"part", "total", "share"}, {}};
  for (const Part& part : parts) {
    chart.parts.push_back({part.name, part.parameters[0]});
    table.rows.push_back({part.name, CountCell(part.parameters[0]), PercentCell(Share(Real(part.parameters[0]), Real(total)))});
  }
  table.rows.push_back({"sum", CountCell(total), PercentCell(1)});
  std::string summary =
      "The upper bar is all " + Thousands(total) + " parameters by where they live. Each line below colours what it counts.";
  for (size_t i = 1; i < kReportConventions; ++i) {
    TrackChart::Track track{std::string(kReportConventionNames[i]), {}, {}};
    uint64_t sum = 0;
    for (const Part& part : parts) {
      track.counted.push_back(Counted(run, part.parameters, i));
      sum += track.counted.back();
    }
    if (sum == 0) continue;
    track.text = Thousands(sum) + " · " + Percent(Share(Real(sum), Real(total)));
    table.columns.push_back(track.name);
    for (size_t p = 0; p < parts.size(); ++p) table.rows[p].push_back(CountCell(track.counted[p]));
    table.rows.back().push_back(CountCell(sum));
    summary += " " + track.name + ": " + std::string(kReportConventionMeanings[i]) + ".";
    chart.tracks.push_back(std::move(track));
  }
  return Figure{"parameters", "Parameters by part, and those that each convention counts", summary,
                [chart](double width, double) { return DrawTracks(chart, width); }, std::move(table)};
}

std::optional<Figure> ExpertsFigure(const ReportData& run) {
  HeatMap map{"layer", "expert", "tokens", {}, 0, {}};
  for (const ReportExperts& layer : run.experts) map.columns = std::max(map.columns, layer.tokens.size());
  if (map.columns == 0) return std::nullopt;
  Table table{"Tokens routed to each expert", {"layer"}, {}};
  for (size_t e = 0; e < map.columns; ++e) table.columns.push_back("expert " + std::to_string(e));
  uint64_t most = 0, idle = 0;
  std::string busiest;
  for (const ReportExperts& layer : run.experts) {
    map.rows.push_back(std::to_string(layer.layer));
    std::vector<Cell> row = {Cell(map.rows.back(), layer.layer)};
    for (size_t e = 0; e < map.columns; ++e) {
      const uint64_t tokens = e < layer.tokens.size() ? layer.tokens[e] : 0;
      map.values.push_back(Real(tokens));
      row.push_back(CountCell(tokens));
      if (tokens > most) most = tokens, busiest = "expert " + std::to_string(e) + " of layer " + map.rows.back();
      if (tokens == 0 && e < layer.tokens.size()) ++idle;
    }
    table.rows.push_back(std::move(row));
  }
  if (most == 0) return std::nullopt;
  const std::string summary = "The most tokens, " + Thousands(most) + ", went to " + busiest + ". " +
                              (idle == 0 ? "Every expert was used."
                                         : Thousands(idle) + " of " + Thousands(map.values.size()) + " experts were not used.");
  return Figure{"experts", "Tokens routed to each expert of each layer", summary, Drawn(map, DrawHeatMap), std::move(table),
                Real(most)};
}

std::optional<Figure> ExpertUnionFigure(const ReportData& run) {
  LineChart chart;
  chart.x_name = "layer";
  chart.y_name = "experts";
  chart.series = {{"uniform", {}, "grey"}, {"used", {}, "accent"}};
  Table table{"Experts that the run used, by layer",
              {"layer", "used", "expected of uniform routing", "experts", "mean of a step", "expected of it"},
              {}};
  double used = 0, expected = 0, most = 0;
  for (const ReportExperts& layer : run.experts) {
    double step_used = 0, step_expected = 0;
    for (const ReportExperts::Union& u : layer.unions) step_used += Real(u.used), step_expected += u.expected;
    const double steps = std::max(Real(layer.unions.size()), 1.0);
    chart.x.push_back(layer.layer);
    chart.series[0].values.push_back(layer.run_expected);
    chart.series[1].values.push_back(Real(layer.run_union));
    used += Real(layer.run_union);
    expected += layer.run_expected;
    most = std::max(most, Real(layer.experts));
    table.rows.push_back({Cell(std::to_string(layer.layer), layer.layer), CountCell(layer.run_union),
                          Cell(Decimal(layer.run_expected), layer.run_expected), CountCell(layer.experts),
                          Cell(Decimal(step_used / steps), step_used / steps),
                          Cell(Decimal(step_expected / steps), step_expected / steps)});
  }
  if (used <= 0) return std::nullopt;
  chart.levels = {{"all", most}};
  const double layers = static_cast<double>(run.experts.size());
  const std::string summary = "The run's tokens used " + Decimal(used / layers) +
                              " experts of a layer, mean of the layers; uniform routing of as many tokens is expected to use " +
                              Decimal(expected / layers) + " of " + Decimal(most) + ". The table has the same of a step.";
  return Figure{"union",          "Experts used by the run, and what uniform routing expects",
                summary,          Drawn(chart, DrawLines),
                std::move(table), most};
}

ExpertReads ReadsOf(const ReportData& run, std::string_view phase) {
  ExpertReads sum;
  std::set<uint64_t> steps;
  for (const ReportStep& step : run.steps) {
    if (!phase.empty() && step.phase != phase) continue;
    steps.insert(step.number);
    sum.seconds += Seconds(step.span_ns);
  }
  for (const ReportExperts& layer : run.experts) {
    for (const ReportExperts::Read& read : layer.reads) {
      if (!steps.contains(read.step)) continue;
      sum.hits += read.hits;
      sum.misses += read.misses;
      sum.first_uses += read.first_uses;
      sum.bytes += Real(read.misses) * Real(layer.record_bytes);
    }
  }
  return sum;
}

std::optional<Figure> ExpertReadsFigure(const ReportData& run) {
  constexpr size_t kMostColumns = 96;
  const ExpertReads all = ReadsOf(run, "");
  if (all.hits + all.misses == 0) return std::nullopt;
  const size_t each = (run.steps.size() + kMostColumns - 1) / kMostColumns;
  std::map<uint64_t, size_t> column_of;
  for (size_t i = 0; i < run.steps.size(); ++i) column_of[run.steps[i].number] = i / each;
  HeatMap map{"layer", each == 1 ? "step" : std::to_string(each) + " steps each", "%", {}, (run.steps.size() + each - 1) / each,
              {}};
  Table table{"Experts that steps chose, by layer",
              {"layer", "experts", "slots", "in memory", "from disk", "share in memory", "first uses", "bytes from disk"},
              {}};
  for (const ReportExperts& layer : run.experts) {
    if (layer.slots == 0) continue;
    std::vector<uint64_t> hits(map.columns), misses(map.columns);
    uint64_t hit = 0, missed = 0, first = 0;
    for (const ReportExperts::Read& read : layer.reads) {
      const auto column = column_of.find(read.step);
      if (column == column_of.end()) continue;
      hits[column->second] += read.hits;
      misses[column->second] += read.misses;
      hit += read.hits, missed += read.misses, first += read.first_uses;
    }
    map.rows.push_back(std::to_string(layer.layer));
    for (size_t c = 0; c < map.columns; ++c) map.values.push_back(100 * Share(Real(misses[c]), Real(hits[c] + misses[c])));
    table.rows.push_back({Cell(map.rows.back(), layer.layer), CountCell(layer.experts), CountCell(layer.slots), CountCell(hit),
                          CountCell(missed), PercentCell(Share(Real(hit), Real(hit + missed))), CountCell(first),
                          CountCell(missed * layer.record_bytes)});
  }
  const std::string summary = "Of " + Thousands(all.hits + all.misses) + " experts that the steps chose, " +
                              Percent(Share(Real(all.hits), Real(all.hits + all.misses))) + " were in memory; " +
                              Thousands(all.misses) + " were read from disk, " + Si(all.bytes, "B") + ", " +
                              Thousands(all.first_uses) + " of them for the first time. Darker: more of a layer's were read.";
  return Figure{"reads", "Experts read from disk, by layer and step", summary, Drawn(map, DrawHeatMap), std::move(table), 100};
}

std::optional<Figure> RooflineFigure(const ReportData& run) {
  RooflineChart chart;
  if (run.roofs.known) {
    chart.bytes_per_second = run.roofs.read;
    for (const ReportRoofs::Peak& peak : run.roofs.peaks) {
      if (peak.per_second > 0) chart.peaks.push_back({peak.type + " " + Si(peak.per_second, "FLOP/s"), peak.per_second});
    }
  }
  std::vector<const ReportOpClass*> classes;  // the longest have the first choice of a place for their names
  for (const ReportOpClass& c : run.op_classes) {
    if (c.intensity > 0 && c.per_second > 0) classes.push_back(&c);
  }
  if (classes.empty()) return std::nullopt;
  std::stable_sort(classes.begin(), classes.end(), [](const auto* a, const auto* b) { return a->work.ns > b->work.ns; });
  Table table{
      "Ops by class: work, traffic and time",
      {"op", "phase", "runs", "FLOPs", "bytes", "time", "FLOPs a byte", "FLOP/s", "bytes a second", "types", "of their peak"},
      {}};
  for (const ReportOpClass* c : classes) {
    const double seconds = Seconds(c->work.ns);
    const bool prefill = c->phase == "prefill";
    chart.marks.push_back({c->op,
                           c->op + ", " + c->phase + ": " + Si(c->per_second, "FLOP/s") + " at " + Decimal(c->intensity) +
                               " FLOPs a byte, " + Si(seconds, "s"),
                           c->intensity, c->per_second, prefill ? "hollow" : "accent"});
    table.rows.push_back({c->op, c->phase, CountCell(c->runs), CountCell(c->work.flops), CountCell(c->bytes),
                          SiCell(seconds, "s"), Cell(Decimal(c->intensity), c->intensity), SiCell(c->per_second, "FLOP/s"),
                          SiCell(Share(Real(c->bytes), seconds), "B/s"), c->peak_name,
                          c->peak > 0 ? PercentCell(c->per_second / c->peak) : Cell("")});
  }
  std::string summary =
      "Each circle is one kind of op; hollow ones are the prompt's. Useful FLOPs; bytes of packed weights, KV cache and "
      "activations.";
  if (run.roofs.known && !run.roofs.how.empty()) summary += " Roofs: " + run.roofs.how + ".";
  return Figure{"roofline", run.roofs.known ? "Kinds of ops under the machine's roofs" : "Kinds of ops by FLOPs a byte", summary,
                [chart](double width, double) { return DrawRoofline(chart, width); }, std::move(table)};
}

std::optional<Figure> TimeFigure(const ReportData& run) {
  constexpr size_t kMost = 12;
  const std::vector<OpTime> times = TimesByOp(run);
  if (times.empty()) return std::nullopt;
  double all = 0, rest = 0;
  for (const OpTime& time : times) all += time.seconds;
  BarChart chart;
  Table table{"Time by op", {"op", "runs", "time", "share"}, {}};
  for (size_t i = 0; i < times.size(); ++i) {
    const OpTime& time = times[i];
    table.rows.push_back({time.name, CountCell(time.runs), SiCell(time.seconds, "s"), PercentCell(time.seconds / all)});
    if (i < kMost) {
      chart.bars.push_back({time.name, time.seconds, Si(time.seconds, "s") + " · " + Percent(time.seconds / all),
                            Thousands(time.runs) + " runs", "bar"});
    } else {
      rest += time.seconds;
    }
  }
  if (times.size() > kMost) {
    chart.bars.push_back(
        {std::to_string(times.size() - kMost) + " others", rest, Si(rest, "s") + " · " + Percent(rest / all), {}, "bar"});
  }
  const std::string summary =
      "Kernels took " + Si(all, "s") + ", " + Percent(times[0].seconds / all) + " of it " + times[0].name + ".";
  return Figure{"time", "Time by op", summary, Drawn(chart, DrawBars), std::move(table), std::max(times[0].seconds, rest)};
}

std::optional<Figure> SpeedFigure(const ReportData& run) {
  if (run.speed.empty()) return std::nullopt;
  BarChart chart;
  Table table{"Tokens a second, as measured",
              {"work", "threads", "KV", "depth", "batch", "tokens a second", "least", "most", "of its roof", "roof"},
              {}};
  double most = 0;
  for (const ReportSpeed& s : run.speed) {
    const std::string name = s.work + " " + std::to_string(s.tokens) + (s.depth > 0 ? ", depth " + std::to_string(s.depth) : "") +
                             (s.batch > 1 ? ", batch " + std::to_string(s.batch) : "");
    const std::string setting = std::to_string(s.threads) + " threads, KV " + s.kv;
    chart.bars.push_back({name, s.tokens_per_second,
                          Decimal(s.tokens_per_second) + (s.of_roof > 0 ? " · " + Percent(s.of_roof) + " of its roof" : ""),
                          setting, "bar"});
    table.rows.push_back({name, CountCell(static_cast<uint64_t>(std::max(s.threads, 0))), s.kv,
                          CountCell(static_cast<uint64_t>(std::max<int64_t>(s.depth, 0))),
                          CountCell(static_cast<uint64_t>(std::max<int64_t>(s.batch, 0))),
                          Cell(Decimal(s.tokens_per_second), s.tokens_per_second), Cell(Decimal(s.least), s.least),
                          Cell(Decimal(s.most), s.most), s.of_roof > 0 ? PercentCell(s.of_roof) : Cell(""), s.roof});
    most = std::max(most, s.tokens_per_second);
  }
  return Figure{"speed",
                "Tokens a second",
                "Medians of the rounds, tokens a second, and their share of the roof that bounds them.",
                Drawn(chart, DrawBars),
                std::move(table),
                most};
}

}  // namespace tally::page
