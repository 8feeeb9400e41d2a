// SPDX-License-Identifier: Apache-2.0
#include "engine/app/serve_models.h"

#include <filesystem>
#include <functional>
#include <optional>
#include <system_error>
#include <utility>

#include "engine/app/console.h"
#include "engine/app/interrupt.h"
#include "engine/app/options.h"
#include "engine/app/state_folder.h"
#include "engine/base/format.h"

namespace tally::app {
namespace {

void ReplaceAll(const std::string& what, const std::string& by, std::string* text) {
  for (size_t at = 0; !what.empty() && (at = text->find(what, at)) != text->npos; at += by.size()) {
    text->replace(at, what.size(), by);
  }
}

// A model that serve may load any number of times.
struct Loadable {
  AnswerFlags flags;
  EngineOptions engine;
  std::string name, given, path;
  std::shared_ptr<std::atomic<bool>> serving;

  Result<ReadyModel> Load(bool alone, const std::function<bool()>& stop) const;
  Result<ReadyModel> TryLoad(bool alone, const std::function<bool()>& stop) const;
};

Result<ReadyModel> Loadable::TryLoad(bool alone, const std::function<bool()>& stop) const {
  const bool serves = *serving;
  std::optional<ProgressBar> bar;
  if (!serves) bar.emplace("loading " + name);
  const auto note = [&](const std::string& what) {
    const std::string line = "note: " + Printable(name) + ": " + what + "\n";
    if (!serves) {
      Note(line);
    } else {
      (void)NoteWithoutWaiting(line);
    }
  };
  LoadOptions options;
  options.progress = [&](uint64_t done, uint64_t total) {
    if (bar) bar->Show(done, total);
    return !stop() && (serves || !Interrupted());  // a server that is told to end says so itself
  };
  EngineOptions reading = engine;
  if (!alone) reading.threads = 1;  // threads that read together would keep the steps of other models waiting
  TALLY_ASSIGN_OR_RETURN(std::shared_ptr<const Model> model, LoadModel(path, reading, options));
  if (bar) bar->Wipe();
  RememberModel(given, path);
  for (const std::string& text : model->notes()) note(Printable(text));
  Loaded loaded = {.model = model, .engine = nullptr};
  TALLY_ASSIGN_OR_RETURN(loaded.engine, NewEngine(std::move(model), engine));
  TALLY_ASSIGN_OR_RETURN(ServedModel served, ServedModelOf(flags, loaded, name));
  if (!served.chat.ok()) note("chats are refused: " + served.chat.status().message());
  return ReadyModel{.engine = std::move(loaded.engine), .served = std::move(served)};
}

Result<ReadyModel> Loadable::Load(bool alone, const std::function<bool()>& stop) const {
  Result<ReadyModel> ready = TryLoad(alone, stop);
  if (ready.ok() || !*serving) return ready;
  // Clients are told what is wrong, not where the files are.
  std::string message = ready.status().message();
  ReplaceAll(path, name, &message);
  const std::string folder = std::filesystem::path(path).parent_path().string();
  if (folder.size() > 1) ReplaceAll(folder + "/", "", &message);
  return Status(ready.status().code(), message);
}

}  // namespace

Result<NamedModel> ReadNamedModel(const std::string& given) {
  std::error_code ignored;
  const size_t at = given.find('=');
  if (at == given.npos || given.find('/') < at || std::filesystem::exists(given, ignored)) return NamedModel{.model = given};
  NamedModel named{.name = given.substr(0, at), .model = given.substr(at + 1)};
  if (named.name.empty() || named.model.empty()) return BadInput(Quote(given) + ": NAME=MODEL wants a name and a model");
  return named;
}

std::string ServedName(const NamedModel& model, const std::string& path) {
  if (!model.name.empty()) return model.name;
  std::error_code ignored;
  if (!std::filesystem::exists(model.model, ignored)) return model.model;
  const std::filesystem::path shown = std::filesystem::path(path).lexically_normal();
  return shown.has_filename() ? shown.filename().string() : shown.parent_path().filename().string();
}

Result<std::vector<ModelSource>> ModelSources(const std::vector<std::string>& models, const AnswerFlags& flags,
                                              const EngineOptions& engine, const std::shared_ptr<std::atomic<bool>>& serving) {
  std::vector<ModelSource> sources;
  for (const std::string& given : models) {
    TALLY_ASSIGN_OR_RETURN(const NamedModel named, ReadNamedModel(given));
    TALLY_ASSIGN_OR_RETURN(const std::string path, ModelPath(named.model, flags.model.yes));
    TALLY_ASSIGN_OR_RETURN(const MemoryPlan plan, PlanModel(path, engine));
    Loadable loadable{.flags = flags,
                      .engine = engine,
                      .name = ServedName(named, path),
                      .given = named.model,
                      .path = path,
                      .serving = serving};
    loadable.flags.model.model = loadable.name;  // as errors about its template call it
    ModelSource source{.name = loadable.name, .bytes = plan.total(), .context = plan.context};
    source.load = [loadable = std::move(loadable)](bool alone, const std::function<bool()>& stop) {
      return loadable.Load(alone, stop);
    };
    sources.push_back(std::move(source));
  }
  return sources;
}

}  // namespace tally::app
