// SPDX-License-Identifier: Apache-2.0
#include "engine/render/table.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "engine/render/bars.h"
#include "engine/render/words.h"

namespace tally::app {
namespace {

const Table kTable{
    "weights", {"name", "bytes", "form"}, {{"a|b", "1,234", "2 V E"}, {"c", "7", "x, \"y\""}}, {true, false, true}};

TEST(Table, Text) {
  EXPECT_EQ(Render(kTable, TableFormat::kText),
            "weights\n"
            "  name  bytes  form\n"
            "  a|b   1,234  2 V E\n"
            "  c         7  x, \"y\"\n");
  EXPECT_EQ(Render({"", {"", ""}, {{"one", "two"}}, {true}}, TableFormat::kText), "  one  two\n");
}

// A column of words is broken; else columns are put into groups, each behind the first and without rows that it has no cells of.
TEST(Table, TextOfAWidth) {
  const Table words{
      "", {"", "n", "what"}, {{"a", "1", "one two three four five six seven"}, {"b", "2", "x"}}, {true, false, true}};
  EXPECT_EQ(Render(words, TableFormat::kText, 32),
            "     n  what\n"
            "  a  1  one two three four five\n"
            "        six seven\n"
            "  b  2  x\n");
  Table wide{"a title of several words",
             {"key", "first", "share", "second", "share"},
             {{"a", "1,000", "10.00 %", "2,000", "20.00 %"}, {"b", "", "", "3,000", "30.00 %"}},
             {true}};
  wide.joined = {false, false, true, false, true};
  EXPECT_EQ(Render(wide, TableFormat::kText, 28),
            "a title of several words\n"
            "  key  first    share\n"
            "  a    1,000  10.00 %\n"
            "\n"
            "  key  second    share\n"
            "  a     2,000  20.00 %\n"
            "  b     3,000  30.00 %\n");
  EXPECT_EQ(Render(wide, TableFormat::kText, 38), Render(wide, TableFormat::kText, 0));                               // it fits
  EXPECT_EQ(Render(wide, TableFormat::kText, 18).substr(0, 46), "a title of several\nwords\n  key  first    share");  // too wide
}

TEST(Words, Lines) {
  EXPECT_EQ(TextWidth("\x1b[48;5;24;97mE\x1b[0m h\xc3\xa9"), 4u);
  EXPECT_EQ(WrapWords("one two three", 7), (std::vector<std::string>{"one two", "three"}));
  EXPECT_EQ(WrapWords("one two three", 0), (std::vector<std::string>{"one two three"}));
  EXPECT_EQ(WrapWords("abcdefgh ij", 4), (std::vector<std::string>{"abcd", "efgh", "ij"}));
  EXPECT_EQ(WrapWords("x=1,y=23,z=4 ij", 8), (std::vector<std::string>{"x=1,", "y=23,z=4", "ij"}));
  EXPECT_EQ(WrapWords("a, 70.44 GB b 1, 2", 9), (std::vector<std::string>{"a,", "70.44 GB", "b 1, 2"}));
  EXPECT_EQ(WrapWords("", 4), (std::vector<std::string>{""}));
  EXPECT_EQ(WrapWords("one two", 7, 2), (std::vector<std::string>{"one", "two"}));
  EXPECT_EQ(Paragraph("label", "one two three four", 20), "label     one two\n          three four\n");
  EXPECT_EQ(Paragraph("a long label", "one two", 22, 4), "a long label one two\n");
  EXPECT_EQ(Paragraph("a long label", "one two", 19, 4), "a long label one\n    two\n");
  EXPECT_EQ(Paragraph("", "one two", 8, 0), "one two\n");
}

TEST(Words, Figures) {
  EXPECT_EQ(Scaled(0, "B"), "0 B");
  EXPECT_EQ(Scaled(36'864, "B"), "36.86 kB");
  EXPECT_EQ(Scaled(999'600'000, "B"), "1.00 GB");
  EXPECT_EQ(Scaled(2.5e11, "FLOP/s"), "250 GFLOP/s");
  EXPECT_EQ(Share(1, 3), "33.33 %");
  EXPECT_EQ(Share(1, 1'000'000), "<0.01 %");
  EXPECT_EQ(Share(0, 3), "0.00 %");
  EXPECT_EQ(Share(1, 0), "");
}

TEST(Table, Markdown) {
  EXPECT_EQ(Render(kTable, TableFormat::kMarkdown),
            "### weights\n\n"
            "| name | bytes | form |\n"
            "| --- | ---: | --- |\n"
            "| a\\|b | 1,234 | 2 V E |\n"
            "| c | 7 | x, \"y\" |\n");
}

TEST(Table, Latex) {
  EXPECT_EQ(Render(kTable, TableFormat::kLatex),
            "\\begin{table}\n\\centering\n\\caption{weights}\n\\begin{tabular}{lrl}\n\\toprule\n"
            "  name & bytes & form \\\\\n\\midrule\n"
            "  a\\textbar{}b & 1,234 & 2 V E \\\\\n"
            "  c & 7 & x, \"y\" \\\\\n"
            "\\bottomrule\n\\end{tabular}\n\\end{table}\n");
  EXPECT_EQ(LatexText("a_b & 5 % of {x}^2\\~$#<>"),
            "a\\_b \\& 5 \\% of \\{x\\}\\textasciicircum{}2\\textbackslash{}\\textasciitilde{}\\$\\#\\textless{}\\textgreater{}");
}

TEST(Bars, AddUpAndFit) {
  const std::vector<std::string> names = {"embedding", "experts", "attention", "none"};
  const std::vector<Bar> bars = {{"total", {25, 50, 25, 0}}, {"active", {25, 5, 25, 0}}};
  const std::string text = RenderBars(names, bars, 50, false);
  EXPECT_EQ(text.substr(0, text.find('\n')), "  total   EEEEEEEEEEXXXXXXXXXXXXXXXXXXXXAAAAAAAAAA");
  const std::string second = text.substr(text.find('\n') + 1);
  EXPECT_EQ(second.substr(0, second.find('\n')), "  active  EEEEEEEEEEXXAAAAAAAAAA");
  EXPECT_NE(text.find("X experts"), std::string::npos);
  EXPECT_NE(text.find("\n" + std::string(13, ' ') + "  total  active  of total\n"), std::string::npos) << text;
  EXPECT_NE(text.find("\n  X experts       50       5   50.00 %\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("none"), std::string::npos);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_NE(RenderBars(names, bars, 50, true).find("\x1b[48;5;"), std::string::npos);
  EXPECT_EQ(RenderBars(names, {{"total", {0, 0, 0, 0}}}, 50, false), "");
  // No room at all: still bars of some columns.
  EXPECT_NE(RenderBars(names, bars, 0, false).find("EEE"), std::string::npos);
}

}  // namespace
}  // namespace tally::app
