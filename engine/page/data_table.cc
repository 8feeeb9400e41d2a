// SPDX-License-Identifier: Apache-2.0
#include "engine/page/data_table.h"

#include <algorithm>
#include <charconv>

#include "engine/page/axis.h"
#include "engine/page/svg.h"

namespace tally::page {
namespace {

// Whether `text` is its number but for the commas, so that the page's script needs no other.
bool SaysItsValue(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789,.") == std::string::npos;
}

std::string Value(double value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  return {text, end};
}

std::string CellHtml(const Cell& cell, bool row_head) {
  if (row_head) return "<th scope=\"row\"" + std::string(cell.numeric ? " class=\"n\"" : "") + ">" + Escape(cell.text) + "</th>";
  if (!cell.numeric) return "<td>" + Escape(cell.text) + "</td>";
  const std::string sorted_by = SaysItsValue(cell.text) ? "" : " data-v=\"" + Value(cell.value) + "\"";
  return "<td class=\"n\"" + sorted_by + ">" + Escape(cell.text) + "</td>";
}

bool NumericColumn(const DataTable& table, size_t column) {
  return std::any_of(table.rows.begin(), table.rows.end(), [&](const auto& row) { return row[column].numeric; });
}

}  // namespace

Cell CountCell(uint64_t n) { return {Thousands(n), static_cast<double>(n)}; }
Cell SiCell(double value, std::string_view unit) { return {Si(value, unit), value}; }
Cell PercentCell(double share) { return {Percent(share), share}; }

std::string TableHtml(const DataTable& table, std::string_view css_class) {
  const std::string caption = Escape(table.caption);
  std::string out = "<div class=\"table " + std::string(css_class) + "\" tabindex=\"0\" role=\"group\" aria-label=\"" + caption +
                    "\">\n<table>\n<caption>" + caption + "</caption>\n<thead><tr>";
  for (size_t i = 0; i < table.head.size(); ++i) {
    out +=
        "<th scope=\"col\"" + std::string(NumericColumn(table, i) ? " class=\"n\"" : "") + ">" + Escape(table.head[i]) + "</th>";
  }
  out += "</tr></thead>\n<tbody>\n";
  for (const std::vector<Cell>& row : table.rows) {
    out += "<tr>";
    for (size_t i = 0; i < row.size(); ++i) out += CellHtml(row[i], i == 0);
    out += "</tr>\n";
  }
  return out + "</tbody>\n</table>\n</div>\n";
}

}  // namespace tally::page
