// SPDX-License-Identifier: Apache-2.0
// Writes SVG. Lengths are CSS pixels; y grows downwards. Shapes have CSS classes, whose colours are in figure.css.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "engine/render/html.h"

namespace tally::page {

// A length with at most one decimal: 12, 12.5.
std::string Length(double px);

inline constexpr double kFontSize = 12;

// Width of one line of text in DejaVu Sans, which is wider than the usual sans-serif fonts. Other characters than ASCII count as the
// widest of their kind.
double TextWidth(std::string_view text, double font_size = kFontSize);

// `text`, or its beginning and "…", at most `width` wide.
std::string Fit(std::string_view text, double width, double font_size = kFontSize);

struct Point {
  double x = 0, y = 0;
};

enum class Anchor : uint8_t { kStart, kMiddle, kEnd };

// Appends shapes in drawing order. A tip is what the reader sees when pointing at the shape; empty: none.
class Svg {
 public:
  Svg(double width, double height) : width_(width), height_(height) {}

  void Rect(double x, double y, double w, double h, std::string_view css_class, std::string_view tip = {}, double opacity = 1);
  void Line(Point from, Point to, std::string_view css_class);
  void Polyline(std::span<const Point> points, std::string_view css_class);
  void Polygon(std::span<const Point> points, std::string_view css_class, std::string_view tip = {});
  void Circle(Point centre, double radius, std::string_view css_class, std::string_view tip = {});
  // `path`: commands of SVG's attribute d.
  void Path(std::string_view path, std::string_view css_class, double opacity = 1);
  // `at`: of the baseline.
  void Text(Point at, std::string_view text, std::string_view css_class = {}, Anchor anchor = Anchor::kStart);
  // Of the element, for the page's script: data-NAME="VALUE".
  void Data(std::string_view name, std::string_view value);

  double width() const { return width_; }
  double height() const { return height_; }

  // The <svg> element. `style`: CSS of a picture that stands alone, with the namespace, the title drawn above it, and a margin; empty:
  // part of a page.
  std::string Element(std::string_view title, std::string_view description, std::string_view css_class,
                      std::string_view style = {}) const;

 private:
  void Close(std::string_view element, std::string_view tip);

  double width_, height_;
  std::string attributes_, body_;
};

}  // namespace tally::page
