// SPDX-License-Identifier: Apache-2.0
#include "engine/base/format.h"
#include "engine/reports/audit_report.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "engine/recipe/recipe.h"
#include "engine/render/table.h"
#include "engine/render/words.h"
#include "engine/reports/audit_sums.h"
#include "engine/reports/page_report.h"
#include "engine/reports/rank_report.h"

namespace tally {
namespace {

using books::AuditAccount;
using books::AuditRow;

constexpr size_t kFewDifferences = 5;  // each takes two lines
constexpr size_t kFewFindings = 5;
constexpr size_t kTextFrom = 10;

using Accounts = std::map<AuditAccount, AuditSums>;

void AddAccounts(const Accounts& accounts, Table& t) {
  for (const auto& [account, s] : accounts) {
    if (s.closed == 0 && s.differing == 0) continue;
    t.rows.push_back({std::string(AccountName(account))});
    s.AddCells(t.rows.back());
  }
}

Table AccountTable(const AuditReport& report) {
  Accounts stored, run;
  for (const AuditRow& r : report.stored) stored[r.account].Add(r);
  for (const AuditReport::Step& step : report.steps) {
    for (const AuditRow& r : step.audit) run[r.account].Add(r);
  }
  Table t{"", {"account", "rows", "closed form", "files", "run", ""}, {}, {true}};
  AddAccounts(stored, t);
  for (auto& row : t.rows) {
    if (row[0].text == AccountName(AuditAccount::kWeightBytes)) row[0].text += " stored";
  }
  AddAccounts(run, t);
  return t;
}

// "1,595,604 of 4,541,364 parameters, 35.13 %", of the last decode step; empty: there was none.
std::string TouchedText(const AuditReport& report) {
  uint64_t stored = 0;
  for (const AuditRow& r : report.stored) stored += r.account == AuditAccount::kStored ? r.inventory.value_or(0) : 0;
  for (auto step = report.steps.rbegin(); step != report.steps.rend(); ++step) {
    if (!IsDecode(*step)) continue;
    for (const AuditRow& r : step->audit) {
      if (r.account != AuditAccount::kTouchedSet || !r.ledger) continue;
      return WithThousands(*r.ledger) + " of " + WithThousands(stored) + " parameters, " + Share(*r.ledger, stored) +
             ", by a decode step";
    }
  }
  return "";
}

std::string ExpertsText(const AuditReport& report, const Recipe& recipe) {
  std::string text;
  for (const ExpertUnion& u : ExpertUnions(report, recipe)) {
    const bool first = text.empty();
    text += (first ? "" : ", ") + Fixed(u.measured, 2);
    if (first) text += " of " + std::to_string(recipe.all.experts.n_experts) + " read in a layer";
    text += " (" + u.name + ")";
  }
  return text;
}

std::string PagesText(const AuditReport& report) {
  uint64_t charged = 0, touched = 0, rows = 0;
  for (const AuditReport::Step& step : report.steps) {
    rows += step.pages.size();
    for (const PageRow& row : step.pages) {
      charged += row.charged_pages;
      touched += row.touched_pages;
    }
  }
  return WithThousands(charged) + " of " + WithThousands(report.page_bytes) + " bytes charged, " + WithThousands(touched) +
         " touched as the memory-management unit saw it, in " + WithThousands(rows) + " rows";
}

}  // namespace

std::string AuditScreen(const AuditReport& report, const Recipe& recipe, const std::string& description, const std::string& notes,
                        const std::vector<PublishedClaims>* claims, size_t width) {
  if (width == 0) width = kPlainWidth;
  std::string out = Paragraph("", description + "; " + StepsText(report), width, 0) + "\n";
  out += Render(AccountTable(report), TableFormat::kText, width) + "\n";
  const auto line = [&](const char* label, const std::string& text) {
    out += text.empty() ? "" : Paragraph(label, text, width, kTextFrom);
  };
  line("touched", TouchedText(report));
  if (!report.experts.empty()) line("experts", ExpertsText(report, recipe));
  if (report.page_bytes > 0) line("pages", PagesText(report));
  out += notes;
  if (!report.ranks.empty()) out += "\n" + AuditRanksText(report, width);
  if (claims != nullptr) out += ClaimsVerdict(*claims, width);
  if (report.differing > 0) {
    Table findings = PageFindingTable(report);
    if (findings.rows.size() > kFewFindings) findings.rows.resize(kFewFindings);
    if (!findings.rows.empty()) out += "\n" + Render(findings, TableFormat::kText, width);
    out += "\n" + DifferencesText(report, kFewDifferences, width) + "--full: all tables, and up to 40 rows that differ\n";
  }
  return out + "\n" + ComparedText(report.compared, report.differing) + "\n";
}

}  // namespace tally
