// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <optional>

#include "engine/page/axis.h"
#include "engine/page/charts.h"
#include "engine/page/labels.h"

namespace tally::page {
namespace {

constexpr double kTop = 26, kPlot = 300, kBottom = 38, kRadius = 4.5;
constexpr double kHighest = 20;  // above the highest roof, for its name

struct Range {
  double low = 0, high = 0;  // both above 0
  void Take(double value) {
    if (!(value > 0)) return;
    low = low == 0 ? value : std::min(low, value);
    high = std::max(high, value);
  }
};

class Drawing {
 public:
  Drawing(const RooflineChart& chart, double width)
      : chart_(chart), svg_(width, kTop + kPlot + kBottom), placer_({44, kTop, width, kTop + kPlot}) {
    Range x, y;
    for (const RooflineChart::Mark& mark : chart.marks) {
      x.Take(mark.flops_per_byte);
      y.Take(mark.flops_per_second);
    }
    for (const RooflineChart::Peak& peak : chart.peaks) {
      y.Take(peak.flops_per_second);
      if (chart.bytes_per_second > 0) x.Take(peak.flops_per_second / chart.bytes_per_second);
    }
    if (x.low == 0) x = {1, 10};
    if (y.low == 0) y = {1, 10};
    x_ = {x.low / 2, x.high * 4, 44, width - 4, true};
    y_ = {y.low / 2, y.high, kTop + kPlot, kTop + kHighest, true};
  }

  Svg Draw() {
    Grid();
    Roofs();
    Marks();
    return svg_;
  }

 private:
  void Grid() {
    svg_.Text({0, 12}, "FLOP/s", "strong");
    for (const double tick : LogTicks(y_.low, y_.high, 6)) {
      svg_.Line({x_.from, y_.At(tick)}, {x_.to, y_.At(tick)}, "grid");
      svg_.Text({x_.from - 6, y_.At(tick) + 4}, TickText(tick), "muted", Anchor::kEnd);
    }
    const double base = kTop + kPlot;
    svg_.Line({x_.from, base}, {x_.to, base}, "axis");
    for (const double tick : LogTicks(x_.low, x_.high, static_cast<int>((x_.to - x_.from) / 56))) {
      svg_.Line({x_.At(tick), base}, {x_.At(tick), base + 4}, "axis");
      const std::string text = TickText(tick);
      svg_.Text({std::min(x_.At(tick), svg_.width() - TextWidth(text) / 2), base + 17}, text, "muted", Anchor::kMiddle);
    }
    svg_.Text({(x_.from + x_.to) / 2, base + 33}, "FLOPs a byte", "muted", Anchor::kMiddle);
  }

  void Roofs() {
    for (const RooflineChart::Peak& peak : chart_.peaks) {
      const Point from = PeakStart(peak);
      svg_.Line(from, {x_.to, from.y}, "roof");
      placer_.Cover({from.x, from.y - 1, x_.to, from.y + 1});
    }
    if (chart_.bytes_per_second <= 0) return;
    // The slope: from the left or lower edge to the highest peak or the right edge.
    double top = 0;
    for (const RooflineChart::Peak& peak : chart_.peaks) top = std::max(top, peak.flops_per_second);
    const double low = std::max(x_.low, y_.low / chart_.bytes_per_second);
    const double high = std::min(x_.high, (top > 0 ? top : y_.high) / chart_.bytes_per_second);
    if (high <= low) return;
    const Point from = OnSlope(low), to = OnSlope(high);
    svg_.Line(from, to, "roof");
    Cover(from, to);
    slope_ = {from.x + 0.25 * (to.x - from.x), from.y + 0.25 * (to.y - from.y)};
  }

  // Keeps names off a line.
  void Cover(Point from, Point to) {
    for (double share = 0; share <= 1; share += 1.0 / 64) {
      const Point p = {from.x + share * (to.x - from.x), from.y + share * (to.y - from.y)};
      placer_.Cover({p.x - 2, p.y - 2, p.x + 2, p.y + 2});
    }
  }

  Point OnSlope(double flops_per_byte) const { return {x_.At(flops_per_byte), y_.At(flops_per_byte * chart_.bytes_per_second)}; }

  // Where a peak meets the slope.
  Point PeakStart(const RooflineChart::Peak& peak) const {
    const double bandwidth = chart_.bytes_per_second;
    return {bandwidth > 0 ? x_.At(peak.flops_per_second / bandwidth) : x_.from, y_.At(peak.flops_per_second)};
  }

  Point At(const RooflineChart::Mark& mark) const { return {x_.At(mark.flops_per_byte), y_.At(mark.flops_per_second)}; }

  void Marks() {
    for (const RooflineChart::Mark& mark : chart_.marks) {
      const Point p = At(mark);
      placer_.CoverMark({p.x - kRadius, p.y - kRadius, p.x + kRadius, p.y + kRadius});
    }
    for (const RooflineChart::Peak& peak : chart_.peaks) PeakName(peak);
    if (slope_) Label(*slope_, 2, "reads " + Si(chart_.bytes_per_second, "B/s"), "halo");
    for (const RooflineChart::Mark& mark : chart_.marks) {
      svg_.Circle(At(mark), kRadius, "mark " + mark.css_class, mark.tip);
      Label(At(mark), kRadius, mark.name, "halo");
    }
  }

  // Above the roof or below it, as far to the right as is free; a name that has no room beside its roof is left out.
  void PeakName(const RooflineChart::Peak& peak) {
    const Point start = PeakStart(peak);
    const double y = start.y, width = TextWidth(peak.name);
    for (const double off : {-6.0, 15.0, -21.0, 29.0}) {
      for (double x = x_.to - width; x > std::max(x_.from, start.x - width); x -= 10) {
        const Box box = TextBox({x, y + off}, peak.name);
        if (!placer_.Free(box)) continue;
        placer_.Cover({box.left - 4, box.top, box.right + 4, box.bottom});
        svg_.Text({x, y + off}, peak.name, "halo");
        return;
      }
    }
  }

  void Label(Point mark, double radius, const std::string& text, std::string_view css_class) {
    const std::optional<Point> place = placer_.Beside(mark, radius, text);
    if (!place) return;
    const Point end = LeaderEnd(mark, TextBox(*place, text));
    if (std::hypot(end.x - mark.x, end.y - mark.y) > radius + 10) {
      svg_.Line(mark, end, "leader");
      Cover(mark, end);
    }
    svg_.Text(*place, text, css_class);
  }

  const RooflineChart& chart_;
  Svg svg_;
  LabelPlacer placer_;
  Axis x_, y_;
  std::optional<Point> slope_;  // where its name belongs
};

}  // namespace

Svg DrawRoofline(const RooflineChart& chart, double width) { return Drawing(chart, width).Draw(); }

}  // namespace tally::page
