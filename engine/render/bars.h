// SPDX-License-Identifier: Apache-2.0
// Stacked horizontal bars for the terminal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tally {

struct Bar {
  std::string label;
  std::vector<uint64_t> values;  // one a segment, in the order of the names
};

// Bars of one scale (the longest fills the room that the labels leave of `width` columns, 80 where that is 0), each made of segments, and
// a legend with every value and its share of the first bar, under a line of heads: the bars' labels. Each segment has a letter of its
// own, so that it reads without colour too; `colour`: with ANSI backgrounds. Lines end in '\n' and are at most `width` columns wide (0:
// those of the legend are whole). A segment too small for a column is in the legend only.
std::string RenderBars(const std::vector<std::string>& segments, const std::vector<Bar>& bars, size_t width, bool colour);

}  // namespace tally
