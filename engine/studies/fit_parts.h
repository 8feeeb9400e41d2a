// SPDX-License-Identifier: Apache-2.0
// What the fit of one machine and that of several share; internal to studies.
#pragma once

#include <map>
#include <utility>

#include "engine/kernels/weight_view.h"
#include "engine/recipe/recipe.h"
#include "engine/recipe/roles.h"
#include "engine/studies/fit.h"

namespace tally {

// The weights as LoadWeights would pack them, without data.
struct PackedViews {
  std::map<std::pair<Role, int32_t>, WeightView> views;
  uint64_t bytes = 0;

  WeightView View(const Recipe& recipe, Role role, int32_t layer) const {
    if (role == Role::kHead && recipe.tied_head) role = Role::kTokenEmbedding;
    const auto found = views.find({role, layer});
    return found == views.end() ? WeightView() : found->second;
  }
};
// kBadInput: a model or a type that cannot be run.
Result<PackedViews> PackedOf(const CountedModel& model, const Shard& shard);

// With the defaults filled in. kBadInput: a batch or a context out of range.
Result<FitOptions> FitDefaults(const Recipe& recipe, FitOptions options);
Result<books::Count> CountSteps(const CountedModel& model, const FitOptions& options);

}  // namespace tally
