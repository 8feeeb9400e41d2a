// SPDX-License-Identifier: Apache-2.0
#include "engine/app/hub_models.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "engine/app/console.h"
#include "engine/app/interrupt.h"
#include "engine/base/format.h"
#include "engine/machine/machine.h"
#include "engine/recipe/recipe.h"

namespace tally::app {
namespace {

std::string HostOf(const hub::Settings& settings) { return settings.endpoint.substr(settings.endpoint.find("://") + 3); }

std::string Contents(const hub::Plan& plan) {
  const std::string files = plan.files.size() == 1 ? Printable(plan.files[0].path) : std::to_string(plan.files.size()) + " files";
  if (plan.headers) return "the header of " + files + ", some megabytes of " + BytesText(plan.bytes);
  return files + ", " + BytesText(plan.missing) + (plan.missing == plan.bytes ? "" : " more of " + BytesText(plan.bytes));
}

// While it is there, the first Ctrl-C asks for a clean end.
struct InterruptHandlers {
  InterruptHandlers() { InstallInterruptHandlers(); }
  InterruptHandlers(const InterruptHandlers&) = delete;
  InterruptHandlers& operator=(const InterruptHandlers&) = delete;
  ~InterruptHandlers() { RemoveInterruptHandlers(); }
};

Status NotFetched(const hub::Name& name) { return BadInput(name.text() + ": not here, and not fetched"); }

}  // namespace

bool CanAsk() { return ::isatty(STDIN_FILENO) == 1 && IsTerminal(Stream::kError); }

// Ctrl-C has to end the process: reading would go on after a handler.
bool Confirm(const std::string& question, bool by_default) {
  Note(question + (by_default ? " [Y/n] " : " [y/N] "));
  std::string answer;
  int c = 0;
  while ((c = std::fgetc(stdin)) != EOF && c != '\n') answer += static_cast<char>(c);
  if (c == EOF) Note("\n");
  return (by_default && answer.empty() && c == '\n') || answer == "y" || answer == "Y" || answer == "yes";
}

void AddYes(Command& command, bool& yes) {
  command.Flag("-y,--yes", yes, "fetch a model of the Hugging Face hub that is not here without asking");
}

bool EndsLikeFile(std::string_view name) {
  constexpr std::string_view kSuffixes[] = {".gguf",     ".tally", ".json", ".jsonl", ".safetensors",
                                            ".tiktoken", ".txt",   ".bin",  ".npy"};
  return std::ranges::any_of(kSuffixes, [&](std::string_view suffix) { return name.ends_with(suffix); });
}

std::optional<hub::Name> HubName(const std::string& given) {
  Result<hub::Name> name = hub::ParseName(given);
  std::error_code ignored;
  if (!name.ok() || std::filesystem::exists(given, ignored) || std::filesystem::exists(name->repository(), ignored)) return {};
  if (EndsLikeFile(name->name)) return {};
  return std::move(name).value();
}

Result<std::optional<hub::Name>> CachedShortName(const hub::Settings& settings, const std::string& given) {
  if (given.empty() || given.find('/') < given.find(':')) return std::optional<hub::Name>();
  std::vector<hub::Name> names = hub::FindShortName(settings, given);
  if (names.empty()) return std::optional<hub::Name>();
  if (names.size() == 1) return std::optional(std::move(names.front()));
  std::string all;
  for (const hub::Name& name : names) all += (all.empty() ? "" : ", ") + name.text();
  return BadInput(Quote(given) + " may be any of " + all + ": write one of these");
}

Result<hub::Settings> HubSettings() {
  return hub::ReadSettings([](const char* variable) -> const char* {
    return std::getenv(variable);  // NOLINT(concurrency-mt-unsafe): nothing here sets variables
  });
}

Result<Pulled> PullFromHub(const hub::Settings& settings, const hub::Name& name, hub::Want want, bool ask,
                           const std::function<Status()>& agreed) {
  TALLY_ASSIGN_OR_RETURN(const std::unique_ptr<hub::Hub> hub, hub::OpenHub(settings));
  std::optional<InterruptHandlers> handlers(std::in_place);
  TALLY_ASSIGN_OR_RETURN(hub::Plan plan, hub->MakePlan(name, want, [](const hub::Progress&) { return !Interrupted(); }));
  if (ask && plan.missing > 0) {
    handlers.reset();
    if (Interrupted()) return Status(StatusCode::kInterrupted, "interrupted");
    if (!Confirm(name.text() + ": fetch " + Contents(plan) + ", from " + HostOf(settings) + "?", true)) return NotFetched(name);
    handlers.emplace();
  }
  if (agreed && plan.missing > 0) {
    handlers.reset();
    TALLY_RETURN_IF_ERROR(agreed());
    handlers.emplace();
  }
  ProgressBar bar("fetching");
  const double begin = MonotonicSeconds();
  std::optional<uint64_t> before;  // what was here when the first byte came
  bool waited = false;
  Result<hub::Fetched> fetched = hub->Fetch(plan, [&](const hub::Progress& p) {
    if (p.waiting && !waited) Note(name.text() + ": another process is fetching " + Printable(p.file) + "; waiting for it\n");
    waited = waited || p.waiting;
    if (!before && p.fetched > 0) before = p.done - std::min(p.done, p.fetched);
    const double seconds = MonotonicSeconds() - begin;
    if (before && seconds > 0) {  // the bar is of what was missing, so that its estimate is
      bar.Show(p.done - std::min(p.done, *before), p.total - std::min(p.total, *before),
               BytesText(p.done) + " of " + BytesText(p.total) + ", " +
                   BytesText(static_cast<uint64_t>(static_cast<double>(p.fetched) / seconds)) + "/s");
    }
    return !Interrupted();
  });
  bar.Wipe();
  if (!fetched.ok()) {
    if (fetched.status().code() != StatusCode::kInterrupted) return fetched.status();
    return Status(StatusCode::kInterrupted, "interrupted; what has come stays, and the same command goes on from there");
  }
  return Pulled{std::move(plan), std::move(fetched).value()};
}

namespace {

// Fetches the configuration, or headers, before the weights. kBadInput: the model is counted and not run, or cannot be read, or
// its weights cannot.
Status RefuseUnrunnable(const hub::Settings& settings, const hub::Name& name) {
  Result<Pulled> pulled = PullFromHub(settings, name, hub::Want::kConfiguration, false);
  if (!pulled.ok()) return pulled.status().code() == StatusCode::kInterrupted ? pulled.status() : Status();
  const Result<CountedModel> counted = CountModel({.model = pulled->fetched.path, .settings = {}, .options = {}});
  if (!counted.ok()) return counted.status();
  TALLY_RETURN_IF_ERROR(CountedNotRun(name.text(), pulled->fetched.path));
  return counted->quantisation;
}

}  // namespace

Status CountedNotRun(const std::string& given, const std::string& model) {
  const Result<CountedModel> counted = CountModel({.model = model, .settings = {}, .options = {}});
  if (!counted.ok() || !counted->count.recipe->counted_only) return {};
  return BadInput(given + ": this model is counted and not run: it has " + counted->count.recipe->counted_only->why +
                  "; `tally count " + given + "` gives its figures");
}

Result<HubModel> FindHubModel(const hub::Name& name, hub::Want want, bool yes) {
  TALLY_ASSIGN_OR_RETURN(const hub::Settings settings, HubSettings());
  Result<std::string> cached = hub::FindCached(settings, name, want);
  if (cached.ok()) return HubModel{std::move(cached).value(), nullptr};
  const std::string& why = cached.status().message();
  std::error_code ignored;
  const bool like_path = std::filesystem::is_directory(name.org, ignored);  // a mistyped one is no business of the hub
  if (!yes && (settings.offline || like_path || !CanAsk())) {
    return BadInput(why + "; there is no such file either; `tally pull " + name.text() + "` fetches it, and so does --yes" +
                    (settings.offline ? " (not while HF_HUB_OFFLINE is set)" : ""));
  }
  if (!yes && !Confirm(why + "; there is no such file either; look for it at " + HostOf(settings) + "?", true))
    return NotFetched(name);
  const auto agreed = [&] { return want == hub::Want::kWeights ? RefuseUnrunnable(settings, name) : Status(); };
  TALLY_ASSIGN_OR_RETURN(Pulled pulled, PullFromHub(settings, name, want, !yes, agreed));
  return HubModel{std::move(pulled.fetched.path), std::move(pulled.fetched.keep)};
}

}  // namespace tally::app
