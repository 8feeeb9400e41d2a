// Published models as built-in facts, for counting without a checkpoint.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/base/dtype.h"
#include "engine/base/status.h"
#include "engine/recipe/recipe.h"

namespace tally {

// Parameters as the model's makers print them ("20.91B", "3,209M", "7,615,616,512"); empty where they say nothing.
struct PublishedClaim {
  std::string_view total, active, non_embedding;
  std::string_view source;   // where it stands
  bool from_memory = false;  // the text was not seen again when this was written: no evidence
};

struct CatalogModel {
  std::string_view name;
  Recipe recipe;
  DType type = DType::kBF16;         // what its weights are published in
  DType expert_type = DType::kBF16;  // of the experts' matrices, where it differs
  PublishedClaim claim;
  std::string_view note;  // what the recipe cannot say; mostly empty
};

std::vector<std::string_view> CatalogNames();  // in the table's order

// Any case; "NAME(text)" too, the text model of one that sees. kBadInput names the name and the nearest known ones.
Result<CatalogModel> FindCatalogModel(std::string_view name);

}  // namespace tally
