// SPDX-License-Identifier: Apache-2.0
#include "engine/app/record_files.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "engine/app/commands.h"
#include "engine/app/console.h"
#include "engine/app/interrupt.h"
#include "engine/app/json.h"
#include "engine/app/output_files.h"
#include "engine/app/report_files.h"
#include "engine/app/syntax.h"
#include "engine/base/format.h"
#include "engine/base/sync_file.h"

namespace tally::app {
namespace {

// A pipe opens when somebody reads it, and until then a signal must end us.
Result<std::FILE*> OpenToWrite(const std::string& path) {
  std::error_code none;
  if (std::filesystem::is_fifo(path, none)) {
    while (true) {
      const int fd = ::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
      if (fd >= 0) {
        (void)::fcntl(fd, F_SETFL, O_WRONLY);  // writes wait for the reader
        if (std::FILE* const file = ::fdopen(fd, "wb"); file != nullptr) return file;
        const int error = errno;
        ::close(fd);
        return CannotWrite(path, error);
      }
      if (errno != ENXIO && errno != EINTR) return CannotWrite(path, errno);
      if (Interrupted()) return Status(StatusCode::kInterrupted, "interrupted while waiting for a reader of " + Quote(path));
      ::poll(nullptr, 0, 20);
    }
  }
  errno = 0;
  std::FILE* const file = std::fopen(path.c_str(), "wbe");
  if (file == nullptr) return CannotWrite(path, errno);
  return file;
}

}  // namespace

void AddRecordFlags(Command& command, RecordFlags& flags) {
  const auto file = [&](const char* name, std::optional<std::string>& to, const char* what) {
    FileOption(command.Option(name, to, what));
  };
  file("--ledger", flags.ledger, "file for what every op was charged with: one JSON line an op, timed");
  file("--trace", flags.trace, "file with the ops as they ran, to be opened in Perfetto or chrome://tracing");
  file("--csv", flags.csv, "file with a row for every op");
  file("--report", flags.report, "file for a page with the run's figures and pictures (HTML)");
  AddForce(command, flags.force);
}

Status CheckRecordFlags(const RecordFlags& flags, const std::string& model,
                        const std::vector<std::optional<std::string>>& others) {
  static constexpr const char* kOptions[] = {"--ledger", "--trace", "--csv", "--report"};
  const std::optional<std::string>* const paths[] = {&flags.ledger, &flags.trace, &flags.csv, &flags.report};
  for (size_t i = 0; i < std::size(paths); ++i) {
    if (!paths[i]->has_value()) continue;
    const std::string& path = **paths[i];
    for (size_t j = 0; j < i; ++j) {
      if (paths[j]->has_value() && SameFile(**paths[j], path)) {
        return BadInput("--ledger, --trace, --csv and --report need a file each, and " + Quote(path) + " was given twice");
      }
    }
    TALLY_RETURN_IF_ERROR(CheckOutputFile(kOptions[i], path, model, others, flags.force || paths[i] == &flags.report));
  }
  return flags.report ? CheckReportFile(*flags.report) : Status();
}

void RecordFile::Write(std::string_view text) {
  if (error != 0) return;
  errno = 0;
  // Of a stream that is flushed by lines, fwrite says that all is written where only its buffer took it.
  const bool whole = std::fwrite(text.data(), 1, text.size(), file.get()) == text.size();
  if (!whole || std::ferror(file.get()) != 0) error = errno != 0 ? errno : EIO;
}

void RecordFile::Remove() const {
  if (!regular.empty()) ::unlink(regular.c_str());
}

Status RecordFile::Close() {
  errno = 0;
  if ((std::fflush(file.get()) != 0 || std::ferror(file.get()) != 0) && error == 0) error = errno != 0 ? errno : EIO;
  if (error == 0) error = SyncFile(::fileno(file.get()));
  errno = 0;
  if (std::fclose(file.release()) != 0 && error == 0) error = errno != 0 ? errno : EIO;
  if (error == 0) return {};
  Remove();
  return CannotWrite(path, error);
}

Status RecordFiles::Attach(Engine& engine, const RecordFlags& flags, const std::string& command, const std::string& model) {
  const std::optional<std::string>* const paths[] = {&flags.ledger, &flags.trace, &flags.csv};
  std::optional<RecordFile>* const slots[] = {&ledger_, &trace_, &csv_};
  for (size_t i = 0; i < std::size(paths); ++i) {
    if (!paths[i]->has_value()) continue;
    Result<std::FILE*> made = OpenToWrite(**paths[i]);
    if (!made.ok()) {  // of those before it nothing is left
      for (std::optional<RecordFile>* slot : slots) {
        if (slot->has_value()) (*slot)->Remove();
        slot->reset();
      }
      return made.status();
    }
    std::FILE* const opened = *made;
    RecordFile& record = slots[i]->emplace();
    record.path = **paths[i];
    record.file.reset(opened);
    std::error_code none;
    if (std::filesystem::is_regular_file(record.path, none)) {
      record.regular = std::filesystem::canonical(record.path, none).string();
    }
    // Longer than a line, and ours: glibc takes a size without a buffer for advice.
    record.buffer.resize(size_t{1} << 18);
    (void)std::setvbuf(opened, record.buffer.data(), _IOLBF, record.buffer.size());
  }
  if (csv_) csv_->Write(MarkedCsv(OpCsvHeader()));
  if (!ledger_ && !trace_ && !csv_ && !flags.report) return {};
  run_ = DescribeRun(engine, command, model, kTallyVersion);
  if (flags.report) {
    run_.roofs = MachineRoofs(engine.threads());
    report_.emplace(run_);
    report_path_ = *flags.report;
    source_ = CommandLine();
  }
  engine_ = &engine;
  engine.probe().SetRecorder([this](const OpRecord& record) { Write(record); });
  return trace_ ? engine.probe().RecordRanks() : Status();
}

void RecordFiles::Write(const OpRecord& record) {
  if (ledger_) ledger_->Write(LedgerLine(record, engine_->ledger().weights(), first_line_ ? &run_ : nullptr) + "\n");
  first_line_ = false;
  if (report_) report_->Add(record);
  if (csv_) csv_->Write(MarkedCsvLines(OpCsvLine(record)));
  if (trace_) trace_->Write(trace_lines_.Add(record));
}

Status RecordFiles::Close() {
  Status first;
  if (trace_) {
    const Result<std::vector<RankOps>> others = engine_ != nullptr ? engine_->probe().RankRecords() : std::vector<RankOps>();
    if (!others.ok()) first = others.status();
    trace_->Write(trace_lines_.End(others.ok() ? *others : std::vector<RankOps>()));
  }
  if (engine_ != nullptr) engine_->probe().SetRecorder(nullptr);
  engine_ = nullptr;
  for (std::optional<RecordFile>* file : {&ledger_, &trace_, &csv_}) {
    if (!file->has_value()) continue;
    Status status = (*file)->Close();
    file->reset();
    if (first.ok()) first = std::move(status);
  }
  if (report_) {
    ReportData data = report_->Finish(source_);
    report_.reset();
    data.audit = std::move(audit_);
    data.facts.insert(data.facts.begin(), facts_.begin(), facts_.end());
    Status status = WriteReport(report_path_, {&data, 1});
    if (first.ok()) first = std::move(status);
  }
  return first;
}

}  // namespace tally::app
