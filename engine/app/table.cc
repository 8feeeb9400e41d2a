// SPDX-License-Identifier: Apache-2.0
#include "engine/app/table.h"

#include <algorithm>
#include <cstdio>

namespace tally::app {
namespace {

// Columns on a terminal: UTF-8 characters, none of which is wide here.
size_t Width(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

bool Left(const Table& t, size_t column) { return column < t.left.size() && t.left[column]; }

std::string Text(const Table& t) {
  std::vector<size_t> widths;
  for (const std::string& c : t.columns) widths.push_back(Width(c));
  for (const auto& row : t.rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], Width(row[i]));
  }
  std::string out = t.title.empty() ? "" : t.title + "\n";
  auto line = [&](const std::vector<std::string>& cells) {
    std::string text;
    for (size_t i = 0; i < cells.size(); ++i) {
      const std::string padding(widths[i] - Width(cells[i]), ' ');
      text += "  " + (Left(t, i) ? cells[i] + padding : padding + cells[i]);
    }
    out += text.substr(0, text.find_last_not_of(' ') + 1) + "\n";
  };
  if (std::any_of(t.columns.begin(), t.columns.end(), [](const std::string& c) { return !c.empty(); })) line(t.columns);
  for (const auto& row : t.rows) line(row);
  return out;
}

std::string Markdown(const Table& t) {
  auto line = [](const std::vector<std::string>& cells) {
    std::string text = "|";
    for (const std::string& c : cells) {
      text += " ";
      for (const char x : c) text += x == '|' ? std::string("\\|") : std::string(1, x);
      text += " |";
    }
    return text + "\n";
  };
  std::string out = t.title.empty() ? "" : "### " + t.title + "\n\n";
  out += line(t.columns) + "|";
  for (size_t i = 0; i < t.columns.size(); ++i) out += Left(t, i) ? " --- |" : " ---: |";
  out += "\n";
  for (const auto& row : t.rows) out += line(row);
  return out;
}

}  // namespace

std::string Render(const Table& table, TableFormat format) {
  return format == TableFormat::kMarkdown ? Markdown(table) : Text(table);
}

std::string Fixed(double x, int digits) {
  char text[48];
  std::snprintf(text, sizeof text, "%.*f", digits, x);
  return text;
}

}  // namespace tally::app
