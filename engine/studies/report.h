// SPDX-License-Identifier: Apache-2.0
// The report of a run: its figures (report_data.h), gathered from the records of its ops while it runs or from a ledger file.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "counters/ledger/record.h"
#include "engine/base/export.h"
#include "engine/base/status.h"
#include "engine/page/report_data.h"
#include "engine/studies/audit.h"
#include "engine/studies/count.h"
#include "engine/studies/run_info.h"
#include "engine/studies/speed.h"

namespace tally {

struct ExpertStep;

// Takes the records of one recording, in their order. Not to be used by two threads at once.
class TALLY_API RunReport {
 public:
  explicit RunReport(RunInfo info);
  RunReport(RunReport&&) noexcept;
  RunReport& operator=(RunReport&&) noexcept;
  ~RunReport();

  void Add(const OpRecord& record);
  const RunInfo& info() const;
  void SetRoofs(ReportRoofs roofs);
  // Experts that were read from disk, or not, of each step and layer (expert_replay.h); empty: all are always in memory. Valid until the
  // next Add.
  std::span<const ExpertStep> expert_steps() const;
  // The figures of all records, after the last one. `source` says where they are from: "tally run", or a file's name.
  ReportData Finish(const std::string& source);

 private:
  struct Sums;
  class Writer;
  std::unique_ptr<Sums> sums_;
};

// A line of a ledger file (ledger.schema.json), without its end. `first`: what the first line says of the run; null: nothing.
TALLY_API std::string LedgerLine(const OpRecord& record, std::span<const WeightInfo> weights, const RunInfo* first);

// The same for a file of CSV.
TALLY_API std::string OpCsvHeader();
TALLY_API std::string OpCsvLine(const OpRecord& record);

// The text of a trace for Perfetto or chrome://tracing, piece by piece. Ops lie in their layer's slice, layers in their step's, all on
// one track; beside it are the rates of each op.
class TALLY_API OpTrace {
 public:
  std::string Add(const OpRecord& record);
  // The last piece. Ops of other processes have a track each.
  std::string End(std::span<const RankOps> others);

 private:
  void EndSlices(bool step_too);

  struct Slice {
    std::string name;
    uint64_t begin = 0, end = 0;  // ns
  };
  std::optional<Slice> step_, layer_;
  uint64_t step_number_ = 0;
  int32_t layer_number_ = -1;
  std::string text_ = "[\n";  // that was not returned yet
};

// Reads a ledger file that LedgerLine wrote. If its first line does not describe the run, the tensors and what depends on them are
// unknown. An incomplete last line (the run was killed) is left out. kBadInput names file and line: the file cannot be read, is no ledger
// or one of a later version, has no lines, or has impossible numbers.
TALLY_API Result<RunReport> ReadLedger(const std::string& path);

// What a model costs without a run: parameters by part and convention; FLOPs and bytes of a token at lengths up to the context.
// kBadInput: counts that do not fit 64 bits.
TALLY_API Result<ReportData> ReportOf(const CountedModel& model);

TALLY_API ReportAudit AuditOf(const AuditReport& report);
TALLY_API std::vector<ReportSpeed> SpeedOf(const SpeedReport& report);

// A model that was measured, as a report names it; `source`: the command.
struct BenchedModel {
  std::shared_ptr<const Model> model = {};
  std::string name = {}, version = {}, source = {};
};
// Of a run of the grid's first prompt and decode, which is recorded now, under the roofs that were measured with the grid, and the speeds
// of the grid. `load`: as for MeasureSpeed. Errors of NewEngine and Generate.
TALLY_API Result<ReportData> ReportOfBench(const BenchedModel& benched, const EngineOptions& load, const SpeedOptions& options,
                                           const SpeedReport& speed);
// Of an audit, whose steps are recorded. `info`: DescribeRun, with its roofs. Errors of Audit.
TALLY_API Result<ReportData> ReportOfAudit(Engine& engine, RunInfo info, const AuditOptions& options, const std::string& source);

// The page of the runs. The file gets its name when it is complete. kBadInput: it cannot be written.
TALLY_API Status WriteReport(const std::string& path, std::span<const ReportData> runs);
// Each picture as DIRECTORY/NAME.svg behind `prefix`, over files of that name. kBadInput: something cannot be written; none is left then.
TALLY_API Status WriteFigures(const std::string& directory, const ReportData& run, const std::string& prefix = "");

}  // namespace tally
