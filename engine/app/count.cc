// SPDX-License-Identifier: Apache-2.0
// tally count: what models cost, from their configurations alone.
#include "engine/api/tally.h"

#include <algorithm>
#include <cctype>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/app/commands.h"
#include "engine/app/console.h"
#include "engine/app/count_argument.h"
#include "engine/app/hub_models.h"
#include "engine/app/json.h"
#include "engine/app/numbers.h"
#include "engine/app/options.h"
#include "engine/app/output_files.h"
#include "engine/app/report_files.h"
#include "engine/app/syntax.h"
#include "engine/app/token_list.h"
#include "engine/base/format.h"
#include "engine/machine/machine.h"
#include "engine/render/words.h"
#include "engine/reports/claims_report.h"
#include "engine/reports/count_list.h"
#include "engine/reports/count_report.h"
#include "engine/reports/streaming_report.h"
#include "engine/reports/training_report.h"

namespace tally::app {
namespace {

struct CountFlags {
  std::vector<std::string> models, settings;
  std::string context = "0", prompt = "0", train_tokens, peak, mfu = "40 %";
  std::string batches = "1", kv = "f16";
  uint64_t width = 0;
  std::optional<std::string> type, format, svg, report, resident, disk;
  bool json = false, full = false, layers = false, by_layer = false, list = false, plot = false, claims = false, training = false,
       yes = false, force = false;

  KvType kv_type = KvType::kF16;
  books::PublishedFigures claimed = {};  // by the user
  std::optional<TrainingBudget> budget = {};
  uint64_t resident_bytes = 0;  // of --resident
  double disk_rate = 0;         // of --disk; 0: not given
};

// What --resident asks of a model.
struct Resident {
  StreamingForecast forecast;
  std::vector<MoreMemory> more;
};

// What a model is counted at.
struct Point {
  uint64_t prompt = 0, context = 0, batch = 1;
};

Result<CountedModel> CountOne(const CountFlags& flags, const std::string& argument, const Point& point,
                              std::set<std::string>& said) {
  CountRequest request;
  request.settings = flags.settings;
  request.options.prompt = point.prompt;
  request.options.context = point.context;
  request.options.batch = point.batch;
  request.options.kv = flags.kv_type;
  request.type_given = flags.type.has_value();
  if (flags.type) {
    TALLY_RETURN_IF_ERROR(CheckCountedType(*flags.type));
    if (const Result<DType> type = ParseWeightType(*flags.type); type.ok()) request.options.type = *type;
  }
  TALLY_ASSIGN_OR_RETURN(CountedModel counted, CountArgument(argument, std::move(request), flags.yes, nullptr, &said));
  if (flags.type) {
    TALLY_ASSIGN_OR_RETURN(counted, CountedAs(counted, *flags.type));
  }
  if (!flags.claimed.source.empty()) counted.published = flags.claimed;
  return counted;
}

// Takes "active=3.3B,total=30.5B" out of the models: a claim to be checked. There is no flag with a value that may be left out.
Status TakeClaims(CountFlags& flags) {
  books::PublishedFigures& claimed = flags.claimed;
  const std::pair<std::string_view, std::string*> figures[] = {
      {"total", &claimed.total}, {"active", &claimed.active}, {"non-embedding", &claimed.non_embedding}};
  for (size_t i = 0; i < flags.models.size();) {
    const std::string argument = flags.models[i];
    bool claim = false;
    for (const std::string& item : ListItems(argument)) {
      const size_t equals = std::min(item.find('='), item.size());
      const auto figure =
          std::ranges::find(figures, std::string_view(item).substr(0, equals), &std::pair<std::string_view, std::string*>::first);
      if (figure == std::end(figures) || equals == item.size()) continue;
      claim = true;
      std::string number = item.substr(equals + 1);
      for (char& c : number) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
      if (!books::ParsePrinted(number)) return BadInput("--claims: " + Quote(item) + " is not a number such as 3.3B or 124M");
      *figure->second = number;
    }
    if (!claim) {
      if (flags.claims && books::ParsePrinted(argument)) {
        return BadInput("--claims: a figure has its name: active=" + argument + " or total=" + argument);
      }
      ++i;
      continue;
    }
    claimed.source = "as claimed";
    flags.claims = true;
    flags.models.erase(flags.models.begin() + static_cast<ptrdiff_t>(i));
  }
  if (flags.models.empty()) flags.models = {"demo"};
  return {};
}

Status ReadBudget(CountFlags& flags) {
  if (flags.train_tokens.empty() && flags.peak.empty()) return {};
  if (flags.train_tokens.empty() || flags.peak.empty()) return BadInput("--train-tokens and --peak go together: 300B and 312T");
  TrainingBudget budget;
  budget.tokens = ParseAmount(flags.train_tokens, {});
  if (budget.tokens == 0 && SameName(flags.train_tokens.substr(flags.train_tokens.size() - 1), "B")) {
    budget.tokens = 1e9 * ParseAmount(flags.train_tokens.substr(0, flags.train_tokens.size() - 1), {});
  }
  budget.peak = ParseAmount(flags.peak, {"/s", "FLOP"});
  if (budget.tokens == 0) return BadInput("--train-tokens: " + Quote(flags.train_tokens) + " is not a number such as 300B");
  if (budget.peak == 0) return BadInput("--peak: " + Quote(flags.peak) + " is not a rate such as 312T");
  std::string mfu = flags.mfu;
  const bool percent = mfu.ends_with('%');
  while (mfu.ends_with('%') || mfu.ends_with(' ')) mfu.pop_back();
  if (!ParseNumber(mfu, budget.utilisation)) budget.utilisation = 0;
  if (percent) budget.utilisation /= 100;
  if (!(budget.utilisation > 0 && budget.utilisation <= 1)) {
    return BadInput("--mfu: " + Quote(flags.mfu) + " is not a part such as .4 or 40%");
  }
  flags.training = true;
  flags.budget = budget;
  return {};
}

Status ReadResident(CountFlags& flags) {
  if (flags.disk && !flags.resident) return BadInput("--disk goes with --resident: 20GB");
  if (!flags.resident) return {};
  const double bytes = ParseAmount(*flags.resident, {"B"});
  if (!(bytes >= 1 && bytes < 1e18)) return BadInput("--resident: " + Quote(*flags.resident) + " is not a size such as 20GB");
  flags.resident_bytes = static_cast<uint64_t>(bytes);
  if (!flags.disk) return {};
  const Result<FitDisk> disk = ParseDisk(*flags.disk);
  if (!disk.ok()) return BadInput("--disk: " + disk.status().message());
  flags.disk_rate = disk->read;
  return {};
}

// By model; empty without --resident. kBadInput: less than a model can do with.
Result<std::vector<Resident>> ResidentOf(const CountFlags& flags, std::span<const CountedModel> models) {
  std::vector<Resident> all;
  for (const CountedModel& m : models) {
    if (!flags.resident) break;
    const std::vector<KeptHits> kept = FindHitRates(RoutingId(m.count.recipe));
    Resident one;
    one.forecast =
        ForecastStreaming(StreamedModelOf(m), flags.resident_bytes, {.disk = flags.disk_rate}, m.count.options.prompt, kept);
    if (const Status enough = CheckBudget(one.forecast); !enough.ok())
      return BadInput("--resident: " + m.name + " " + enough.message());
    one.more = ForecastMoreMemory(one.forecast, kept);
    all.push_back(std::move(one));
  }
  return all;
}

std::vector<PublishedClaims> ClaimsOfAll(std::span<const CountedModel> models) {
  std::vector<PublishedClaims> claims;
  for (const CountedModel& m : models) {
    if (!m.published.source.empty()) claims.push_back(ClaimsOf(m));
  }
  return claims;
}

// The tables of all figures if `full`, and those of training if they were asked for.
Result<std::vector<Table>> TablesOf(const CountFlags& flags, std::span<const CountedModel> models, bool full) {
  std::vector<Table> tables;
  if (full) tables = CountTables(models, flags.layers);
  TALLY_ASSIGN_OR_RETURN(const std::vector<Resident> resident, ResidentOf(flags, models));
  for (size_t i = 0; i < resident.size(); ++i) {
    const std::vector<Table> more = ResidentTables(models[i], resident[i].forecast, resident[i].more);
    tables.insert(tables.end(), more.begin(), more.end());
  }
  for (const CountedModel& m : models) {
    if (flags.by_layer) tables.push_back(LayerTable(m));
  }
  for (const CountedModel& m : models) {
    if (!flags.training) break;
    TALLY_ASSIGN_OR_RETURN(const std::vector<Table> more, TrainingTables(m, flags.budget));
    tables.insert(tables.end(), more.begin(), more.end());
  }
  return tables;
}

Result<Json> DocumentOf(const CountFlags& flags, std::span<const CountedModel> models) {
  Json document = CountDocument(models);
  TALLY_ASSIGN_OR_RETURN(const std::vector<Resident> resident, ResidentOf(flags, models));
  for (size_t i = 0; i < resident.size(); ++i) {
    document["models"][i]["resident"] = ResidentJson(resident[i].forecast, resident[i].more);
  }
  for (size_t i = 0; flags.training && i < models.size(); ++i) {
    TALLY_ASSIGN_OR_RETURN(document["models"][i]["training"], TrainingJson(models[i], flags.budget));
  }
  return document;
}

// One screen; or claims and all tables, each if asked for. Training and bars besides.
Result<std::string> TextOf(const CountFlags& flags, std::span<const CountedModel> models, std::span<const PublishedClaims> claims,
                           size_t width) {
  const bool full = flags.full || flags.layers;
  TALLY_ASSIGN_OR_RETURN(const std::vector<Table> tables, TablesOf(flags, models, full));
  std::string text = ClaimsText(claims, width);
  if (!full && claims.empty() && !flags.by_layer && !flags.resident) {
    text = models.size() > 1 ? CountScreen(models, width)
                             : CountScreen(models.front(), width) +
                                   "  --full: every tensor, closed forms, all types; --claims, --plot, --training\n";
  }
  for (const Table& table : tables) text += (text.empty() ? "" : "\n") + Render(table, TableFormat::kText, width);
  return text;
}

// Markdown has all tables; LaTeX the one that papers print, unless others are asked for.
Result<std::string> MarkupOf(const CountFlags& flags, std::span<const CountedModel> models,
                             std::span<const PublishedClaims> claims, TableFormat format) {
  const bool latex = format == TableFormat::kLatex;
  const bool full = flags.full || flags.layers || (!latex && claims.empty() && !flags.by_layer && !flags.resident);
  TALLY_ASSIGN_OR_RETURN(std::vector<Table> tables, TablesOf(flags, models, full));
  if (!claims.empty()) {
    tables.insert(tables.begin(), ClaimsTable(claims));
  } else if (latex && tables.empty()) {
    tables.push_back(PaperTable(models));
  }
  std::string text;
  for (const Table& table : tables) text += (text.empty() ? "" : "\n") + Render(table, format);
  return text;
}

// "Qwen-Qwen3-0.6B-": what a file's name may have of a model's.
std::string FilePrefix(std::string name) {
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '.' && c != '_') c = '-';
  }
  return name + "-";
}

// A page of all models, and the pictures of each.
Status WritePictures(const CountFlags& flags, std::span<const CountedModel> models) {
  if (models.size() > flags.models.size()) return BadInput("--report and --svg take one context, one prompt and one batch");
  if (flags.report) TALLY_RETURN_IF_ERROR(CheckReportFile(*flags.report));
  if (flags.svg) TALLY_RETURN_IF_ERROR(MakeFigureFolder(*flags.svg, flags.force));
  std::vector<ReportData> pages;
  std::set<std::string> prefixes;
  for (const CountedModel& m : models) {
    TALLY_ASSIGN_OR_RETURN(ReportData data, ReportOf(m));
    data.version = kTallyVersion;
    pages.push_back(std::move(data));
    if (!prefixes.insert(FilePrefix(m.name)).second && flags.svg) {
      return BadInput("--svg: " + m.name + " and a model before it have one name for their files");
    }
  }
  if (flags.report) TALLY_RETURN_IF_ERROR(WriteReport(*flags.report, pages));
  for (size_t i = 0; flags.svg && i < pages.size(); ++i) {
    TALLY_RETURN_IF_ERROR(WriteFigures(*flags.svg, pages[i], models.size() > 1 ? FilePrefix(models[i].name) : ""));
  }
  return {};
}

// Every model at every point, the batches innermost.
Result<std::vector<CountedModel>> CountAll(const CountFlags& flags) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  TALLY_ASSIGN_OR_RETURN(const std::vector<int64_t> contexts, ParseNumbers("--ctx", flags.context, 0, kMost));
  TALLY_ASSIGN_OR_RETURN(const std::vector<int64_t> prompts, ParseNumbers("--prompt", flags.prompt, 0, kMost));
  TALLY_ASSIGN_OR_RETURN(const std::vector<int64_t> batches, ParseNumbers("--batch", flags.batches, 1, kMost));
  std::vector<Point> points;
  for (const int64_t prompt : prompts) {
    for (const int64_t context : contexts) {
      for (const int64_t batch : batches) {
        points.push_back({static_cast<uint64_t>(prompt), static_cast<uint64_t>(context), static_cast<uint64_t>(batch)});
      }
    }
  }
  std::vector<CountedModel> models;
  std::set<std::string> said;  // notes, which do not come again at another point
  for (const std::string& argument : flags.models) {
    for (const Point& point : points) {
      TALLY_ASSIGN_OR_RETURN(CountedModel counted, CountOne(flags, argument, point, said));
      for (const std::string& warning : counted.count.warnings) {
        const std::string note = Paragraph("", "tally: " + counted.name + ": " + warning, OutputWidth(0), 0);
        if (said.insert(note).second) Note(note);
      }
      models.push_back(std::move(counted));
    }
  }
  return models;
}

// Of the models that `names` names parts of; all if there are none.
Status PrintList(std::span<const std::string> names, const std::string& format, size_t width) {
  std::vector<KnownModelLine> lines = KnownModelLines();
  std::erase_if(lines, [&](const KnownModelLine& line) {
    return !names.empty() && std::ranges::none_of(names, [&](const std::string& name) {
      const auto has = [&](std::string_view text) {
        return std::search(text.begin(), text.end(), name.begin(), name.end(), [](char a, char b) {
                 return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
               }) != text.end();
      };
      return has(line.name) || KnownModel(name) == line.name || std::ranges::any_of(line.aliases, has);
    });
  });
  if (lines.empty()) return BadInput("--list: no built-in name has " + Join(names, " or ") + " in it");
  if (format == "json") {
    PrintJson(KnownModelDocument(lines));
  } else if (format == "csv") {
    Print(MarkedCsv(KnownModelCsv(lines)));
  } else {
    const TableFormat as = format == "md" ? TableFormat::kMarkdown : format == "latex" ? TableFormat::kLatex : TableFormat::kText;
    Print(Render(KnownModelTable(lines), as, width));
  }
  return {};
}

Status RunCount(CountFlags flags) {
  const std::string format = flags.format.value_or(flags.json ? "json" : "table");
  TALLY_RETURN_IF_ERROR(CheckOneOf("--format", format, {"table", "md", "latex", "csv", "json"}));
  if (flags.json && format != "json") return BadInput("--json is not --format " + format);
  if (flags.plot && format != "table") return BadInput("--plot draws beside the table only, not with --format " + format);
  TALLY_RETURN_IF_ERROR(TakeClaims(flags));
  TALLY_RETURN_IF_ERROR(ReadBudget(flags));
  TALLY_RETURN_IF_ERROR(ReadResident(flags));
  TALLY_RETURN_IF_ERROR(ParseKvType(flags.kv, flags.kv_type));
  if (flags.list) {
    const bool some = flags.models != std::vector<std::string>{"demo"};
    return PrintList(some ? flags.models : std::vector<std::string>(), format, OutputWidth(flags.width));
  }
  TALLY_ASSIGN_OR_RETURN(const std::vector<CountedModel> models, CountAll(flags));
  if (flags.report || flags.svg) TALLY_RETURN_IF_ERROR(WritePictures(flags, models));
  std::set<std::string_view> unpublished;  // said once, whatever the points
  for (const CountedModel& m : models) {
    if (flags.claims && m.published.source.empty() && unpublished.insert(m.name).second) {
      Note("tally: " + m.name + ": no published figures are known; --claims active=3.3B checks one of yours\n");
    }
  }
  // Without any claim the counts themselves are printed.
  const std::vector<PublishedClaims> claims = flags.claims ? ClaimsOfAll(models) : std::vector<PublishedClaims>();
  if (format == "json") {
    TALLY_ASSIGN_OR_RETURN(const Json document, DocumentOf(flags, models));
    PrintJson(document);
    return {};
  }
  if (format == "csv") {
    TALLY_ASSIGN_OR_RETURN(const std::vector<Resident> resident, ResidentOf(flags, models));
    std::vector<StreamingForecast> forecasts;
    for (const Resident& one : resident) forecasts.push_back(one.forecast);
    const bool counts = flags.full || flags.layers || (claims.empty() && !flags.by_layer && !flags.resident);
    TALLY_ASSIGN_OR_RETURN(const std::string csv, CountCsv(models, {.counts = counts,
                                                                    .layers = flags.layers,
                                                                    .claims = !claims.empty(),
                                                                    .training = flags.training,
                                                                    .by_layer = flags.by_layer,
                                                                    .resident = std::move(forecasts)}));
    Print(MarkedCsv(csv));
    return {};
  }
  if (format == "md" || format == "latex") {
    const TableFormat as = format == "md" ? TableFormat::kMarkdown : TableFormat::kLatex;
    TALLY_ASSIGN_OR_RETURN(const std::string text, MarkupOf(flags, models, claims, as));
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

Action AddCount(Command& app) {
  auto flags = std::make_shared<CountFlags>();
  flags->models = {"demo"};
  Command c = app.Add("count", "Parameters, FLOPs and bytes of a model, without its weights");
  c.Option("MODEL,-m,--model", flags->models,
           "GGUF file, Hugging Face directory, config.json, ORG/NAME of its hub, or a built-in name (any case); several "
           "make columns. "
           "NAME:KEY=VALUE,KEY=VALUE is NAME with settings of its own")
      .Type(kNameType)
      .Preset("demo");
  c.Option("--set", flags->settings, "change the configuration: KEY=VALUE[,KEY=VALUE...]; keys: " + SettingKeys()).OneEach();
  c.Option("-c,--ctx,--ctx-size", flags->context,
           "positions that the decode token sees, its own included (0: as --prompt); several: 1k,8k,32k")
      .Type(kListType)
      .Preset();
  c.Option("-p,--prompt", flags->prompt,
           "positions of the prefill (0: 1024, or the trained context if that is shorter); several: 512,2k")
      .Type(kListType)
      .Preset();
  c.Option("--batch", flags->batches, "sequences; several: 1,8,64").Type(kListType).Preset();
  Choices(c.Option("--kv", flags->kv, "type of the KV cache").Preset(), {kKvTypeNames.begin(), kKvTypeNames.end()});
  Choices(c.Option("--type", flags->type,
                   "count weights as a preset of quantize makes them, or all as this type (else: as "
                   "stored or published)"),
          CountedTypeChoices());
  Choices(c.Option("--format", flags->format, "what is printed"), {"table", "md", "latex", "csv", "json"});
  c.Flag("--full", flags->full, "all tables: every tensor, closed forms, all types, FLOPs by part");
  c.Flag("--layers", flags->layers, "the same, with every tensor of every layer in a row of its own");
  c.Flag("--by-layer", flags->by_layer, "a table of the layers: what each is, its parameters, KV bytes and FLOPs");
  c.Flag(
      "--list", flags->list,
      "the built-in names: families, figures and aliases; with MODEL those that have it in their name; --json has sources too");
  c.Flag("--training", flags->training, "memory and FLOPs of training with AdamW besides");
  c.Option("--train-tokens", flags->train_tokens, "how long training on so many tokens takes: 300B, with --peak");
  c.Option("--peak", flags->peak, "FLOPs a second of the hardware that trains: 312T is one A100 in BF16");
  c.Option("--mfu", flags->mfu, "the part of the peak that training reaches: .4 or 40%").Preset();
  c.Option("--resident", flags->resident,
           "of a model that is bigger than memory: so many bytes of its weights stay there (20GB), the rest is read from disk: "
           "slots of a "
           "layer, hits, misses and bytes of a token");
  c.Option("--disk", flags->disk, "with --resident: what the disk reads, 3GB/s; gives tokens/s");
  c.Flag("--claims", flags->claims,
         "what is published of the models, and under which convention it holds; --claims active=3.3B,total=30.5B checks other "
         "figures (also non-embedding)");
  c.Flag("--plot", flags->plot, "draw where the parameters are, and which a token uses");
  FileOption(c.Option("--report", flags->report, "file for a page with figures and pictures (HTML)"));
  c.Option("--svg", flags->svg, "folder for each picture as a file of its own (SVG), of several models behind their names")
      .Type(kFolderType);
  AddForce(c, flags->force);
  AddWidth(c, flags->width);
  AddYes(c, flags->yes);
  c.Flag("--json", flags->json, "one JSON document on standard output");
  c.Footer("Built-in names: " + Join(KnownModels(), ", "));
  AddExamples(c, {"tally count gpt-oss-120b --ctx 8192 --batch 16 --type q8_0 --plot",
                  "tally count mini-gpt mini-gpt:d_model=256,n_layers=6,d_ff=1024"});
  return [flags] { return Report(RunCount(*flags)); };
}

}  // namespace tally::app
