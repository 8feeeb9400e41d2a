// SPDX-License-Identifier: Apache-2.0
#include "engine/app/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "engine/app/console.h"
#include "engine/app/hub_models.h"
#include "engine/app/interrupt.h"
#include "engine/app/numbers.h"
#include "engine/base/format.h"
#include "engine/machine/machine.h"
#include "engine/machine/parallel.h"

namespace tally::app {
namespace {

constexpr size_t kMostText = size_t{1} << 30;  // bytes of a prompt or token file

template <class T>
Status Choose(const std::string& option, const std::string& given, const std::vector<std::pair<std::string_view, T>>& choices,
              T& out) {
  std::string known;
  for (const auto& [name, value] : choices) {
    if (given == name) {
      out = value;
      return {};
    }
    known += (known.empty() ? "" : ", ") + std::string(name);
  }
  return BadInput(option + " must be one of " + known + ", not '" + given + "'");
}

}  // namespace

void AddModel(CLI::App& command, std::string& model) {
  command
      .add_option("MODEL,-m,--model", model, "GGUF file, Hugging Face directory, ORG/NAME of its hub, or demo: the bundled model")
      ->default_str(model);
}

std::string KvTypeChoices() {
  std::string types = "auto";
  for (const std::string_view name : kKvTypeNames) types += ", " + std::string(name);
  return types;
}

void AddSharedModelFlags(CLI::App& command, ModelFlags& flags) {
  AddModel(command, flags.model);
  AddNumber(command, "-c,--ctx,--ctx-size", flags.context, "context length in tokens (0: the trained one, at most 4096)");
  command.add_option("--activations", flags.activations, "auto, f32, bf16 or int8");
  AddYes(command, flags.yes);
  command.add_option("--impl", flags.impl, "kernels: auto, ref (scalar reference) or blas (OpenBLAS)");
}

void AddModelFlags(CLI::App& command, ModelFlags& flags) {
  AddSharedModelFlags(command, flags);
  AddNumber(command, "-t,--threads", flags.threads, "threads (0: OMP_NUM_THREADS, or all cores)");
  command.add_option("--kv", flags.kv, "type of the KV cache: " + KvTypeChoices());
}

Result<LoadOptions> ToLoadOptions(const ModelFlags& flags) {
  LoadOptions options;
  if (flags.threads < 0 || flags.threads > kMaxThreads) {
    return BadInput("--threads must be 0 (all cores) to " + std::to_string(kMaxThreads) + ", not " +
                    std::to_string(flags.threads));
  }
  options.threads = static_cast<int>(flags.threads);
  constexpr int64_t kMostContext = std::numeric_limits<int32_t>::max();
  if (flags.context < 0 || flags.context > kMostContext) {
    return BadInput("--ctx must be 0 (the model's) to " + std::to_string(kMostContext) + ", not " +
                    std::to_string(flags.context));
  }
  options.context = flags.context;
  using A = ActivationMode;
  TALLY_RETURN_IF_ERROR(Choose<A>("--activations", flags.activations,
                                  {{"auto", A::kAuto}, {"f32", A::kF32}, {"bf16", A::kBF16}, {"int8", A::kInt8}},
                                  options.activations));
  std::vector<std::pair<std::string_view, std::optional<KvType>>> kv = {{"auto", std::nullopt}};
  for (size_t i = 0; i < kKvTypeNames.size(); ++i) kv.emplace_back(kKvTypeNames[i], static_cast<KvType>(i));
  TALLY_RETURN_IF_ERROR(Choose("--kv", flags.kv, kv, options.kv));
  using I = ImplChoice;
  TALLY_RETURN_IF_ERROR(
      Choose<I>("--impl", flags.impl, {{"auto", I::kAuto}, {"ref", I::kRef}, {"blas", I::kBlas}}, options.impl));
  return options;
}

Result<std::string> ModelPath(const std::string& given, bool yes) {
  if (given == "demo") return DemoModelPath();
  std::error_code ignored;
  if (std::filesystem::exists(given, ignored)) return given;
  const auto same = [](char a, char b) {
    return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
  };
  for (const std::string_view name : KnownModels()) {
    if (!std::ranges::equal(name, given, same)) continue;
    return BadInput(given +
                    ": of this model the configuration is built in, not the weights: `tally pull ORG/NAME` gets them from " +
                    "the Hugging Face hub, `tally synth " + given + " FILE.gguf` makes random ones, `tally count " + given +
                    "` gives its figures without any");
  }
  const std::optional<hub::Name> name = HubName(given);
  if (!name) return given;
  TALLY_ASSIGN_OR_RETURN(HubModel model, FindHubModel(*name, hub::Want::kWeights, yes));
  return std::move(model.path);
}

Result<std::shared_ptr<const Model>> LoadModelOnly(const std::string& given, LoadOptions options, LoadTime* time) {
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
  TALLY_ASSIGN_OR_RETURN(std::shared_ptr<const Model> model, LoadModel(path, options));
  if (time != nullptr) *time = {MonotonicSeconds() - begin, stored};
  bar.Wipe();
  if (Interrupted()) return Status(StatusCode::kInterrupted, "interrupted");
  const int64_t context = model->memory_plan().context;
  const Recipe& recipe = model->recipe();
  if (!recipe.learned_positions && recipe.context > 0 && context > recipe.context) {
    Note("note: a context of " + std::to_string(context) + " tokens goes beyond the " + std::to_string(recipe.context) +
         " that the model was trained on\n");
  }
  if (const books::NotRun& n = model->not_run(); !n.head.empty()) {
    Note("note: " + Printable(n.head) + " is a copy of the embedding: " + books::WithThousands(n.head_bytes) +
         " bytes stored twice\n");
  }
  return model;
}

Result<Loaded> Load(const std::string& given, LoadOptions options) {
  Loaded loaded;
  const double begin = MonotonicSeconds();
  TALLY_ASSIGN_OR_RETURN(loaded.model, LoadModelOnly(given, options));
  options.progress = nullptr;
  TALLY_ASSIGN_OR_RETURN(loaded.engine, NewEngine(loaded.model, options));
  loaded.seconds = MonotonicSeconds() - begin;
  return loaded;
}

void NoteUnusedBlas(bool used, const LoadOptions& options) {
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
  if (file == nullptr) return BadInput(path + ": cannot be read: " + std::generic_category().message(errno));
  std::string text;
  char piece[1 << 16];
  size_t n = 0;
  while (text.size() <= kMostText && (n = std::fread(piece, 1, sizeof piece, file)) > 0) text.append(piece, n);
  const bool failed = std::ferror(file) != 0;
  const int reason = errno;
  if (!standard) std::fclose(file);
  if (failed)
    return BadInput((standard ? "standard input" : path) + ": cannot be read: " + std::generic_category().message(reason));
  if (text.size() > kMostText) return BadInput(path + ": longer than 1 GiB: too long for a prompt");
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
