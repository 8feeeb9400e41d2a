// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>

#include "engine/page/axis.h"
#include "engine/page/charts.h"

namespace tally::page {
namespace {

constexpr double kTop = 44, kBottom = 20;
constexpr int kShades = 10;  // besides none

// 0: nothing; 1 to kShades.
int Shade(double value, double most) {
  if (value <= 0 || most <= 0) return 0;
  return std::clamp(static_cast<int>(std::ceil(value / most * kShades)), 1, kShades);
}

double Opacity(int shade) { return 0.08 + 0.92 * shade / kShades; }

// "M12,4h9v9h-9z": one cell of a path.
std::string CellPath(double x, double y, double w, double h) {
  return "M" + Length(x) + "," + Length(y) + "h" + Length(w) + "v" + Length(h) + "h-" + Length(w) + "z";
}

// Every n-th of `count` so that what is `size` long each has `room`.
size_t Every(double size, double room) {
  for (const size_t n : {1, 2, 4, 5, 8, 10, 16, 20, 32, 50, 64, 100}) {
    if (size * static_cast<double>(n) >= room) return n;
  }
  return 128;
}

void DrawScale(Svg& svg, double most, const std::string& unit) {
  const std::string low = "0", high = Decimal(most) + " " + unit;
  constexpr double kBox = 12;
  double x = svg.width() - TextWidth(high) - 6 - kBox * (kShades + 1);
  svg.Text({x - 6, 12}, low, "muted", Anchor::kEnd);
  for (int shade = 0; shade <= kShades; ++shade, x += kBox) {
    svg.Rect(x, 2, kBox, 11, shade == 0 ? "empty" : "active", {}, shade == 0 ? 1 : Opacity(shade));
  }
  svg.Text({svg.width(), 12}, high, "muted", Anchor::kEnd);
}

}  // namespace

Svg DrawHeatMap(const HeatMap& map, double width) {
  if (map.rows.empty() || map.columns == 0) return {width, 1};
  const double rows = static_cast<double>(map.rows.size());
  double labels = 0;
  for (const std::string& row : map.rows) labels = std::max(labels, TextWidth(row));
  const double left = labels + 10;
  const double w = (width - left) / static_cast<double>(map.columns);
  const double h = std::clamp(std::min(w, 300 / rows), rows > 64 ? 4.0 : 8.0, 20.0);
  const double bottom = kTop + h * rows;
  Svg svg(width, bottom + kBottom);

  const double most = std::max(map.extent, *std::max_element(map.values.begin(), map.values.end()));
  std::array<std::string, kShades + 1> paths;
  const double gap = std::min(w, h) >= 6 ? 1 : 0;
  for (size_t r = 0; r < map.rows.size(); ++r) {
    for (size_t c = 0; c < map.columns; ++c) {
      paths[static_cast<size_t>(Shade(map.values[r * map.columns + c], most))] +=
          CellPath(left + w * static_cast<double>(c), kTop + h * static_cast<double>(r), w - gap, h - gap);
    }
  }
  for (int shade = 0; shade <= kShades; ++shade) {
    const std::string& path = paths[static_cast<size_t>(shade)];
    if (!path.empty()) svg.Path(path, shade == 0 ? "empty" : "active", shade == 0 ? 1 : Opacity(shade));
  }

  DrawScale(svg, most, map.unit);
  svg.Text({0, kTop - 8}, map.row_name, "muted");
  for (size_t r = 0; r < map.rows.size(); r += Every(h, 15)) {
    svg.Text({left - 6, kTop + h * (static_cast<double>(r) + 0.5) + 4}, map.rows[r], "muted", Anchor::kEnd);
  }
  const size_t every = Every(w, TextWidth(std::to_string(map.columns)) + 8);
  for (size_t c = 0; c < map.columns; c += every) {
    svg.Text({left + w * (static_cast<double>(c) + 0.5), bottom + 14}, std::to_string(c), "muted", Anchor::kMiddle);
  }
  svg.Text({width, kTop - 8}, map.column_name, "muted", Anchor::kEnd);
  svg.Data("grid", Length(left) + " " + Length(kTop) + " " + Length(width - left) + " " + Length(bottom - kTop) + " " +
                       std::to_string(map.columns) + " " + std::to_string(map.rows.size()));
  return svg;
}

}  // namespace tally::page
