// SPDX-License-Identifier: Apache-2.0
#include "engine/render/table.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <numeric>

#include "engine/base/format.h"
#include "engine/render/words.h"

namespace tally {
namespace {

constexpr size_t kGap = 2;     // blanks before each column
constexpr size_t kWords = 24;  // columns that a column of words is not broken below

bool IsSet(const std::vector<bool>& flags, size_t column) { return column < flags.size() && flags[column]; }

std::vector<size_t> WidthsOf(const Table& t) {
  std::vector<size_t> widths;
  for (const std::string& c : t.columns) widths.push_back(TextWidth(c));
  for (const auto& row : t.rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], TextWidth(row[i].text));
  }
  return widths;
}

size_t LineOf(const std::vector<size_t>& widths) {
  return std::accumulate(widths.begin(), widths.end(), size_t{0}) + kGap * widths.size();
}

// A row whose cells are broken to their columns: as many lines as the longest has.
std::string RowLines(const Table& t, const std::vector<size_t>& widths, const std::vector<Cell>& cells) {
  std::vector<std::vector<std::string>> lines;
  size_t height = 1;
  for (size_t i = 0; i < cells.size(); ++i) {
    lines.push_back(WrapWords(cells[i].text, widths[i]));
    height = std::max(height, lines.back().size());
  }
  std::string out;
  for (size_t y = 0; y < height; ++y) {
    std::string line;
    for (size_t i = 0; i < cells.size(); ++i) {
      const std::string cell = y < lines[i].size() ? lines[i][y] : "";
      const std::string padding(widths[i] - TextWidth(cell), ' ');
      line += std::string(kGap, ' ') + (IsSet(t.left, i) ? cell + padding : padding + cell);
    }
    out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return out;
}

std::vector<Cell> Heads(const Table& t) { return {t.columns.begin(), t.columns.end()}; }

std::string TableLines(const Table& t, const std::vector<size_t>& widths) {
  std::string out;
  if (std::any_of(t.columns.begin(), t.columns.end(), [](const std::string& c) { return !c.empty(); })) {
    out += RowLines(t, widths, Heads(t));
  }
  for (const auto& row : t.rows) out += RowLines(t, widths, row);
  return out;
}

// Whether the widest column of words can be broken so that lines have `width` columns; makes it as narrow as that needs.
bool BreakWords(const Table& t, size_t width, std::vector<size_t>& widths) {
  size_t widest = 0;  // the first one is not broken
  for (size_t i = 1; i < widths.size(); ++i) {
    if (IsSet(t.left, i) && (widest == 0 || widths[i] > widths[widest])) widest = i;
  }
  if (widest == 0) return false;
  const size_t others = LineOf(widths) - widths[widest];
  if (others + std::min(kWords, widths[widest]) > width) return false;
  widths[widest] = width - others;
  return true;
}

// The columns `taken`.
Table ColumnsOf(const Table& t, const std::vector<size_t>& taken) {
  Table some{t.title, {}, std::vector<std::vector<Cell>>(t.rows.size()), {}};
  for (const size_t i : taken) {
    some.columns.push_back(t.columns[i]);
    some.left.push_back(IsSet(t.left, i));
    for (size_t row = 0; row < t.rows.size(); ++row) some.rows[row].push_back(t.rows[row][i]);
  }
  return some;
}

// The first column and those from `begin` to `end`, of the rows that have cells there.
Table GroupOf(const Table& t, size_t begin, size_t end) {
  std::vector<size_t> taken = {0};
  for (size_t i = begin; i < end; ++i) taken.push_back(i);
  Table group = ColumnsOf(t, taken);
  group.title.clear();
  std::erase_if(group.rows, [](const std::vector<Cell>& row) {
    return std::all_of(row.begin() + 1, row.end(), [](const Cell& cell) { return cell.text.empty(); });
  });
  return group;
}

std::string GroupLines(const Table& t, size_t width, const std::vector<size_t>& widths) {
  std::string out;
  for (size_t begin = 1, end = 1; begin < widths.size(); begin = end) {
    size_t line = kGap + widths[0];
    while (end < widths.size()) {
      size_t unit = end, taken = 0;  // columns that stay together
      do taken += kGap + widths[unit++];
      while (unit < widths.size() && IsSet(t.joined, unit));
      if (end > begin && line + taken > width) break;
      line += taken;
      end = unit;
    }
    const Table group = GroupOf(t, begin, end);
    if (group.rows.empty()) continue;
    std::vector<size_t> own = WidthsOf(group);
    if (LineOf(own) > width) BreakWords(group, width, own);
    out += (out.empty() ? "" : "\n") + TableLines(group, own);
  }
  return out;
}

std::string TextTable(const Table& t, size_t width) {
  std::string out = t.title.empty() ? "" : Paragraph("", t.title, width, 0);
  std::vector<size_t> widths = WidthsOf(t);
  if (width == 0 || LineOf(widths) <= width || BreakWords(t, width, widths)) return out + TableLines(t, widths);
  return out + GroupLines(t, width, widths);
}

std::string Markdown(const Table& t) {
  auto line = [](const std::vector<Cell>& cells) {
    std::string text = "|";
    for (const Cell& c : cells) {
      text += " ";
      for (const char x : c.text) text += x == '|' ? std::string("\\|") : std::string(1, x);
      text += " |";
    }
    return text + "\n";
  };
  std::string out = t.title.empty() ? "" : "### " + t.title + "\n\n";
  out += line(Heads(t)) + "|";
  for (size_t i = 0; i < t.columns.size(); ++i) out += IsSet(t.left, i) ? " --- |" : " ---: |";
  out += "\n";
  for (const auto& row : t.rows) out += line(row);
  return out;
}

std::string Latex(const Table& t) {
  const auto line = [](const std::vector<Cell>& cells) {
    std::string text = "  ";
    for (size_t i = 0; i < cells.size(); ++i) text += (i > 0 ? " & " : "") + LatexText(cells[i].text);
    return text + " \\\\\n";
  };
  std::string columns;
  for (size_t i = 0; i < t.columns.size(); ++i) columns += IsSet(t.left, i) ? 'l' : 'r';
  std::string out = "\\begin{table}\n\\centering\n";
  if (!t.title.empty()) out += "\\caption{" + LatexText(t.title) + "}\n";
  out += "\\begin{tabular}{" + columns + "}\n\\toprule\n";
  if (std::ranges::any_of(t.columns, [](const std::string& c) { return !c.empty(); })) out += line(Heads(t)) + "\\midrule\n";
  for (const auto& row : t.rows) out += line(row);
  return out + "\\bottomrule\n\\end{tabular}\n\\end{table}\n";
}

}  // namespace

std::string Render(const Table& table, TableFormat format, size_t width) {
  switch (format) {
    case TableFormat::kMarkdown: return Markdown(table);
    case TableFormat::kLatex: return Latex(table);
    case TableFormat::kText: break;
  }
  return TextTable(table, width);
}

std::string LatexText(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
      case '%':
      case '$':
      case '#':
      case '_':
      case '{':
      case '}': out += std::string("\\") + c; break;
      case '\\': out += "\\textbackslash{}"; break;
      case '~': out += "\\textasciitilde{}"; break;
      case '^': out += "\\textasciicircum{}"; break;
      case '<': out += "\\textless{}"; break;
      case '>': out += "\\textgreater{}"; break;
      case '|': out += "\\textbar{}"; break;
      default: out += c;
    }
  }
  return out;
}

Table WithoutEmptyColumns(const Table& t) {
  std::vector<size_t> taken;
  for (size_t i = 0; i < t.columns.size(); ++i) {
    if (std::ranges::any_of(t.rows, [&](const auto& row) { return !row[i].text.empty(); })) taken.push_back(i);
  }
  return ColumnsOf(t, taken);
}

size_t TableWidth(const Table& table) { return LineOf(WidthsOf(table)); }

Cell CountCell(uint64_t n) { return {WithThousands(n), n}; }
Cell FixedCell(double x, int digits) { return {Fixed(x, digits), x}; }
Cell WholeCell(double x) { return {WithThousands(x), WholeOr(x)}; }

Value WholeOr(double x) {
  if (x >= 0 && x < 0x1p63 && x == std::floor(x)) return static_cast<uint64_t>(x);
  return x;
}

std::string Fixed(double x, int digits) {
  char text[48];
  std::snprintf(text, sizeof text, "%.*f", digits, x);
  return text;
}

}  // namespace tally
