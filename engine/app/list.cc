// SPDX-License-Identifier: Apache-2.0
// tally list and tally rm: the models on this machine, and taking one out of the cache.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "engine/app/commands.h"
#include "engine/app/console.h"
#include "engine/app/hub_models.h"
#include "engine/app/json.h"
#include "engine/app/options.h"
#include "engine/app/state_folder.h"
#include "engine/app/syntax.h"
#include "engine/base/format.h"
#include "engine/render/words.h"

namespace tally::app {
namespace {

namespace fs = std::filesystem;

struct ListedModel {
  std::string name = {};  // the shortest that commands take
  std::string hub = {};   // of a model in the cache its whole name
  std::string path = {};  // empty: not all of it is there
  std::string type = {};  // empty: it is not known
  uint64_t bytes = 0;
  int64_t used = 0;  // seconds since 1970; 0: not known
};

// Of weights, as their files' names say it, or their headers. Empty: neither does.
std::string TypeOfWeights(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) {
    if (std::string type = hub::TypeInFileName(path); !type.empty()) return type;
  }
  const Result<CountedModel> counted = CountModel({.model = path, .settings = {}, .options = {}});
  if (!counted.ok()) return "";
  const std::string_view preset = PresetOf(*counted);
  return preset.empty() ? counted->stored_as : std::string(preset);
}

// Of a GGUF file with its parts, or of what a reader opens of a folder.
uint64_t BytesOfModel(const std::string& path) {
  constexpr std::array<std::string_view, 5> kRead = {".safetensors", ".json", ".model", ".jinja", ".txt"};
  std::error_code ignored;
  uint64_t bytes = 0;
  const auto add = [&](const fs::path& file) {
    const uint64_t size = fs::file_size(file, ignored);
    if (!ignored) bytes += size;
  };
  if (!fs::is_directory(path, ignored)) {
    const std::string name = fs::path(path).filename().string();
    const size_t first = name.find("-00001-of-");
    if (first == name.npos) return add(path), bytes;
    for (const auto& file : fs::directory_iterator(fs::path(path).parent_path(), ignored)) {
      const std::string other = file.path().filename().string();
      const bool part =
          other.size() == name.size() && other.starts_with(name.substr(0, first + 1)) && other.ends_with(name.substr(first + 6));
      if (part) add(file.path());
    }
    return bytes;
  }
  for (const auto& file : fs::directory_iterator(path, ignored)) {
    if (std::ranges::find(kRead, file.path().extension().string()) != kRead.end()) add(file.path());
  }
  return bytes;
}

// "Qwen3-0.6B:Q8_0" where the repository's name is the only one of its kind, and stands for nothing else.
std::string ShortestName(const hub::Settings& settings, const hub::Name& name) {
  std::string text = name.text();
  text.erase(0, name.org.size() + 1);
  return text == "demo" || hub::FindShortName(settings, text).size() != 1 ? name.text() : text;
}

Result<std::vector<ListedModel>> ModelsHere(const hub::Settings& settings) {
  std::map<std::string, UsedModel> used;  // by path
  for (UsedModel& model : UsedModels()) used.emplace(model.path, std::move(model));
  TALLY_ASSIGN_OR_RETURN(const std::vector<hub::CachedModel> cached, hub::ListCached(settings));
  std::vector<ListedModel> models;
  for (const hub::CachedModel& m : cached) {
    ListedModel listed = {
        .name = ShortestName(settings, m.name), .hub = m.name.text(), .path = m.path, .type = m.type, .bytes = m.bytes};
    if (listed.type.empty() && !m.path.empty()) listed.type = TypeOfWeights(m.path);
    std::error_code error;
    const std::string path = fs::canonical(m.path, error).string();
    if (const auto at = used.find(path); !m.path.empty() && at != used.end()) {
      listed.used = at->second.when;
      used.erase(at);
    }
    models.push_back(std::move(listed));
  }
  for (const auto& [path, model] : used) {
    std::error_code error;
    if (!fs::exists(path, error)) continue;
    models.push_back(
        {.name = model.name, .path = path, .type = TypeOfWeights(path), .bytes = BytesOfModel(path), .used = model.when});
  }
  std::ranges::stable_sort(models, [](const ListedModel& a, const ListedModel& b) { return a.used > b.used; });
  return models;
}

// "MXFP4+": others beside it.
std::string ShortType(const ListedModel& m) {
  if (m.path.empty()) return "incomplete";
  const size_t plus = m.type.find(" + ");
  return m.type.empty() ? "-" : plus == m.type.npos ? m.type : m.type.substr(0, plus) + "+";
}

std::string UsedAgo(int64_t when) {
  if (when == 0) return "-";
  const int64_t minutes = std::max<int64_t>(0, static_cast<int64_t>(std::time(nullptr)) - when) / 60;
  if (minutes < 1) return "just now";
  if (minutes < 60) return Counted(minutes, "minute") + " ago";
  return minutes < 48 * 60 ? Counted(minutes / 60, "hour") + " ago" : Counted(minutes / (24 * 60), "day") + " ago";
}

Json UsedJson(int64_t when) {
  const auto time = static_cast<std::time_t>(when);
  std::tm utc{};
  char text[32] = "";
  if (when == 0 || ::gmtime_r(&time, &utc) == nullptr || std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc) == 0)
    return {};
  return text;
}

Json OrNothing(const std::string& text) { return text.empty() ? Json() : Json(text); }

Status RunList(bool json) {
  TALLY_ASSIGN_OR_RETURN(const hub::Settings settings, HubSettings());
  TALLY_ASSIGN_OR_RETURN(const std::vector<ListedModel> models, ModelsHere(settings));
  if (json) {
    const Json list = Json::ListOf(models, [](const ListedModel& m) -> Json {
      return {{"name", m.name},   {"hub_name", OrNothing(m.hub)}, {"path", OrNothing(m.path)},    {"complete", !m.path.empty()},
              {"bytes", m.bytes}, {"type", OrNothing(m.type)},    {"last_used", UsedJson(m.used)}};
    });
    PrintJson({{"cache", settings.cache}, {"models", list}});
    return {};
  }
  if (models.empty()) {
    Note("no models are here yet: tally pull ORG/NAME fetches one, and demo is bundled\n");
    return {};
  }
  Table table{"", {"name", "type", "size", "last used"}, {}, {true, true, false, false}};
  const size_t width = OutputWidth(0), name = width == 0 ? std::string::npos : std::max<size_t>(width, 60) - 44;
  for (const ListedModel& m : models) {
    table.rows.push_back({TailOf(Printable(m.name), name), ShortType(m), BytesText(m.bytes), UsedAgo(m.used)});
  }
  Print(Render(table, TableFormat::kText));
  return {};
}

struct RemoveFlags {
  std::string name;
  bool all = false, yes = false, json = false;
};

// kBadInput: it is no model of the cache.
Result<hub::Name> NameInCache(const hub::Settings& settings, const std::string& given) {
  std::error_code ignored;
  if (given == "demo") return BadInput("demo is bundled with tally: it is not in the cache");
  if (std::optional<hub::Name> name = HubName(given)) return std::move(*name);
  if (fs::exists(given, ignored)) {
    return BadInput(Quote(given) +
                    " is no file of the cache: rm takes names of `tally list` that were pulled; remove it yourself");
  }
  TALLY_ASSIGN_OR_RETURN(std::optional<hub::Name> name, CachedShortName(settings, given));
  if (name) return std::move(*name);
  return BadInput(Quote(given) + " is not in the cache of the Hugging Face hub, " + Printable(settings.cache) +
                  ": `tally list` says what is here");
}

Status RunRemove(const RemoveFlags& flags) {
  TALLY_ASSIGN_OR_RETURN(const hub::Settings settings, HubSettings());
  TALLY_ASSIGN_OR_RETURN(const hub::Name name, NameInCache(settings, flags.name));
  if (flags.all && !name.choice.empty()) return BadInput("--all goes with ORG/NAME alone, without :" + Printable(name.choice));
  TALLY_ASSIGN_OR_RETURN(const hub::Removal removal, hub::PlanRemoval(settings, name, flags.all));
  const std::string what =
      removal.name.text() + (removal.folder.empty() || removal.name.choice != name.choice ? "" : ", all of it");
  if (!flags.yes) {
    if (!CanAsk()) return BadInput(name.text() + ": nothing is removed without --yes, or a terminal to ask at");
    if (!Confirm("remove " + what + ", " + BytesText(removal.bytes) + "?", /*by_default=*/false)) {
      Note("nothing was removed\n");
      return {};
    }
  }
  TALLY_RETURN_IF_ERROR(hub::Remove(removal));
  if (flags.json) {
    PrintJson({{"model", removal.name.text()}, {"bytes", removal.bytes}, {"files", removal.files}});
  } else {
    Print(what + ": removed, " + BytesText(removal.bytes) + " freed\n");
  }
  return {};
}

}  // namespace

Action AddList(Command& app) {
  auto json = std::make_shared<bool>(false);
  Command c = app.Add("list", "The models on this machine: name, type, size, last used");
  c.Flag("--json", *json, "one JSON document on standard output");
  c.Footer(
      "Models in the cache of the Hugging Face hub, where pull puts them, and files and folders that a command has loaded. Names "
      "are what other commands take as MODEL. `tally ls` is the same.");
  AddExamples(c, {"tally list", "tally list --json"});
  return [json] { return Report(RunList(*json)); };
}

Action AddRemove(Command& app) {
  auto flags = std::make_shared<RemoveFlags>();
  Command c = app.Add("rm", "Remove a model that was pulled");
  c.Option("MODEL", flags->name, "a name of `tally list`").Type(kModelType).Required();
  c.Flag("--all", flags->all, "ORG/NAME with all its models and revisions, where it has several");
  c.Flag("-y,--yes", flags->yes, "remove it without asking");
  c.Flag("--json", flags->json, "one JSON document on standard output");
  c.Footer("Files outside of the cache, and what other programs have fetched into it, are refused.");
  AddExamples(c, {"tally rm Qwen/Qwen3-0.6B", "tally rm Llama-3.2-1B-Instruct-GGUF:Q4_K_M --yes"});
  return [flags] { return Report(RunRemove(*flags)); };
}

}  // namespace tally::app
