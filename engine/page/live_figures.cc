// SPDX-License-Identifier: Apache-2.0
#include "engine/page/live_figures.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "engine/page/axis.h"
#include "engine/page/charts.h"

namespace tally {
namespace {

using Json = nlohmann::ordered_json;
using page::Real;
using page::Share;
using page::Si;

constexpr double kWidth = 340;
constexpr std::array<std::string_view, 5> kMoved = {"weights packed", "KV read", "KV written", "state read", "state written"};

uint64_t Sum(const std::vector<LiveAmount>& amounts) {
  uint64_t sum = 0;
  for (const LiveAmount& a : amounts) sum += a.amount;
  return sum;
}

std::vector<LiveAmount> Moved(const LiveStep& step) {
  std::vector<LiveAmount> moved;
  for (const LiveAmount& a : step.bytes_by_kind) {
    if (a.amount > 0 && std::find(kMoved.begin(), kMoved.end(), a.name) != kMoved.end()) moved.push_back(a);
  }
  return moved;
}

// Means of a step's rows.
struct Token {
  double seconds = 0, flops = 0, bytes = 0;
  double read_seconds = 0, flops_seconds = 0;  // at the roofs; 0: not known
};

double PeakOf(const ReportRoofs& roofs, std::string_view type) {
  for (const ReportRoofs::Peak& peak : roofs.peaks) {
    if (peak.type == type) return peak.per_second;
  }
  return 0;
}

Token TokenOf(const LiveFigures& figures) {
  const LiveStep& step = figures.step;
  if (step.rows == 0) return {};
  const double rows = Real(step.rows);
  Token token{step.seconds / rows, Real(Sum(step.flops_by_class)) / rows, Real(Sum(Moved(step))) / rows};
  if (!figures.roofs.known) return token;
  token.read_seconds = Share(token.bytes, figures.roofs.read);
  for (const LiveAmount& a : step.flops_by_type) {
    const double peak = PeakOf(figures.roofs, a.name);
    if (a.amount > 0 && peak <= 0) return token;  // a part is not known, so the whole is not
    token.flops_seconds += Share(Real(a.amount) / rows, peak);
  }
  return token;
}

Json AmountsJson(const std::vector<LiveAmount>& amounts) {
  Json json = Json::object();
  for (const LiveAmount& a : amounts) json[a.name] = a.amount;
  return json;
}

Json StepJson(const LiveStep& step) {
  return {{"number", step.number},
          {"steps", step.steps},
          {"rows", step.rows},
          {"seconds", step.seconds},
          {"flops", Sum(step.flops_by_class)},
          {"bytes", Sum(Moved(step))},
          {"flops_by_class", AmountsJson(step.flops_by_class)},
          {"flops_by_type", AmountsJson(step.flops_by_type)},
          {"bytes_by_kind", AmountsJson(step.bytes_by_kind)}};
}

Json RoofsJson(const ReportRoofs& roofs, const Token& token) {
  Json peaks = Json::object();
  for (const ReportRoofs::Peak& peak : roofs.peaks) peaks[peak.type] = peak.per_second;
  return {{"read", roofs.read},
          {"flops", std::move(peaks)},
          {"read_seconds", token.read_seconds},
          {"flops_seconds", token.flops_seconds}};
}

std::string Element(const page::Svg& svg, std::string_view title, const std::string& words) {
  return svg.Element(title, words, "picture");
}

std::string LastSteps(const LiveStep& step) {
  return step.steps > 1 ? "last " + std::to_string(step.steps) + " steps, mean" : "last step";
}

std::string ParametersPicture(const LiveFigures& f) {
  const uint64_t active = std::min(f.active_parameters, f.parameters),
                 touched = std::min(f.step.parameters_touched, f.parameters);
  page::BarChart chart;
  chart.bars.push_back({"total", Real(f.parameters), page::ShortCount(f.parameters), "", "fill-2"});
  chart.bars.push_back({"active", Real(active),
                        page::ShortCount(active) + ", " + page::Percent(Share(Real(active), Real(f.parameters))),
                        "what one token uses, embedding and head counted", "bar"});
  if (touched > 0) {
    const std::string steps = LastSteps(f.step);
    chart.bars.push_back({steps, Real(touched), page::ShortCount(touched), "read by the kernels of a step: " + steps, "bar"});
  }
  return Element(DrawBars(chart, kWidth), "Parameters",
                 page::Thousands(active) + " of " + page::Thousands(f.parameters) + " parameters are active for a token.");
}

std::string TimePicture(const Token& token) {
  page::BarChart chart;
  chart.bars.push_back({"this token", token.seconds, Si(token.seconds, "s"), "", "bar"});
  std::string words = "This token took " + Si(token.seconds, "s") + ".";
  const auto roof = [&](const char* name, double seconds, const char* tip, const char* fill, const char* sentence) {
    if (seconds <= 0) return;
    chart.bars.push_back({name, seconds, Si(seconds, "s"), tip, fill});
    words += sentence + Si(seconds, "s") + ".";
  };
  roof("its bytes, at best", token.read_seconds, "its bytes at the bandwidth that this machine reads with at most", "fill-3",
       " At the bandwidth of memory its bytes take ");
  roof("its FLOPs, at best", token.flops_seconds, "its FLOPs at this machine's peaks of their types", "fill-2",
       " At the peaks of arithmetic its FLOPs take ");
  return Element(DrawBars(chart, kWidth), "Time of a token", words);
}

// Each step's time a token, and what its bytes take at the bandwidth of memory.
std::string RecentPicture(const LiveFigures& f) {
  page::LineChart chart;
  chart.x_name = "step";
  chart.y_name = "ms a token";
  chart.series = {{"took", {}, "accent"}};
  const bool roof = f.roofs.known && f.roofs.read > 0;
  if (roof) chart.series.push_back({"at best", {}, "grey"});
  for (const LiveMoment& m : f.recent) {
    if (m.rows == 0 || (!chart.x.empty() && Real(m.step) <= chart.x.back())) continue;
    chart.x.push_back(Real(m.step));
    chart.series[0].values.push_back(m.seconds * 1000 / m.rows);
    if (roof) chart.series[1].values.push_back(Real(m.bytes) / f.roofs.read * 1000 / m.rows);
  }
  if (chart.x.size() < 2) return "";
  return Element(
      DrawLines(chart, kWidth), "Time of a token, by step",
      "The last " + std::to_string(chart.x.size()) + " steps" + (roof ? ", and their bytes at the bandwidth of memory." : "."));
}

// Those that can be seen, the largest first, each as a token's mean.
std::string AmountsPicture(std::vector<LiveAmount> amounts, double rows, std::string_view unit, std::string_view title) {
  std::stable_sort(amounts.begin(), amounts.end(), [](const LiveAmount& a, const LiveAmount& b) { return a.amount > b.amount; });
  const double all = Real(Sum(amounts));
  page::BarChart chart;
  std::string words;
  for (const LiveAmount& a : amounts) {
    if (a.amount == 0 || chart.bars.size() == 5) break;
    const double mean = Real(a.amount) / rows;
    chart.bars.push_back({a.name, mean, Si(mean, unit), page::Percent(Share(Real(a.amount), all)), "bar"});
    words += (words.empty() ? "" : ", ") + a.name + " " + Si(mean, unit);
  }
  return Element(DrawBars(chart, kWidth), title, words + ".");
}

std::string RooflinePicture(const LiveFigures& f, const Token& token) {
  page::RooflineChart chart;
  chart.bytes_per_second = f.roofs.read;
  for (const ReportRoofs::Peak& peak : f.roofs.peaks) {
    chart.peaks.push_back({peak.type + " " + Si(peak.per_second, "FLOP/s"), peak.per_second});
  }
  const double intensity = Share(token.flops, token.bytes), rate = Share(token.flops, token.seconds);
  const std::string words = page::Decimal(intensity) + " FLOPs a byte, " + Si(rate, "FLOP/s");
  const std::string steps = LastSteps(f.step);
  chart.marks.push_back({steps, words, intensity, rate, "accent"});
  return Element(DrawRoofline(chart, kWidth), "The " + steps + " under the roofs of this machine", words + ".");
}

std::string MemoryPicture(const LiveFigures& f) {
  page::BarChart chart;
  chart.extent = Real(f.budget_bytes);
  const auto bar = [&](const char* name, uint64_t bytes, const char* css_class) {
    chart.bars.push_back({name, Real(bytes), Si(Real(bytes), "B"), "", css_class});
  };
  bar("keys and values", f.kv_bytes, "bar");
  if (f.state_bytes > 0) bar("states", f.state_bytes, "bar");
  if (f.budget_bytes > 0) bar("budget", f.budget_bytes, "fill-2");
  return Element(DrawBars(chart, kWidth), "Memory of the conversations",
                 Si(Real(f.kv_bytes + f.state_bytes), "B") + " in use" +
                     (f.budget_bytes > 0 ? " of " + Si(Real(f.budget_bytes), "B") : "") + ".");
}

struct ExpertMap {
  page::HeatMap map = {"layer", "expert", "tokens", {}, 0, {}};
  std::vector<bool> lit;
};

ExpertMap ExpertsOf(const std::vector<LiveExperts>& layers) {
  ExpertMap out;
  for (const LiveExperts& layer : layers) out.map.columns = std::max(out.map.columns, layer.total.size());
  for (const LiveExperts& layer : layers) {
    out.map.rows.push_back(std::to_string(layer.layer));
    for (size_t e = 0; e < out.map.columns; ++e) {
      out.map.values.push_back(e < layer.total.size() ? Real(layer.total[e]) : 0);
      out.lit.push_back(e < layer.step.size() && layer.step[e] > 0);
    }
  }
  return out;
}

Json PicturesJson(const LiveFigures& f, const Token& token, const ExpertMap& experts, LiveParts parts) {
  Json pictures = Json::object();
  if (f.parameters > 0) pictures["parameters"] = ParametersPicture(f);
  if (token.seconds > 0) pictures["time"] = TimePicture(token);
  if (std::string recent = RecentPicture(f); !recent.empty()) pictures["recent"] = std::move(recent);
  const double rows = f.step.rows;
  if (token.bytes > 0) pictures["bytes"] = AmountsPicture(Moved(f.step), rows, "B", "Bytes of a token");
  if (token.flops > 0) pictures["flops"] = AmountsPicture(f.step.flops_by_class, rows, "FLOP", "FLOPs of a token");
  if (f.roofs.known && token.flops > 0 && token.bytes > 0 && token.seconds > 0) pictures["roofline"] = RooflinePicture(f, token);
  if (f.kv_bytes + f.state_bytes + f.budget_bytes > 0) pictures["memory"] = MemoryPicture(f);
  if (parts == LiveParts::kAll && experts.map.columns > 0) {
    pictures["experts"] = Element(DrawHeatFrame(experts.map, kWidth), "Experts by layer",
                                  "How often each expert was used since the server began, and which the last step used.");
  }
  return pictures;
}

}  // namespace

std::string LiveEvent(const LiveFigures& f, LiveParts parts) {
  const Token token = TokenOf(f);
  const ExpertMap experts = ExpertsOf(f.experts);
  const Json json = {
      {"model", f.model},
      {"tokens", f.tokens},
      {"running", f.running},
      {"waiting", f.waiting},
      {"parameters", {{"total", f.parameters}, {"active", f.active_parameters}, {"touched", f.step.parameters_touched}}},
      {"memory", {{"kv", f.kv_bytes}, {"state", f.state_bytes}, {"budget", f.budget_bytes}}},
      {"step", StepJson(f.step)},
      {"token", {{"seconds", token.seconds}, {"flops", token.flops}, {"bytes", token.bytes}}},
      {"roofs", RoofsJson(f.roofs, token)},
      {"experts", HeatLevels(experts.map, experts.lit)},
      {"pictures", PicturesJson(f, token, experts, parts)}};
  return "event: step\ndata: " + json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n\n";
}

}  // namespace tally
