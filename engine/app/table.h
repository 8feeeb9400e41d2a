// SPDX-License-Identifier: Apache-2.0
// Tables of figures as text for people and as Markdown.
#pragma once

#include <string>
#include <vector>

namespace tally::app {

enum class TableFormat { kText, kMarkdown };

struct Table {
  std::string title;
  std::vector<std::string> columns;            // headings; may be empty for the first
  std::vector<std::vector<std::string>> rows;  // as many cells as columns
  std::vector<bool> left;                      // by column: flush left; beyond its end, flush right
};

// Lines end in '\n'. Text: columns two blanks apart, none cut, no blanks at line ends. Markdown: a heading and a pipe table.
std::string Render(const Table& table, TableFormat format);

// A number with so many digits behind the point.
std::string Fixed(double x, int digits);

}  // namespace tally::app
