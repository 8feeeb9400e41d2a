// SPDX-License-Identifier: Apache-2.0
// tally bench: prefill and decode speed over a grid of work, beside the machine's roofs.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/api/tally.h"
#include "engine/app/bench_drafts.h"
#include "engine/app/bench_grammar.h"
#include "engine/app/bench_report.h"
#include "engine/app/commands.h"
#include "engine/app/console.h"
#include "engine/app/draft.h"
#include "engine/app/interrupt.h"
#include "engine/app/json.h"
#include "engine/app/numbers.h"
#include "engine/app/options.h"
#include "engine/app/output_files.h"
#include "engine/app/ranks.h"
#include "engine/app/report_files.h"
#include "engine/app/syntax.h"
#include "engine/machine/instruction_set.h"

namespace tally::app {
namespace {

struct BenchFlags {
  ModelFlags model;
  std::string prompts = "512", generate = "64", depths = "0", batches = "1", threads = "0", kv = "auto", target, format = "table";
  SpeedOptions speed;
  std::optional<std::string> report;
  std::string draft, replay;
  std::string beside_draft;  // an option that was given and that a replay does not follow
  GrammarFlags grammar;
  std::string beside_grammar;  // the same of a grammar
  bool json = false, full = false;
};

// 0 alone: no such work.
Result<std::vector<int64_t>> Tokens(const std::string& option, const std::string& list) {
  if (list == "0") return std::vector<int64_t>();
  return ParseNumbers(option, list, 1, int64_t{1} << 30);
}

Status ReadTarget(const BenchFlags& flags) {
  if (flags.target.empty()) return {};
  return Ranks() != nullptr ? BadInput("--target: not possible with several processes") : LimitInstructionSet(flags.target);
}

Result<EngineOptions> ReadFlags(BenchFlags& flags) {
  TALLY_RETURN_IF_ERROR(ReadTarget(flags));
  SpeedOptions& speed = flags.speed;
  if (speed.rounds < 1) return BadInput("--repetitions must be 1 or more");
  TALLY_ASSIGN_OR_RETURN(speed.prompts, Tokens("-p", flags.prompts));
  TALLY_ASSIGN_OR_RETURN(speed.generate, Tokens("-n", flags.generate));
  if (speed.prompts.empty() && speed.generate.empty()) return BadInput("-p and -n are both 0: there is nothing to measure");
  TALLY_ASSIGN_OR_RETURN(speed.depths, ParseNumbers("-d", flags.depths, 0, int64_t{1} << 30));
  TALLY_ASSIGN_OR_RETURN(speed.batches, ParseNumbers("--batch", flags.batches, 1, 65536));
  TALLY_ASSIGN_OR_RETURN(const std::vector<int64_t> threads, ParseNumbers("--threads", flags.threads, 0, 1024));
  speed.threads.assign(threads.begin(), threads.end());
  speed.kv.clear();
  EngineOptions load;
  for (const std::string& kv : ListItems(flags.kv)) {
    ModelFlags one = flags.model;
    one.kv = kv;
    TALLY_ASSIGN_OR_RETURN(load, ToEngineOptions(one));
    if (std::find(speed.kv.begin(), speed.kv.end(), load.kv) != speed.kv.end())
      return BadInput("--kv: " + kv + " is there twice");
    speed.kv.push_back(load.kv);
  }
  TALLY_RETURN_IF_ERROR(CheckOneOf("--format", flags.format, {"table", "md", "csv", "json", "jsonl"}));
  if (flags.json) flags.format = "json";
  return load;
}

bool IsOfGrammar(const BenchFlags& flags) { return flags.grammar.schema || flags.grammar.regex || flags.grammar.grammar; }

// One number of threads and one type of KV cache, for what measures no grid.
Result<ModelFlags> OneModel(const BenchFlags& flags, const std::string& beside) {
  if (Ranks() != nullptr) return BadInput(beside + ": not possible with several processes");
  TALLY_RETURN_IF_ERROR(CheckOneOf("--format", flags.format, {"table", "json"}));
  ModelFlags model = flags.model;
  TALLY_ASSIGN_OR_RETURN(const std::vector<int64_t> threads, ParseNumbers("--threads", flags.threads, 0, 1024));
  const std::vector<std::string> kv = ListItems(flags.kv);
  if (threads.size() > 1) return BadInput("--threads: one number with " + beside);
  if (kv.size() > 1) return BadInput("--kv: one type with " + beside);
  model.threads = threads.front();
  model.kv = kv.front();
  TALLY_RETURN_IF_ERROR(ReadTarget(flags));
  return model;
}

Result<int> RunGrammar(const BenchFlags& flags) {
  TALLY_ASSIGN_OR_RETURN(const ModelFlags model, OneModel(flags, "a grammar"));
  TALLY_ASSIGN_OR_RETURN(const std::vector<int64_t> tokens, ParseNumbers("-n", flags.generate, 2, int64_t{1} << 20));
  if (tokens.size() > 1) return BadInput("-n: one number with a grammar");
  return RunGrammarBench({.model = model,
                          .grammar = flags.grammar,
                          .tokens = tokens.front(),
                          .rounds = flags.speed.rounds,
                          .seed = flags.speed.seed,
                          .json = flags.json || flags.format == "json"});
}

Result<int> RunReplay(const BenchFlags& flags) {
  TALLY_ASSIGN_OR_RETURN(const ModelFlags model, OneModel(flags, "--draft"));
  if (!flags.beside_draft.empty()) return BadInput(flags.beside_draft + ": not with --draft, which measures recorded answers");
  return RunDraftBench({.model = model,
                        .draft = flags.draft,
                        .replay = flags.replay,
                        .rounds = flags.speed.rounds,
                        .json = flags.json || flags.format == "json"});
}

Result<int> RunBench(BenchFlags& flags) {
  if (IsOfGrammar(flags)) {
    if (!flags.beside_grammar.empty()) return BadInput(flags.beside_grammar + ": not with a grammar");
    return RunGrammar(flags);
  }
  if (!flags.draft.empty() || !flags.replay.empty()) return RunReplay(flags);
  TALLY_ASSIGN_OR_RETURN(EngineOptions load, ReadFlags(flags));
  SpeedOptions& speed = flags.speed;
  speed.interrupted = Interrupted;
  load = SpeedLoadOptions(load, speed);
  BenchRun run;
  run.model = flags.model.model;
  run.rounds = speed.rounds;
  TALLY_ASSIGN_OR_RETURN(const std::string path, ModelPath(flags.model.model, flags.model.yes));
  if (flags.report) {
    TALLY_RETURN_IF_ERROR(CheckOutputFile("--report", *flags.report, path, {}, true));
    TALLY_RETURN_IF_ERROR(CheckReportFile(*flags.report));
  }
  TALLY_ASSIGN_OR_RETURN(const std::shared_ptr<const Model> model, LoadModelOnly(flags.model.model, load, {}, &run.load));
  run.loaded = model.get();
  NoteThreads(*std::ranges::max_element(speed.threads));
  ProgressBar bar("bench");
  speed.progress = [&](const SpeedProgress& p) {
    bar.Show(static_cast<uint64_t>(p.done), static_cast<uint64_t>(p.total), p.next, p.seconds_left);
  };
  TALLY_ASSIGN_OR_RETURN(const SpeedReport report, MeasureSpeed(model, load, speed));
  bar.Wipe();
  const bool usual = flags.model.activations == "auto" && flags.model.impl == "auto" && !InstructionSetIsLimited();
  if (usual && Ranks() == nullptr) KeepBench(path, report);
  if (flags.format == "json") {
    PrintJson(BenchJson(run, report));
  } else if (flags.format == "jsonl") {
    Print(BenchJsonLines(run, report));
  } else if (flags.format == "csv") {
    Print(BenchCsv(run, report));
  } else if (flags.format == "md") {
    Print(BenchTables(run, report, TableFormat::kMarkdown));
  } else {
    Print(flags.full ? BenchTables(run, report, TableFormat::kText)
                     : BenchScreen(model->Description(), run.load.seconds, report));
  }
  NoteUnusedBlas(report.used_blas, load);
  if (flags.report) {
    const BenchedModel benched = {model, flags.model.model, kTallyVersion, CommandLine()};
    TALLY_ASSIGN_OR_RETURN(const ReportData data, ReportOfBench(benched, load, flags.speed, report));
    TALLY_RETURN_IF_ERROR(WriteReport(*flags.report, {&data, 1}));
  }
  return Interrupted() ? InterruptExitCode() : 0;
}

}  // namespace

Action AddBench(Command& app) {
  auto flags = std::make_shared<BenchFlags>();
  Command c = app.Add("bench", "Measure prefill and decode, beside this machine's roofs");
  AddSharedModelFlags(c, flags->model);
  const auto list = [&](const std::string& names, std::string& value, const std::string& description) {
    return c.Option(names, value, description).Type(kListType).Preset();
  };
  list("-p,--prompt", flags->prompts, "tokens of a prefill (0: none is measured)");
  list("-n,--tokens", flags->generate, "decode steps (0: none are measured)");
  list("-d,--depth", flags->depths, "tokens that the KV cache of each sequence holds before");
  list("--batch", flags->batches, "sequences that decode together");
  list("-t,--threads", flags->threads, "threads (0: OMP_NUM_THREADS, or all cores)");
  Choices(list("--kv", flags->kv, "types of the KV cache"), KvTypeChoices());
  c.Option("--target", flags->target,
           "measure with at most this instruction set, as `bench` names it (AMX, AVX2, AVX2_VNNI, NEON_DOT)");
  AddDraft(c, flags->draft);
  FileOption(c.Option(
      "--replay", flags->replay,
      "with --draft: file of recorded answers, a line each: {\"prompt\": a text or token ids, \"answer\": the same}; they "
      "are generated again, with drafts and without"));
  AddGrammar(c, flags->grammar);
  AddNumber(c, "-r,--repetitions", flags->speed.rounds, "rounds over the grid; medians are taken over them");
  AddNumber(c, "-s,--seed", flags->speed.seed, "of the random tokens");
  Choices(c.Option("--format", flags->format, "what is printed").Preset(), {"table", "md", "csv", "json", "jsonl"});
  FileOption(
      c.Option("--report", flags->report, "file for a page with the figures, and those of one run recorded op by op (HTML)"));
  c.Flag("--full", flags->full, "tables of all figures: bytes a token, sampling, peaks, the rounds that count");
  c.Flag("--json", flags->json, "--format json");
  AddExamples(c, {"tally bench -p 128 -n 32", "tally bench demo -p 0 -n 32 --batch 1,4 --format md"});
  return [flags, c] {
    for (const char* const name : {"--prompt", "--tokens", "--depth", "--batch", "--seed", "--report", "--full"}) {
      if (flags->beside_draft.empty() && c.Count(name) > 0) flags->beside_draft = name;
    }
    for (const char* const name : {"--prompt", "--depth", "--batch", "--report", "--full", "--draft", "--replay"}) {
      if (flags->beside_grammar.empty() && c.Count(name) > 0) flags->beside_grammar = name;
    }
    return Report(RunBench(*flags));
  };
}

}  // namespace tally::app
