// SPDX-License-Identifier: Apache-2.0
#include "engine/report/figure.h"

#include "engine/report/style.h"

namespace tally::report {

std::string FigureHtml(const Figure& figure) {
  std::string out = "<figure id=\"" + Escape(figure.name) + "\">\n";
  out += figure.draw(kWideFigure).Element(figure.title, figure.summary, "picture wide");
  out += figure.draw(kNarrowFigure).Element(figure.title, figure.summary, "picture narrow");
  out += "<figcaption>" + Escape(figure.summary) + "</figcaption>\n";
  return out + "<details><summary>Data</summary>\n" + TableHtml(figure.data) + "</details>\n</figure>\n";
}

std::string FigureSvg(const Figure& figure) {
  return figure.draw(kWideFigure).Element(figure.title, figure.summary, "picture", FileCss());
}

}  // namespace tally::report
