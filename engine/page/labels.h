// SPDX-License-Identifier: Apache-2.0
// Places for labels, so that none covers another.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "engine/page/svg.h"

namespace tally::page {

// Positions as near as can be to those wanted: at least `gaps[i]` between the i-th and the next, all between `low` and `high` where
// there is room, else from `low` on. `wanted` ascends.
std::vector<double> Spread(std::span<const double> wanted, std::span<const double> gaps, double low, double high);

struct Box {
  double left = 0, top = 0, right = 0, bottom = 0;
  bool Meets(const Box& other) const {
    return left < other.right && other.left < right && top < other.bottom && other.top < bottom;
  }
};

// Where a line from a mark to its label ends.
Point LeaderEnd(Point mark, const Box& label);

// What `text` covers when it is drawn at `baseline`.
Box TextBox(Point baseline, std::string_view text, Anchor anchor = Anchor::kStart);

// Keeps what is covered of an area.
class LabelPlacer {
 public:
  explicit LabelPlacer(Box area) : area_(area) {}

  void Cover(Box box) { covered_.push_back(box); }
  // The same of a mark, which no line to another's label crosses.
  void CoverMark(Box box) {
    Cover(box);
    solid_.push_back(box);
  }
  bool Free(const Box& box) const;
  // The baseline's beginning of a label beside a mark of `radius` at `mark`: to its right, left, above, below, then farther off, where a
  // line to it crosses no other label or mark. Covers it. Nothing where none is free.
  std::optional<Point> Beside(Point mark, double radius, std::string_view text);

 private:
  bool Crosses(Point mark, Point to) const;  // another mark, or a label

  Box area_;
  std::vector<Box> covered_, solid_;  // all; marks and their labels
};

}  // namespace tally::page
