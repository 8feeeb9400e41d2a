// SPDX-License-Identifier: Apache-2.0
#include "engine/app/options.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "engine/app/console.h"
#include "engine/app/hub_models.h"
#include "engine/app/interrupt.h"
#include "engine/app/numbers.h"
#include "engine/app/ranks.h"
#include "engine/app/state_folder.h"
#include "engine/app/syntax.h"
#include "engine/base/format.h"
#include "engine/base/system_error.h"
#include "engine/base/utf8_check.h"
#include "engine/machine/machine.h"
#include "engine/machine/parallel.h"
#include "engine/recipe/recipe.h"
#include "engine/render/words.h"

namespace tally::app {
namespace {

constexpr size_t kMostText = size_t{1} << 30;  // bytes of a prompt or token file

template <class T>
using Named = std::vector<std::pair<std::string_view, T>>;

const Named<ActivationMode> kActivations = {{"auto", ActivationMode::kAuto},
                                            {"f32", ActivationMode::kF32},
                                            {"bf16", ActivationMode::kBF16},
                                            {"int8", ActivationMode::kInt8}};
const Named<ImplChoice> kImpls = {{"auto", ImplChoice::kAuto}, {"ref", ImplChoice::kRef}, {"blas", ImplChoice::kBlas}};

template <class T>
std::vector<std::string_view> NamesOf(const Named<T>& choices) {
  std::vector<std::string_view> names;
  for (const auto& choice : choices) names.push_back(choice.first);
  return names;
}

template <class T>
Status Choose(const std::string& option, const std::string& given, const Named<T>& choices, T& out) {
  const auto same = [&](const auto& choice) { return SameName(given, choice.first); };
  const auto found = std::ranges::find_if(choices, same);
  if (found == choices.end()) return CheckOneOf(option, given, NamesOf(choices));
  out = found->second;
  return {};
}

void AddSeed(Command& command, uint64_t& seed, bool& drawn) {
  command
      .Option(
          "-s,--seed", "--seed",
          [&seed, &drawn](const std::string& text) {
            drawn = text == "-1";
            if (drawn) seed = std::random_device{}();
            const bool good = drawn || ParseNumber(text, seed);
            return good ? std::string() : "'" + text + "' is not a whole number from -1 to 18446744073709551615";
          },
          "of the random draws: the same seed repeats them; -1 draws one and reports it")
      .Type("INT")
      .Preset(std::to_string(seed));
}

}  // namespace

void AddModel(Command& command, std::string& model) {
  command.Option("MODEL,-m,--model", model, "GGUF file, Hugging Face directory, ORG/NAME of its hub, or demo: the bundled model")
      .Type(kModelType)
      .Preset(model);
}

CommandOption TextOption(CommandOption option) {
  return option.OneEach().Check([](const std::string& text) { return CheckUtf8(text, "").message(); });
}

std::vector<std::string_view> WeightTypeChoices() {
  std::vector<std::string_view> types;
  for (const DType type : kWeightTypes) types.push_back(DTypeName(type));
  return types;
}

std::vector<std::string_view> KvTypeChoices() {
  std::vector<std::string_view> types = {"auto"};
  types.insert(types.end(), kKvTypeNames.begin(), kKvTypeNames.end());
  return types;
}

void AddSharedModelFlags(Command& command, ModelFlags& flags) {
  AddModel(command, flags.model);
  AddSharedModelSettings(command, flags);
}

void AddSharedModelSettings(Command& command, ModelFlags& flags) {
  AddNumber(command, "-c,--ctx,--ctx-size", flags.context, "context length in tokens (0: the trained one, at most 4096)");
  command.Option("--kv-bytes", flags.kv_bytes, "memory of the KV cache, as in 2GiB or 500M (0: what the context takes)")
      .Type("SIZE")
      .Preset();
  command
      .Option("--weights-budget", flags.weights_budget,
              "memory for weights, as in 20GB; experts or layers that do not fit are read from disk (auto: what is free; all: no "
              "limit)")
      .Type("SIZE")
      .Preset();
  Choices(command.Option("--activations", flags.activations, "type of the activations"), NamesOf(kActivations)).Preset();
  AddYes(command, flags.yes);
  command.Flag("--keep-binding", RankOptionsOf().keep_binding,
               "under mpirun or srun: stay on the cores that it has bound the process to");
  Choices(command.Option("--split", RankOptionsOf().split,
                         "under mpirun or srun: divide all matrices, or keep each expert in one process"),
          {kSplitNames.begin(), kSplitNames.end()})
      .Preset();
  Choices(command.Option("--impl", flags.impl, "kernels, of which ref are scalar references and blas is OpenBLAS"),
          NamesOf(kImpls))
      .Preset();
}

void AddModelFlags(Command& command, ModelFlags& flags) {
  AddModel(command, flags.model);
  AddModelSettings(command, flags);
}

void AddModelSettings(Command& command, ModelFlags& flags) {
  AddSharedModelSettings(command, flags);
  AddNumber(command, "-t,--threads", flags.threads, "threads (0: OMP_NUM_THREADS, or all cores)")
      .Check([&flags](const std::string&) {
        flags.threads_given = true;
        return std::string();
      });
  Choices(command.Option("--kv", flags.kv, "type of the KV cache"), KvTypeChoices()).Preset();
}

Result<EngineOptions> ToEngineOptions(const ModelFlags& flags) {
  EngineOptions options;
  if (flags.threads < 0 || flags.threads > kMaxThreads) {
    return BadInput("--threads must be 0 (all cores) to " + std::to_string(kMaxThreads) + ", not " +
                    std::to_string(flags.threads));
  }
  options.threads = static_cast<int>(flags.threads);
  if (flags.threads_given && flags.threads == 0) {
    Note("note: -t 0 takes " +
         (std::getenv("OMP_NUM_THREADS") == nullptr  // NOLINT(concurrency-mt-unsafe): nothing here sets variables
              ? "all cores: " + Counted(AvailableCores(), "thread")
              : std::string("as many threads as OMP_NUM_THREADS says")) +
         "\n");
  }
  constexpr int64_t kMostContext = std::numeric_limits<int32_t>::max();
  if (flags.context < 0 || flags.context > kMostContext) {
    return BadInput("--ctx must be 0 (the model's) to " + std::to_string(kMostContext) + ", not " +
                    std::to_string(flags.context));
  }
  options.context = flags.context;
  if (flags.kv_bytes != "0") {
    options.kv_bytes = static_cast<uint64_t>(ParseAmount(flags.kv_bytes, {"B"}));
    if (options.kv_bytes == 0) return BadInput("--kv-bytes: " + Quote(flags.kv_bytes) + " is not a size such as 2GiB, 500M or 0");
  }
  if (flags.weights_budget == "auto") {
    options.weights_budget = EngineOptions::kAutoBudget;
  } else if (flags.weights_budget != "all") {
    options.weights_budget = static_cast<uint64_t>(ParseAmount(flags.weights_budget, {"B"}));
    if (options.weights_budget == 0) {
      return BadInput("--weights-budget: " + Quote(flags.weights_budget) + " is not a size such as 20GB, auto or all");
    }
  }
  TALLY_RETURN_IF_ERROR(Choose("--activations", flags.activations, kActivations, options.activations));
  std::vector<std::pair<std::string_view, std::optional<KvType>>> kv = {{"auto", std::nullopt}};
  for (size_t i = 0; i < kKvTypeNames.size(); ++i) kv.emplace_back(kKvTypeNames[i], static_cast<KvType>(i));
  TALLY_RETURN_IF_ERROR(Choose("--kv", flags.kv, kv, options.kv));
  TALLY_RETURN_IF_ERROR(Choose("--impl", flags.impl, kImpls, options.impl));
  return options;
}

void AddSamplingSteps(Command& command, SamplingOptions& sampling) {
  AddNumber(command, "--temp,--temperature", sampling.temperature, "temperature (0: greedy)");
  AddNumber(command, "--top-k", sampling.top_k, "sample among the k most probable (0 or -1: all)");
  AddNumber(command, "--top-p", sampling.top_p, "sample among the fewest that reach this probability (1: all)");
  AddNumber(command, "--min-p", sampling.min_p, "least probability, as a part of the greatest (0: off)");
  AddNumber(command, "--repeat-penalty", sampling.repeat_penalty, "penalty on recent tokens (1: off)");
  AddNumber(command, "--repeat-last-n", sampling.repeat_last_n, "how many tokens are recent (-1: all)");
  AddNumber(command, "--presence-penalty", sampling.presence_penalty, "taken from the logits of tokens drawn before (0: off)");
  AddNumber(command, "--frequency-penalty", sampling.frequency_penalty, "the same, as often as they were drawn (0: off)");
}

void AddSampling(Command& command, SamplingOptions& sampling, bool& seed_drawn) {
  AddSamplingSteps(command, sampling);
  AddSeed(command, sampling.seed, seed_drawn);
}

Status CheckGeneration(const SamplingOptions& sampling, int64_t tokens) {
  TALLY_RETURN_IF_ERROR(sampling.Validate());
  if (tokens >= -2) return {};
  return BadInput("-n must be 0 or more, or -1 or -2 (until the context is full), not " + std::to_string(tokens));
}

void AddWidth(Command& command, uint64_t& width) {
  AddNumber(command, "--width", width, "columns of a line (0: the terminal's, or COLUMNS; else lines are whole)");
}

bool SameName(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](char x, char y) {
    return std::tolower(static_cast<unsigned char>(x)) == std::tolower(static_cast<unsigned char>(y));
  });
}

std::string_view KnownModel(std::string_view given) { return KnownModelName(given); }

std::vector<std::string_view> CountedTypeChoices() {
  std::vector<std::string_view> names = QuantizePresets();
  for (const std::string_view name : WeightTypeChoices()) {
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  }
  return names;
}

Status CheckOneOf(const std::string& option, const std::string& given, const std::vector<std::string_view>& choices) {
  if (std::ranges::find(choices, given) != choices.end()) return {};
  return BadInput(option + " must be one of " + Join(choices, ", ") + ", not " + Quote(given));
}

Status CheckCountedType(const std::string& given) {
  const std::vector<std::string_view> choices = CountedTypeChoices();
  if (std::ranges::any_of(choices, [&](std::string_view name) { return SameName(name, given); })) return {};
  return BadInput("--type: " + Quote(given) + " is not one of " + Join(choices, ", "));
}

Status ParseKvType(const std::string& given, KvType& type) {
  Named<KvType> choices;
  for (size_t i = 0; i < kKvTypeNames.size(); ++i) choices.emplace_back(kKvTypeNames[i], static_cast<KvType>(i));
  return Choose("--kv", given, choices, type);
}

Result<std::string> ModelPath(const std::string& given, bool yes) {
  if (given == "demo") return DemoModelPath();
  std::error_code ignored;
  if (std::filesystem::exists(given, ignored)) return given;
  if (const Result<hub::Settings> settings = HubSettings(); settings.ok()) {  // a name of `tally list`
    TALLY_ASSIGN_OR_RETURN(const std::optional<hub::Name> short_name, CachedShortName(*settings, given));
    if (short_name) {
      TALLY_ASSIGN_OR_RETURN(HubModel model, FindHubModel(*short_name, hub::Want::kWeights, yes));
      return std::move(model.path);
    }
  }
  if (const std::string_view known = KnownModel(given); !known.empty() && !KnownModelRuns(known)) {
    TALLY_RETURN_IF_ERROR(CountedNotRun(given, given));
    return BadInput(given + ": this model is counted and not run; `tally count " + given + "` gives its figures");
  }
  if (!KnownModel(given).empty()) {
    return BadInput(given +
                    ": of this model the configuration is built in, not the weights: `tally pull ORG/NAME` gets them from " +
                    "the Hugging Face hub, `tally synth " + given + " FILE.gguf` makes random ones, `tally count " + given +
                    "` gives its figures without any");
  }
  const std::optional<hub::Name> name = HubName(given);
  if (!name && given.find(' ') != std::string::npos) {
    return BadInput(Quote(given) + ": there is no such file or directory; a prompt is -p TEXT");
  }
  if (!name && given.find('/') == std::string::npos && !EndsLikeFile(given)) {
    return BadInput(Printable(given) + ": there is no such file or directory; a model of the Hugging Face hub is ORG/NAME, " +
                    "as in Qwen/Qwen3-0.6B");
  }
  if (!name) return given;
  TALLY_ASSIGN_OR_RETURN(HubModel model, FindHubModel(*name, hub::Want::kWeights, yes));
  return std::move(model.path);
}

void NoteThreads(int threads) {
  const int cores = AvailableCores();
  if (threads <= cores) return;
  Note("note: " + Counted(threads, "thread") + " on " + Counted(cores, "core") + " take turns: -t " + std::to_string(cores) +
       " is faster\n");
}

Result<std::shared_ptr<const Model>> LoadModelOnly(const std::string& given, const EngineOptions& engine, LoadOptions options,
                                                   LoadTime* time) {
  TALLY_ASSIGN_OR_RETURN(const std::string path, ModelPath(given));
  InstallInterruptHandlers();  // not earlier: until then Ctrl-C just ends the process
  ProgressBar bar("loading");
  uint64_t stored = 0;
  options.progress = [&](uint64_t done, uint64_t total) {
    stored = total;
    bar.Show(done, total);
    return !Interrupted();
  };
  const double begin = MonotonicSeconds();
  options.group = Ranks();
  const auto split = std::ranges::find(kSplitNames, RankOptionsOf().split);
  options.split = static_cast<Split>(split - kSplitNames.begin());
  TALLY_RETURN_IF_ERROR(TellRanks(given, engine, options));
  TALLY_ASSIGN_OR_RETURN(std::shared_ptr<const Model> model, LoadModel(path, engine, options));
  if (time != nullptr) *time = {MonotonicSeconds() - begin, stored};
  RememberModel(given, path);
  bar.Wipe();
  if (Interrupted()) return Status(StatusCode::kInterrupted, "interrupted");
  const int64_t context = model->memory_plan().context;
  const Recipe& recipe = model->recipe();
  if (!recipe.learned_positions && recipe.context > 0 && context > recipe.context) {
    Note("note: a context of " + std::to_string(context) + " tokens goes beyond the " + std::to_string(recipe.context) +
         " that the model was trained on\n");
  }
  for (const std::string& note : model->notes()) Note("note: " + Printable(given) + ": " + Printable(note) + "\n");
  if (const books::NotRun& n = model->not_run(); !n.head.empty()) {
    Note("note: " + Printable(n.head) + " is a copy of the embedding: " + books::WithThousands(n.head_bytes) +
         " bytes stored twice\n");
  }
  return model;
}

Result<Loaded> Load(const std::string& given, const EngineOptions& engine, LoadOptions options) {
  Loaded loaded;
  const double begin = MonotonicSeconds();
  TALLY_ASSIGN_OR_RETURN(loaded.model, LoadModelOnly(given, engine, std::move(options)));
  TALLY_ASSIGN_OR_RETURN(loaded.engine, NewEngine(loaded.model, engine));
  NoteThreads(engine.threads);
  loaded.seconds = MonotonicSeconds() - begin;
  return loaded;
}

void NoteUnusedBlas(bool used, const EngineOptions& options) {
  if (options.impl != ImplChoice::kBlas || used) return;
  Note(std::string("note: --impl blas was asked for and OpenBLAS never ran: it multiplies f32 activations only") +
       (options.activations == ActivationMode::kF32 ? "\n" : " (--activations f32)\n"));
}

Result<std::string> ReadText(const std::string& path) {
  const bool standard = path == "-";
  std::error_code ignored;
  if (!standard && std::filesystem::is_directory(path, ignored)) return BadInput(path + ": is a directory, not a text file");
  errno = 0;
  std::FILE* file = standard ? stdin : std::fopen(path.c_str(), "rb");
  if (file == nullptr) return SystemError(path + ": cannot be read", errno);
  std::string text;
  char piece[1 << 16];
  size_t n = 0;
  while (text.size() <= kMostText && (n = std::fread(piece, 1, sizeof piece, file)) > 0) text.append(piece, n);
  const bool failed = std::ferror(file) != 0;
  const int reason = errno;
  if (!standard) std::fclose(file);
  if (failed) return SystemError((standard ? "standard input" : path) + ": cannot be read", reason);
  if (text.size() > kMostText) return BadInput(path + ": longer than 1 GiB: too long for a prompt");
  TALLY_RETURN_IF_ERROR(CheckUtf8(text, standard ? "standard input" : path));
  return text;
}

Result<std::string> ReadPromptText(const std::string& path) {
  TALLY_ASSIGN_OR_RETURN(std::string text, ReadText(path));
  if (text.ends_with("\r\n")) {
    text.resize(text.size() - 2);
  } else if (text.ends_with('\n')) {
    text.pop_back();
  }
  return text;
}

Result<std::optional<std::string>> GivenInput() {
  if (!InputIsGiven()) return std::optional<std::string>();
  TALLY_ASSIGN_OR_RETURN(std::string text, ReadPromptText("-"));
  return text.empty() ? std::optional<std::string>() : std::optional(std::move(text));
}

}  // namespace tally::app
