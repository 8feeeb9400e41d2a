// SPDX-License-Identifier: Apache-2.0
// Options that several commands share, and the reading of their arguments.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/api/tally.h"
#include "engine/app/command.h"
#include "engine/app/token_list.h"
#include "engine/base/status.h"

namespace tally::app {

struct ModelFlags {
  std::string model = "demo";
  int64_t threads = 0, context = 0;
  bool threads_given = false;
  std::string activations = "auto", kv = "auto", kv_bytes = "0", impl = "auto", weights_budget = "all";
  bool yes = false;
};
void AddModel(Command& command, std::string& model);  // [MODEL] or -m MODEL; what it holds is the default
// -c --ctx --kv-bytes --weights-budget --activations --impl --yes
void AddSharedModelSettings(Command& command, ModelFlags& flags);
// These, and [MODEL] -m
void AddSharedModelFlags(Command& command, ModelFlags& flags);
// AddSharedModelSettings, and -t --threads --kv
void AddModelSettings(Command& command, ModelFlags& flags);
// These, and [MODEL] -m
void AddModelFlags(Command& command, ModelFlags& flags);
// --temp and what else decides how tokens are drawn, but for the seed
void AddSamplingSteps(Command& command, SamplingOptions& sampling);
// These, and -s --seed. `seed_drawn`: --seed -1 was given.
void AddSampling(Command& command, SamplingOptions& sampling, bool& seed_drawn);
inline constexpr const char* kSamplingNote =
    "Sampling takes these steps in this order: repeat penalty, top-k, temperature, top-p, min-p, draw.";
// --width, of text on standard output (OutputWidth)
void AddWidth(Command& command, uint64_t& width);
// An option whose values are text for a model: one value each time, and kBadInput's line where that is not UTF-8.
CommandOption TextOption(CommandOption option);
std::vector<std::string_view> WeightTypeChoices();  // "F32", "F16", ...
std::vector<std::string_view> KvTypeChoices();      // "auto", "f32", ...
// What CountedAs takes: presets of quantize, then weight types that are none.
std::vector<std::string_view> CountedTypeChoices();
// kBadInput names the choices: "--format must be one of table, md, not 'x'".
Status CheckOneOf(const std::string& option, const std::string& given, const std::vector<std::string_view>& choices);
// kBadInput names them.
Status CheckCountedType(const std::string& given);
Status ParseKvType(const std::string& given, KvType& type);  // of --kv, in any case; kBadInput names the choices
// kBadInput: what is wrong with how tokens are drawn, or with -n.
Status CheckGeneration(const SamplingOptions& sampling, int64_t tokens);
// kBadInput names the option and its range.
Result<EngineOptions> ToEngineOptions(const ModelFlags& flags);

// A model and its engine, loaded with a progress bar where that can be seen; stops when interrupted.
struct Loaded {
  std::shared_ptr<const Model> model;
  std::unique_ptr<Engine> engine;
  double seconds = 0;  // that both took
};
bool SameName(std::string_view a, std::string_view b);  // whatever the case of their letters
// The built-in configuration of that name, in any case, or of that alias (KnownModelName); empty: there is none.
std::string_view KnownModel(std::string_view given);
// MODEL as given -> the file or directory: "demo" is the bundled model (./demo is a file of that name), ORG/NAME one of the Hugging Face
// hub, fetched if it is not here and the user agrees or has said --yes (hub_models.h), NAME one whose repository is in the cache.
// kBadInput where it is the name of a built-in configuration and no file: says how to get weights. Also where it is neither a path nor a
// file's name and nothing is there.
Result<std::string> ModelPath(const std::string& given, bool yes = false);
struct LoadTime {
  double seconds = 0;         // of LoadModel: headers, vocabulary and weights
  uint64_t stored_bytes = 0;  // of the weights in the files
};
// The model alone. Says on standard error where the context goes beyond what a model with rotary positions was trained on.
Result<std::shared_ptr<const Model>> LoadModelOnly(const std::string& given, const EngineOptions& engine,
                                                   LoadOptions options = {}, LoadTime* time = nullptr);
// The same, and an engine.
Result<Loaded> Load(const std::string& given, const EngineOptions& engine, LoadOptions options = {});

// Says on standard error that more threads than cores take turns on them, which costs more than it brings. Load says it itself.
void NoteThreads(int threads);
// Says on standard error where OpenBLAS was asked for and never ran, once everything has.
void NoteUnusedBlas(bool used, const EngineOptions& options);

// The whole of a file, or of standard input for "-". kBadInput: also where that is not UTF-8 (CheckUtf8).
Result<std::string> ReadText(const std::string& path);
// The same without one newline at its end: editors and echo end a text with one that its author did not mean.
Result<std::string> ReadPromptText(const std::string& path);
// The same of standard input where that is given (InputIsGiven); nothing where it is not, or is empty. For commands whose
// text was not named by an option.
Result<std::optional<std::string>> GivenInput();

}  // namespace tally::app
