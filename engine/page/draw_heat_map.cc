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

// Boxes of all shades with the words for the least and the most.
void DrawScale(Svg& svg, const std::string& low, const std::string& high) {
  constexpr double kBox = 12;
  double x = svg.width() - TextWidth(high) - 6 - kBox * (kShades + 1);
  svg.Text({x - 6, 12}, low, "muted", Anchor::kEnd);
  for (int shade = 0; shade <= kShades; ++shade, x += kBox) {
    svg.Rect(x, 2, kBox, 11, shade == 0 ? "empty" : "active", {}, shade == 0 ? 1 : Opacity(shade));
  }
  svg.Text({svg.width(), 12}, high, "muted", Anchor::kEnd);
}

void AddShade(Svg& svg, int shade, const std::string& path) {
  svg.Path(path, shade == 0 ? "empty" : "active", shade == 0 ? 1 : Opacity(shade));
}

// Where the cells are.
struct Grid {
  double left = 0, bottom = 0, w = 0, h = 0, gap = 0;
  double Top(size_t row) const { return kTop + h * static_cast<double>(row); }
  double Left(size_t column) const { return left + w * static_cast<double>(column); }
};

Grid GridOf(const HeatMap& map, double width) {
  const double rows = static_cast<double>(map.rows.size());
  Grid grid;
  for (const std::string& row : map.rows) grid.left = std::max(grid.left, TextWidth(row));
  grid.left += 10;
  grid.w = (width - grid.left) / static_cast<double>(map.columns);
  grid.h = std::clamp(std::min(grid.w, 300 / rows), rows > 64 ? 4.0 : 8.0, 20.0);
  grid.bottom = kTop + grid.h * rows;
  grid.gap = std::min(grid.w, grid.h) >= 6 ? 1 : 0;
  return grid;
}

void DrawAxes(Svg& svg, const HeatMap& map, const Grid& grid) {
  svg.Text({0, kTop - 8}, map.row_name, "muted");
  for (size_t r = 0; r < map.rows.size(); r += Every(grid.h, 15)) {
    svg.Text({grid.left - 6, grid.Top(r) + grid.h / 2 + 4}, map.rows[r], "muted", Anchor::kEnd);
  }
  const size_t every = Every(grid.w, TextWidth(std::to_string(map.columns)) + 8);
  for (size_t c = 0; c < map.columns; c += every) {
    svg.Text({grid.Left(c) + grid.w / 2, grid.bottom + 14}, std::to_string(c), "muted", Anchor::kMiddle);
  }
  svg.Text({svg.width(), kTop - 8}, map.column_name, "muted", Anchor::kEnd);
  svg.Data("grid", Length(grid.left) + " " + Length(kTop) + " " + Length(svg.width() - grid.left) + " " +
                       Length(grid.bottom - kTop) + " " + std::to_string(map.columns) + " " + std::to_string(map.rows.size()));
}

double Most(const HeatMap& map) {
  return map.values.empty() ? map.extent : std::max(map.extent, *std::max_element(map.values.begin(), map.values.end()));
}

}  // namespace

Svg DrawHeatMap(const HeatMap& map, double width) {
  if (map.rows.empty() || map.columns == 0) return {width, 1};
  const Grid grid = GridOf(map, width);
  Svg svg(width, grid.bottom + kBottom);
  const double most = Most(map);
  std::array<std::string, kShades + 1> paths;
  for (size_t r = 0; r < map.rows.size(); ++r) {
    for (size_t c = 0; c < map.columns; ++c) {
      paths[static_cast<size_t>(Shade(map.values[r * map.columns + c], most))] +=
          CellPath(grid.Left(c), grid.Top(r), grid.w - grid.gap, grid.h - grid.gap);
    }
  }
  for (int shade = 0; shade <= kShades; ++shade) {
    const std::string& path = paths[static_cast<size_t>(shade)];
    if (!path.empty()) AddShade(svg, shade, path);
  }
  DrawScale(svg, "0", Decimal(most) + " " + map.unit);
  DrawAxes(svg, map, grid);
  return svg;
}

Svg DrawHeatFrame(const HeatMap& map, double width) {
  if (map.rows.empty() || map.columns == 0) return {width, 1};
  const Grid grid = GridOf(map, width);
  Svg svg(width, grid.bottom + kBottom);
  for (int shade = 0; shade <= kShades; ++shade) AddShade(svg, shade, "");
  svg.Path("", "lit");
  svg.Rect(0, 2, 12, 11, "lit");
  svg.Text({18, 12}, "now", "muted");
  DrawScale(svg, "never", "most");
  DrawAxes(svg, map, grid);
  svg.Data("gap", Length(grid.gap));
  std::string rows;
  for (const std::string& row : map.rows) rows += (rows.empty() ? "" : " ") + row;
  svg.Data("rows", rows);
  return svg;
}

std::string HeatLevels(const HeatMap& map, const std::vector<bool>& lit) {
  const double most = Most(map);
  std::string levels(map.values.size(), 'a');
  for (size_t i = 0; i < levels.size(); ++i) {
    levels[i] = static_cast<char>((i < lit.size() && lit[i] ? 'A' : 'a') + Shade(map.values[i], most));
  }
  return levels;
}

}  // namespace tally::page
