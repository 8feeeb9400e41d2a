// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "engine/page/axis.h"
#include "engine/page/charts.h"
#include "engine/page/labels.h"

namespace tally::page {
namespace {

constexpr double kTop = 26, kPlot = 200, kBottom = 38, kLine = 15, kTie = 14;

struct EndLabel {
  std::string text;
  double y = 0;  // of what it names, at the right end
  bool strong = false;
};

// What is drawn: one value alone is drawn as if it lasted.
LineChart Lasting(LineChart chart) {
  if (chart.x.size() != 1) return chart;
  chart.x = {chart.x[0] - 0.5, chart.x[0] + 0.5};
  for (LineChart::Series& s : chart.series) s.values.push_back(s.values[0]);
  return chart;
}

// Upper edges of areas on top of each other.
std::vector<std::vector<double>> Stacked(const LineChart& chart) {
  std::vector<std::vector<double>> tops;
  for (const LineChart::Series& s : chart.series) {
    std::vector<double> top = s.values;
    for (size_t i = 0; !tops.empty() && i < top.size(); ++i) top[i] += tops.back()[i];
    tops.push_back(std::move(top));
  }
  return tops;
}

double Highest(const LineChart& chart, const std::vector<std::vector<double>>& lines) {
  double most = chart.extent;
  for (const std::vector<double>& line : lines) {
    for (const double v : line) most = std::max(most, v);
  }
  for (const LineChart::Level& level : chart.levels) most = std::max(most, level.value);
  return most;
}

class Drawing {
 public:
  Drawing(const LineChart& chart, double width) : chart_(Lasting(chart)), svg_(width, kTop + kPlot + kBottom) {
    if (chart_.stacked) {
      lines_ = Stacked(chart_);
    } else {
      for (const LineChart::Series& s : chart_.series) lines_.push_back(s.values);
    }
    y_ = {0, RoundUp(Highest(chart_, lines_)), kTop + kPlot, kTop, false};
    y_ticks_ = LinearTicks(y_.low, y_.high, 6);
    double left = 0, right = 0;
    for (const double tick : y_ticks_) left = std::max(left, TextWidth(TickText(tick)));
    for (const LineChart::Series& s : chart_.series) right = std::max(right, TextWidth(s.name));
    for (const LineChart::Level& level : chart_.levels) right = std::max(right, TextWidth(level.name));
    label_width_ = std::min(right, 0.36 * width);
    if (!chart_.x.empty()) x_ = {chart_.x.front(), chart_.x.back(), left + 8, width - label_width_ - kTie - 4, false};
  }

  Svg Draw() {
    if (chart_.x.empty()) return svg_;
    Grid();
    if (chart_.stacked) {
      Areas();
    } else {
      Lines();
    }
    Levels();
    EndLabels();
    svg_.Data("plot", Length(x_.from) + " " + Length(x_.to) + " " + Length(kTop) + " " + Length(kTop + kPlot));
    return svg_;
  }

 private:
  void Grid() {
    svg_.Text({0, 12}, chart_.y_name, "strong");
    for (const double tick : y_ticks_) {
      svg_.Line({x_.from, y_.At(tick)}, {x_.to, y_.At(tick)}, tick == 0 ? "axis" : "grid");
      svg_.Text({x_.from - 6, y_.At(tick) + 4}, TickText(tick), "muted", Anchor::kEnd);
    }
    const double base = kTop + kPlot;
    for (const double tick : LinearTicks(x_.low, x_.high, std::max(2, static_cast<int>((x_.to - x_.from) / 70)))) {
      if (tick != std::floor(tick)) continue;
      svg_.Line({x_.At(tick), base}, {x_.At(tick), base + 4}, "axis");
      const std::string text = TickText(tick);
      const double half = TextWidth(text) / 2;
      svg_.Text({std::min(x_.At(tick), svg_.width() - half), base + 17}, text, "muted", Anchor::kMiddle);
    }
    svg_.Text({(x_.from + x_.to) / 2, base + 33}, chart_.x_name, "muted", Anchor::kMiddle);
  }

  Point At(size_t series, size_t i) const { return {x_.At(chart_.x[i]), y_.At(lines_[series][i])}; }

  void Areas() {
    for (size_t s = 0; s < lines_.size(); ++s) {
      std::vector<Point> outline;
      for (size_t i = 0; i < chart_.x.size(); ++i) outline.push_back(At(s, i));
      for (size_t i = chart_.x.size(); i-- > 0;) outline.push_back({x_.At(chart_.x[i]), s == 0 ? y_.from : At(s - 1, i).y});
      svg_.Polygon(outline, "area " + chart_.series[s].css_class);
      const double top = At(s, chart_.x.size() - 1).y, bottom = s == 0 ? y_.from : At(s - 1, chart_.x.size() - 1).y;
      labels_.push_back({chart_.series[s].name, (top + bottom) / 2});
    }
  }

  void Lines() {
    for (size_t s = 0; s < lines_.size(); ++s) {
      std::vector<Point> points;
      for (size_t i = 0; i < chart_.x.size(); ++i) points.push_back(At(s, i));
      if (chart_.dots) {
        for (const Point& p : points) svg_.Circle(p, 1.8, "dot " + chart_.series[s].css_class);
      } else {
        svg_.Polyline(points, "line " + chart_.series[s].css_class);
      }
      labels_.push_back({chart_.series[s].name, points.back().y});
    }
  }

  void Levels() {
    for (const LineChart::Level& level : chart_.levels) {
      svg_.Line({x_.from, y_.At(level.value)}, {x_.to, y_.At(level.value)}, "roof");
      labels_.push_back({level.name, y_.At(level.value), true});
    }
  }

  void EndLabels() {
    std::stable_sort(labels_.begin(), labels_.end(), [](const EndLabel& a, const EndLabel& b) { return a.y < b.y; });
    std::vector<double> wanted, gaps(labels_.size(), kLine);
    for (const EndLabel& l : labels_) wanted.push_back(l.y);
    const std::vector<double> at = Spread(wanted, gaps, kTop, kTop + kPlot);
    for (size_t i = 0; i < labels_.size(); ++i) {
      svg_.Line({x_.to + 2, labels_[i].y}, {x_.to + kTie - 3, at[i]}, "leader");
      svg_.Text({x_.to + kTie, at[i] + 4}, Fit(labels_[i].text, label_width_ + 2), labels_[i].strong ? "strong" : "");
    }
  }

  LineChart chart_;
  Svg svg_;
  std::vector<std::vector<double>> lines_;
  Axis x_, y_;
  std::vector<double> y_ticks_;
  std::vector<EndLabel> labels_;
  double label_width_ = 0;
};

}  // namespace

Svg DrawLines(const LineChart& chart, double width) { return Drawing(chart, width).Draw(); }

}  // namespace tally::page
