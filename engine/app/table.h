// SPDX-License-Identifier: Apache-2.0
// Tables of figures as text for people and as Markdown.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace tally::app {

enum class TableFormat { kText, kMarkdown };

struct Table {
  std::string title = {};
  std::vector<std::string> columns = {};            // headings; may be empty for the first
  std::vector<std::vector<std::string>> rows = {};  // as many cells as columns
  std::vector<bool> left = {};                      // by column: flush left; beyond its end, flush right
  std::vector<bool> joined = {};                    // by column: it stays beside the column before it
};

// Lines end in '\n'. Text: columns two blanks apart, none cut, no blanks at line ends. Where that is more than `width` columns (0: any
// number are few enough), a long column of words is broken into lines, or the columns are put into groups, one below the other,
// each behind the first column and without the rows that it has no cells of. A column that does not fit beside the first makes lines too
// long all the same.
// Markdown: a heading and a pipe table, of any width.
std::string Render(const Table& table, TableFormat format, size_t width = 0);

Table WithoutEmptyColumns(const Table& table);  // those in which no row has a cell

// Columns that its longest line takes as text of any width.
size_t TableWidth(const Table& table);

// A number with so many digits behind the point.
std::string Fixed(double x, int digits);

}  // namespace tally::app
