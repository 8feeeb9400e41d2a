// SPDX-License-Identifier: Apache-2.0
// tally audit: runs a model and holds its ledger against closed form and checkpoint.
#include "engine/api/tally.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/app/commands.h"
#include "engine/app/console.h"
#include "engine/app/draft.h"
#include "engine/app/interrupt.h"
#include "engine/app/json.h"
#include "engine/app/numbers.h"
#include "engine/app/options.h"
#include "engine/app/record_files.h"
#include "engine/app/study_prompt.h"
#include "engine/app/syntax.h"
#include "engine/base/format.h"
#include "engine/machine/machine.h"
#include "engine/render/words.h"
#include "engine/reports/audit_report.h"

namespace tally::app {
namespace {

struct AuditFlags {
  ModelFlags model;
  StudyPrompt prompt;
  RecordFlags records;
  std::string draft;
  uint64_t width = 0;
  bool json = false, full = false, claims = false, mmu = false;
};

Status RunAudit(const AuditFlags& flags) {
  TALLY_RETURN_IF_ERROR(flags.prompt.Check());
  TALLY_ASSIGN_OR_RETURN(EngineOptions engine, ToEngineOptions(flags.model));
  TALLY_ASSIGN_OR_RETURN(const int64_t draft, ReadDraft(flags.draft, engine));
  TALLY_ASSIGN_OR_RETURN(const std::string path, ModelPath(flags.model.model, flags.model.yes));
  TALLY_RETURN_IF_ERROR(CheckRecordFlags(flags.records, path, {}));
  TALLY_ASSIGN_OR_RETURN(const Loaded loaded, Load(flags.model.model, engine, {.guard_slices = flags.mmu}));
  TALLY_ASSIGN_OR_RETURN(AuditOptions options, AuditOptionsOf(flags.prompt, flags.model.model, *loaded.engine));
  options.mmu = flags.mmu;
  options.draft = draft;
  RecordFiles records;
  TALLY_RETURN_IF_ERROR(records.Attach(*loaded.engine, flags.records, "audit", flags.model.model));
  records.SetPrompt(flags.prompt.Shown());
  TALLY_ASSIGN_OR_RETURN(const AuditReport report, Audit(*loaded.engine, options));
  records.SetAudit(report);
  TALLY_RETURN_IF_ERROR(records.Close());
  const Recipe& recipe = loaded.model->recipe();
  const std::vector<PublishedClaims> claims = flags.claims ? AuditClaims(report, recipe) : std::vector<PublishedClaims>();
  const std::vector<PublishedClaims>* const shown = flags.claims ? &claims : nullptr;
  const size_t width = OutputWidth(flags.width);
  if (flags.json) {
    PrintJson(AuditDocument(flags.model.model, report, *loaded.model, shown));
  } else if (flags.full) {
    Print(AuditTables(report, *loaded.model, shown, width, ColourOn(Stream::kOutput)));
  } else {
    Print(AuditScreen(report, recipe, Printable(loaded.model->Description()),
                      AuditNotes(report, *loaded.model, width == 0 ? kPlainWidth : width), shown, width));
  }
  if (report.differing == 0) return {};
  return Status(StatusCode::kDisagreement, flags.model.model + ": " + std::to_string(report.differing) + " of " +
                                               std::to_string(report.compared) + " rows of the accounts differ");
}

}  // namespace

Action AddAudit(Command& app) {
  auto flags = std::make_shared<AuditFlags>();
  Command c = app.Add("audit", "Compare closed form, checkpoint and ledger, to the integer");
  AddModelFlags(c, flags->model);
  AddStudyPrompt(c, flags->prompt);
  AddDraft(c, flags->draft);
  c.Flag("--mmu", flags->mmu, "the pages of the weights too: those touched, by page faults, must be those charged (slower)");
  c.Flag("--claims", flags->claims, "what is published of this model, and under which convention it holds");
  c.Flag("--full", flags->full, "all tables: the accounts site by site, experts, pages, where the parameters are");
  AddWidth(c, flags->width);
  AddRecordFlags(c, flags->records);
  c.Flag("--json", flags->json, "one JSON document on standard output, every row of every step in it");
  c.Footer("Exit code 3: the accounts differ; the rows and pages that do are printed.");
  AddExamples(c, {"tally audit", "tally audit demo --mmu --claims -n 4"});
  return [flags] { return Report(RunAudit(*flags)); };
}

}  // namespace tally::app
