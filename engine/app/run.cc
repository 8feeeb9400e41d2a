// SPDX-License-Identifier: Apache-2.0
// tally run: generate from a prompt.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/api/tally.h"
#include "engine/app/chat_screen.h"
#include "engine/app/commands.h"
#include "engine/app/console.h"
#include "engine/app/draft.h"
#include "engine/app/grammar_options.h"
#include "engine/app/interrupt.h"
#include "engine/app/json.h"
#include "engine/app/numbers.h"
#include "engine/app/options.h"
#include "engine/app/prompt_bar.h"
#include "engine/app/record_files.h"
#include "engine/app/run_books.h"
#include "engine/app/syntax.h"
#include "engine/base/format.h"
#include "engine/machine/machine.h"
#include "engine/render/words.h"

namespace tally::app {
namespace {

struct RunFlags {
  ModelFlags model;
  RecordFlags records;
  std::optional<std::string> prompt, file, prompt_tokens;
  int64_t tokens = 256;
  SamplingOptions sampling;
  std::string draft;
  GrammarFlags grammar;
  std::vector<std::string> stop;
  bool json = false, ignore_eos = false, explain = false, special = false, quiet = false, verbose = false, seed_drawn = false;
};

constexpr const char* kPromptOptions = "-p TEXT, -f FILE or --prompt-tokens 1,2,3";

// What was given, before a model is loaded for it; where no option was, standard input. Nothing: the empty text, which is what the
// tokenizer puts before one.
struct Prompt {
  std::vector<int32_t> tokens;
  std::string text;
  bool is_text = false;
};
int Given(const RunFlags& flags) {
  return int(flags.prompt.has_value()) + int(flags.file.has_value()) + int(flags.prompt_tokens.has_value());
}
bool IsFromInput(const RunFlags& flags) {
  return Given(flags) == 0 || (Given(flags) == 1 && (flags.file == "-" || flags.prompt == "-"));
}
Result<Prompt> ReadPrompt(const RunFlags& flags) {
  if (Given(flags) > 1) return BadInput(std::string("give the prompt once: ") + kPromptOptions);
  Prompt prompt;
  prompt.is_text = !flags.prompt_tokens.has_value();
  if (flags.file || flags.prompt == "-") {
    TALLY_ASSIGN_OR_RETURN(prompt.text, ReadPromptText(flags.file.value_or("-")));
  } else if (flags.prompt) {
    prompt.text = *flags.prompt;
  } else if (prompt.is_text) {
    TALLY_ASSIGN_OR_RETURN(std::optional<std::string> given, GivenInput());
    prompt.text = std::move(given).value_or("");
  }
  if (flags.prompt_tokens) {
    TALLY_ASSIGN_OR_RETURN(prompt.tokens, ParseTokens(*flags.prompt_tokens, "--prompt-tokens"));
  }
  return prompt;
}

Json OrNull(const std::optional<double>& x) { return x ? Json(*x) : Json(); }

Json RunJson(const RunFlags& flags, const Engine& engine, const GenerateResult& result, const RunBooks& books) {
  const books::RunFigures& f = books.figures;
  Json by_class = Json::Object();
  for (int c = 0; c < kWorkClasses; ++c) {
    if (f.work[c].useful > 0) by_class[std::string(kWorkClassNames[c])] = Number(f.work[c].useful);
  }
  const auto bytes = [&](ByteKind k) { return Number(f.bytes_per_token[static_cast<size_t>(k)]); };
  Json document = {{"model", flags.model.model}, {"text", result.text}};
  document.Update(FiguresJson(result, books, engine));
  document.Update({{"decode_tokens", result.decode_tokens},
                   {"decode_steps", result.decode_steps},
                   {"forced_tokens", result.forced},
                   {"generated_tokens_per_second",
                    result.generate_seconds > 0 ? static_cast<double>(result.decode_tokens) / result.generate_seconds : 0.0},
                   {"flops_per_token_by_class", by_class},
                   {"executed_flops_per_token", Number(f.all.executed)},
                   {"weight_bytes_per_token", bytes(ByteKind::kWeightsPacked)},
                   {"stored_weight_bytes_per_token", bytes(ByteKind::kWeightsStored)},
                   {"kv_bytes_read_per_token", bytes(ByteKind::kKvRead)},
                   {"kv_bytes_written_per_token", bytes(ByteKind::kKvWritten)},
                   {"state_bytes_read_per_token", bytes(ByteKind::kStateRead)},
                   {"state_bytes_written_per_token", bytes(ByteKind::kStateWritten)},
                   {"decode_gigabytes_per_second", f.decode_gigabytes_per_second},
                   {"read_bytes_per_second", OrNull(books.read_bandwidth)},
                   {"ratio_of_bandwidth", OrNull(RatioOfBandwidth(books))},
                   {"used_blas", engine.used_blas()}});
  if (f.streams()) document["disk_bytes_per_token"] = bytes(ByteKind::kWeightsDisk);
  return document;
}

Result<int> RunModel(const RunFlags& flags) {
  TALLY_RETURN_IF_ERROR(CheckGeneration(flags.sampling, flags.tokens));
  TALLY_ASSIGN_OR_RETURN(EngineOptions load, ToEngineOptions(flags.model));
  TALLY_ASSIGN_OR_RETURN(const int64_t draft, ReadDraft(flags.draft, load));
  TALLY_ASSIGN_OR_RETURN(const GivenGrammar given, ReadGrammar(flags.grammar));
  // What is wrong with the prompt is said before a model is fetched for it; standard input may first have to answer a question.
  Prompt prompt;
  const bool input = IsFromInput(flags);
  if (!input) {
    TALLY_ASSIGN_OR_RETURN(prompt, ReadPrompt(flags));
  }
  TALLY_ASSIGN_OR_RETURN(const std::string path, ModelPath(flags.model.model, flags.model.yes));
  if (input) {
    TALLY_ASSIGN_OR_RETURN(prompt, ReadPrompt(flags));
  }
  TALLY_RETURN_IF_ERROR(CheckRecordFlags(flags.records, path, {flags.file}));
  TALLY_ASSIGN_OR_RETURN(const Loaded loaded, Load(flags.model.model, load));
  const Tokenizer* tokenizer = loaded.model->tokenizer();
  if (tokenizer == nullptr && !loaded.model->tokenizer_status().ok() && !prompt.is_text) {
    Note("note: no text, since the tokenizer cannot be read: " + loaded.model->tokenizer_status().message() + "\n");
  }
  if (prompt.is_text) {
    TALLY_RETURN_IF_ERROR(loaded.model->tokenizer_status());
    if (tokenizer == nullptr) return BadInput(flags.model.model + ": the model has no tokenizer: give --prompt-tokens 1,2,3");
    TALLY_ASSIGN_OR_RETURN(prompt.tokens, tokenizer->Encode(prompt.text, {.add_special = true, .parse_special = flags.special}));
    if (prompt.tokens.empty()) {
      return BadInput(flags.model.model + ": an empty prompt has no tokens here (the tokenizer adds none): give " +
                      kPromptOptions);
    }
  }
  if (flags.explain) loaded.engine->probe().EnableExplain();

  GenerateOptions options;
  options.max_tokens = flags.tokens < 0 ? -1 : flags.tokens;
  options.sampling = flags.sampling;
  options.stop = flags.stop;
  options.ignore_eos = flags.ignore_eos;
  options.draft = draft;
  options.grammar = given.grammar;
  options.jump = !flags.grammar.no_jump;
  options.interrupted = Interrupted;
  PromptBar bar(*loaded.engine);
  options.prompt_progress = [&](int64_t done, int64_t total) { bar.Show(done, total); };
  const bool plain = !IsTerminal(Stream::kOutput);  // whoever reads a pipe gets the bytes
  bool first = true;
  options.on_token = [&](std::string_view piece, int32_t token) {
    if (flags.json) return true;
    if (tokenizer != nullptr) {
      Print(plain ? piece : Readable(piece));
    } else {
      Print((first ? "" : " ") + std::to_string(token));
    }
    first = false;
    return PrintedAll();
  };
  RecordFiles records;
  TALLY_RETURN_IF_ERROR(records.Attach(*loaded.engine, flags.records, "run", flags.model.model));
  records.SetPrompt(prompt.is_text ? Quote(prompt.text) : Counted(static_cast<int64_t>(prompt.tokens.size()), "token id"));
  TALLY_ASSIGN_OR_RETURN(const GenerateResult result, Generate(*loaded.engine, prompt.tokens, options));
  bar.Wipe();  // where the prompt was interrupted
  const Status recorded = records.Close();
  RunBooks books = BooksOf(loaded, result, flags.sampling, flags.seed_drawn);
  KeepRunHits(*loaded.engine);
  if (flags.json || flags.verbose) {
    TALLY_ASSIGN_OR_RETURN(books.ranks, RankBooksOf(*loaded.engine));
  }
  if (flags.json) {
    Json document = RunJson(flags, *loaded.engine, result, books);
    if (Json experts = ExpertsJson(loaded.engine->ledger()); !experts.IsNull()) document["experts"] = std::move(experts);
    if (Json layers = StreamedLayersJson(loaded.engine->ledger()); !layers.IsNull())
      document["streamed_layers"] = std::move(layers);
    if (draft > 0) document["drafts"] = DraftJson(books.figures);
    if (!books.ranks.ranks.empty()) document["ranks"] = RanksJson(books.ranks);
    PrintJson(document);
  } else {
    Print("\n");
    if (const Status printed = FlushOutput(); !printed.ok()) {
      TALLY_RETURN_IF_ERROR(recorded);
      return printed;
    }
    if (!flags.quiet) Note("\n" + (flags.verbose ? RunTables(books, loaded.model->Description()) : RunScreen(books)));
  }
  TALLY_RETURN_IF_ERROR(recorded);
  NoteUnusedBlas(loaded.engine->used_blas(), load);
  for (const std::string& line : loaded.engine->probe().Explanations()) Note(Printable(line) + "\n");
  TALLY_RETURN_IF_ERROR(result.error);
  return Interrupted() ? InterruptExitCode() : 0;
}

}  // namespace

Action AddRun(Command& app) {
  auto flags = std::make_shared<RunFlags>();
  Command c = app.Add("run", "Generate text, and say what that cost");
  AddModelFlags(c, flags->model);
  TextOption(c.Option("-p,--prompt", flags->prompt,
                      "prompt text (-: standard input, also read if it is no terminal and no prompt is given)"));
  FileOption(
      c.Option("-f,--file", flags->file, "file with the prompt text (-: standard input); one newline at its end is dropped"));
  c.Option("--prompt-tokens", flags->prompt_tokens, "prompt as token ids: 1,2,3 or [1, 2, 3]").OneEach();
  c.Flag("--special", flags->special, "special tokens spelled out in the prompt become tokens (else they stay text)");
  AddNumber(c, "-n,--tokens", flags->tokens, "most tokens to generate (-1 or -2: until the context is full)");
  AddSampling(c, flags->sampling, flags->seed_drawn);
  TextOption(c.Option("--stop", flags->stop, "end before this text (may be repeated)"));
  c.Flag("--ignore-eos", flags->ignore_eos, "never draw a token that ends the text");
  AddDraft(c, flags->draft);
  AddGrammar(c, flags->grammar);
  AddJump(c, flags->grammar);
  AddRecordFlags(c, flags->records);
  c.Flag("--explain", flags->explain, "say which kernel ran for each op, and why");
  const CommandOption quiet = c.Flag("-q,--quiet", flags->quiet, "the text alone, no books");
  c.Flag("-v,--verbose", flags->verbose, "all figures: parameters, FLOPs by class, bytes").Excludes(quiet);
  c.Flag("--json", flags->json, "one JSON document on standard output");
  c.Footer(kSamplingNote);
  AddExamples(c, {"tally run -n 24 -p \"ROMEO:\"", "echo \"ROMEO:\" | tally run -n 24 --json"});
  return [flags] { return Report(RunModel(*flags)); };
}

}  // namespace tally::app
