// SPDX-License-Identifier: Apache-2.0
#include "engine/studies/count.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "counters/books/weight_table.h"
#include "engine/base/format.h"
#include "engine/graph/plan.h"
#include "engine/session/engine_plan.h"
#include "loaders/loaders.h"
#include "models/catalog/catalog.h"
#include "models/catalog/recipe_settings.h"
#include "models/family.h"

namespace tally {
namespace {

struct Source {
  Recipe recipe;
  DType type = DType::kBF16;
  std::map<std::string, uint64_t> stored_bytes;
  std::string stored_as;
  books::PublishedFigures published;
  std::vector<std::string> notes;
  std::string other_method;  // CountTypes::other_method
  std::vector<PartNotRun> not_run;
  std::map<std::string, DType> stored_types;
  std::string type_note;  // CountTypes::note
  Status quantisation;    // CountedModel::quantisation
};

// What the user is told of how the configuration was read.
void AddNotes(ModelSpec& spec, std::vector<std::string>& notes) {
  notes.insert(notes.end(), spec.notes.begin(), spec.notes.end());
  if (!spec.defaults.empty()) notes.push_back(std::move(spec.defaults));
}

std::string TypeText(DType type) { return std::string(DTypeName(type)) + (IsOfExperts(type) ? " + BF16" : ""); }

// The bytes of parts that are described, not stored: as the plain type that the rest is published in.
std::vector<PartNotRun> AsType(std::vector<PartNotRun> parts, DType type) {
  for (PartNotRun& p : parts) {
    if (!p.bytes && p.parameters) p.bytes = StoredBytes(type, *p.parameters);
  }
  return parts;
}

books::PublishedFigures FiguresOf(const PublishedClaim& c) {
  return {std::string(c.total), std::string(c.active), std::string(c.non_embedding), std::string(c.source),
          c.body_and_prediction};
}

Source FromCatalog(CatalogModel model) {
  const DType type = IsOfExperts(model.expert_type) ? model.expert_type : model.type;
  return {std::move(model.recipe),
          type,
          {},
          TypeText(type),
          FiguresOf(model.claim),
          {},
          std::move(model.other_method),
          AsType(std::move(model.parts_not_run), model.type),
          {},
          {},
          {}};
}

Result<Source> FromConfig(const Inventory& inventory) {
  Source source;
  TALLY_ASSIGN_OR_RETURN(ModelSpec spec, ReadFamily(inventory));
  source.recipe = std::move(spec.recipe);
  AddNotes(spec, source.notes);
  TALLY_ASSIGN_OR_RETURN(const CountTypes types, ReadCountTypes(inventory));
  source.type_note = types.note;
  source.quantisation = CheckQuantMethod(inventory);
  source.type = IsOfExperts(types.expert_type) ? types.expert_type : types.type;
  source.stored_as = TypeText(source.type);
  source.other_method = types.other_method;
  source.not_run = AsType(std::move(spec.parts_not_run), types.type);
  return source;
}

// Counts the tensors with their stored bytes, of types that can be run or not. A model that cannot be run, or whose quantisation its
// family cannot claim, is counted from its configuration instead.
Result<Source> FromCheckpoint(const std::string& path) {
  TALLY_ASSIGN_OR_RETURN(const Inventory inventory, ReadCheckpoint(path));
  Source source;
  TALLY_ASSIGN_OR_RETURN(ModelSpec spec, ReadFamily(inventory));
  if (spec.recipe.counted_only) return FromConfig(inventory);
  if (const Status claimed = CheckClaims(inventory, spec); !claimed.ok()) {
    const bool quantised = !QuantMethodOf(inventory.metadata).empty() ||
                           std::ranges::any_of(inventory.tensors, [](const StoredTensor& t) { return !t.other_type.empty(); });
    if (inventory.format == FileFormat::kGguf || (CannotRun(spec.recipe).empty() && !quantised))
      return WithReasons(claimed, inventory, spec);
    TALLY_ASSIGN_OR_RETURN(source, FromConfig(inventory));
    source.notes.push_back("counted from its configuration: its tensors cannot be read yet (" + claimed.message() + ")");
    return source;
  }
  const std::vector<DType> types = books::WeightTypes(inventory, spec);
  for (size_t i = 0; const WeightInfo& w : books::WeightTable(inventory, spec)) {
    source.stored_bytes[w.name] = w.stored_bytes;
    source.stored_types[w.name] = types[i++];
  }
  source.stored_as = JoinTypes(MatrixTypes(inventory, spec));
  for (const StoredTensor& t : inventory.tensors) {
    if (t.other_type.empty() || source.stored_as.find(t.other_type) != std::string::npos) continue;
    source.stored_as += (source.stored_as.empty() ? "" : " + ") + Printable(t.other_type);
    source.notes.push_back("tensors of type " + Printable(t.other_type) + " (" + Printable(t.name) +
                           ") are counted, and cannot be run");
  }
  AddNotes(spec, source.notes);
  if (const books::NotRun n = books::CountNotRun(inventory, spec); !n.head.empty()) {
    source.notes.push_back(
        n.head + " is stored beside the tied embedding: " + books::WithThousands(n.head_bytes) + " bytes more, " +
        books::WithThousands(books::ClosedFormCounts(spec.recipe).total + n.head_parameters) + " parameters as stored");
  }
  source.recipe = std::move(spec.recipe);
  source.recipe.mtp_layers = 0;  // those that are stored are among the parts
  source.not_run = std::move(spec.parts_not_run);
  return source;
}

// Also true if listing fails, so that ReadCheckpoint reports the error.
bool HasSafetensors(const std::string& directory) {
  std::error_code error;
  for (auto at = std::filesystem::directory_iterator(directory, error); !error && at != std::filesystem::directory_iterator();
       at.increment(error)) {
    if (at->path().filename().string().find(".safetensors") != std::string::npos) return true;
  }
  return static_cast<bool>(error);
}

Result<Source> Find(const std::string& model) {
  namespace fs = std::filesystem;
  std::error_code error;
  const bool file = fs::exists(model, error), directory = fs::is_directory(model, error);
  const bool path =
      model.find('/') != std::string::npos || model.ends_with(".json") || model.ends_with(".gguf") || model.ends_with(".tally");
  if (!file || (directory && !path)) {  // a directory with the name of a built-in model does not hide it
    Result<CatalogModel> known = FindCatalogModel(model);
    if (known.ok()) return FromCatalog(std::move(known).value());
    if (!file && path) return BadInput(Printable(model) + ": no such file or directory");
    if (!file) return known.status();
  }
  const bool bare = directory && fs::exists(fs::path(model) / "config.json", error) && !HasSafetensors(model);
  if (!bare && !model.ends_with(".json")) return FromCheckpoint(model);
  TALLY_ASSIGN_OR_RETURN(const Inventory inventory, ReadConfigJson(bare ? (fs::path(model) / "config.json").string() : model));
  return FromConfig(inventory);
}

}  // namespace

Result<CountedModel> CountModel(const CountRequest& request) {
  TALLY_ASSIGN_OR_RETURN(Source source, Find(request.model));
  if (!request.settings.empty()) {
    if (source.recipe.counted_only) return BadInput(Printable(request.model) + ": settings are for models that run");
    TALLY_ASSIGN_OR_RETURN(source.recipe, ChangeRecipe(std::move(source.recipe), request.settings));
    source.published = {};
    source.stored_bytes.clear();  // no longer the file's model
    source.stored_types.clear();
    std::erase_if(source.not_run, [](const PartNotRun& p) { return p.parameters == 0u; });
    for (PartNotRun& p : source.not_run) p.parameters = p.bytes = std::nullopt;
    source.stored_as = TypeText(source.type);
  }
  books::CountOptions options = request.options;
  std::optional<DType> start_type;
  std::map<std::string, DType> start_types;
  if (IsOfExperts(source.type) && source.recipe.all.experts.n_experts == 0) {  // settings have taken the experts away
    source.type = DType::kBF16;
    source.stored_as = TypeText(source.type);
  }
  if (!request.type_given) {
    options.type = source.type;
    options.stored_bytes = std::move(source.stored_bytes);
    if (!source.type_note.empty()) source.notes.push_back(source.type_note);
    if (!source.other_method.empty()) {
      source.notes.push_back("its weights are quantised (" + Printable(source.other_method, 64) +
                             "): bytes are counted as if they were stored in " + source.stored_as);
    }
  } else {
    source.stored_as = TypeText(options.type);
    start_type = source.type;
    start_types = std::exchange(source.stored_types, {});
  }
  Result<books::Count> count = books::CountRecipe(source.recipe, std::move(options));
  if (!count.ok()) return BadInput(Printable(request.model) + ": " + count.status().message());
  for (const PartNotRun& p : source.not_run) {
    if (!p.parameters) source.notes.push_back("the parameters of its " + p.name + " are not counted");
  }
  count->warnings.insert(count->warnings.end(), source.notes.begin(), source.notes.end());
  return CountedModel{request.model,
                      std::move(count).value(),
                      std::move(source.stored_as),
                      std::move(source.stored_types),
                      std::move(source.published),
                      std::move(source.not_run),
                      start_type,
                      std::move(start_types),
                      std::move(source.quantisation)};
}

bool CountedModel::counts_part() const {
  return std::ranges::any_of(not_run, [](const PartNotRun& p) { return p.parameters != 0u; });
}

std::optional<uint64_t> CountedModel::all_parameters() const {
  uint64_t n = count.parameters.total;
  for (const PartNotRun& p : not_run) {
    if (!p.parameters) return std::nullopt;
    n += *p.parameters;
  }
  return n;
}

uint64_t CountedModel::known_parameters() const {
  uint64_t n = count.parameters.total;
  for (const PartNotRun& p : not_run) n += p.parameters.value_or(0);
  return n;
}

std::optional<uint64_t> CountedModel::all_bytes() const {
  uint64_t n = count.weight_bytes;
  for (const PartNotRun& p : not_run) {
    if (!p.bytes) return std::nullopt;
    n += *p.bytes;
  }
  return n;
}

std::vector<CountedModel> KnownModelsLike(const Recipe& recipe) {
  std::vector<CountedModel> like;
  const Result<books::Count> count = books::CountRecipe(recipe, {});
  if (!count.ok()) return like;
  const auto& n = count->parameters;
  for (const std::string_view name : KnownModels()) {
    const Result<CatalogModel> known = FindCatalogModel(name);
    if (!known.ok()) continue;
    const Recipe& r = known->recipe;
    const auto sizes = [](const Recipe& x) {
      return std::tuple(x.n_layers, x.d_model, x.vocab, x.all.attention.n_heads, x.all.attention.n_kv_heads,
                        x.all.attention.head_dim, x.all.ffn.width, x.all.experts.n_experts, x.all.experts.top_k);
    };
    if (sizes(r) != sizes(recipe)) continue;
    Result<CountedModel> counted = CountModel({.model = std::string(name), .settings = {}, .options = {}});
    if (!counted.ok()) continue;
    const auto& m = counted->count.parameters;
    if (std::tie(m.total, m.active_all, m.active_head, m.active_none) ==
        std::tie(n.total, n.active_all, n.active_head, n.active_none)) {
      like.push_back(std::move(counted).value());
    }
  }
  return like;
}

std::vector<KnownModelLine> KnownModelLines() {
  std::vector<KnownModelLine> lines;
  for (const std::string_view name : KnownModels()) {
    Result<CatalogModel> model = FindCatalogModel(name);
    if (!model.ok()) continue;
    lines.push_back({.name = name,
                     .aliases = CatalogAliases(name),
                     .family = model->recipe.family,
                     .runs = RunsFromCatalog(name),
                     .parameters = books::ClosedFormCounts(model->recipe),
                     .not_run = std::move(model->parts_not_run),
                     .published = FiguresOf(model->claim)});
  }
  return lines;
}

std::string_view KnownModelName(std::string_view given) { return CatalogName(given); }
std::vector<std::string_view> KnownModels() { return CountedNames(); }
std::string NearestKnownModels(std::string_view name) { return NearestCatalogNames(name, true); }
bool KnownModelRuns(std::string_view name) { return RunsFromCatalog(name); }
std::string SettingKeys() { return RecipeKeys(); }

}  // namespace tally
