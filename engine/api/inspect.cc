#include "engine/api/inspect.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "loaders/loaders.h"
#include "models/family.h"

namespace tally {

Result<Inspection> InspectCheckpoint(const std::string& path) {
  Inspection out;
  TALLY_ASSIGN_OR_RETURN(out.inventory, ReadCheckpoint(path));
  for (const StoredTensor& t : out.inventory.tensors) {
    auto total = std::find_if(out.types.begin(), out.types.end(), [&](const auto& x) { return x.dtype == t.dtype; });
    if (total == out.types.end()) total = out.types.insert(out.types.end(), Inspection::TypeTotal{t.dtype, 0, 0, 0});
    ++total->tensors;
    total->elements += t.elements();
    total->bytes += t.bytes;
    out.elements += t.elements();
    out.bytes += t.bytes;
  }
  std::stable_sort(out.types.begin(), out.types.end(), [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  Result<ModelSpec> spec = ReadModelSpec(out.inventory);
  if (spec.ok()) {
    out.recipe = std::move(spec->recipe);
  } else {
    out.runnable = spec.status();
  }
  return out;
}

Result<std::unique_ptr<Tokenizer>> LoadTokenizer(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::path p(path);
  if (fs::is_directory(p, ignored) && !fs::exists(p / "config.json", ignored) && fs::exists(p / "tokenizer.json", ignored)) {
    return TokenizerFromJson((p / "tokenizer.json").string());
  }
  if (p.extension() == ".json" && p.filename() != "config.json") return TokenizerFromJson(path);
  TALLY_ASSIGN_OR_RETURN(const Inventory inventory, ReadCheckpoint(path));
  TALLY_ASSIGN_OR_RETURN(std::unique_ptr<Tokenizer> tokenizer, TokenizerFor(inventory));
  if (tokenizer == nullptr) return BadInput(path + ": the checkpoint has no tokenizer");
  return tokenizer;
}

}  // namespace tally
