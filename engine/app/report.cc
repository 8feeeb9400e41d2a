// SPDX-License-Identifier: Apache-2.0
// tally report: a page with the figures and pictures of a run, or of two.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/api/tally.h"
#include "engine/app/commands.h"
#include "engine/app/console.h"
#include "engine/app/interrupt.h"
#include "engine/app/json.h"
#include "engine/app/numbers.h"
#include "engine/app/options.h"
#include "engine/app/output_files.h"
#include "engine/app/report_files.h"
#include "engine/app/study_prompt.h"
#include "engine/app/syntax.h"
#include "engine/machine/machine.h"
#include "engine/reports/audit_report.h"

namespace tally::app {
namespace {

namespace fs = std::filesystem;

struct ReportFlags {
  ModelFlags model;
  StudyPrompt prompt;
  std::optional<std::string> other, svg;
  std::string out = "report.html";
  bool json = false, force = false;
};

// Ledgers are lines of JSON; a file of a model is not (config.json is, and cannot be run).
bool IsLedger(const std::string& path) {
  std::error_code none;
  return fs::is_regular_file(path, none) && (path.ends_with(".jsonl") || std::ifstream(path, std::ios::binary).get() == '{');
}

// A ledger has the roofs of its run where a report was made of that too. Else those of this machine hold if it is the same.
Result<ReportData> OfLedger(const std::string& path) {
  TALLY_ASSIGN_OR_RETURN(RunReport run, ReadLedger(path));
  const RunInfo& info = run.info();
  if (info.known && !info.roofs.known && info.threads > 0 && info.machine == ProcessorName()) {
    ReportRoofs roofs = MachineRoofs(info.threads, info.target);
    if (!roofs.known || roofs.threads == info.threads) run.SetRoofs(std::move(roofs));
  }
  return run.Finish(path);
}

// The model runs as in an audit: the prompt, then the most likely tokens.
Result<ReportData> OfModel(const ReportFlags& flags) {
  TALLY_ASSIGN_OR_RETURN(const EngineOptions load, ToEngineOptions(flags.model));
  TALLY_ASSIGN_OR_RETURN(const Loaded loaded, Load(flags.model.model, load));
  TALLY_ASSIGN_OR_RETURN(const AuditOptions options, AuditOptionsOf(flags.prompt, flags.model.model, *loaded.engine));
  RunInfo info = DescribeRun(*loaded.engine, "report", flags.model.model, kTallyVersion);
  info.roofs = MachineRoofs(loaded.engine->threads());
  TALLY_ASSIGN_OR_RETURN(ReportData data, ReportOfAudit(*loaded.engine, std::move(info), options, CommandLine()));
  data.facts.insert(data.facts.begin(), {"prompt", flags.prompt.Shown()});
  return data;
}

std::string AuditText(const std::optional<ReportAudit>& audit) {
  return audit ? ComparedText(audit->compared, audit->differing) : "";
}

void Say(const ReportFlags& flags, const std::vector<ReportData>& runs) {
  std::error_code none;
  const uint64_t bytes = fs::file_size(flags.out, none);
  if (!flags.json) {
    std::string text = flags.out + ": " + books::WithThousands(bytes) + " bytes";
    for (const ReportData& run : runs) {
      text += (&run == &runs.front() ? "; " : " beside ") + (run.title.empty() ? run.source : run.title) + ", " +
              books::WithThousands(uint64_t{run.steps.size()}) + " steps";
    }
    if (const std::string audit = AuditText(runs.front().audit); !audit.empty()) text += "; " + audit;
    return Print(text + "\n");
  }
  const Json documents = Json::ListOf(runs, [](const ReportData& run) -> Json {
    const Json metrics = Json::ListOf(run.metrics, [](const ReportMetric& m) -> Json {
      return {{"name", m.name},
              {"phase", m.phase},
              {"value", m.value},
              {m.bytes ? "bytes" : "flops", Number(m.numerator)},
              {"seconds", m.seconds},
              {"roof", m.denominator},
              {"roof_name", m.denominator_name}};
    });
    return {
        {"model", run.title}, {"source", run.source}, {"steps", run.steps.size()}, {"metrics", metrics}, {"absent", run.absent}};
  });
  PrintJson({{"report", flags.out}, {"bytes", bytes}, {"runs", documents}});
}

Status CheckFlags(const ReportFlags& flags, bool ledger) {
  TALLY_RETURN_IF_ERROR(flags.prompt.Check());
  if (ledger && (flags.prompt.text || flags.prompt.tokens || flags.prompt.decode_option->count() > 0)) {
    return BadInput(flags.model.model + " is the ledger of a run: -p, --prompt-tokens and -n have no meaning");
  }
  if (flags.other && (!ledger || !IsLedger(*flags.other))) {
    return BadInput("two runs are compared by their ledgers (tally run --ledger FILE), and " +
                    (ledger ? *flags.other : flags.model.model) + " is none");
  }
  if (flags.other && flags.svg) return BadInput("--svg writes the pictures of one run: give one ledger");
  return {};
}

Status RunReportCommand(const ReportFlags& flags) {
  const bool ledger = IsLedger(flags.model.model);
  TALLY_RETURN_IF_ERROR(CheckFlags(flags, ledger));
  std::string path = flags.model.model;
  if (!ledger) {
    TALLY_ASSIGN_OR_RETURN(path, ModelPath(path, flags.model.yes));
  }
  TALLY_RETURN_IF_ERROR(CheckOutputFile("-o", flags.out, path, {flags.other}, true));
  TALLY_RETURN_IF_ERROR(CheckReportFile(flags.out));
  if (flags.svg) TALLY_RETURN_IF_ERROR(MakeFigureFolder(*flags.svg, flags.force));
  std::vector<ReportData> runs;
  TALLY_ASSIGN_OR_RETURN(ReportData first, ledger ? OfLedger(path) : OfModel(flags));
  runs.push_back(std::move(first));
  if (flags.other) {
    TALLY_ASSIGN_OR_RETURN(ReportData second, OfLedger(*flags.other));
    runs.push_back(std::move(second));
  }
  TALLY_RETURN_IF_ERROR(WriteReport(flags.out, runs));
  if (flags.svg) TALLY_RETURN_IF_ERROR(WriteFigures(*flags.svg, runs.front()));
  Say(flags, runs);
  const std::optional<ReportAudit>& audit = runs.front().audit;
  if (!audit || audit->differing == 0) return {};
  return Status(StatusCode::kDisagreement, flags.model.model + ": " + AuditText(audit));
}

}  // namespace

Action AddReport(Command& app) {
  auto flags = std::make_shared<ReportFlags>();
  flags->prompt.decode = 32;
  Command c = app.Add("report", "Write a page with the figures and pictures of a run");
  AddModelFlags(c, flags->model);
  FileOption(c.Option("OTHER", flags->other, "another ledger file, if MODEL is one: the two are compared"));
  AddStudyPrompt(c, flags->prompt);
  FileOption(c.Option("-o,--out", flags->out, "the page, one file that needs nothing else (HTML)")).Preset();
  c.Option("--svg", flags->svg, "folder for each picture as a file of its own (SVG)").Type(kFolderType);
  AddForce(c, flags->force);
  c.Flag("--json", flags->json, "one JSON document on standard output: the metrics, and where the page is");
  c.Footer(
      "MODEL is run for the page and audited, or is a ledger file of another run (tally run --ledger FILE). Exit code 3: the "
      "accounts "
      "differ; the page has the rows that do.");
  AddExamples(c, {"tally report demo -n 24 -o /tmp/report.html", "tally report before.jsonl after.jsonl -o compared.html"});
  return [flags] { return Report(RunReportCommand(*flags)); };
}

}  // namespace tally::app
