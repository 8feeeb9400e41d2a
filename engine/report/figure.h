// SPDX-License-Identifier: Apache-2.0
// A picture with its words and its data.
#pragma once

#include <functional>
#include <string>

#include "engine/report/data_table.h"
#include "engine/report/svg.h"

namespace tally::report {

struct Figure {
  std::string name;     // of its file and in the page's links: "parameters"
  std::string title;    // what it shows
  std::string summary;  // what is to be seen, in a sentence or two: the caption, and what a screen reader says
  std::function<Svg(double width)> draw;
  DataTable data;  // all that is drawn
};

inline constexpr double kWideFigure = 560, kNarrowFigure = 340;

// <figure>: the picture for wide and for narrow windows (CSS shows one of them), the caption, and the data behind a disclosure.
std::string FigureHtml(const Figure& figure);

// An SVG file of the wide picture, with its own colours, light and dark.
std::string FigureSvg(const Figure& figure);

}  // namespace tally::report
