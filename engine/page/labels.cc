// SPDX-License-Identifier: Apache-2.0
#include "engine/page/labels.h"

#include <algorithm>

namespace tally::page {
namespace {

// Above and below the baseline, of text of kFontSize.
constexpr double kAscent = 11.5, kDescent = 3.5;
constexpr double kApart = 5;  // between labels side by side

}  // namespace

std::vector<double> Spread(std::span<const double> wanted, std::span<const double> gaps, double low, double high) {
  std::vector<double> at(wanted.begin(), wanted.end());
  for (size_t i = 0; i < at.size(); ++i) at[i] = std::max(at[i], i == 0 ? low : at[i - 1] + gaps[i - 1]);
  for (size_t i = at.size(); i-- > 0;) at[i] = std::min(at[i], i + 1 == at.size() ? high : at[i + 1] - gaps[i]);
  for (size_t i = 0; i < at.size(); ++i) at[i] = std::max(at[i], i == 0 ? low : at[i - 1] + gaps[i - 1]);
  return at;
}

Box TextBox(Point baseline, std::string_view text, Anchor anchor) {
  const double width = TextWidth(text);
  const double left = baseline.x - (anchor == Anchor::kStart ? 0 : anchor == Anchor::kMiddle ? width / 2 : width);
  return {left, baseline.y - kAscent, left + width, baseline.y + kDescent};
}

Point LeaderEnd(Point mark, const Box& label) {
  return {std::clamp(mark.x, label.left, label.right), mark.y > label.bottom ? label.bottom : label.top};
}

bool LabelPlacer::Crosses(Point mark, Point to) const {
  const auto holds = [](const Box& b, Point p) { return p.x > b.left && p.x < b.right && p.y > b.top && p.y < b.bottom; };
  for (double share = 0; share <= 1; share += 1.0 / 16) {
    const Point p = {mark.x + share * (to.x - mark.x), mark.y + share * (to.y - mark.y)};
    const auto in_the_way = [&](const Box& b) { return holds(b, p) && !holds(b, mark); };
    if (std::any_of(solid_.begin(), solid_.end(), in_the_way)) return true;
  }
  return false;
}

bool LabelPlacer::Free(const Box& box) const {
  if (box.left < area_.left || box.right > area_.right || box.top < area_.top || box.bottom > area_.bottom) return false;
  return std::none_of(covered_.begin(), covered_.end(), [&](const Box& other) { return other.Meets(box); });
}

std::optional<Point> LabelPlacer::Beside(Point mark, double radius, std::string_view text) {
  const double width = TextWidth(text);
  for (const double off : {0.0, 8.0, 16.0, 26.0, 38.0}) {
    const double right = mark.x + radius + 4 + off / 2, left = mark.x - radius - 4 - off / 2 - width;
    const Point places[] = {{right, mark.y + 4 - off},
                            {left, mark.y + 4 - off},
                            {right, mark.y + 4 + off},
                            {left, mark.y + 4 + off},
                            {mark.x - width / 2, mark.y - radius - 5 - off},
                            {mark.x - width / 2, mark.y + radius + 13 + off}};
    for (const Point& place : places) {
      const Box box = TextBox(place, text);
      if (!Free(box) || Crosses(mark, LeaderEnd(mark, box))) continue;
      Cover({box.left - kApart, box.top, box.right + kApart, box.bottom});
      solid_.push_back(box);
      return place;
    }
  }
  return std::nullopt;
}

}  // namespace tally::page
