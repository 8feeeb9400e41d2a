// SPDX-License-Identifier: Apache-2.0
// Writes the charges of every op to files: --ledger (JSON lines, docs/ledger.schema.json), --trace (for Perfetto), --csv; and the page
// made of it: --report.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/api/tally.h"
#include "engine/app/command.h"
#include "engine/base/status.h"

namespace tally::app {

struct RecordFlags {
  std::optional<std::string> ledger, trace, csv, report;
  bool force = false;
};
void AddRecordFlags(Command& command, RecordFlags& flags);  // the options of these names
// Before a model is loaded. kBadInput: the same file twice; what CheckOutputFile refuses (output_files.h). A report takes the place of a
// report, with and without `force`.
Status CheckRecordFlags(const RecordFlags& flags, const std::string& model,
                        const std::vector<std::optional<std::string>>& others);

// One of them.
struct CloseFile {
  void operator()(std::FILE* f) const { std::fclose(f); }
};
struct RecordFile {
  std::string path;
  std::string regular;       // the file itself, which is removed where it cannot be written whole; empty: a pipe or a device
  std::vector<char> buffer;  // the file's; outlives it
  std::unique_ptr<std::FILE, CloseFile> file;
  int error = 0;  // errno of the first failure
  void Write(std::string_view text);
  void Remove() const;
  Status Close();
};

// The files that were asked for, while an engine runs. They are written line by line as its ops do, so that a run that is killed
// leaves whole lines (one that cannot be written leaves nothing); the trace then lacks its last bracket, which chrome://tracing and
// newer versions of Perfetto do without. Ends before the engine does.
class RecordFiles {
 public:
  RecordFiles() = default;
  RecordFiles(const RecordFiles&) = delete;
  RecordFiles& operator=(const RecordFiles&) = delete;
  ~RecordFiles() {
    report_.reset();  // of a run that failed there is none
    (void)Close();
  }
  // Makes the files, what they held is gone, and from now on every op of `engine` is timed and written. For a report the machine's roofs
  // are measured first, unless they are kept. `command` runs `model`, as the user names it. kBadInput: a file cannot be made.
  Status Attach(Engine& engine, const RecordFlags& flags, const std::string& command, const std::string& model);
  // For the report; before Close.
  void SetAudit(const AuditReport& audit) { audit_ = AuditOf(audit); }
  void SetPrompt(const std::string& prompt) { facts_.push_back({"prompt", prompt}); }
  // Ends the recording and the files, and writes the report. kBadInput: something could not be written. Nothing to do the second time.
  Status Close();

 private:
  void Write(const OpRecord& record);

  std::optional<RecordFile> ledger_, trace_, csv_;
  RunInfo run_;
  bool first_line_ = true;  // of the ledger
  std::optional<RunReport> report_;
  std::string report_path_, source_;
  std::optional<ReportAudit> audit_;
  std::vector<ReportFact> facts_;
  Engine* engine_ = nullptr;
  OpTrace trace_lines_;
};

}  // namespace tally::app
