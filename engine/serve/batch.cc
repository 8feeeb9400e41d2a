// SPDX-License-Identifier: Apache-2.0
#include "engine/serve/batch.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <deque>
#include <memory>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "engine/base/checksum.h"
#include "engine/base/file_lock.h"
#include "engine/base/format.h"
#include "engine/base/mix.h"
#include "engine/base/sync_file.h"
#include "engine/base/system_error.h"
#include "engine/machine/machine.h"
#include "engine/session/scheduler.h"

namespace tally {
namespace {

// Of both templates; 0: no chats.
uint64_t TemplateSum(const ServedModel& model) {
  const uint64_t chat = model.chat.ok() ? model.chat->template_sum : 0;
  const uint64_t tools = model.tool_chat.ok() ? model.tool_chat->template_sum : 0;
  return chat == tools ? chat : SplitMix64(chat ^ SplitMix64(tools));
}

// The model's weights and vocabulary.
uint64_t ModelSum(const Engine& engine) {
  Checksum sum;
  const Tokenizer* const tokenizer = engine.model().tokenizer();
  for (int32_t id = 0; tokenizer != nullptr && id < tokenizer->vocab_size(); ++id) {
    sum.Add(tokenizer->IsControl(id) ? tokenizer->ControlText(id) : tokenizer->TokenBytes(id));
    sum.Add(std::string_view("\0", 1));
  }
  return SplitMix64(engine.Fingerprint() ^ sum.value());
}

constexpr size_t kAhead = 2;  // requests that wait, so that the next one is ready when one ends

// The file of answers. Whatever happens, it holds whole lines only.
class AnswerFile {
 public:
  AnswerFile() = default;
  AnswerFile(const AnswerFile&) = delete;
  AnswerFile& operator=(const AnswerFile&) = delete;
  ~AnswerFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  // Drops what is behind the plan's answers.
  Status Open(const BatchPlan& plan) {
    path_ = plan.answers;
    fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (fd_ < 0) return Failed(errno);
    struct stat info {};
    regular_ = ::fstat(fd_, &info) == 0 && S_ISREG(info.st_mode);
    if (!regular_) return {};
    const bool locked = lock_.Take(path_, 0666, FileLock::After::kKeep) != EWOULDBLOCK;
    const bool same =
        plan.anew || (::fstat(fd_, &info) == 0 && static_cast<uint64_t>(info.st_size) == plan.kept_bytes + plan.torn_bytes);
    if (!locked || !same) return BadInput(Quote(path_) + ": another program writes to this file");
    end_ = plan.kept_bytes;
    return Truncate();
  }
  Status Append(std::string line) {
    line += '\n';
    for (size_t done = 0; done < line.size();) {
      const ssize_t n = ::write(fd_, line.data() + done, line.size() - done);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) {
        const int error = n < 0 ? errno : EIO;
        if (regular_) (void)Truncate();
        return Failed(error);
      }
      done += static_cast<size_t>(n);
    }
    end_ += line.size();
    return {};
  }
  Status Close() {
    const int error = SyncFile(fd_);
    const int closed = ::close(std::exchange(fd_, -1)) == 0 ? 0 : errno;
    return error != 0 || closed != 0 ? Failed(error != 0 ? error : closed) : Status();
  }

 private:
  Status Failed(int error) const { return SystemError("cannot write " + Quote(path_), error); }
  Status Truncate() {
    if (::ftruncate(fd_, static_cast<off_t>(end_)) != 0 || ::lseek(fd_, static_cast<off_t>(end_), SEEK_SET) < 0)
      return Failed(errno);
    return {};
  }

  std::string path_;
  int fd_ = -1;
  bool regular_ = false;
  uint64_t end_ = 0;  // of its whole lines
  FileLock lock_;
};

// A request of the file, until its answer is written.
struct Job {
  std::optional<std::string> custom_id;
  std::string sum;                         // RequestSum
  std::unique_ptr<Completion> completion;  // null: the request has ended
  std::vector<std::string> ignored;        // ApiRequest's
  std::string answer;                      // set when it has ended
  bool refused = false;                    // the answer is an error
  ApiUsage usage;                          // of an answer
};

class BatchRun {
 public:
  BatchRun(const ServedModel& model, const BatchPlan& plan, const BatchOptions& options)
      : model_(model), plan_(plan), options_(options), origin_(OriginOf(model, options.strict)), scheduler_(*model.engine) {}

  Result<BatchReport> Run() {
    const double begin = MonotonicSeconds();
    TALLY_RETURN_IF_ERROR(CheckOrigin(plan_.answers, plan_.origin, origin_));
    TALLY_ASSIGN_OR_RETURN(LineReader reader, LineReader::Open(plan_.requests, kLongestBatchLine));
    reader_ = std::make_unique<LineReader>(std::move(reader));
    for (uint64_t skipped = 0; skipped < plan_.kept; ++skipped) {
      TALLY_ASSIGN_OR_RETURN(const std::optional<TextLine> line, NextRequest());
      if (!line) break;
    }
    TALLY_RETURN_IF_ERROR(file_.Open(plan_));
    const Status ran = Loop(begin);
    report_.seconds = MonotonicSeconds() - begin;
    const Status closed = file_.Close();
    TALLY_RETURN_IF_ERROR(ran);
    TALLY_RETURN_IF_ERROR(closed);
    report_.left = plan_.left() - std::min(plan_.left(), Written());
    return report_;
  }

 private:
  Status Loop(double begin) {
    for (;;) {
      TALLY_RETURN_IF_ERROR(Fill());
      TALLY_RETURN_IF_ERROR(WriteEnded());
      if ((jobs_.empty() && read_all_) || (options_.interrupted && options_.interrupted())) return {};
      if (options_.progress) {
        options_.progress({.done = plan_.kept + Written(),
                           .total = plan_.total,
                           .generated_tokens = static_cast<uint64_t>(ended_tokens_ + RunningTokens()),
                           .seconds = MonotonicSeconds() - begin});
      }
      scheduler_.Step();
      for (Job* job : running_) TALLY_RETURN_IF_ERROR(Settle(*job));
      std::erase_if(running_, [](const Job* job) { return job->completion == nullptr; });
    }
  }

  Result<std::optional<TextLine>> NextRequest() {
    for (;;) {
      TALLY_ASSIGN_OR_RETURN(std::optional<TextLine> line, reader_->Next());
      if (!line || !IsBlank(*line)) return line;
    }
  }

  // Reads requests until enough of them wait.
  Status Fill() {
    while (!read_all_ && scheduler_.running() + scheduler_.waiting() < MostChoices() && kept_bytes_ < kMostKeptBytes) {
      TALLY_ASSIGN_OR_RETURN(const std::optional<TextLine> line, NextRequest());
      read_all_ = !line.has_value();
      if (line) Begin(*line);
    }
    return {};
  }
  size_t MostChoices() const { return static_cast<size_t>(model_.engine->max_requests()) + kAhead; }

  void Begin(const TextLine& line) {
    BatchRequest read = ReadBatchRequest(line, options_.strict);
    Job& job = jobs_.emplace_back();
    job.custom_id = std::move(read.custom_id);
    job.ignored = std::move(read.request.ignored);
    job.sum = RequestSum(line);
    std::optional<ApiError> error = std::move(read.error);
    if (!error) error = Completion::Make(model_, read.request, ids_, &job.completion);
    if (error) return EndWithError(job, *error);
    running_.push_back(&job);
    for (const std::shared_ptr<Request>& request : job.completion->requests()) scheduler_.Add(request);
  }

  // kInternal: a step failed, and would again.
  Status Settle(Job& job) {
    job.completion->Collect();
    if (!job.completion->ended()) return {};
    Status status = job.completion->status();
    // Not the request's fault: it is left, and the same command goes on.
    if (status.code() == StatusCode::kInternal || status.code() == StatusCode::kUnreadable) return status;
    if (!status.ok()) {
      EndWithError(job, ApiErrorOf(status));
      return {};
    }
    job.usage = job.completion->usage();
    End(job, 200, job.completion->Answer());
    return {};
  }

  void EndWithError(Job& job, const ApiError& error) {
    job.refused = true;
    End(job, error.status, ErrorJson(error));
  }

  void End(Job& job, int status, OrderedJson body) {
    job.answer = BatchAnswer(job.custom_id, status, std::move(body), ids_.Next("batch_req_"), ids_.Next("req_"), job.sum, origin_,
                             job.ignored);
    if (job.completion != nullptr) ended_tokens_ += job.completion->usage().completion_tokens;
    job.completion.reset();
    kept_bytes_ += job.answer.size();
  }

  Status WriteEnded() {
    while (!jobs_.empty() && jobs_.front().completion == nullptr) {
      Job& job = jobs_.front();
      kept_bytes_ -= job.answer.size();
      TALLY_RETURN_IF_ERROR(file_.Append(std::move(job.answer)));
      ++(job.refused ? report_.refused : report_.answered);
      report_.usage.prompt_tokens += job.usage.prompt_tokens;
      report_.usage.cached_tokens += job.usage.cached_tokens;
      report_.usage.completion_tokens += job.usage.completion_tokens;
      report_.usage.drafted_tokens += job.usage.drafted_tokens;
      report_.usage.accepted_tokens += job.usage.accepted_tokens;
      jobs_.pop_front();
    }
    return {};
  }
  uint64_t Written() const { return report_.answered + report_.refused; }

  int64_t RunningTokens() const {
    int64_t tokens = 0;
    for (const Job* job : running_) tokens += job->completion->usage().completion_tokens;
    return tokens;
  }

  const ServedModel& model_;
  const BatchPlan& plan_;
  const BatchOptions& options_;
  const BatchOrigin origin_;
  Scheduler scheduler_;
  std::unique_ptr<LineReader> reader_;
  AnswerFile file_;
  ApiIds ids_;
  std::deque<Job> jobs_;       // in the order of the file
  std::vector<Job*> running_;  // of these: without an answer yet
  size_t kept_bytes_ = 0;      // of answers that are not written
  int64_t ended_tokens_ = 0;
  bool read_all_ = false;
  BatchReport report_;
};

// Of what all answers are held to; 0: nothing.
uint64_t FormatSum(const AnswerFormat& format) {
  if (format.kind == AnswerFormat::Kind::kAny) return 0;
  Checksum sum;
  sum.Add(std::to_string(static_cast<int>(format.kind)));
  sum.Add(std::to_string(static_cast<int>(format.space)));
  sum.Add(format.text);
  return sum.value();
}

}  // namespace

BatchOrigin OriginOf(const ServedModel& model, bool strict) {
  const Engine& engine = *model.engine;
  const SamplingOptions& s = model.sampling;
  static constexpr const char* kActivations[] = {"auto", "f32", "bf16", "int8"};
  char text[500];
  std::snprintf(text, sizeof text,
                "temperature=%g top_k=%d top_p=%g min_p=%g repeat_penalty=%g repeat_last_n=%d max_tokens=%lld special=%d kv=%s "
                "activations=%s template=%016llx context=%lld strict=%d",
                static_cast<double>(s.temperature), static_cast<int>(s.top_k), static_cast<double>(s.top_p),
                static_cast<double>(s.min_p), static_cast<double>(s.repeat_penalty), static_cast<int>(s.repeat_last_n),
                static_cast<long long>(model.max_tokens), model.parse_special ? 1 : 0,
                std::string(kKvTypeNames[static_cast<size_t>(engine.kv_type())]).c_str(),
                kActivations[static_cast<size_t>(engine.activations())], static_cast<unsigned long long>(TemplateSum(model)),
                static_cast<long long>(engine.context()), strict ? 1 : 0);
  std::string settings = text;
  if (const uint64_t sum = FormatSum(model.format); sum != 0) {
    std::snprintf(text, sizeof text, " format=%016llx", static_cast<unsigned long long>(sum));
    settings += text;
  }
  char fingerprint[17];
  std::snprintf(fingerprint, sizeof fingerprint, "%016llx", static_cast<unsigned long long>(ModelSum(engine)));
  return {.name = model.name, .model = fingerprint, .settings = settings};
}

Result<BatchReport> RunBatch(const ServedModel& model, const BatchPlan& plan, const BatchOptions& options) {
  return BatchRun(model, plan, options).Run();
}

}  // namespace tally
