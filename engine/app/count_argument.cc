// SPDX-License-Identifier: Apache-2.0
#include "engine/app/count_argument.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/app/console.h"
#include "engine/app/hub_models.h"
#include "engine/app/options.h"
#include "engine/base/format.h"

namespace tally::app {
namespace {

void AddSettings(std::string_view text, std::vector<std::string>& settings) {  // "KEY=VALUE,KEY"
  while (!text.empty()) {
    const std::string_view one = text.substr(0, text.find(','));
    if (!one.empty()) settings.emplace_back(one);
    text.remove_prefix(std::min(text.size(), one.size() + 1));
  }
}

// NAME:KEY=VALUE,KEY is the model NAME with settings of its own. A colon that a '/' follows is a path's. Without a '=' behind it, it
// belongs to the name: a file or type of the hub's, or another program's "llama3:8b", which is no model here.
std::pair<std::string, std::string> SplitModel(const std::string& argument) {
  std::error_code ignored;
  if (std::filesystem::exists(argument, ignored)) return {argument, ""};
  const size_t colon = argument.rfind(':');
  if (colon == std::string::npos || argument.find('/', colon) != std::string::npos) return {argument, ""};
  if (argument.find('=', colon) == std::string::npos) return {argument, ""};
  return {argument.substr(0, colon), argument.substr(colon + 1)};
}

bool IsCached(const hub::Name& name) {
  const Result<hub::Settings> settings = HubSettings();
  return settings.ok() && hub::FindCached(*settings, name, hub::Want::kConfiguration).ok();
}

// Names the built-in models that are called nearly as the hub's model.
Status WithNearNames(const Status& status, const hub::Name& name) {
  if (status.code() != StatusCode::kBadInput) return status;
  const std::string near = NearestKnownModels(name.name);
  return near.empty() ? status : BadInput(status.message() + "; built in: " + near);
}

}  // namespace

Result<CountedModel> CountArgument(const std::string& argument, CountRequest request, bool yes, std::string* path,
                                   std::set<std::string>* said) {
  const auto note = [said](const std::string& text) {
    if (said == nullptr || said->insert(text).second) Note(text);
  };
  const auto [model, own] = SplitModel(argument);
  request.model = model;
  for (const std::string& s : std::exchange(request.settings, {})) AddSettings(s, request.settings);
  AddSettings(own, request.settings);
  if (request.model == "demo") {
    TALLY_ASSIGN_OR_RETURN(request.model, ModelPath("demo"));
  }
  HubModel fetched;  // while it is counted
  if (const std::optional<hub::Name> name = HubName(model)) {
    const std::string_view built_in = yes || IsCached(*name) ? std::string_view() : KnownModel(name->name);
    if (built_in.empty()) {
      Result<HubModel> found = FindHubModel(*name, hub::Want::kConfiguration, yes);
      if (!found.ok()) return WithNearNames(found.status(), *name);
      fetched = std::move(found).value();
      request.model = fetched.path;
    } else {
      note("note: " + name->text() + " is not in the cache of the hub: counting the built-in " + std::string(built_in) +
           "; --yes fetches its own configuration\n");
      request.model = built_in;
    }
  }
  std::error_code ignored;
  if (const std::string_view known = KnownModel(model);
      !SameName(known, model) && !known.empty() && !std::filesystem::exists(model, ignored)) {
    note("note: " + Printable(model) + " is the built-in " + std::string(known) + "\n");
  }
  TALLY_ASSIGN_OR_RETURN(CountedModel counted, CountModel(request));
  counted.name = Printable(argument);
  if (path != nullptr) *path = request.settings.empty() && std::filesystem::exists(request.model, ignored) ? request.model : "";
  return counted;
}

}  // namespace tally::app
