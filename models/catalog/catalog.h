// SPDX-License-Identifier: Apache-2.0
// Published models, for counting without a checkpoint. published.inc and published_m_to_z.inc list them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/dtype.h"
#include "engine/base/status.h"
#include "engine/recipe/recipe.h"

namespace tally {

// Parameters as the model's makers print them ("20.91B", "3,209M", "7,615,616,512"); empty if not published.
struct PublishedClaim {
  std::string_view total, active, non_embedding;
  std::string_view source;           // where the figures were seen; empty: nothing is known to be published
  bool body_and_prediction = false;  // the source says that it counts multi-token prediction, and neither embedding nor head
};

struct CatalogModel {
  std::string_view name;
  Recipe recipe;
  DType type = DType::kBF16;         // published type of the weights
  DType expert_type = DType::kBF16;  // published type of the experts' matrices
  PublishedClaim claim;
  std::string other_method;  // CountTypes::other_method
  std::vector<PartNotRun> parts_not_run;
};

// The models of published.inc that run, in its order.
std::vector<std::string_view> CatalogNames();
// All models: these, the counted-only ones, and those of variants.inc, which differ from others in sizes.
std::vector<std::string_view> CountedNames();
// True for models that run.
bool RunsFromCatalog(std::string_view name);

// The name of the model that is called so, as it is listed; empty: there is none. Case, '-', '.', '_' and ':' do not matter, an alias
// (aliases.inc) is as good, and "NAME(text)" is the text part of a model with vision.
std::string_view CatalogName(std::string_view given);
// Its aliases, beside those that differ in case and marks only.
std::vector<std::string_view> CatalogAliases(std::string_view name);
size_t CatalogAliasCount();  // of all

// The names that are most like `name`, three at most; `only_near`: without those that differ in more than a third of their letters.
std::string NearestCatalogNames(std::string_view name, bool only_near = false);

// The text of the model's config.json, without the keys that say nothing of its shape; empty: unknown. `name` as in
// FindCatalogModel.
std::string PublishedConfig(std::string_view name);

// The recipe is what the model's family reads in its configuration (ReadFamily). `name` as in CatalogName. kBadInput names it and the
// nearest known names.
Result<CatalogModel> FindCatalogModel(std::string_view name);

}  // namespace tally
