// SPDX-License-Identifier: Apache-2.0
// tally pull: a model of the Hugging Face hub into its cache.
#include <memory>
#include <optional>
#include <string>

#include "engine/app/commands.h"
#include "engine/app/console.h"
#include "engine/app/hub_models.h"
#include "engine/app/json.h"
#include "engine/app/syntax.h"
#include "engine/base/format.h"

namespace tally::app {
namespace {

struct PullFlags {
  std::string name;
  bool json = false, dry_run = false;
};

Json PullDocument(const hub::Plan& plan, const std::string& path) {
  const Json files = Json::ListOf(plan.files, [](const hub::File& f) -> Json {
    return {{"path", f.path}, {"bytes", f.size}, {f.digest.size() == 64 ? "sha256" : "git_sha1", f.digest}};
  });
  Json document = {
      {"model", plan.name.text()}, {"commit", plan.commit}, {"bytes", plan.bytes}, {"missing", plan.missing}, {"files", files}};
  if (!path.empty()) document["path"] = path;
  return document;
}

Status ShowPlan(const hub::Settings& settings, const hub::Name& name, bool json) {
  TALLY_ASSIGN_OR_RETURN(const std::unique_ptr<hub::Hub> hub, hub::OpenHub(settings));
  TALLY_ASSIGN_OR_RETURN(const hub::Plan plan, hub->MakePlan(name, hub::Want::kWeights, nullptr));
  if (json) {
    PrintJson(PullDocument(plan, ""));
    return {};
  }
  for (const hub::File& f : plan.files) Print(Printable(f.path) + "  " + BytesText(f.size) + "\n");
  Print(BytesText(plan.bytes) + " in all, " + BytesText(plan.missing) + " to come\n");
  return {};
}

Status RunPull(const PullFlags& flags) {
  TALLY_ASSIGN_OR_RETURN(const hub::Settings settings, HubSettings());
  TALLY_ASSIGN_OR_RETURN(const std::optional<hub::Name> known, CachedShortName(settings, flags.name));
  const Result<hub::Name> parsed = known ? Result<hub::Name>(*known) : hub::ParseName(flags.name);
  if (!parsed.ok()) return parsed.status();
  const hub::Name& name = *parsed;
  if (flags.dry_run) return ShowPlan(settings, name, flags.json);
  TALLY_ASSIGN_OR_RETURN(const Pulled pulled, PullFromHub(settings, name, hub::Want::kWeights, false));
  if (flags.json) {
    PrintJson(PullDocument(pulled.plan, pulled.fetched.path));
    return {};
  }
  Note(name.text() + ": " + BytesText(pulled.plan.bytes) +
       (pulled.plan.missing == 0 ? ", was here already"
                                 : ", " + BytesText(pulled.plan.missing) + " of it fetched, digests checked") +
       "\n");
  Print(pulled.fetched.path + "\n");
  return {};
}

}  // namespace

Action AddPull(Command& app) {
  auto flags = std::make_shared<PullFlags>();
  Command c = app.Add("pull", "Fetch a model of the Hugging Face hub into its cache");
  c.Option("NAME", flags->name,
           "ORG/NAME (safetensors, or the GGUF file of type Q4_K_M), ORG/NAME:TYPE (a GGUF file: Q8_0), or ORG/NAME:FILE")
      .Required();
  c.Flag("--dry-run", flags->dry_run, "say which files, and how many bytes; fetch nothing but an index");
  c.Flag("--json", flags->json, "one JSON document on standard output");
  c.Footer(
      "A download that was cut off continues. Other commands take the same names as MODEL.\n"
      "Variables: HF_HOME, HF_HUB_CACHE (where), HF_TOKEN (for gated models), HF_ENDPOINT, HF_HUB_OFFLINE; https_proxy.");
  AddExamples(c, {"tally pull Qwen/Qwen3-0.6B", "tally pull bartowski/Llama-3.2-1B-Instruct-GGUF:Q4_K_M"});
  return [flags] { return Report(RunPull(*flags)); };
}

}  // namespace tally::app
