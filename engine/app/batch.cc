// SPDX-License-Identifier: Apache-2.0
// tally batch: answers a file of requests, many at once.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>

#include "engine/api/tally.h"
#include "engine/app/answers.h"
#include "engine/app/commands.h"
#include "engine/app/console.h"
#include "engine/app/grammar_options.h"
#include "engine/app/interrupt.h"
#include "engine/app/json.h"
#include "engine/app/numbers.h"
#include "engine/app/options.h"
#include "engine/app/output_files.h"
#include "engine/app/record_files.h"
#include "engine/app/syntax.h"
#include "engine/base/format.h"
#include "engine/render/words.h"
#include "engine/serve/batch.h"

namespace tally::app {
namespace {

// --schema and its like as requests say it.
Result<AnswerFormat> ReadFormat(const GrammarFlags& flags) {
  TALLY_ASSIGN_OR_RETURN(GivenGrammar given, ReadGrammar(flags));
  using Kind = AnswerFormat::Kind;
  return AnswerFormat{.kind = flags.schema    ? Kind::kSchema
                              : flags.regex   ? Kind::kRegex
                              : flags.grammar ? Kind::kGbnf
                                              : Kind::kAny,
                      .text = std::move(given.text),
                      .space = flags.spaced ? JsonSpace::kOne : JsonSpace::kNone,
                      .grammar = std::move(given.grammar)};
}

struct BatchFlags : AnswerFlags {
  GrammarFlags grammar;
  RecordFlags records;
  std::string requests, out;
  bool json = false;
};

std::string Rate(int64_t tokens, double seconds) {
  return ShortRate(seconds > 0 ? static_cast<double>(tokens) / seconds : 0) + " tokens/s";
}

void NoteKept(const BatchPlan& plan) {
  std::string text;
  if (plan.kept > 0)
    text = Counted(static_cast<int64_t>(plan.kept), "answer") + " of " + books::WithThousands(plan.total) + " there already";
  if (plan.torn_bytes > 0) {
    text +=
        (text.empty() ? "" : "; ") + std::string("an answer that was cut short is dropped (") + BytesText(plan.torn_bytes) + ")";
  }
  if (!text.empty()) Note(Printable(plan.answers) + ": " + text + "\n");
}

Json SummaryJson(const BatchFlags& flags, const BatchPlan& plan, const BatchReport& report, const Loaded* loaded) {
  const ApiUsage& usage = report.usage;
  Json document = {{"model", flags.model.model},
                   {"requests", plan.total},
                   {"kept", plan.kept},
                   {"answers", report.answered},
                   {"errors", report.refused},
                   {"left", report.left},
                   {"prompt_tokens", usage.prompt_tokens},
                   {"cached_tokens", usage.cached_tokens},
                   {"completion_tokens", usage.completion_tokens},
                   {"seconds", report.seconds}};
  if (loaded == nullptr) return document;
  const Engine& engine = *loaded->engine;
  document["completion_tokens_per_second"] =
      report.seconds > 0 ? static_cast<double>(usage.completion_tokens) / report.seconds : 0.0;
  document["load_seconds"] = loaded->seconds;
  if (!flags.draft.empty()) {
    document["drafted_tokens"] = usage.drafted_tokens;
    document["accepted_tokens"] = usage.accepted_tokens;
  }
  document["description"] = engine.model().Description();
  document["parallel"] = flags.parallel;
  document["threads"] = engine.threads();
  document["target"] = engine.target();
  document["context"] = engine.context();
  document["memory_bytes"] = MemoryJson(engine);
  return document;
}

void SaySummary(const BatchFlags& flags, const BatchPlan& plan, const BatchReport& report, const Loaded* loaded) {
  if (flags.json) return PrintJson(SummaryJson(flags, plan, report, loaded));
  std::string text = Counted(static_cast<int64_t>(plan.total), "request") + ": ";
  if (plan.kept > 0) text += books::WithThousands(plan.kept) + " answered before, ";
  text +=
      Counted(static_cast<int64_t>(report.answered), "answer") + ", " + Counted(static_cast<int64_t>(report.refused), "error");
  if (report.left > 0) text += ", " + books::WithThousands(report.left) + " left: the same command goes on";
  const ApiUsage& usage = report.usage;
  if (report.answered > 0) {
    text += "\nprompts " + Thousands(usage.prompt_tokens) + " tokens" +
            (usage.cached_tokens > 0 ? " (" + Thousands(usage.cached_tokens) + " cached)" : "") + ", answers " +
            Thousands(usage.completion_tokens) + ", " + Rate(usage.completion_tokens, report.seconds);
    if (usage.drafted_tokens > 0) {
      text += "\ndrafted " + Thousands(usage.drafted_tokens) + ", accepted " + Thousands(usage.accepted_tokens);
    }
  }
  Note(text + "\n");
}

Result<int> RunBatchFile(const BatchFlags& flags) {
  TALLY_ASSIGN_OR_RETURN(const EngineOptions engine, EngineOptionsOf(flags));
  TALLY_ASSIGN_OR_RETURN(const AnswerFormat format, ReadFormat(flags.grammar));
  TALLY_ASSIGN_OR_RETURN(const std::string path, ModelPath(flags.model.model, flags.model.yes));
  // A file of answers is continued, or refused.
  TALLY_RETURN_IF_ERROR(CheckOutputFile("--out", flags.out, path, {flags.requests, flags.chat_template}, true));
  TALLY_RETURN_IF_ERROR(CheckRecordFlags(flags.records, path, {flags.requests, flags.chat_template, flags.out}));
  TALLY_ASSIGN_OR_RETURN(const BatchPlan plan, PlanBatch(flags.requests, flags.out, flags.records.force, {}));
  // Nothing is loaded where the model's name is that of the answers; by another name it may be the same model.
  if (plan.left() == 0 && plan.kept > 0 && plan.torn_bytes == 0 &&
      CheckOrigin(flags.out, {.name = plan.origin.name}, {.name = flags.model.model}).ok()) {
    SaySummary(flags, plan, {}, nullptr);
    return 0;
  }
  NoteKept(plan);
  TALLY_ASSIGN_OR_RETURN(const Loaded loaded, LoadForAnswers(flags, engine));
  TALLY_ASSIGN_OR_RETURN(ServedModel served, ServedModelOf(flags, loaded, flags.model.model));
  served.format = format;
  served.jump = !flags.grammar.no_jump;
  BatchOptions options = {.strict = flags.strict, .interrupted = Interrupted};
  ProgressBar bar("batch");
  if (CanMoveCursor(Stream::kError)) {
    options.progress = [&](const BatchProgress& p) {
      bar.Show(p.done, p.total,
               std::to_string(p.done) + " of " + Counted(static_cast<int64_t>(p.total), "request") + ", " +
                   Rate(p.generated_tokens, p.seconds));
    };
  }
  RecordFiles records;
  TALLY_RETURN_IF_ERROR(records.Attach(*loaded.engine, flags.records, "batch", flags.model.model));
  const Result<BatchReport> report = RunBatch(served, plan, options);
  bar.Wipe();
  KeepRunHits(*loaded.engine);
  const Status recorded = records.Close();
  TALLY_RETURN_IF_ERROR(report.status());
  SaySummary(flags, plan, *report, &loaded);
  TALLY_RETURN_IF_ERROR(recorded);
  NoteUnusedBlas(loaded.engine->used_blas(), engine);
  return report->left > 0 && Interrupted() ? InterruptExitCode() : 0;
}

}  // namespace

Action AddBatch(Command& app) {
  auto flags = std::make_shared<BatchFlags>();
  Command c = app.Add("batch", "Answer a file of OpenAI requests, many at once");
  AddModelFlags(c, flags->model);
  FileOption(c.Option("REQUESTS", flags->requests,
                      "file with a request a line, as OpenAI's batches have them: custom_id, method, url (/v1/chat/completions, "
                      "/v1/completions or /v1/responses), body"))
      .Required();
  FileOption(
      c.Option("-o,--out", flags->out,
               "file for the answers, a line each, in the order of the requests; if it has some of them, the rest is added"))
      .Required();
  AddAnswerFlags(c, *flags);
  AddGrammar(c, flags->grammar);
  AddJump(c, flags->grammar);
  AddRecordFlags(c, flags->records);
  c.Flag("--json", flags->json, "one JSON document on standard output, at the end");
  c.Footer(
      "What a request leaves out is taken from the options; a seed that it leaves out is drawn, and stands in its answer. A "
      "request that cannot be answered has an error in its answer's place, and the others go on. A file of answers is continued "
      "by the same model, settings and requests alone; --force begins it anew.");
  AddExamples(c, {"tally batch demo docs/requests.jsonl -o /tmp/answers.jsonl",
                  "tally batch demo docs/requests.jsonl -o /tmp/greedy.jsonl --temp 0 --json"});
  return [flags] { return Report(RunBatchFile(*flags)); };
}

}  // namespace tally::app
