// SPDX-License-Identifier: Apache-2.0
// No format prints a number for a figure that is only part, of any built-in model; and all say what it lacks.
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "engine/recipe/recipe.h"
#include "engine/render/table.h"
#include "engine/reports/count_report.h"
#include "engine/studies/count.h"
#include "engine/studies/report.h"

namespace tally::app {
namespace {

using books::Count;

CountedModel MustCount(std::string_view name) {
  Result<CountedModel> counted = CountModel({.model = std::string(name), .settings = {}, .options = {}});
  EXPECT_TRUE(counted.ok()) << name << ": " << counted.status().message();
  return counted.ok() ? std::move(counted).value() : CountedModel{};
}

// The cells below a column's name, of the rows that start so.
std::vector<std::string> Cells(const std::vector<Table>& tables, const std::string& title, const std::string& column,
                               const std::string& row = "") {
  std::vector<std::string> cells;
  for (const Table& t : tables) {
    const auto found = std::ranges::find(t.columns, column);
    if (!t.title.starts_with(title) || found == t.columns.end()) continue;
    for (const auto& line : t.rows) {
      if (line[0].text.starts_with(row)) cells.push_back(line[static_cast<size_t>(found - t.columns.begin())].text);
    }
  }
  return cells;
}

// Every figure of a document that is null has its name among what is lacking, and none that is lacking has a number.
void ExpectNulls(const Json& totals, const books::FlopsCount& of) {
  constexpr const char* kKeys[] = {"matmul_full_square", "matmul_causal", "everything"};
  for (size_t v = 0; v < books::kFlopsViews; ++v) {
    EXPECT_EQ(totals[kKeys[v]].IsNull(), !of.total[v].whole()) << kKeys[v];
    EXPECT_EQ(totals["lacks"].Find(kKeys[v]) != nullptr, !of.total[v].whole()) << kKeys[v];
  }
  EXPECT_EQ(totals["special"].IsNull(), !of.special.whole());
  EXPECT_EQ(totals["macs"].IsNull(), !of.total[1].whole());
}

void ExpectDocument(const CountedModel& m) {
  const Count& c = m.count;
  const Json d = CountDocument({&m, 1})["models"][0];
  EXPECT_TRUE(d["parameters"]["total"].IsNumber()) << JsonText(d["parameters"]["total"]);
  for (const auto& [key, step] : {std::pair{"prefill", &c.prefill}, std::pair{"decode", &c.decode}}) {
    const Json& flops = d["flops"][key];
    ExpectNulls(flops["total"], *step);
    const bool whole = step->total[2].whole();
    EXPECT_EQ(flops["sites"].IsNull(), !whole);
    EXPECT_EQ(flops["classes"].IsNull(), !whole);
    for (const Json& part : flops["parts"].items()) {
      EXPECT_EQ(part["everything"].IsNull(), !whole) << JsonText(part);
      EXPECT_EQ(part["matmul_causal"].IsNull(), !step->total[1].whole()) << JsonText(part);
    }
  }
  EXPECT_EQ(d["flops_per_byte"]["decode"].IsNull(), !c.decode_intensity.whole());
  EXPECT_EQ(d["flops_per_byte"]["prefill"].IsNull(), !c.prefill_intensity.whole());
  EXPECT_EQ(d["bytes"]["kv_read_at_context"].IsNull(), !c.kv_bytes_read.whole());
}

void ExpectTables(const CountedModel& m, const std::string& partial) {
  const Count& c = m.count;
  const std::vector<Table> tables = CountTables({&m, 1}, false);
  for (const std::string& cell : Cells(tables, "FLOPs of a", "everything")) EXPECT_EQ(cell, "partial");
  for (const std::string& cell : Cells(tables, "FLOPs of a", "special")) EXPECT_EQ(cell, "partial");
  for (const std::string& cell : Cells(tables, "traffic", "decode", "FLOPs a byte")) EXPECT_EQ(cell, "partial");
  for (const std::string& cell : Cells(tables, "traffic", "prefill", "FLOPs a byte")) EXPECT_EQ(cell, "partial");
  for (const std::string& cell : Cells(tables, "memory", "bytes", "KV read"))
    EXPECT_EQ(cell == "partial", !c.kv_bytes_read.whole());
  for (const TableFormat format : {TableFormat::kText, TableFormat::kMarkdown}) {
    std::string text;
    for (const Table& t : tables) text += Render(t, format);
    EXPECT_NE(text.find(partial), std::string::npos);
  }
  // Beside itself and another: columns, shares of them, and rows where columns have no room.
  const CountedModel two[] = {m, MustCount("gpt2")};
  const Table columns = ModelColumns(two, /*exact=*/true);
  for (const auto& row : columns.rows) {
    if (row[0].text.starts_with("prefill of") || row[0].text.starts_with("decode at")) {
      EXPECT_EQ(row[1].text, "partial") << row[0].text;
    }
  }
  for (const size_t width : {size_t{0}, size_t{40}, size_t{80}, size_t{200}}) {
    EXPECT_NE(CountScreen(two, width).find("partial"), std::string::npos) << width;
    EXPECT_NE(CountScreen(m, width).find("partial"), std::string::npos) << width;
  }
}

void ExpectCsv(const CountedModel& m) {
  const Result<std::string> csv = CountCsv({&m, 1}, {});
  ASSERT_TRUE(csv.ok());
  std::istringstream lines(*csv);
  size_t partial = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.find(", partial: lacks ") != std::string::npos) {
      ++partial;
      EXPECT_EQ(line.back(), ',') << line;
    }
    for (const char* figure : {",everything,", ",special,", ",FLOPs a byte of weights and KV,"}) {
      EXPECT_EQ(line.find(figure), std::string::npos) << line;
    }
  }
  EXPECT_GT(partial, 0u);
}

// Of figures that are only part nothing is drawn.
void ExpectPage(const CountedModel& m) {
  const Result<ReportData> report = ReportOf(m);
  ASSERT_TRUE(report.ok()) << report.status().message();
  for (const ReportStep& step : report->steps) {
    EXPECT_EQ(step.all.flops, 0u);
    if (!m.count.kv_bytes_read.whole()) {
      EXPECT_TRUE(step.all.bytes.empty());
    }
  }
  EXPECT_TRUE(std::ranges::any_of(report->absent, [](const std::string& s) { return s.find("norms") != std::string::npos; }));
}

TEST(PartialFigures, OfEveryModelInEveryFormat) {
  size_t models = 0;
  for (const std::string_view name : KnownModels()) {
    SCOPED_TRACE(name);
    const CountedModel m = MustCount(name);
    // A document takes long: of whole models those alone that are small.
    if (m.count.recipe->counted_only || !m.all_parameters() || m.count.tensors.size() < 100) ExpectDocument(m);
    const std::string partial = books::PartialWords(m.count);
    EXPECT_EQ(partial.empty(), !m.count.recipe->counted_only.has_value());
    if (partial.empty()) continue;
    ++models;
    ExpectTables(m, partial);
    ExpectCsv(m);
    ExpectPage(m);
    // Where matrix products are only part, no sum of what is counted stands anywhere.
    if (m.count.decode.total[1].whole()) continue;
    uint64_t sum = 0;
    for (const books::WorkForm& f : m.count.decode.sites) sum += f.flops.value();
    const CountedModel one[] = {m, m};
    std::string all = CountScreen(m, 0) + CountScreen(one, 0) + JsonText(CountDocument(one)) + CountCsv(one, {}).value();
    for (const Table& t : CountTables(one, true)) all += Render(t, TableFormat::kText);
    EXPECT_EQ(all.find(books::WithThousands(sum)), std::string::npos);
    EXPECT_EQ(all.find(std::to_string(sum)), std::string::npos);
  }
  EXPECT_GE(models, 11u);
}

}  // namespace
}  // namespace tally::app
