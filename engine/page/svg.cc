// SPDX-License-Identifier: Apache-2.0
#include "engine/page/svg.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "engine/base/format.h"

namespace tally::page {
namespace {

// Hundredths of the font size, of the characters from space to '~'.
constexpr std::array<uint8_t, 95> kAdvance = {32, 40, 46, 84, 64, 95, 78, 27, 39, 39, 50, 84, 32, 36,  32, 34, 64, 64, 64,
                                              64, 64, 64, 64, 64, 64, 64, 34, 34, 84, 84, 84, 53, 100, 68, 69, 70, 77, 63,
                                              58, 77, 75, 29, 29, 66, 56, 86, 75, 79, 60, 79, 69, 63,  61, 73, 68, 99, 69,
                                              61, 69, 39, 34, 39, 84, 50, 50, 61, 63, 55, 63, 62, 35,  63, 63, 28, 28, 58,
                                              28, 97, 63, 61, 63, 63, 41, 52, 39, 63, 59, 82, 59, 59,  52, 64, 34, 64, 84};

double Advance(std::string_view character) {
  const auto c = static_cast<unsigned char>(character[0]);
  if (c >= 32 && c < 127) return kAdvance[c - 32] / 100.0;
  return character.size() < 3 ? 0.84 : 1.0;
}

size_t CharacterLength(std::string_view text) { return std::max<size_t>(Utf8Length(text), 1); }

std::string Attribute(std::string_view name, double px) { return " " + std::string(name) + "=\"" + Length(px) + "\""; }

std::string Class(std::string_view css_class) { return css_class.empty() ? "" : " class=\"" + std::string(css_class) + "\""; }

std::string Opacity(double opacity) {
  if (opacity >= 1) return "";
  char text[16];
  const auto end = std::to_chars(text, text + sizeof text, opacity, std::chars_format::fixed, 2).ptr;
  return " fill-opacity=\"" + std::string(text, end) + "\"";
}

std::string Coordinates(std::span<const Point> points) {
  std::string out = " points=\"";
  for (size_t i = 0; i < points.size(); ++i) out += (i > 0 ? " " : "") + Length(points[i].x) + "," + Length(points[i].y);
  return out + "\"";
}

}  // namespace

std::string Length(double px) {
  if (!std::isfinite(px)) return "0";
  const double tenths = std::round(px * 10);
  const auto whole = static_cast<int64_t>(tenths) / 10, part = std::abs(static_cast<int64_t>(tenths) % 10);
  return (tenths < 0 && whole == 0 ? "-" : "") + std::to_string(whole) + (part == 0 ? "" : "." + std::to_string(part));
}

double TextWidth(std::string_view text, double font_size) {
  double ems = 0;
  while (!text.empty()) {
    const size_t n = CharacterLength(text);
    ems += Advance(text.substr(0, n));
    text.remove_prefix(n);
  }
  return ems * font_size;
}

std::string Fit(std::string_view text, double width, double font_size) {
  if (TextWidth(text, font_size) <= width) return std::string(text);
  double left = width - font_size;  // of the ellipsis
  size_t kept = 0;
  while (kept < text.size()) {
    const size_t n = CharacterLength(text.substr(kept));
    left -= Advance(text.substr(kept, n)) * font_size;
    if (left < 0) break;
    kept += n;
  }
  return std::string(text.substr(0, kept)) + "\xe2\x80\xa6";
}

void Svg::Close(std::string_view element, std::string_view tip) {
  if (tip.empty()) {
    body_ += "/>\n";
  } else {
    body_ += "><title>" + Escape(tip) + "</title></" + std::string(element) + ">\n";
  }
}

void Svg::Rect(double x, double y, double w, double h, std::string_view css_class, std::string_view tip, double opacity) {
  body_ += "<rect" + Attribute("x", x) + Attribute("y", y) + Attribute("width", std::max(w, 0.0)) +
           Attribute("height", std::max(h, 0.0)) + Class(css_class);
  body_ += Opacity(opacity);
  Close("rect", tip);
}

void Svg::Line(Point from, Point to, std::string_view css_class) {
  body_ += "<line" + Attribute("x1", from.x) + Attribute("y1", from.y) + Attribute("x2", to.x) + Attribute("y2", to.y) +
           Class(css_class);
  Close("line", {});
}

void Svg::Polyline(std::span<const Point> points, std::string_view css_class) {
  body_ += "<polyline" + Coordinates(points) + Class(css_class);
  Close("polyline", {});
}

void Svg::Polygon(std::span<const Point> points, std::string_view css_class, std::string_view tip) {
  body_ += "<polygon" + Coordinates(points) + Class(css_class);
  Close("polygon", tip);
}

void Svg::Circle(Point centre, double radius, std::string_view css_class, std::string_view tip) {
  body_ += "<circle" + Attribute("cx", centre.x) + Attribute("cy", centre.y) + Attribute("r", radius) + Class(css_class);
  Close("circle", tip);
}

void Svg::Path(std::string_view path, std::string_view css_class, double opacity) {
  body_ += "<path d=\"" + std::string(path) + "\"" + Class(css_class) + Opacity(opacity);
  Close("path", {});
}

void Svg::Text(Point at, std::string_view text, std::string_view css_class, Anchor anchor) {
  body_ += "<text" + Attribute("x", at.x) + Attribute("y", at.y) + Class(css_class);
  if (anchor != Anchor::kStart) body_ += anchor == Anchor::kMiddle ? " text-anchor=\"middle\"" : " text-anchor=\"end\"";
  body_ += ">" + Escape(text) + "</text>\n";
}

void Svg::Data(std::string_view name, std::string_view value) {
  attributes_ += " data-" + std::string(name) + "=\"" + Escape(value) + "\"";
}

std::string Svg::Element(std::string_view title, std::string_view description, std::string_view css_class,
                         std::string_view style) const {
  const double margin = style.empty() ? 0 : kFontSize, heading = style.empty() ? 0 : 2 * kFontSize;
  const std::string width = Length(width_ + 2 * margin), height = Length(height_ + 2 * margin + heading);
  std::string out = "<svg role=\"img\"" + Class(css_class) + " viewBox=\"" + Length(-margin) + " " + Length(-margin - heading) +
                    " " + width + " " + height + "\" width=\"" + width + "\" height=\"" + height + "\"" + attributes_;
  if (!style.empty()) out += " xmlns=\"http://www.w3.org/2000/svg\"";
  out += ">\n<title>" + Escape(title) + "</title>\n<desc>" + Escape(description) + "</desc>\n";
  if (!style.empty()) {
    out += "<style>\n" + std::string(style) + "</style>\n<text" + Attribute("x", 0) + Attribute("y", -heading + kFontSize / 2) +
           ">" + Escape(Fit(title, width_)) + "</text>\n";
  }
  return out + body_ + "</svg>\n";
}

}  // namespace tally::page
