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

#include "engine/app/commands.h"
#include "engine/app/console.h"
#include "engine/app/count_argument.h"
#include "engine/app/count_csv.h"
#include "engine/app/count_report.h"
#include "engine/app/hub_models.h"
#include "engine/app/numbers.h"
#include "engine/app/options.h"
#include "engine/app/syntax.h"
#include "engine/base/format.h"
#include "engine/machine/machine.h"

namespace tally::app {
namespace {

struct CountFlags {
  std::vector<std::string> models, settings;
  uint64_t context = 0, prompt = 0, batch = 1;
  std::optional<std::string> type, format;
  bool json = false, layers = false, plot = false, claims = false, yes = false;
};

Result<CountedModel> CountOne(const CountFlags& flags, const std::string& argument) {
  CountRequest request;
  request.settings = flags.settings;
  request.options.prompt = flags.prompt;
  request.options.context = flags.context;
  request.options.batch = flags.batch;
  if (flags.type) {
    const Result<DType> type = ParseWeightType(*flags.type);
    if (!type.ok()) return BadInput("--type: " + type.status().message());
    request.options.type = *type;
    request.type_given = true;
  }
  return CountArgument(argument, std::move(request), flags.yes);
}

Table Claims(std::span<const CountedModel> models) {
  Table table = ClaimsTable();
  for (const CountedModel& m : models) AddClaims(m.name, m.published, books::CheckPublished(m.count, m.published), table);
  return table;
}

Status RunCount(const CountFlags& flags) {
  const std::string format = flags.format.value_or(flags.json ? "json" : "table");
  if (flags.json && format != "json") return BadInput("--json is not --format " + format);
  if (flags.batch == 0) return BadInput("--batch must be at least 1");
  if (flags.plot && format != "table") return BadInput("--plot draws beside the table only, not with --format " + format);
  std::vector<CountedModel> models;
  for (const std::string& argument : flags.models) {
    TALLY_ASSIGN_OR_RETURN(CountedModel counted, CountOne(flags, argument));
    for (const std::string& warning : counted.count.warnings) Note("tally: " + counted.name + ": " + warning + "\n");
    models.push_back(std::move(counted));
  }
  const auto published = [](const CountedModel& m) { return !m.published.source.empty(); };
  // Without any claim the counts themselves are printed.
  const bool claims = flags.claims && std::any_of(models.begin(), models.end(), published);
  for (const CountedModel& m : models) {
    if (flags.claims && !published(m)) Note("tally: " + m.name + ": no published figures are known; built-in names have some\n");
  }
  if (format == "json") {
    PrintJson(CountDocument(models));
    return {};
  }
  if (format == "csv") {
    Print(claims ? ClaimsCsv(models) : CountCsv(models, flags.layers));
    return {};
  }
  const TableFormat as = format == "md" ? TableFormat::kMarkdown : TableFormat::kText;
  bool first = true;
  for (const Table& table : claims ? std::vector<Table>{Claims(models)} : CountTables(models, flags.layers)) {
    if (!first) Print("\n");
    first = false;
    Print(Render(table, as));
  }
  if (flags.plot) {
    const bool colour = ColourOn(Stream::kOutput);
    for (const CountedModel& m : models) Print("\n" + CountPlot(m, TerminalWidth(Stream::kOutput, 80), colour));
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
  c->add_option("--format", flags->format, "what is printed")->check(CLI::IsMember({"table", "md", "csv", "json"}));
  c->add_flag("--layers", flags->layers, "every tensor of every layer in a row of its own");
  c->add_flag("--claims", flags->claims, "what is published of the models, and under which convention it holds");
  c->add_flag("--plot", flags->plot, "draw where the parameters are, and which a token uses");
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
