// SPDX-License-Identifier: Apache-2.0
#include "engine/render/bars.h"

#include <algorithm>
#include <cctype>
#include <numeric>

#include "engine/base/format.h"
#include "engine/render/table.h"
#include "engine/render/words.h"

namespace tally {
namespace {

// Dark backgrounds under white letters, neighbours far apart.
constexpr int kColours[] = {24, 130, 22, 88, 54, 94, 60, 236, 23, 52, 58};

// A letter of each name that no earlier one has: of its beginning where that can be had.
std::string Letters(const std::vector<std::string>& names) {
  std::string letters;
  auto take = [&](const std::string& candidates) {
    for (const char c : candidates) {
      const char upper = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
      if (std::isalnum(static_cast<unsigned char>(c)) == 0 || letters.find(upper) != std::string::npos) continue;
      letters += upper;
      return true;
    }
    return false;
  };
  for (const std::string& name : names) {
    if (!take(name) && !take("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")) letters += '?';
  }
  return letters;
}

uint64_t Sum(const Bar& bar) { return std::accumulate(bar.values.begin(), bar.values.end(), uint64_t{0}); }

// Columns of each segment: their ends are rounded, so that they add up.
std::vector<size_t> Columns(const Bar& bar, uint64_t longest, size_t room) {
  std::vector<size_t> columns;
  uint64_t end = 0;
  size_t at = 0;
  for (const uint64_t value : bar.values) {
    end += value;
    const size_t to =
        static_cast<size_t>(static_cast<double>(end) / static_cast<double>(longest) * static_cast<double>(room) + 0.5);
    columns.push_back(to - at);
    at = to;
  }
  return columns;
}

}  // namespace

std::string RenderBars(const std::vector<std::string>& names, const std::vector<Bar>& given, size_t width, bool colour) {
  std::vector<std::string> segments;  // those that any bar has
  std::vector<Bar> bars(given.size());
  for (size_t b = 0; b < bars.size(); ++b) bars[b].label = given[b].label;
  for (size_t i = 0; i < names.size(); ++i) {
    if (std::ranges::all_of(given, [&](const Bar& b) { return b.values[i] == 0; })) continue;
    segments.push_back(names[i]);
    for (size_t b = 0; b < bars.size(); ++b) bars[b].values.push_back(given[b].values[i]);
  }
  size_t label = 0;
  uint64_t longest = 0;
  for (const Bar& b : bars) {
    label = std::max(label, b.label.size());
    longest = std::max(longest, Sum(b));
  }
  if (longest == 0) return "";
  const size_t taken = 2 + label + 2, total = width == 0 ? 80 : width;
  const size_t room = total > taken + 10 ? total - taken : 10;
  const std::string letters = Letters(segments);
  auto paint = [&](size_t segment, const std::string& text) {
    if (!colour || text.empty()) return text;
    const int n = kColours[segment % std::size(kColours)];
    return "\x1b[48;5;" + std::to_string(n) + ";97m" + text + "\x1b[0m";
  };

  std::string out;
  for (const Bar& b : bars) {
    out += "  " + b.label + std::string(label - b.label.size() + 2, ' ');
    const std::vector<size_t> columns = Columns(b, longest, room);
    for (size_t i = 0; i < columns.size(); ++i) out += paint(i, std::string(columns[i], letters[i]));
    out += "\n";
  }
  Table legend{"", {""}, {}, {true}};
  for (const Bar& b : bars) legend.columns.push_back(b.label);
  legend.columns.push_back("of " + bars[0].label);
  for (size_t i = 0; i < segments.size(); ++i) {
    legend.rows.push_back({paint(i, std::string(1, letters[i])) + " " + segments[i]});
    for (const Bar& b : bars) legend.rows.back().push_back(WithThousands(b.values[i]));
    legend.rows.back().push_back(Share(bars[0].values[i], Sum(bars[0])));
  }
  return out + Render(legend, TableFormat::kText, width);
}

}  // namespace tally
