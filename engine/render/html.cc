// SPDX-License-Identifier: Apache-2.0
#include "engine/render/html.h"

#include <algorithm>
#include <charconv>

#include "engine/base/format.h"

namespace tally {
namespace {

bool XmlExcludes(std::string_view character) {
  const auto c = static_cast<unsigned char>(character[0]);
  return (c < 0x20 && c != '\t' && c != '\n' && c != '\r') || character == "\xef\xbf\xbe" || character == "\xef\xbf\xbf";
}

// Whether `text` is its number but for the commas, so that the page's script needs no other.
bool SaysItsValue(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789,.") == std::string::npos;
}

std::string NumberText(double value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  return {text, end};
}

std::string CellHtml(const Cell& cell, bool row_head) {
  if (row_head)
    return "<th scope=\"row\"" + std::string(cell.value.IsNumber() ? " class=\"n\"" : "") + ">" + Escape(cell.text) + "</th>";
  if (!cell.value.IsNumber()) return "<td>" + Escape(cell.text) + "</td>";
  const std::string sorted_by = SaysItsValue(cell.text) ? "" : " data-v=\"" + NumberText(cell.value.Number()) + "\"";
  return "<td class=\"n\"" + sorted_by + ">" + Escape(cell.text) + "</td>";
}

bool NumericColumn(const Table& table, size_t column) {
  return std::any_of(table.rows.begin(), table.rows.end(), [&](const auto& row) { return row[column].value.IsNumber(); });
}

}  // namespace

std::string Escape(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t valid = Utf8Length(text), taken = std::max<size_t>(valid, 1);
    const std::string_view character = text.substr(0, taken);
    text.remove_prefix(taken);
    if (valid == 0 || XmlExcludes(character)) {
      out += "\xef\xbf\xbd";
    } else if (character == "&") {
      out += "&amp;";
    } else if (character == "<") {
      out += "&lt;";
    } else if (character == ">") {
      out += "&gt;";
    } else if (character == "\"") {
      out += "&quot;";
    } else if (character == "'") {
      out += "&#39;";
    } else {
      out += character;
    }
  }
  return out;
}

std::string TableHtml(const Table& table, std::string_view css_class) {
  const std::string caption = Escape(table.title);
  std::string out = "<div class=\"table " + std::string(css_class) + "\" tabindex=\"0\" role=\"group\" aria-label=\"" + caption +
                    "\">\n<table>\n<caption>" + caption + "</caption>\n<thead><tr>";
  for (size_t i = 0; i < table.columns.size(); ++i) {
    out += "<th scope=\"col\"" + std::string(NumericColumn(table, i) ? " class=\"n\"" : "") + ">" + Escape(table.columns[i]) +
           "</th>";
  }
  out += "</tr></thead>\n<tbody>\n";
  for (const std::vector<Cell>& row : table.rows) {
    out += "<tr>";
    for (size_t i = 0; i < row.size(); ++i) out += CellHtml(row[i], i == 0);
    out += "</tr>\n";
  }
  return out + "</tbody>\n</table>\n</div>\n";
}

}  // namespace tally
