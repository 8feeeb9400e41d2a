// SPDX-License-Identifier: Apache-2.0
// What an audit says where accounts differ: no model that can be loaded makes them.

#include <gtest/gtest.h>

#include "engine/recipe/recipe.h"
#include "engine/reports/audit_report.h"
#include "tests/app/screen.h"

namespace tally::app {
namespace {

using books::AuditAccount;
using books::AuditRow;

AuditRow RowOf(AuditAccount account, int32_t layer, Component component, uint64_t closed, uint64_t ledger) {
  AuditRow row;
  row.account = account;
  row.layer = layer;
  row.component = component;
  row.form = "2 E F";
  row.closed = closed;
  row.ledger = ledger;
  return row;
}

// A prefill of 3 and a decode step; of each the rows of `layers` layers, of which the first `wrong` were charged with one FLOP more.
AuditReport ReportOf(int32_t layers, int32_t wrong) {
  AuditReport report;
  AuditRow stored = RowOf(AuditAccount::kStored, 0, Component::kFfnDown, 600, 0);
  stored.ledger.reset();
  stored.inventory = 600;
  stored.tensor = "ffn_down";
  report.stored.push_back(stored);
  for (const Phase phase : {Phase::kPrefill, Phase::kDecode}) {
    AuditReport::Step& step = report.steps.emplace_back();
    step.phase = phase;
    step.rows = phase == Phase::kPrefill ? 3 : 1;
    step.context = phase == Phase::kPrefill ? 3 : 4;
    for (int32_t layer = 0; layer < layers; ++layer) {
      step.audit.push_back(RowOf(AuditAccount::kFlops, layer, Component::kFfnDown, 1200, layer < wrong ? 1201 : 1200));
    }
    step.audit.push_back(RowOf(AuditAccount::kTouchedSet, -1, Component::kEmbedding, 300, 300));
  }
  for (const AuditReport::Step& step : report.steps) report.compared += step.audit.size();
  report.compared += report.stored.size();
  report.differing = static_cast<uint64_t>(2 * wrong);
  return report;
}

TEST(AuditScreen, AllAgree) {
  const std::string text = AuditScreen(ReportOf(2, 0), {}, "a model", "a note\n", nullptr, 0);
  EXPECT_EQ(text,
            "a model; 2 steps, 1 decode\n"
            "\n"
            "  account            rows  closed form  files    run\n"
            "  parameters stored     1          600    600\n"
            "  touched, all          2          600           600\n"
            "  FLOPs                 4        4,800         4,800\n"
            "\n"
            "touched   300 of 600 parameters, 50.00 %, by a decode step\n"
            "a note\n"
            "\n"
            "7 rows compared, all agree\n");
}

TEST(AuditScreen, RowsThatDiffer) {
  const std::string text = AuditScreen(ReportOf(1, 1), {}, "a model", "", nullptr, 80);
  EXPECT_NE(text.find("  FLOPs                 2        2,400         2,402  2 differ\n"), std::string::npos) << text;
  EXPECT_NE(text.find("  prefill of 3, layer 0, ffn.down, FLOPs of linear: closed form 1,200 = 2 E F;\n"
                      "    run 1,201\n"),
            std::string::npos)
      << text;
  EXPECT_TRUE(text.ends_with("\n5 rows compared, 2 differ\n")) << text;
  // Many: as many as are worth reading, all of them counted.
  const std::string many = AuditScreen(ReportOf(100, 50), {}, "a model", "", nullptr, 80);
  ExpectScreen(many, 80, 30);
  EXPECT_NE(many.find("100 differ\n"), std::string::npos) << many;
  EXPECT_NE(many.find("--full"), std::string::npos);
  EXPECT_NE(DifferencesText(ReportOf(100, 50), 40, 0).find("layer 39,"), std::string::npos);
}

}  // namespace
}  // namespace tally::app
