// SPDX-License-Identifier: Apache-2.0
// Models by their names on the Hugging Face hub: in the cache, or fetched when the user agrees.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "engine/api/tally.h"
#include "engine/app/command.h"
#include "engine/base/status.h"

namespace tally::app {

void AddYes(Command& command, bool& yes);  // --yes

// Whether the name ends like a file that commands read: ".gguf", ".json" and so on.
bool EndsLikeFile(std::string_view name);

// A name of the hub where `given` is of that form and no path: nothing of that name is there, and it ends like no file.
std::optional<hub::Name> HubName(const std::string& given);

// NAME or NAME:CHOICE, in any case, of a repository in the cache. Nothing: no repository there is called so. kBadInput: several are.
Result<std::optional<hub::Name>> CachedShortName(const hub::Settings& settings, const std::string& given);

// Whether there is a terminal for a question and its answer.
bool CanAsk();
// "QUESTION [y/N] ", or [Y/n] where an empty line means yes. True for yes.
bool Confirm(const std::string& question, bool by_default);

struct HubModel {
  std::string path;            // of a file or directory to open
  std::shared_ptr<void> keep;  // the path holds as long as this does
};
// What is in the cache; else, where `yes` is set or the user at the terminal agrees, what is fetched, with a progress bar. kBadInput
// elsewhere, and where the part before the slash is a folder here: says how to get it. Nothing goes over the network before the yes.
// With Want::kConfiguration, for commands that need no weights: config.json or headers alone. Weights are not fetched of a model that is
// counted and not run, or that cannot be read: kBadInput.
Result<HubModel> FindHubModel(const hub::Name& name, hub::Want want, bool yes);

// kBadInput: `model`, a path or a built-in name, is counted and not run. `given`: what the user calls it.
Status CountedNotRun(const std::string& given, const std::string& model);

// The user's settings, by the environment.
Result<hub::Settings> HubSettings();
// Plans with progress at a terminal, and fetches. `ask`: ask before the files are fetched; an index may have been. `agreed`:
// called before the first missing file is fetched; its error is the result.
struct Pulled {
  hub::Plan plan;
  hub::Fetched fetched;
};
Result<Pulled> PullFromHub(const hub::Settings& settings, const hub::Name& name, hub::Want want, bool ask,
                           const std::function<Status()>& agreed = {});

}  // namespace tally::app
