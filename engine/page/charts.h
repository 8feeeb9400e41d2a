// SPDX-License-Identifier: Apache-2.0
// The kinds of pictures. Each is drawn for a width in pixels; its height follows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/page/svg.h"

namespace tally::page {

// Parts of a whole as one bar with their names, and under it, part below part, how much of each every track counts.
struct TrackChart {
  struct Part {
    std::string name;
    uint64_t size = 0;
  };
  struct Track {
    std::string name;
    std::string text;               // its figure, beside the name
    std::vector<uint64_t> counted;  // of each part, at most its size
  };
  std::vector<Part> parts;
  std::vector<Track> tracks;
};
Svg DrawTracks(const TrackChart& chart, double width);

// Series over x, whole numbers that ascend: lines, or areas on top of each other.
struct LineChart {
  struct Series {
    std::string name;
    std::vector<double> values;  // as many as x
    std::string css_class;       // a line's: "accent", "grey"; an area's: "fill-1"
  };
  struct Level {  // a horizontal line
    std::string name;
    double value = 0;
  };
  std::string x_name, y_name;
  std::vector<double> x;
  std::vector<Series> series;
  std::vector<Level> levels;
  bool stacked = false;
  bool dots = false;  // each value as a dot, no lines
  double extent = 0;  // the scale has room for it
};
Svg DrawLines(const LineChart& chart, double width);

struct BarChart {
  struct Bar {
    std::string name;
    double value = 0;
    std::string text;  // at its end
    std::string tip;
    std::string css_class;
  };
  std::vector<Bar> bars;
  double extent = 0;  // the scale has room for it
};
Svg DrawBars(const BarChart& chart, double width);

// A cell for each row and column, darker for more.
struct HeatMap {
  std::string row_name, column_name, unit;
  std::vector<std::string> rows;  // their labels
  size_t columns = 0;
  std::vector<double> values;  // [rows, columns], not negative
  double extent = 0;           // of the darkest, where it is more than the greatest value
};
Svg DrawHeatMap(const HeatMap& map, double width);

// A map whose cells a script fills again and again: DrawHeatFrame has a path without cells for each shade and one for lit cells, in this
// order, and the attributes "grid", "gap" and "rows", by which their places and rows are found. HeatLevels has a letter for each cell, row
// by row: the shade from 'a', nothing, to 'k'; 'A' to 'K' where the cell is lit.
Svg DrawHeatFrame(const HeatMap& map, double width);
std::string HeatLevels(const HeatMap& map, const std::vector<bool>& lit);

// Work over traffic, both logarithmic: the roofs of a machine, and points under them.
struct RooflineChart {
  struct Peak {
    std::string name;
    double flops_per_second = 0;
  };
  struct Mark {
    std::string name, tip;
    double flops_per_byte = 0, flops_per_second = 0;
    std::string css_class;
  };
  double bytes_per_second = 0;  // 0: not known
  std::vector<Peak> peaks;
  std::vector<Mark> marks;
};
Svg DrawRoofline(const RooflineChart& chart, double width);

}  // namespace tally::page
