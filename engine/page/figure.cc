// SPDX-License-Identifier: Apache-2.0
#include "engine/page/figure.h"

#include <algorithm>

#include "engine/page/style.h"

namespace tally::page {

std::string FigureHtml(const Figure& figure, double extent) {
  extent = std::max(extent, figure.extent);
  std::string out = "<figure id=\"" + Escape(figure.name) + "\">\n";
  out += figure.draw(kWideFigure, extent).Element(figure.title, figure.summary, "picture wide");
  out += figure.draw(kNarrowFigure, extent).Element(figure.title, figure.summary, "picture narrow");
  out += "<figcaption>" + Escape(figure.summary) + "</figcaption>\n";
  return out + "<details><summary>Data</summary>\n" + TableHtml(figure.data) + "</details>\n</figure>\n";
}

std::string FigureSvg(const Figure& figure, const std::string& whose) {
  const std::string title = (whose.empty() ? "" : whose + ": ") + figure.title;
  return figure.draw(kWideFigure, figure.extent).Element(title, figure.summary, "picture", FileCss());
}

}  // namespace tally::page
