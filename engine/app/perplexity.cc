// SPDX-License-Identifier: Apache-2.0
// tally perplexity: how well a model predicts a text, and how far it is from another one.
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "engine/api/tally.h"
#include "engine/app/commands.h"
#include "engine/app/console.h"
#include "engine/app/interrupt.h"
#include "engine/app/json.h"
#include "engine/app/options.h"
#include "engine/app/output_files.h"
#include "engine/app/syntax.h"
#include "engine/base/format.h"

namespace tally::app {
namespace {

constexpr int64_t kWindow = 512, kLogitRows = 64;

struct PerplexityFlags {
  ModelFlags model;
  std::optional<std::string> file, tokens_file, save, against;
  int64_t stride = 0, windows = 0;
  bool json = false, force = false;
};

std::string Line(const char* format, double a, double b = 0) {
  char text[200];
  std::snprintf(text, sizeof text, format, a, b);
  return text;
}

struct Input {
  std::vector<int32_t> tokens;
  int32_t bos = -1;
  size_t bytes = 0;  // of the text; 0: token ids were given
};

// `text`: of standard input, where no option names another.
Result<Input> ReadInput(const PerplexityFlags& flags, std::string text, const Model& model) {
  Input input;
  if (flags.tokens_file) {
    TALLY_ASSIGN_OR_RETURN(text, ReadText(*flags.tokens_file));
    TALLY_ASSIGN_OR_RETURN(input.tokens, ParseTokens(text, *flags.tokens_file));
    return input;
  }
  TALLY_RETURN_IF_ERROR(model.tokenizer_status());
  const Tokenizer* tokenizer = model.tokenizer();
  if (tokenizer == nullptr) return BadInput(flags.model.model + ": the model has no tokenizer: give --tokens-file FILE");
  if (flags.file) {
    TALLY_ASSIGN_OR_RETURN(text, ReadText(*flags.file));
  }
  input.bytes = text.size();
  TALLY_ASSIGN_OR_RETURN(input.tokens, tokenizer->Encode(text, {.add_special = false}));
  TALLY_ASSIGN_OR_RETURN(const std::vector<int32_t> special, tokenizer->Encode("", {.add_special = true}));
  if (!special.empty() && special.front() == tokenizer->bos()) input.bos = tokenizer->bos();
  return input;
}

Json ReportJson(const PerplexityFlags& flags, const Engine& engine, const PerplexityOptions& options, const Input& input,
                const PerplexityReport& r, std::optional<double> bits_per_byte) {
  Json document = {{"model", flags.model.model},
                   {"description", engine.model().Description()},
                   {"tokens", input.tokens.size()},
                   {"scored", r.scored},
                   {"window", options.window},
                   {"stride", options.stride},
                   {"windows", r.windows},
                   {"perplexity", r.perplexity},
                   {"standard_error", r.perplexity_error},
                   {"mean_nll", r.mean_nll},
                   {"interrupted", r.interrupted}};
  if (bits_per_byte) document["bits_per_byte"] = *bits_per_byte;
  if (r.divergence) {
    const Divergence& d = *r.divergence;
    document["against"] = {
        {"file", *flags.against},
        {"perplexity", d.saved_perplexity},
        {"log_perplexity_ratio", d.log_ratio},
        {"kl", {{"mean", d.mean}, {"standard_error", d.mean_error}, {"median", d.median}, {"p99", d.p99}, {"max", d.most}}},
        {"same_top", d.same_top},
        {"same_top_standard_error", d.same_top_error}};
  }
  if (options.save.empty() || r.interrupted) return document;
  document["save"] = options.save;
  return document;
}

void PrintText(const PerplexityOptions& options, const PerplexityReport& r, std::optional<double> bits_per_byte) {
  Print("perplexity " + Line("%.4f +- %.4f", r.perplexity, r.perplexity_error) + " over " +
        books::WithThousands(static_cast<uint64_t>(r.scored)) + " tokens, windows of " + std::to_string(options.window) +
        " every " + std::to_string(options.stride) + (r.interrupted ? " (interrupted)" : "") + "\n");
  if (bits_per_byte) Print(Line("bits per byte %.4f\n", *bits_per_byte));
  if (!r.divergence) return;
  const Divergence& d = *r.divergence;
  Print(Line("saved perplexity %.4f, ln(perplexity / saved) %.5f\n", d.saved_perplexity, d.log_ratio));
  Print("KL divergence, nats a token: mean " + Line("%.6f +- %.6f", d.mean, d.mean_error) +
        Line(",\n  median %.6f, 99 %% below %.6f", d.median, d.p99) + Line(", max %.6f\n", d.most));
  Print(Line("same most likely token %.3f +- %.3f %%\n", 100 * d.same_top, 100 * d.same_top_error));
}

Result<int> RunPerplexity(const PerplexityFlags& flags) {
  TALLY_ASSIGN_OR_RETURN(EngineOptions load, ToEngineOptions(flags.model));
  std::string text;
  if (!flags.file && !flags.tokens_file && InputIsGiven()) {
    TALLY_ASSIGN_OR_RETURN(text, ReadText("-"));
  }
  if (int(flags.file.has_value()) + int(flags.tokens_file.has_value()) + int(!text.empty()) != 1) {
    return BadInput("give one text: -f FILE or --tokens-file FILE, or standard input");
  }
  load.max_logit_rows = kLogitRows;
  TALLY_ASSIGN_OR_RETURN(const std::string path, ModelPath(flags.model.model, flags.model.yes));
  if (flags.save)
    TALLY_RETURN_IF_ERROR(
        CheckOutputFile("--save", *flags.save, path, {flags.file, flags.tokens_file, flags.against}, flags.force));
  TALLY_ASSIGN_OR_RETURN(const Loaded loaded, Load(flags.model.model, load));
  TALLY_ASSIGN_OR_RETURN(const Input input, ReadInput(flags, std::move(text), *loaded.model));

  PerplexityOptions options;
  options.window = flags.model.context > 0 ? loaded.engine->context() : std::min(kWindow, loaded.engine->context());
  options.stride = flags.stride != 0 ? flags.stride : std::max<int64_t>(1, options.window / 2);
  options.windows = flags.windows;
  options.bos = input.bos;
  if (flags.save) options.save = *flags.save;
  if (flags.against) options.against = *flags.against;
  options.interrupted = Interrupted;
  ProgressBar bar("perplexity");
  options.progress = [&](int64_t scored, int64_t total, double perplexity) {
    bar.Label("perplexity" + Line(" %.4f", perplexity));
    bar.Show(static_cast<uint64_t>(scored), static_cast<uint64_t>(total));
  };
  TALLY_ASSIGN_OR_RETURN(const PerplexityReport report, Perplexity(*loaded.engine, input.tokens, options));
  bar.Wipe();
  if (report.interrupted && report.scored == 0) return Status(StatusCode::kInterrupted, "interrupted");
  std::optional<double> bits_per_byte;  // of a text that was scored whole
  if (input.bytes > 0 && report.scored + (input.bos < 0 ? 1 : 0) == static_cast<int64_t>(input.tokens.size())) {
    bits_per_byte = report.mean_nll * static_cast<double>(report.scored) / std::log(2.0) / static_cast<double>(input.bytes);
  }
  if (flags.json) {
    PrintJson(ReportJson(flags, *loaded.engine, options, input, report, bits_per_byte));
  } else {
    PrintText(options, report, bits_per_byte);
    if (flags.save && !report.interrupted) Note("wrote " + Printable(*flags.save) + "\n");
  }
  return report.interrupted ? 130 : 0;
}

}  // namespace

Action AddPerplexity(Command& app) {
  auto flags = std::make_shared<PerplexityFlags>();
  Command c = app.Add("perplexity", "How well a model predicts a text, and how far it is from another");
  AddModelFlags(c, flags->model);
  c.Get("--ctx").Describe("tokens of a window (0: 512, or the trained context if that is shorter)");
  FileOption(c.Option("-f,--file", flags->file,
                      "text (-: standard input, also read if it is no terminal and nothing is given); if the tokenizer "
                      "begins texts with a token, every window has it"));
  FileOption(c.Option("--tokens-file", flags->tokens_file, "file with token ids instead: 1,2,3 (-: standard input)"));
  c.Option("--stride", flags->stride, "tokens from one window to the next (0: half a window)").Preset();
  c.Option("--windows", flags->windows, "stop after so many windows (0: all)").Preset();
  FileOption(c.Option("--save", flags->save,
                      "write the logits of the scored tokens: .npy, float32 [tokens, 3 + vocab]; id, window, stride, logits"));
  AddForce(c, flags->force);
  FileOption(c.Option("--against", flags->against, "compare with such a file: KL divergence, same most likely token"));
  c.Flag("--json", flags->json, "one JSON document on standard output");
  AddExamples(c, {"tally perplexity demo -f README.md --windows 4 --save /tmp/a.npy",
                  "tally perplexity demo -f README.md --windows 4 --kv q8_0 --against /tmp/a.npy"});
  return [flags] { return Report(RunPerplexity(*flags)); };
}

}  // namespace tally::app
