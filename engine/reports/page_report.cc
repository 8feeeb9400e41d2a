// SPDX-License-Identifier: Apache-2.0
#include "engine/reports/page_report.h"

#include <array>
#include <map>
#include <string>
#include <vector>

#include "engine/base/format.h"
#include "engine/reports/audit_report.h"

namespace tally {
namespace {

using Kind = PageFinding::Kind;

constexpr size_t kShownFindings = 40;
constexpr std::array<const char*, 3> kKinds = {"touched, not charged", "charged, not touched", "read beyond its end"};

struct PageSums {
  uint64_t bytes = 0, charged = 0, touched = 0;
  std::array<uint64_t, 3> pages{};  // by kind of finding

  void Add(const PageRow& row) {
    bytes += row.charged_bytes;
    charged += row.charged_pages;
    touched += row.touched_pages;
    for (const PageFinding& f : row.findings) pages[static_cast<size_t>(f.kind)] += f.pages;
  }
};

Table SumTable(const std::string& title, const char* what) {
  Table t;
  t.title = title;
  t.columns = {what, "charged bytes", "pages charged", "touched", "slack bytes", "", "findings"};
  t.left = {true, false, false, false, false, false, true};
  t.joined = {false, false, false, false, false, true};
  return t;
}

// Slack: what the pages hold beside the charged bytes. Of a row alone in a panel a little may be missing instead: its panel is
// charged, and may end on a page that holds nothing of it.
void AddRow(Table& t, const std::string& name, const PageSums& s, uint64_t page) {
  std::string findings;
  for (size_t k = 0; k < kKinds.size(); ++k) {
    if (s.pages[k] > 0) findings += (findings.empty() ? "" : "; ") + WithThousands(s.pages[k]) + " " + kKinds[k];
  }
  const uint64_t all = s.charged * page;
  const std::string slack = all >= s.bytes ? WithThousands(all - s.bytes) : "-" + WithThousands(s.bytes - all);
  const std::string part =
      all > s.bytes ? Fixed(100.0 * static_cast<double>(all - s.bytes) / static_cast<double>(all), 2) + " %" : "";
  t.rows.push_back({name, WithThousands(s.bytes), WithThousands(s.charged), WithThousands(s.touched), slack, part, findings});
}

}  // namespace

Table PageStepTable(const AuditReport& report) {
  Table t = SumTable("pages of the packed weights, " + WithThousands(report.page_bytes) +
                         " bytes each: charged, and touched as the "
                         "memory-management unit saw it",
                     "step");
  PageSums decode, predicting;
  uint64_t decoded = 0, passes = 0;
  for (const AuditReport::Step& step : report.steps) {
    PageSums own;
    PageSums& sum = !step.of_text() ? predicting : IsDecode(step) ? decode : own;
    (step.of_text() ? decoded : passes) += !step.of_text() || IsDecode(step) ? 1 : 0;
    for (const PageRow& row : step.pages) sum.Add(row);
    if (step.of_text() && !IsDecode(step)) AddRow(t, StepName(step), sum, report.page_bytes);
  }
  if (passes > 0) AddRow(t, std::to_string(passes) + " passes for prediction", predicting, report.page_bytes);
  if (decoded > 0) AddRow(t, std::to_string(decoded) + " decode steps", decode, report.page_bytes);
  return t;
}

Table PageSiteTable(const AuditReport& report) {
  Table t = SumTable("the same, all steps", "site");
  std::map<Component, PageSums> sites;
  for (const AuditReport::Step& step : report.steps) {
    for (const PageRow& row : step.pages) sites[row.component].Add(row);
  }
  for (const auto& [component, sum] : sites) AddRow(t, std::string(ComponentName(component)), sum, report.page_bytes);
  return t;
}

Table PageFindingTable(const AuditReport& report) {
  Table t;
  t.title = "pages that are not as charged";
  t.columns = {"step", "tensor", "slice", "page", "pages", ""};
  t.left = {true, true, false, false, false, true};
  for (const AuditReport::Step& step : report.steps) {
    for (const PageRow& row : step.pages) {
      for (const PageFinding& f : row.findings) {
        if (t.rows.size() == kShownFindings) return t;
        t.rows.push_back({StepName(step), row.tensor, std::to_string(f.slice), WithThousands(f.first_page),
                          WithThousands(f.pages), kKinds[static_cast<size_t>(f.kind)]});
      }
    }
  }
  return t;
}

Value PagesJson(const AuditReport::Step& step) {
  constexpr std::array<const char*, 3> kNames = {"touched", "charged", "guard"};
  return Value::ListOf(step.pages, [&](const PageRow& row) -> Value {
    const Value findings = Value::ListOf(row.findings, [&](const PageFinding& f) -> Value {
      const char* const kind = kNames[static_cast<size_t>(f.kind)];
      return {{"kind", kind}, {"slice", f.slice}, {"first_page", f.first_page}, {"pages", f.pages}};
    });
    return {{"tensor", row.tensor},
            {"layer", row.layer},
            {"component", ComponentName(row.component)},
            {"charged_bytes", row.charged_bytes},
            {"charged_pages", row.charged_pages},
            {"touched_pages", row.touched_pages},
            {"findings", findings},
            {"agrees", row.agrees()}};
  });
}

}  // namespace tally
