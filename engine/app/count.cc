// SPDX-License-Identifier: Apache-2.0
// tally count: what models cost, from their configurations alone.
#include "engine/api/tally.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/app/claims.h"
#include "engine/app/commands.h"
#include "engine/app/console.h"
#include "engine/app/count_argument.h"
#include "engine/app/count_csv.h"
#include "engine/app/count_report.h"
#include "engine/app/count_screen.h"
#include "engine/app/hub_models.h"
#include "engine/app/numbers.h"
#include "engine/app/options.h"
#include "engine/app/syntax.h"
#include "engine/app/training_report.h"
#include "engine/base/format.h"
#include "engine/machine/machine.h"

namespace tally::app {
namespace {

struct CountFlags {
  std::vector<std::string> models, settings;
  uint64_t context = 0, prompt = 0, batch = 1, width = 0;
  std::optional<std::string> type, format;
  bool json = false, full = false, layers = false, plot = false, claims = false, training = false, yes = false;
};

Result<CountedModel> CountOne(const CountFlags& flags, const std::string& argument) {
  CountRequest request;
  request.settings = flags.settings;
  request.options.prompt = flags.prompt;
  request.options.context = flags.context;
  request.options.batch = flags.batch;
  if (flags.type) {
    const Result<DType> type = ParseWeightType(*flags.type);
    if (!type.ok()) {
      const std::vector<std::string_view> presets = QuantizePresets();
      const bool preset = std::ranges::find(presets, *flags.type) != presets.end();
      return BadInput("--type: " + type.status().message() + (preset ? "; presets are the --type of tally fit" : ""));
    }
    request.options.type = *type;
    request.type_given = true;
  }
  return CountArgument(argument, std::move(request), flags.yes);
}

std::vector<Claims> ClaimsOfAll(std::span<const CountedModel> models) {
  std::vector<Claims> claims;
  for (const CountedModel& m : models) {
    if (!m.published.source.empty()) claims.push_back(ClaimsOf(m));
  }
  return claims;
}

// The tables of all figures where `full`, and those of training where they were asked for.
Result<std::vector<Table>> TablesOf(const CountFlags& flags, std::span<const CountedModel> models, bool full) {
  std::vector<Table> tables;
  if (full) tables = CountTables(models, flags.layers);
  for (const CountedModel& m : models) {
    if (!flags.training) break;
    TALLY_ASSIGN_OR_RETURN(const std::vector<Table> more, TrainingTables(m));
    tables.insert(tables.end(), more.begin(), more.end());
  }
  return tables;
}

Result<Json> DocumentOf(const CountFlags& flags, std::span<const CountedModel> models) {
  Json document = CountDocument(models);
  for (size_t i = 0; flags.training && i < models.size(); ++i) {
    TALLY_ASSIGN_OR_RETURN(document["models"][i]["training"], TrainingJson(models[i]));
  }
  return document;
}

// One screen; or claims and all tables, each where asked for. Training and bars beside.
Result<std::string> TextOf(const CountFlags& flags, std::span<const CountedModel> models, std::span<const Claims> claims,
                           size_t width) {
  const bool full = flags.full || flags.layers;
  TALLY_ASSIGN_OR_RETURN(const std::vector<Table> tables, TablesOf(flags, models, full));
  std::string text = ClaimsText(claims, width);
  if (!full && claims.empty()) text = models.size() == 1 ? CountScreen(models.front(), width) : CountScreen(models, width);
  for (const Table& table : tables) text += (text.empty() ? "" : "\n") + Render(table, TableFormat::kText, width);
  return text;
}

Result<std::string> MarkdownOf(const CountFlags& flags, std::span<const CountedModel> models, std::span<const Claims> claims) {
  TALLY_ASSIGN_OR_RETURN(const std::vector<Table> tables, TablesOf(flags, models, flags.full || flags.layers || claims.empty()));
  std::string text = claims.empty() ? "" : ClaimsMarkdown(claims);
  for (const Table& table : tables) text += (text.empty() ? "" : "\n") + Render(table, TableFormat::kMarkdown);
  return text;
}

Status RunCount(const CountFlags& flags) {
  const std::string format = flags.format.value_or(flags.json ? "json" : "table");
  if (format != "table" && format != "md" && format != "csv" && format != "json") {
    return BadInput("--format must be one of table, md, csv, json, not " + Quote(format));
  }
  if (flags.json && format != "json") return BadInput("--json is not --format " + format);
  if (flags.batch == 0) return BadInput("--batch must be at least 1");
  if (flags.plot && format != "table") return BadInput("--plot draws beside the table only, not with --format " + format);
  std::vector<CountedModel> models;
  for (const std::string& argument : flags.models) {
    TALLY_ASSIGN_OR_RETURN(CountedModel counted, CountOne(flags, argument));
    for (const std::string& warning : counted.count.warnings) {
      Note(Paragraph("", "tally: " + counted.name + ": " + warning, OutputWidth(0), 0));
    }
    models.push_back(std::move(counted));
  }
  for (const CountedModel& m : models) {
    if (flags.claims && m.published.source.empty()) {
      Note("tally: " + m.name + ": no published figures are known; built-in names have some\n");
    }
  }
  // Without any claim the counts themselves are printed.
  const std::vector<Claims> claims = flags.claims ? ClaimsOfAll(models) : std::vector<Claims>();
  if (format == "json") {
    TALLY_ASSIGN_OR_RETURN(const Json document, DocumentOf(flags, models));
    PrintJson(document);
    return {};
  }
  if (format == "csv") {
    TALLY_ASSIGN_OR_RETURN(const std::string csv, CountCsv(models, {.counts = flags.full || flags.layers || claims.empty(),
                                                                    .layers = flags.layers,
                                                                    .claims = !claims.empty(),
                                                                    .training = flags.training}));
    Print(csv);
    return {};
  }
  if (format == "md") {
    TALLY_ASSIGN_OR_RETURN(const std::string text, MarkdownOf(flags, models, claims));
    Print(text);
    return {};
  }
  const size_t width = OutputWidth(flags.width);
  TALLY_ASSIGN_OR_RETURN(const std::string text, TextOf(flags, models, claims, width));
  Print(text);
  if (flags.plot) {
    const bool colour = ColourOn(Stream::kOutput);
    for (const CountedModel& m : models) Print("\n" + CountPlot(m, width, colour));
  }
  return {};
}

}  // namespace

Action AddCount(CLI::App& app) {
  auto flags = std::make_shared<CountFlags>();
  flags->models = {"demo"};
  CLI::App* c = app.add_subcommand("count", "Parameters, FLOPs and bytes of a model, without its weights");
  c->add_option("MODEL,-m,--model", flags->models,
                "GGUF file, Hugging Face directory, config.json, ORG/NAME of its hub, or a built-in name (any case); several "
                "make columns. "
                "NAME:KEY=VALUE,KEY=VALUE is NAME with settings of its own")
      ->type_name(kNameType)
      ->default_str("demo");
  c->add_option("--set", flags->settings, "change the configuration: KEY=VALUE[,KEY=VALUE...]; keys: " + SettingKeys())
      ->allow_extra_args(false);
  AddNumber(*c, "-c,--ctx,--ctx-size", flags->context, "positions that the decode token sees, its own included (0: as --prompt)");
  AddNumber(*c, "--prompt", flags->prompt, "positions of the prefill (0: 1024, or the trained context where that is shorter)");
  AddNumber(*c, "--batch", flags->batch, "sequences");
  Choices(c->add_option("--type", flags->type, "count weights as this type (else: as stored or published)"), WeightTypeChoices());
  Choices(c->add_option("--format", flags->format, "what is printed"), {"table", "md", "csv", "json"});
  c->add_flag("--full", flags->full, "all tables: every tensor, closed forms, all types, FLOPs by part");
  c->add_flag("--layers", flags->layers, "the same, with every tensor of every layer in a row of its own");
  c->add_flag("--training", flags->training, "memory and FLOPs of training with AdamW besides");
  c->add_flag("--claims", flags->claims, "what is published of the models, and under which convention it holds");
  c->add_flag("--plot", flags->plot, "draw where the parameters are, and which a token uses");
  AddWidth(*c, flags->width);
  AddYes(*c, flags->yes);
  c->add_flag("--json", flags->json, "one JSON document on standard output");
  std::string known;
  for (const std::string_view name : KnownModels()) known += (known.empty() ? "" : ", ") + std::string(name);
  c->footer("Built-in names: " + known);
  AddExamples(*c, {"tally count gpt-oss-120b --ctx 8192 --batch 16 --type q8_0 --plot",
                   "tally count mini-gpt mini-gpt:d_model=128,n_layers=4,d_ff=512 mini-gpt:d_model=256,n_layers=6,d_ff=1024"});
  return [flags] { return Report(RunCount(*flags)); };
}

}  // namespace tally::app
