// SPDX-License-Identifier: Apache-2.0
// tally logits: the logits of every position of given tokens.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/api/tally.h"
#include "engine/app/commands.h"
#include "engine/app/console.h"
#include "engine/app/interrupt.h"
#include "engine/app/json.h"
#include "engine/app/options.h"
#include "engine/app/output_files.h"
#include "engine/app/record_files.h"
#include "engine/app/syntax.h"
#include "engine/base/format.h"

namespace tally::app {
namespace {

constexpr int kShown = 5;
constexpr int64_t kPiece = 64;  // rows of a step: all their logits are kept until they are written

struct LogitsFlags {
  ModelFlags model;
  RecordFlags records;
  std::optional<std::string> prompt, tokens, tokens_file, out, dump;
  bool json = false, explain = false;
};

// The `kShown` greatest, greatest first; ties to the lower id.
std::vector<int32_t> Top(std::span<const float> logits) {
  std::vector<int32_t> best;
  const auto above = [&](int32_t a, int32_t b) {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x > y || (x == y && a < b);
  };
  for (int32_t id = 0; id < static_cast<int32_t>(logits.size()); ++id) {
    if (best.size() == kShown && !above(id, best.back())) continue;
    if (best.size() == kShown) best.pop_back();
    best.insert(std::upper_bound(best.begin(), best.end(), id, above), id);
  }
  return best;
}

// Where no option gives tokens or a text, standard input is the text.
Result<std::vector<int32_t>> ReadTokens(const LogitsFlags& flags, const std::string& path) {
  const char* const choices = "-p TEXT, --prompt-tokens 1,2,3 or --tokens-file FILE";
  if (int(flags.prompt.has_value()) + int(flags.tokens.has_value()) + int(flags.tokens_file.has_value()) > 1) {
    return BadInput(std::string("give the tokens once: ") + choices);
  }
  if (flags.tokens) return ParseTokens(*flags.tokens, "--prompt-tokens");
  if (flags.tokens_file) {
    TALLY_ASSIGN_OR_RETURN(const std::string text, ReadText(*flags.tokens_file));
    return ParseTokens(text, *flags.tokens_file);
  }
  std::optional<std::string> text = flags.prompt;
  if (text == "-") {
    TALLY_ASSIGN_OR_RETURN(text, ReadPromptText("-"));
  } else if (!text) {
    TALLY_ASSIGN_OR_RETURN(text, GivenInput());
    if (!text) return BadInput(std::string("give the tokens: ") + choices);
  }
  TALLY_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer, LoadTokenizer(path));
  return tokenizer->Encode(*text, {.add_special = true});
}

Result<int> RunLogits(const LogitsFlags& flags) {
  TALLY_ASSIGN_OR_RETURN(EngineOptions load, ToEngineOptions(flags.model));
  TALLY_ASSIGN_OR_RETURN(const std::string path, ModelPath(flags.model.model, flags.model.yes));
  TALLY_ASSIGN_OR_RETURN(const std::vector<int32_t> tokens, ReadTokens(flags, path));
  if (tokens.empty()) return BadInput("the text has no tokens: at least one is needed");
  if (load.context == 0) load.context = static_cast<int64_t>(tokens.size());
  load.max_batch = load.max_logit_rows = std::min<int64_t>(kPiece, static_cast<int64_t>(tokens.size()));
  TALLY_RETURN_IF_ERROR(CheckRecordFlags(flags.records, path, {flags.tokens_file, flags.out}));
  const bool force = flags.records.force;
  if (flags.out) TALLY_RETURN_IF_ERROR(CheckOutputFile("--out", *flags.out, path, {flags.tokens_file}, force));
  if (flags.dump) TALLY_RETURN_IF_ERROR(CheckMayReplaceIn(*flags.dump, ".npy", force));
  TALLY_ASSIGN_OR_RETURN(const Loaded loaded, Load(flags.model.model, load));
  Engine& engine = *loaded.engine;
  TALLY_RETURN_IF_ERROR(CheckTokens(engine, tokens));
  if (flags.explain) engine.probe().EnableExplain();

  std::optional<NpyWriter> out;
  if (flags.out) {
    TALLY_ASSIGN_OR_RETURN(NpyWriter writer, NpyWriter::Create(*flags.out, loaded.model->sizes().vocab));
    out.emplace(std::move(writer));
  }
  std::optional<OpDump> dump;
  if (flags.dump) {
    TALLY_ASSIGN_OR_RETURN(OpDump created, OpDump::Create(*flags.dump));
    dump.emplace(std::move(created));
    engine.probe().SetTap([&](Site site, std::string_view op, Mat<const float> output) { dump->Write(site, op, output); });
  }
  Json positions = Json::Array();
  LogitsCallbacks callbacks;
  callbacks.interrupted = Interrupted;
  callbacks.begin_step = [&] {
    if (dump) dump->BeginStep();
  };
  callbacks.take = [&](int64_t first, Mat<const float> logits) -> Status {
    if (dump) TALLY_RETURN_IF_ERROR(dump->status());
    if (out) return out->Append(logits);
    for (int64_t r = 0; r < logits.rows; ++r) {
      const std::span<const float> row(logits.Row(r), static_cast<size_t>(logits.cols));
      const int32_t token = tokens[static_cast<size_t>(first + r)];
      Json top = Json::Array();
      std::string line = std::to_string(first + r) + "\t" + std::to_string(token) + "\t";
      for (const int32_t id : Top(row)) {
        top.Add({{"id", id}, {"logit", row[static_cast<size_t>(id)]}});
        char shown[64];
        std::snprintf(shown, sizeof shown, "  %d %.6g", id, static_cast<double>(row[static_cast<size_t>(id)]));
        line += shown;
        if (const Tokenizer* t = loaded.model->tokenizer()) line += " \"" + Printable(t->TokenBytes(id)) + "\"";
      }
      if (flags.json) {
        positions.Add({{"position", first + r}, {"token", token}, {"top", top}});
      } else {
        Print(line + "\n");
      }
    }
    return FlushOutput();  // a reader that has left need not be written for
  };
  RecordFiles records;
  TALLY_RETURN_IF_ERROR(records.Attach(engine, flags.records, "logits", flags.model.model));
  TALLY_RETURN_IF_ERROR(RunLogits(engine, tokens, callbacks));
  engine.probe().SetTap(nullptr);
  TALLY_RETURN_IF_ERROR(records.Close());
  if (out) TALLY_RETURN_IF_ERROR(out->Close());
  if (flags.json) {
    Json document = {{"model", flags.model.model}, {"tokens", tokens.size()}, {"vocab", loaded.model->sizes().vocab}};
    if (out) {
      document["out"] = *flags.out;
    } else {
      document["positions"] = std::move(positions);
    }
    if (dump) document["dump"] = {{"directory", *flags.dump}, {"files", dump->files()}};
    PrintJson(document);
  } else {
    if (out) {
      Note("wrote " + Printable(*flags.out) + ": float32 [" + std::to_string(tokens.size()) + ", " +
           std::to_string(loaded.model->sizes().vocab) + "]\n");
    }
    if (dump) Note("wrote " + std::to_string(dump->files()) + " arrays to " + Printable(*flags.dump) + "\n");
  }
  NoteUnusedBlas(engine.used_blas(), load);
  for (const std::string& line : engine.probe().Explanations()) Note(Printable(line) + "\n");
  return 0;
}

}  // namespace

Action AddLogits(Command& app) {
  auto flags = std::make_shared<LogitsFlags>();
  Command c = app.Add("logits", "The logits of every position of a text");
  AddModelFlags(c, flags->model);
  TextOption(
      c.Option("-p,--prompt", flags->prompt, "text (-: standard input, also read if it is no terminal and nothing is given)"));
  c.Option("--prompt-tokens,--tokens", flags->tokens, "token ids: 1,2,3 or [1, 2, 3]").OneEach();
  FileOption(c.Option("--tokens-file", flags->tokens_file, "file with token ids, written the same way (-: standard input)"));
  FileOption(
      c.Option("-o,--out", flags->out,
               "write them as .npy, float32 [tokens, vocab], complete or not at all; without: the 5 greatest are printed"));
  c.Option("--dump", flags->dump, "directory for the output of every op, as .npy files named by layer, component and op")
      .Type(kFolderType);
  AddRecordFlags(c, flags->records);
  c.Flag("--explain", flags->explain, "say which kernel ran for each op, and why");
  c.Flag("--json", flags->json, "one JSON document on standard output");
  AddExamples(c, {"tally logits -p \"ROMEO:\"", "tally logits demo --prompt-tokens 1,2,3 -o /tmp/logits.npy --dump /tmp/ops"});
  return [flags] { return Report(RunLogits(*flags)); };
}

}  // namespace tally::app
