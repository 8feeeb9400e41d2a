// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>

#include "engine/page/axis.h"
#include "engine/page/charts.h"
#include "engine/page/labels.h"

namespace tally::page {
namespace {

constexpr double kNames = 16, kLeaders = 16, kBar = 34, kTrack = 36, kTrackBar = 10, kGap = 12;

std::string ShareText(uint64_t part, uint64_t total) {
  return Percent(total == 0 ? 0 : static_cast<double>(part) / static_cast<double>(total));
}

struct Label {
  size_t part;
  std::string text;
};

// Labels of parts that do not hold their names, in the bar's order: with shares where all have room in one line, without them, then
// without the smallest.
std::vector<Label> Outside(const TrackChart& chart, std::vector<size_t> parts, uint64_t total, double width) {
  const auto labels = [&](bool shares) {
    std::vector<Label> all;
    for (const size_t p : parts) {
      const TrackChart::Part& part = chart.parts[p];
      all.push_back({p, shares ? part.name + " " + ShareText(part.size, total) : part.name});
    }
    return all;
  };
  const auto fits = [&](const std::vector<Label>& all) {
    double sum = -kGap;
    for (const Label& l : all) sum += TextWidth(l.text) + kGap;
    return sum <= width;
  };
  for (const bool shares : {true, false}) {
    if (std::vector<Label> all = labels(shares); fits(all)) return all;
  }
  while (!parts.empty()) {
    parts.erase(std::min_element(parts.begin(), parts.end(),
                                 [&](size_t a, size_t b) { return chart.parts[a].size < chart.parts[b].size; }));
    if (std::vector<Label> all = labels(false); fits(all)) return all;
  }
  return {};
}

}  // namespace

Svg DrawTracks(const TrackChart& chart, double width) {
  uint64_t total = 0;
  std::vector<double> edges = {0};
  for (const TrackChart::Part& part : chart.parts) total += part.size;
  for (uint64_t sum = 0; const TrackChart::Part& part : chart.parts) {
    sum += part.size;
    edges.push_back(total == 0 ? 0 : static_cast<double>(sum) / static_cast<double>(total) * width);
  }
  const double bar = kNames + kLeaders, tracks = bar + kBar + 14;
  Svg svg(width, tracks + kTrack * static_cast<double>(chart.tracks.size()));

  std::vector<size_t> outside;
  for (size_t i = 0; i < chart.parts.size(); ++i) {
    const TrackChart::Part& part = chart.parts[i];
    const std::string share = ShareText(part.size, total);
    const double room = edges[i + 1] - edges[i];
    svg.Rect(edges[i], bar, room, kBar, i % 2 == 0 ? "part fill-1" : "part fill-2",
             part.name + ": " + Thousands(part.size) + ", " + share);
    if (TextWidth(part.name + "  " + share) + 12 > room) {
      outside.push_back(i);
    } else {
      svg.Text({edges[i] + 8, bar + 21.5}, part.name + "  " + share);
    }
  }
  const std::vector<Label> labels = Outside(chart, outside, total, width);
  std::vector<double> wanted, gaps;
  for (const Label& l : labels) {
    const double w = TextWidth(l.text);
    wanted.push_back((edges[l.part] + edges[l.part + 1] - w) / 2);
    gaps.push_back(w + kGap);
  }
  const std::vector<double> at = Spread(wanted, gaps, 0, width - (labels.empty() ? 0 : TextWidth(labels.back().text)));
  for (size_t i = 0; i < labels.size(); ++i) {
    const double from = at[i] + TextWidth(labels[i].text) / 2, to = (edges[labels[i].part] + edges[labels[i].part + 1]) / 2;
    svg.Text({at[i], kNames - 4}, labels[i].text);
    svg.Line({from, kNames + 1}, {to, bar - 1}, "leader");
  }

  for (size_t t = 0; t < chart.tracks.size(); ++t) {
    const TrackChart::Track& track = chart.tracks[t];
    const double top = tracks + kTrack * static_cast<double>(t);
    svg.Text({0, top + 12}, track.name, "strong");
    svg.Text({width, top + 12}, track.text, {}, Anchor::kEnd);
    svg.Rect(0, top + 18, width, kTrackBar, "empty");
    for (size_t i = 0; i < chart.parts.size(); ++i) {
      const uint64_t size = chart.parts[i].size, counted = std::min(track.counted[i], size);
      if (counted == 0) continue;
      const double share = static_cast<double>(counted) / static_cast<double>(size);
      svg.Rect(edges[i], top + 18, (edges[i + 1] - edges[i]) * share, kTrackBar, "active",
               track.name + ", " + chart.parts[i].name + ": " + Thousands(counted) + " of " + Thousands(size));
    }
  }
  return svg;
}

}  // namespace tally::page
