// SPDX-License-Identifier: Apache-2.0
// Tables of the page.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tally::page {

// Text as shown. A numeric cell is aligned to the right, and sorted by its value.
struct Cell {
  Cell(std::string shown) : text(std::move(shown)) {}  // NOLINT(google-explicit-constructor): rows are lists of cells
  Cell(const char* shown) : text(shown) {}             // NOLINT(google-explicit-constructor)
  Cell(std::string shown, double sorted_by) : text(std::move(shown)), value(sorted_by), numeric(true) {}

  std::string text;
  double value = 0;
  bool numeric = false;
};

Cell CountCell(uint64_t n);                        // 1,234,567
Cell SiCell(double value, std::string_view unit);  // 1.23 MB
Cell PercentCell(double share);                    // 17.25 %

// Every row has as many cells as the head. The first cell of a row is its head, for screen readers.
struct DataTable {
  std::string caption = {};  // what it shows, for screen readers
  std::vector<std::string> head = {};
  std::vector<std::vector<Cell>> rows = {};
};

// In a box that scrolls sideways where it is too narrow. `css_class`: of the box.
std::string TableHtml(const DataTable& table, std::string_view css_class = {});

}  // namespace tally::page
