// SPDX-License-Identifier: Apache-2.0
// tally fit: which models this machine, or another, can run, at which type, and how fast at most.
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/api/tally.h"
#include "engine/app/commands.h"
#include "engine/app/console.h"
#include "engine/app/count_argument.h"
#include "engine/app/hub_models.h"
#include "engine/app/json.h"
#include "engine/app/numbers.h"
#include "engine/app/options.h"
#include "engine/app/syntax.h"
#include "engine/base/format.h"
#include "engine/render/words.h"
#include "engine/reports/fit_ranks.h"
#include "engine/reports/fit_report.h"

namespace tally::app {
namespace {

struct FitFlags {
  std::vector<std::string> models, settings;
  FitOptions options;
  int threads = 0;
  std::string kv = "f16";
  std::optional<std::string> type, machine, ranks, disk;
  std::string network = "10Gbit", latency = "30us";
  bool measure = false, all = false, full = false, json = false, yes = false;
};

Result<FitPage> ReadFlags(const FitFlags& flags) {
  FitPage page;
  page.options = flags.options;
  if (flags.options.batch == 0) return BadInput("--batch must be at least 1");
  TALLY_RETURN_IF_ERROR(ParseKvType(flags.kv, page.options.kv));
  if (flags.disk) {
    if (const Status given = ParseDisk(*flags.disk).status(); !given.ok()) return BadInput("--disk: " + given.message());
  }
  if (flags.machine) {
    if (flags.threads != 0) return BadInput("--threads is of this machine: write --machine threads=N,...");
    if (flags.measure) return BadInput("--measure is of this machine: leave out --machine");
    TALLY_ASSIGN_OR_RETURN(page.machine, ParseMachine(*flags.machine));
    return page;
  }
  ModelFlags threads;
  threads.threads = flags.threads;
  TALLY_RETURN_IF_ERROR(ToEngineOptions(threads).status());  // their range
  return page;
}

// A model as it was asked for.
struct Asked {
  CountedModel counted;
  std::string path;
};
Result<Asked> CountOne(const FitFlags& flags, const std::string& argument) {
  CountRequest request;
  request.settings = flags.settings;
  Asked asked;
  TALLY_ASSIGN_OR_RETURN(asked.counted, CountArgument(argument, std::move(request), flags.yes, &asked.path));
  return asked;
}

Result<FittedModel> FitOne(const FitFlags& flags, const FitPage& page, const Asked& asked) {
  FittedModel m;
  CountedModel counted = asked.counted;
  if (flags.type) {
    Result<CountedModel> as = CountedAs(counted, *flags.type);
    if (!as.ok()) {
      TALLY_RETURN_IF_ERROR(CheckCountedType(*flags.type));
      if (!flags.all) return BadInput("--type: " + counted.name + ": " + as.status().message());
      m.name = counted.name;
      m.parameters = counted.count.parameters.total;
      const Result<DType> type = ParseWeightType(*flags.type);
      m.rows.push_back({type.ok() ? std::string(DTypeName(*type)) : *flags.type, false, {}, as.status().message()});
      return m;
    }
    counted = std::move(as).value();
  } else if (const std::string_view preset = PresetOf(counted); !preset.empty()) {
    counted.stored_as = preset;
  }
  m = FitTypes(counted, asked.path, !flags.type, page);
  if (!m.rows[0].fit && !flags.all) return BadInput(m.name + ": " + m.rows[0].why);
  return m;
}

Result<std::vector<FittedModel>> FitAll(const FitFlags& flags, const FitPage& page, const std::vector<Asked>& asked) {
  std::vector<FittedModel> models;
  for (const Asked& one : asked) {
    TALLY_ASSIGN_OR_RETURN(FittedModel m, FitOne(flags, page, one));
    models.push_back(std::move(m));
  }
  return models;
}

// The disk that a model lies on, or would after a download. The assumed one, with a note, where it cannot be measured.
FitDisk DiskOf(const FitFlags& flags, const std::string& path) {
  std::string place = path;
  if (place.empty()) {
    const Result<hub::Settings> settings = HubSettings();
    if (settings.ok()) place = settings->cache;
  }
  Result<FitDisk> disk = MeasureFitDisk(CacheDirectory(), place, flags.measure);
  if (disk.ok()) return std::move(disk).value();
  Note("tally: " + disk.status().message() + "; --disk 3GB/s says what it does\n");
  return {};
}

// Of one model.
Status RunFitOfRanks(const FitFlags& flags, FitPage page) {
  if (flags.all || flags.models.size() > 1) return BadInput("--ranks is of one model");
  FitRanksPage ranks{.name = {}, .type = {}, .machine = std::move(page.machine), .options = page.options, .network = {}};
  TALLY_ASSIGN_OR_RETURN(const std::vector<int64_t> numbers, ParseNumbers("--ranks", *flags.ranks, 1, 1024));
  ranks.network = {ParseBandwidth(flags.network), ParseLatency(flags.latency)};
  if (ranks.network.bandwidth <= 0) return BadInput("--network: " + Quote(flags.network) + " is no rate such as 10Gbit or 1GB/s");
  if (ranks.network.latency < 0) return BadInput("--latency: " + Quote(flags.latency) + " is no time such as 30us");
  if (!flags.machine) {
    TALLY_ASSIGN_OR_RETURN(ranks.machine, MeasureMachine(CacheDirectory(), flags.threads, flags.measure));
  }
  CountRequest request;
  request.settings = flags.settings;
  std::string path;
  TALLY_ASSIGN_OR_RETURN(CountedModel counted,
                         CountArgument(flags.models.empty() ? "demo" : flags.models[0], std::move(request), flags.yes, &path));
  if (flags.type) {
    TALLY_ASSIGN_OR_RETURN(counted, CountedAs(counted, *flags.type));
  }
  ranks.name = counted.name;
  ranks.type = counted.stored_as;
  for (const int64_t n : numbers) {
    TALLY_ASSIGN_OR_RETURN(RanksFit fit, FitRanks(counted, ranks.options, ranks.machine, ranks.network, static_cast<int32_t>(n)));
    ranks.fits.push_back(std::move(fit));
  }
  if (flags.json) {
    PrintJson(FitRanksJson(ranks));
  } else if (CheckFits(ranks).ok()) {
    Print(FitRanksText(ranks, static_cast<size_t>(std::max(TerminalWidth(Stream::kOutput, 80), 80))));
  }
  return CheckFits(ranks);
}

Status RunFit(const FitFlags& flags) {
  TALLY_ASSIGN_OR_RETURN(FitPage page, ReadFlags(flags));
  if (flags.ranks) return RunFitOfRanks(flags, std::move(page));
  std::vector<std::string> arguments = flags.models;
  if (flags.all) {
    if (!arguments.empty()) return BadInput("--all is of the built-in models: leave the names out, or --all");
    for (const std::string_view name : KnownModels()) {
      if (KnownModelRuns(name)) arguments.emplace_back(name);
    }
  } else if (arguments.empty()) {
    arguments = {"demo"};
  }
  if (!flags.machine) {
    TALLY_ASSIGN_OR_RETURN(page.machine, MeasureMachine(CacheDirectory(), flags.threads, flags.measure));
  }
  page.streaming = !flags.all || flags.full || flags.json;  // else models that do not fit are not shown
  std::vector<Asked> asked;
  for (const std::string& argument : arguments) {
    TALLY_ASSIGN_OR_RETURN(Asked one, CountOne(flags, argument));
    asked.push_back(std::move(one));
  }
  TALLY_ASSIGN_OR_RETURN(std::vector<FittedModel> models, FitAll(flags, page, asked));
  if (flags.disk) {
    TALLY_ASSIGN_OR_RETURN(page.machine.disk, ParseDisk(*flags.disk));
  } else if (!flags.machine && page.streaming) {
    const auto streamed =
        std::ranges::find_if(models, [](const FittedModel& m) { return m.rows[m.chosen].streaming.has_value(); });
    if (streamed != models.end()) page.machine.disk = DiskOf(flags, asked[static_cast<size_t>(streamed - models.begin())].path);
  }
  if (page.machine.disk.source != DiskSource::kAssumed) {
    TALLY_ASSIGN_OR_RETURN(models, FitAll(flags, page, asked));
  }
  const auto width = static_cast<size_t>(std::max(TerminalWidth(Stream::kOutput, 80), 80));
  if (flags.json) {
    PrintJson(FitDocument(page, models));
  } else if (models.size() == 1) {
    Print(FitText(page, models[0], width));
  } else {
    Print(FitTableText(page, models, width, flags.all && !flags.full));
  }
  return {};
}

}  // namespace

Action AddFit(Command& app) {
  auto flags = std::make_shared<FitFlags>();
  Command c = app.Add("fit", "Does a model fit this machine, at which type, how fast at most?");
  c.Option("MODEL,-m,--model", flags->models,
           "GGUF file, Hugging Face directory, config.json, ORG/NAME of its hub, or a built-in name; several make a table. "
           "NAME:KEY=VALUE,KEY=VALUE is NAME with settings of its own")
      .Type(kNameType)
      .Preset("demo");
  c.Flag("--all", flags->all, "the built-in models: the largest that fit");
  c.Flag("--full", flags->full, "with --all: every one of them");
  c.Option("--set", flags->settings, "change the configuration: KEY=VALUE[,KEY=VALUE...], as of count").OneEach();
  AddNumber(c, "-c,--ctx,--ctx-size", flags->options.context,
            "positions of each sequence in the KV cache (0: the trained ones, at most 4096)");
  AddNumber(c, "-p,--prompt", flags->options.prompt, "positions of a prefill (0: 512, or the context if that is less)");
  AddNumber(c, "--batch", flags->options.batch, "sequences");
  Choices(c.Option("--type", flags->type,
                   "weights as a preset of quantize makes them, or all as this type (else: as stored or published, and presets "
                   "beside)"),
          CountedTypeChoices());
  Choices(c.Option("--kv", flags->kv, "type of the KV cache").Preset(), {kKvTypeNames.begin(), kKvTypeNames.end()});
  AddNumber(c, "-t,--threads", flags->threads, "threads (0: OMP_NUM_THREADS, or all cores)");
  c.Flag("--measure", flags->measure, "measure this machine's rates now, instead of those kept of this boot");
  c.Option(
      "--machine", flags->machine,
      "another machine than this one, by what is known of it: ram=12GiB,read=50GB/s,int8=1T,bf16=500G,f32=250G,threads=8 (ram: "
      "what is free for the model; bf16=none, int8dot=none: no such dot product; 8 threads unless given)");
  c.Option(
      "--disk", flags->disk,
      "what the disk reads, of models that do not fit: 3GB/s (else: measured in a second or two on the model's file system and "
      "kept of this boot; with --machine 3 GB/s unless disk= is given)");
  c.Option("--ranks", flags->ranks, "over so many machines, each like this one or --machine, under mpirun: 4, or 2,4,8")
      .OneEach();
  c.Option("--network", flags->network, "with --ranks: what a machine sends, and receives, in a second: 10Gbit, 1.25GB/s")
      .Preset();
  c.Option("--latency", flags->latency, "with --ranks: of a gather").Preset();
  AddYes(c, flags->yes);
  c.Flag("--json", flags->json, "one JSON document on standard output");
  c.Footer(
      "A bound is what the weights, the KV cache and the products of a step take at the best rates seen of this machine in this "
      "boot: measured in two seconds, raised by bench and run, kept in $XDG_CACHE_HOME/tally or ~/.cache/tally. Weights in "
      "blocks reach 8 / (8 + s) of the int8 peak, with s multiplies that scale 32 columns: Q8_0 80 %, Q4_K 73 %, Q6_K 67 %; of "
      "that of matrix tiles (AMX) 17 %, 13 %, 8 %.");
  AddExamples(
      c, {"tally fit gpt-oss-20b --ctx 32768", "tally fit gpt2-xl Qwen3-8B --machine ram=12GiB,read=50GB/s,int8=1T,f32=250G"});
  return [flags] { return Report(RunFit(*flags)); };
}

}  // namespace tally::app
