// SPDX-License-Identifier: Apache-2.0
#include "engine/app/count_argument.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

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

// Says that a model of the hub's name is built in, where one is.
Status WithBuiltIn(const Status& status, const hub::Name& name) {
  const std::string_view known = KnownModel(name.name);
  return known.empty() ? status : BadInput(status.message() + "; the configuration of " + std::string(known) + " is built in");
}

}  // namespace

Result<CountedModel> CountArgument(const std::string& argument, CountRequest request, bool yes, std::string* path) {
  const auto [model, own] = SplitModel(argument);
  request.model = model;
  for (const std::string& s : std::exchange(request.settings, {})) AddSettings(s, request.settings);
  AddSettings(own, request.settings);
  if (request.model == "demo") {
    TALLY_ASSIGN_OR_RETURN(request.model, ModelPath("demo"));
  }
  HubModel fetched;  // while it is counted
  if (const std::optional<hub::Name> name = HubName(model)) {
    Result<HubModel> found = FindHubModel(*name, hub::Want::kConfiguration, yes);
    if (!found.ok()) return found.status().code() == StatusCode::kBadInput ? WithBuiltIn(found.status(), *name) : found.status();
    fetched = std::move(found).value();
    request.model = fetched.path;
  }
  TALLY_ASSIGN_OR_RETURN(CountedModel counted, CountModel(request));
  counted.name = Printable(argument);
  std::error_code ignored;
  if (path != nullptr) *path = request.settings.empty() && std::filesystem::exists(request.model, ignored) ? request.model : "";
  return counted;
}

}  // namespace tally::app
