// SPDX-License-Identifier: Apache-2.0
#include "engine/app/record_files.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
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

Json BytesJson(const Cost& cost) {
  Json bytes = Json::object();
  for (int k = 0; k < kByteKinds; ++k) {
    const uint64_t n = cost.Bytes(static_cast<ByteKind>(k));
    if (n > 0) bytes[std::string(kByteKindNames[k])] = n;
  }
  return bytes;
}

std::string_view PhaseName(Phase phase) { return kPhaseNames[static_cast<size_t>(phase)]; }

std::string SiteName(Site site) {
  return (site.layer >= 0 ? "layer " + std::to_string(site.layer) + " " : "") + std::string(ComponentName(site.component));
}

int64_t RowsOf(const OpRecord& r) {
  int64_t rows = 0;
  for (const SequenceRows& s : r.sequences) rows += s.rows;
  return rows;
}

// "x:int8:8x2880 w:MXFP4:32x2880x2880"
std::string ShapesText(const OpDescription& d) {
  std::string text;
  for (const Operand& o : d.operands) {
    text += (text.empty() ? "" : " ") + std::string(o.name) + ":" + std::string(o.type) + ":";
    for (size_t i = 0; i < o.shape.size(); ++i) text += (i > 0 ? "x" : "") + std::to_string(o.shape[i]);
  }
  return text;
}

// "residual/bias" -> "residual_bias"
std::string Column(std::string_view name) {
  std::string text(name);
  for (char& c : text) c = c == ' ' || c == '/' ? '_' : c;
  return text;
}

std::string CsvHeader() {
  std::string line =
      "step,index,phase,rows,logit_rows,layer,component,op,implementation,target,threads,operands,flops_f32,flops_bf16,flops_"
      "int8,"
      "special,executed_flops,executed_special";
  for (const std::string_view c : kWorkClassNames) line += ",flops_" + Column(c);
  for (const std::string_view k : kByteKindNames) line += ",bytes_" + Column(k);
  return line + ",start_ns,ns\n";
}

std::string CsvLine(const OpRecord& r) {
  std::string line;
  const auto word = [&](std::string_view text) { line.append(line.empty() ? "" : ",").append(text); };
  const auto number = [&](auto n) { word(std::to_string(n)); };
  number(r.step);
  number(r.index);
  word(PhaseName(r.phase));
  number(RowsOf(r));
  number(r.logit_rows);
  number(r.site.layer);
  word(ComponentName(r.site.component));
  word(r.op);
  word(r.implementation);
  word(r.target);
  number(r.threads);
  word(ShapesText(r.description));
  for (int a = 0; a < kAriths; ++a) {
    uint64_t n = 0;
    for (int c = 0; c < kWorkClasses; ++c) n += r.useful.Flops(static_cast<WorkClass>(c), static_cast<Arith>(a));
    number(n);
  }
  number(r.useful.TotalSpecial());
  number(r.executed.TotalFlops());
  number(r.executed.TotalSpecial());
  for (int c = 0; c < kWorkClasses; ++c) number(r.useful.Flops(static_cast<WorkClass>(c)));
  for (int k = 0; k < kByteKinds; ++k) number(r.useful.Bytes(static_cast<ByteKind>(k)));
  number(r.start_nanoseconds);
  number(r.nanoseconds);
  return line + "\n";
}

std::string Line(const Json& document) { return document.dump(-1, ' ', false, Json::error_handler_t::replace); }

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

// The trace's clock counts microseconds.
double Microseconds(uint64_t nanoseconds) { return static_cast<double>(nanoseconds) / 1000.0; }

}  // namespace

void AddRecordFlags(CLI::App& command, RecordFlags& flags) {
  const auto file = [&](const char* name, std::optional<std::string>& to, const char* what) {
    command.add_option(name, to, what)->type_name(kFileType);
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
  if (trace_) trace_->Write("[\n");
  if (csv_) csv_->Write(CsvHeader());
  if (!ledger_ && !trace_ && !csv_ && !flags.report) return {};
  run_ = DescribeRun(engine, command, model, kTallyVersion);
  if (flags.report) {
    run_.roofs = MachineRoofs(engine.threads());
    report_.emplace(run_);
    report_path_ = *flags.report;
    source_ = CommandLine();
  }
  engine_ = &engine;
  engine.SetRecorder([this](const OpRecord& record) { Write(record); });
  return trace_ ? engine.RecordRanks() : Status();
}

void RecordFiles::Write(const OpRecord& record) {
  if (ledger_) ledger_->Write(LedgerLine(record, engine_->ledger().weights(), first_line_ ? &run_ : nullptr) + "\n");
  first_line_ = false;
  if (report_) report_->Add(record);
  if (csv_) csv_->Write(CsvLine(record));
  if (trace_) Trace(record);
}

// Ops lie in their layer's slice, layers in their step's, all on one track; beside it the rates of each op.
void RecordFiles::Trace(const OpRecord& r) {
  if (step_ && r.step != step_number_) EndSlices(true);
  if (layer_ && r.site.layer != layer_number_) EndSlices(false);
  const uint64_t end = r.start_nanoseconds + r.nanoseconds;
  if (!step_) {
    step_number_ = r.step;
    step_ = {std::string(PhaseName(r.phase)) + " " + std::to_string(RowsOf(r)) + (RowsOf(r) == 1 ? " row" : " rows"),
             r.start_nanoseconds, end};
  }
  if (!layer_ && r.site.layer >= 0) {
    layer_number_ = r.site.layer;
    layer_ = {"layer " + std::to_string(r.site.layer), r.start_nanoseconds, end};
  }
  step_->end = end;
  if (layer_) layer_->end = end;
  const auto event = [&](const Json& e) {
    trace_->Write(std::string(first_event_ ? "" : ",\n") + Line(e));
    first_event_ = false;
  };
  const uint64_t weights = r.useful.Bytes(ByteKind::kWeightsPacked), kv = r.useful.Bytes(ByteKind::kKvRead);
  event({{"name", std::string(ComponentName(r.site.component)) + " " + std::string(r.op)},
         {"cat", PhaseName(r.phase)},
         {"ph", "X"},
         {"ts", Microseconds(r.start_nanoseconds)},
         {"dur", Microseconds(r.nanoseconds)},
         {"pid", 1},
         {"tid", 1},
         {"args",
          {{"site", SiteName(r.site)},
           {"operands", ShapesText(r.description)},
           {"implementation", r.implementation},
           {"threads", r.threads},
           {"useful FLOPs", r.useful.TotalFlops()},
           {"executed FLOPs", r.executed.TotalFlops()},
           {"bytes", BytesJson(r.useful)}}}});
  if (r.nanoseconds == 0) return;
  const double ns = static_cast<double>(r.nanoseconds);
  const auto counter = [&](const char* name, double rate) {
    event({{"name", name}, {"ph", "C"}, {"ts", Microseconds(r.start_nanoseconds)}, {"pid", 1}, {"args", {{name, rate}}}});
  };
  counter("GFLOP/s", static_cast<double>(r.useful.TotalFlops()) / ns);
  counter("weights and KV read, GB/s", static_cast<double>(weights + kv) / ns);
}

// Another process's ops, on a track of its own.
void RecordFiles::TraceRank(const RankOps& rank, int track) {
  const auto event = [&](const Json& e) {
    trace_->Write(std::string(first_event_ ? "" : ",\n") + Line(e));
    first_event_ = false;
  };
  const std::string cut = rank.left_out > 0 ? ", without its last " + std::to_string(rank.left_out) + " ops" : "";
  event({{"name", "thread_name"}, {"ph", "M"}, {"pid", 1}, {"tid", track}, {"args", {{"name", rank.process + cut}}}});
  for (const RankOp& op : rank.ops) {
    event({{"name", std::string(ComponentName(op.site.component)) + " " + op.op},
           {"cat", PhaseName(op.phase)},
           {"ph", "X"},
           {"ts", static_cast<double>(op.start_nanoseconds) / 1000.0},
           {"dur", Microseconds(op.nanoseconds)},
           {"pid", 1},
           {"tid", track},
           {"args",
            {{"site", SiteName(op.site)},
             {"useful FLOPs", op.flops},
             {"bytes read", op.bytes},
             {"bytes sent", op.sent},
             {"bytes received", op.received}}}});
  }
}

void RecordFiles::EndSlices(bool step_too) {
  for (std::optional<Slice>* slice : {&layer_, step_too ? &step_ : nullptr}) {
    if (slice == nullptr || !slice->has_value()) continue;
    const Slice& s = **slice;
    trace_->Write(",\n" + Line({{"name", s.name},
                                {"ph", "X"},
                                {"ts", Microseconds(s.begin)},
                                {"dur", Microseconds(s.end - s.begin)},
                                {"pid", 1},
                                {"tid", 1}}));
    slice->reset();
  }
}

Status RecordFiles::Close() {
  Status first;
  if (trace_) {
    EndSlices(true);
    const Result<std::vector<RankOps>> others = engine_ != nullptr ? engine_->RankRecords() : std::vector<RankOps>();
    for (size_t r = 0; others.ok() && r < others->size(); ++r) TraceRank((*others)[r], static_cast<int>(r) + 2);
    if (!others.ok()) first = others.status();
    trace_->Write("\n]\n");
  }
  if (engine_ != nullptr) engine_->SetRecorder(nullptr);
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
