// SPDX-License-Identifier: Apache-2.0
#include "engine/app/bench_report.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <span>
#include <string_view>
#include <vector>

#include "engine/base/format.h"
#include "engine/render/table.h"
#include "engine/render/words.h"

namespace tally::app {
namespace {

using books::WithThousands;
using Words = std::vector<std::string>;

std::string Described(const std::string& label, const std::string& text) { return Paragraph(label, text, kPlainWidth); }

// What tells points of a grid apart.
struct Coordinate {
  const char* column;
  std::string (*cell)(const SpeedPoint&);
  std::string (*words)(const SpeedPoint&);
};

constexpr Coordinate kCoordinates[] = {
    {"tokens", [](const SpeedPoint& p) { return std::to_string(p.tokens); },
     [](const SpeedPoint& p) { return Counted(p.tokens, "token"); }},
    {"depth", [](const SpeedPoint& p) { return std::to_string(p.depth); },
     [](const SpeedPoint& p) { return "depth " + WithThousands(static_cast<uint64_t>(p.depth)); }},
    {"batch", [](const SpeedPoint& p) { return std::to_string(p.batch); },
     [](const SpeedPoint& p) { return "batch " + WithThousands(static_cast<uint64_t>(p.batch)); }},
    {"threads", [](const SpeedPoint& p) { return std::to_string(p.threads); },
     [](const SpeedPoint& p) { return Counted(p.threads, "thread"); }},
    {"kv", [](const SpeedPoint& p) { return std::string(kKvTypeNames[static_cast<size_t>(p.kv)]); },
     [](const SpeedPoint& p) { return "KV " + std::string(kKvTypeNames[static_cast<size_t>(p.kv)]); }}};

template <class Point>
bool Varies(const std::vector<Point>& points, const Coordinate& c) {
  return std::any_of(points.begin(), points.end(), [&](const SpeedPoint& p) { return c.cell(p) != c.cell(points.front()); });
}

double FlopsPerSecond(const PrefillSpeed& p) { return p.flops / static_cast<double>(p.tokens) * p.rate.median; }

// The types in which a tenth of the work or more was done: "int8 and f32".
std::string PeakNames(const PrefillSpeed& p) {
  const double all = std::accumulate(p.flops_by_type.begin(), p.flops_by_type.end(), 0.0);
  std::string text;
  for (int a = kAriths - 1; a >= 0; --a) {
    if (p.flops_by_type[a] >= all / 10 && all > 0) text += (text.empty() ? "" : " and ") + std::string(kArithNames[a]);
  }
  return text + (text.empty() ? "" : " ") + "peak";
}

std::string RoofOf(const DecodeSpeed& p) { return OfRoof(p.ratio_of_bandwidth) + " of read bandwidth"; }
std::string RoofOf(const PrefillSpeed& p) { return OfRoof(p.ratio_of_peak) + " of " + PeakNames(p); }

template <class Point>
const Point& Fastest(const std::vector<Point>& points) {
  return *std::max_element(points.begin(), points.end(),
                           [](const Point& a, const Point& b) { return a.rate.median < b.rate.median; });
}

template <class Point>
std::string Verdict(const std::string& work, const std::vector<Point>& points, size_t digits) {
  if (points.empty()) return "";
  const Point& best = Fastest(points);
  Words where;
  for (const Coordinate& c : kCoordinates) {
    if (Varies(points, c)) where.push_back(c.words(best));
  }
  const std::string rate = ShortRate(best.rate.median);
  return Described(work, std::string(digits - std::min(digits, rate.size()), ' ') + rate + " tokens/s, " + RoofOf(best) +
                             (where.empty() ? "" : ": the fastest, " + Join(where, ", ")));
}

std::string Verdicts(const SpeedReport& r) {
  size_t digits = 0;
  const auto widen = [&](const auto& points) {
    if (!points.empty()) digits = std::max(digits, ShortRate(Fastest(points).rate.median).size());
  };
  widen(r.decode);
  widen(r.prefill);
  return Verdict("decode", r.decode, digits) + Verdict("prefill", r.prefill, digits);
}

// What all points have in common, but for their tokens: "2 threads, KV f16". `batches`: sequences are a coordinate of theirs.
template <class Point>
void AddCommon(const std::vector<Point>& points, bool batches, Words& words) {
  if (points.empty()) return;
  for (const Coordinate& c : kCoordinates) {
    const std::string_view column = c.column;
    const bool shown = column != "tokens" && (column != "batch" || batches);
    const std::string word = c.words(points.front());
    if (shown && !Varies(points, c) && std::find(words.begin(), words.end(), word) == words.end()) words.push_back(word);
  }
}

// The rounds that the medians are of.
std::string RoundsText(const SpeedReport& r) {
  int32_t rounds = 0, least = INT32_MAX;
  const auto look = [&](const auto& points) {
    for (const SpeedPoint& p : points) {
      rounds = std::max(rounds, p.rounds);
      least = std::min(least, p.kept > 0 ? p.kept : p.rounds);
    }
  };
  look(r.decode);
  look(r.prefill);
  if (least == rounds) return "medians of " + Counted(rounds, "round");
  return "medians of at least " + std::to_string(least) + " of " + Counted(rounds, "round") + ", in which the roofs held still";
}

std::string RoofsText(const MeasuredRoofs& m, bool names_threads) {
  Words words;
  if (m.bandwidth > 0) words.push_back("reads " + ShortGigabytes(m.bandwidth));
  const auto add = [&](const char* type, double peak, const char* unit) {
    if (peak > 0) words.push_back(std::string(type) + " " + ShortRate(peak / 1e9) + unit);
  };
  add("f32", m.peaks.f32, " GFLOP/s");
  add("bf16", m.peaks.bf16, " GFLOP/s");
  add("int8", m.peaks.int8, " GOP/s");
  return (names_threads ? Counted(m.threads, "thread") + ": " : "") + Join(words, ", ");
}

// The coordinates that vary, the tokens, and `columns` with their cells.
template <class Point>
Table PointTable(const std::string& title, const std::vector<Point>& points, const Words& columns,
                 const std::function<Words(const Point&)>& cells) {
  Table t{title, {}, std::vector<std::vector<Cell>>(points.size()), {}};
  for (const Coordinate& c : kCoordinates) {
    if (&c != kCoordinates && !Varies(points, c)) continue;
    t.columns.emplace_back(c.column);
    for (size_t i = 0; i < points.size(); ++i) t.rows[i].push_back(c.cell(points[i]));
  }
  t.columns.insert(t.columns.end(), columns.begin(), columns.end());
  for (size_t i = 0; i < points.size(); ++i) {
    const Words more = cells(points[i]);
    t.rows[i].insert(t.rows[i].end(), more.begin(), more.end());
  }
  return t;
}

std::string PointTables(const SpeedReport& r) {
  std::string text;
  if (!r.decode.empty()) {
    text += "\n" + Render(PointTable<DecodeSpeed>("decode", r.decode, {"tokens/s", "spread", "GB/s", "of read"},
                                                  [](const DecodeSpeed& p) -> Words {
                                                    return {ShortRate(p.rate.median), PlusMinus(p) + (p.kept == 0 ? "*" : ""),
                                                            ShortRate(p.bytes_per_token * p.rate.median / 1e9),
                                                            OfRoof(p.ratio_of_bandwidth)};
                                                  }),
                          TableFormat::kText);
  }
  if (!r.prefill.empty()) {
    text += "\n" + Render(PointTable<PrefillSpeed>("prefill", r.prefill, {"tokens/s", "spread", "GFLOP/s", "of peak"},
                                                   [](const PrefillSpeed& p) -> Words {
                                                     return {ShortRate(p.rate.median), PlusMinus(p) + (p.kept == 0 ? "*" : ""),
                                                             ShortRate(FlopsPerSecond(p) / 1e9), OfRoof(p.ratio_of_peak)};
                                                   }),
                          TableFormat::kText);
  }
  return text;
}

}  // namespace

int32_t RoundsOf(const SpeedPoint& p) { return p.kept > 0 ? p.kept : p.rounds; }

std::string PlusMinus(const SpeedPoint& p) {
  if (RoundsOf(p) < 2) return "-";
  return "+-" + Fixed(p.rate.median > 0 ? (p.rate.most - p.rate.least) / p.rate.median * 50 : 0, 1) + " %";
}

std::string SpreadNote(const SpeedReport& r) {
  const auto single = [](const auto& points) {
    return std::any_of(points.begin(), points.end(), [](const SpeedPoint& p) { return RoundsOf(p) < 2; });
  };
  return single(r.prefill) || single(r.decode) ? "; none of one round" : "";
}

bool AnyMoved(const SpeedReport& r) {
  const auto moved = [](const auto& points) {
    return std::any_of(points.begin(), points.end(), [](const SpeedPoint& p) { return p.kept == 0; });
  };
  return moved(r.prefill) || moved(r.decode);
}

std::string BenchScreen(const std::string& description, double load_seconds, const SpeedReport& r) {
  Words common;
  AddCommon(r.decode, true, common);
  AddCommon(r.prefill, false, common);
  common.push_back(r.target + " kernels" + (r.used_blas ? " and OpenBLAS" : ""));
  std::string text = Verdicts(r) + "\n";
  text += Described("model", Printable(description) + "; loaded in " + ShortSeconds(load_seconds));
  text += Described("run", Join(common, ", ") + "; " + RoundsText(r));
  for (const MeasuredRoofs& m : r.roofs)
    text += Described(&m == r.roofs.data() ? "machine" : "", RoofsText(m, r.roofs.size() > 1));
  text += Described("memory", "peak RSS " + BytesText(r.peak_resident) + ", planned " + BytesText(r.memory.total()));
  text += Described("checked", r.verified) + PointTables(r) + "\n";
  if (AnyMoved(r)) text += "*: the roofs moved by more than 10 % in every round: figures of all rounds\n";
  return text + "spread: half of the range of the rounds" + SpreadNote(r) + "; --full: all figures\n";
}

}  // namespace tally::app
