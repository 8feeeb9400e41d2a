// SPDX-License-Identifier: Apache-2.0
// A picture with its words and its data.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "engine/page/svg.h"
#include "engine/render/html.h"

namespace tally::page {

struct Figure {
  std::string name;     // of its file and in the page's links: "parameters"
  std::string title;    // what it shows
  std::string summary;  // what is to be seen, in a sentence or two: the caption, and what a screen reader says
  // `extent`: the greatest value that the scale has room for, at least the figure's own.
  std::function<Svg(double width, double extent)> draw;
  Table data;         // all that is drawn
  double extent = 0;  // its own; 0: nothing to share a scale by
};

// Figure::draw of a chart whose scale has room for `extent`.
template <class Chart>
std::function<Svg(double, double)> Drawn(Chart chart, Svg (*draw)(const Chart&, double)) {
  return [chart = std::move(chart), draw](double width, double extent) mutable {
    chart.extent = extent;
    return draw(chart, width);
  };
}

inline constexpr double kWideFigure = 560, kNarrowFigure = 340;

// <figure>: the picture for wide and for narrow windows (CSS shows one of them), the caption, and the data behind a disclosure.
// `extent`: of figures side by side that share a scale, the greatest; 0: its own.
std::string FigureHtml(const Figure& figure, double extent = 0);

// An SVG file of the wide picture under `whose` name and its title, with a margin and its own colours, light and dark.
std::string FigureSvg(const Figure& figure, const std::string& whose = {});

}  // namespace tally::page
