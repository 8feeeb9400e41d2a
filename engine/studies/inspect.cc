// SPDX-License-Identifier: Apache-2.0
#include "engine/studies/inspect.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "counters/books/weight_table.h"
#include "engine/session/engine_plan.h"
#include "loaders/loaders.h"
#include "models/family.h"

namespace tally {

Result<Inspection> InspectCheckpoint(const std::string& path) {
  Inspection out;
  TALLY_ASSIGN_OR_RETURN(out.inventory, ReadCheckpoint(path));
  for (const StoredTensor& t : out.inventory.tensors) {
    auto total = std::find_if(out.types.begin(), out.types.end(), [&](const auto& x) { return x.type == t.type_name(); });
    if (total == out.types.end())
      total = out.types.insert(out.types.end(), Inspection::TypeTotal{std::string(t.type_name()), 0, 0, 0});
    ++total->tensors;
    total->elements += t.elements();
    total->bytes += t.bytes;
    out.elements += t.elements();
    out.bytes += t.bytes;
  }
  std::stable_sort(out.types.begin(), out.types.end(), [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  const Result<ModelSpec> spec = ReadFamily(out.inventory);
  if (spec.ok()) out.recipe = spec->recipe;
  const Result<std::unique_ptr<Tokenizer>> tokenizer = TokenizerFor(out.inventory);
  out.notes = NotesOf(spec.ok() ? *spec : ModelSpec(), tokenizer.ok() ? tokenizer->get() : nullptr);
  if (spec.ok() && !spec->defaults.empty()) out.notes.push_back(spec->defaults);
  if (!tokenizer.ok()) out.notes.push_back("no text: " + tokenizer.status().message());
  const bool counted_only = spec.ok() && spec->recipe.counted_only;
  out.runnable = !spec.ok() ? spec.status() : counted_only ? CheckRunnable(out.recipe) : CheckClaims(out.inventory, *spec);
  if (out.runnable.ok()) {
    out.parameters = books::CountParameters(books::WeightTable(out.inventory, *spec), spec->recipe.all.experts.top_k);
    out.not_run = books::CountNotRun(out.inventory, *spec);
    out.runnable = CheckTypes(out.inventory, *spec);
  }
  if (out.runnable.ok()) out.runnable = CheckRunnable(out.recipe);
  if (const Status method = CheckQuantMethod(out.inventory); spec.ok() && !method.ok()) out.runnable = method;
  return out;
}

Result<std::unique_ptr<Tokenizer>> LoadTokenizer(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const auto exists = [&](const fs::path& file) { return fs::symlink_status(file, ignored).type() != fs::file_type::not_found; };
  const fs::path p(path);
  const bool directory = fs::is_directory(p, ignored), config = p.filename() == "config.json";
  if (directory || config) {  // weights need not be there
    const fs::path folder = directory ? p : p.parent_path();
    if (exists(folder / "tokenizer.json")) return TokenizerFromJson((folder / "tokenizer.json").string());
    TALLY_RETURN_IF_ERROR(UnreadTokenizer(folder.empty() ? "." : folder.string()));
    if (exists(folder / "config.json")) return BadInput(path + ": the checkpoint has no tokenizer.json");
  }
  TALLY_RETURN_IF_ERROR(UnreadTokenizer(path));
  if (p.extension() == ".json" && !config) return TokenizerFromJson(path);
  TALLY_ASSIGN_OR_RETURN(const Inventory inventory, ReadCheckpoint(path));
  TALLY_ASSIGN_OR_RETURN(std::unique_ptr<Tokenizer> tokenizer, TokenizerFor(inventory));
  if (tokenizer == nullptr) return BadInput(path + ": the checkpoint has no tokenizer");
  return tokenizer;
}

Result<std::unique_ptr<Tokenizer>> LoadRanks(const std::string& path, const std::string& encoding) {
  return TokenizerFromRanks(path, encoding);
}

}  // namespace tally
