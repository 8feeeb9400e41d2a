// SPDX-License-Identifier: Apache-2.0
// Tables of figures: as text for people and as Markdown here, as HTML in html_table.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/export.h"
#include "engine/render/value.h"

namespace tally {

enum class TableFormat { kText, kMarkdown, kLatex };

TALLY_API Value WholeOr(double x);  // a whole number where it is one

// What is shown, and the value that it stands for: documents have that, and pages sort by it. Words alone have none.
struct Cell {
  Cell(std::string shown) : text(std::move(shown)) {}  // NOLINT(google-explicit-constructor): rows are lists of cells
  Cell(std::string_view shown) : text(shown) {}        // NOLINT(google-explicit-constructor)
  Cell(const char* shown) : text(shown) {}             // NOLINT(google-explicit-constructor)
  Cell(std::string shown, Value stands_for) : text(std::move(shown)), value(std::move(stands_for)) {}

  std::string text;
  Value value = {};
};
TALLY_API Cell CountCell(uint64_t n);            // 1,234,567
TALLY_API Cell FixedCell(double x, int digits);  // so many digits behind the point
TALLY_API Cell WholeCell(double x);              // the nearest whole number as shown, the number itself as a value
// Of a figure of any type: whole numbers as CountCell; a text stands for itself.
inline Cell CellOf(Cell cell) { return cell; }
inline Cell CellOf(uint64_t n) { return CountCell(n); }
inline Cell CellOf(int64_t n) { return {std::to_string(n), n}; }
inline Cell CellOf(int32_t n) { return CellOf(int64_t{n}); }
inline Cell CellOf(const std::string& text) { return {text, text}; }
inline Cell CellOf(std::string_view text) { return CellOf(std::string(text)); }
inline Cell CellOf(const char* text) { return CellOf(std::string(text)); }

struct Table {
  std::string title = {};
  std::vector<std::string> columns = {};     // headings; may be empty for the first
  std::vector<std::vector<Cell>> rows = {};  // as many cells as columns
  std::vector<bool> left = {};    // by column: flush left; beyond its end, flush right. Pages look at the cells instead.
  std::vector<bool> joined = {};  // by column: it stays beside the column before it
};

// Lines end in '\n'. Text: columns two blanks apart, none cut, no blanks at line ends. Where that is more than `width` columns (0: any
// number are few enough), a long column of words is broken into lines, or the columns are put into groups, one below the other,
// each behind the first column and without the rows that it has no cells of. A column that does not fit beside the first makes lines too
// long all the same.
// Markdown: a heading and a pipe table, of any width.
// LaTeX: a table of the package booktabs, the title as its caption.
TALLY_API std::string Render(const Table& table, TableFormat format, size_t width = 0);

// A text as LaTeX sets it, in the default fonts: "a\_b", "100 \%".
TALLY_API std::string LatexText(std::string_view text);

TALLY_API Table WithoutEmptyColumns(const Table& table);  // those in which no row has a cell

// Columns that its longest line takes as text of any width.
TALLY_API size_t TableWidth(const Table& table);

// A number with so many digits behind the point.
TALLY_API std::string Fixed(double x, int digits);

}  // namespace tally
