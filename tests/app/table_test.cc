// SPDX-License-Identifier: Apache-2.0
#include "engine/app/table.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "engine/app/bars.h"

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

TEST(Table, Markdown) {
  EXPECT_EQ(Render(kTable, TableFormat::kMarkdown),
            "### weights\n\n"
            "| name | bytes | form |\n"
            "| --- | ---: | --- |\n"
            "| a\\|b | 1,234 | 2 V E |\n"
            "| c | 7 | x, \"y\" |\n");
}

TEST(Bars, AddUpAndFit) {
  const std::vector<std::string> names = {"embedding", "experts", "attention", "none"};
  const std::vector<Bar> bars = {{"total", {25, 50, 25, 0}}, {"active", {25, 5, 25, 0}}};
  const std::string text = RenderBars(names, bars, 50, false);
  EXPECT_EQ(text.substr(0, text.find('\n')), "  total   EEEEEEEEEEXXXXXXXXXXXXXXXXXXXXAAAAAAAAAA");
  const std::string second = text.substr(text.find('\n') + 1);
  EXPECT_EQ(second.substr(0, second.find('\n')), "  active  EEEEEEEEEEXXAAAAAAAAAA");
  EXPECT_NE(text.find("X experts"), std::string::npos);
  EXPECT_NE(text.find("\n" + std::string(13 + 2 + 15, ' ') + "total" + std::string(2 + 14, ' ') + "active  of total\n"),
            std::string::npos)
      << text;
  EXPECT_EQ(text.find("none"), std::string::npos);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_NE(RenderBars(names, bars, 50, true).find("\x1b[48;5;"), std::string::npos);
  EXPECT_EQ(RenderBars(names, {{"total", {0, 0, 0, 0}}}, 50, false), "");
  // No room at all: still bars of some columns.
  EXPECT_NE(RenderBars(names, bars, 0, false).find("EEE"), std::string::npos);
}

}  // namespace
}  // namespace tally::app
