// SPDX-License-Identifier: Apache-2.0
// Recipes changed by hand: `--set KEY=VALUE`.
#pragma once

#include <span>
#include <string>

#include "engine/base/status.h"
#include "engine/recipe/recipe.h"

namespace tally {

// Applies `settings` in order: "KEY=VALUE", or "KEY" alone for a yes-or-no key that is to be true. Values that depend on a changed key
// follow it. head_dim stays d_model / n_heads if it was that and is not set itself, and n_kv_heads stays n_heads in the same way; rope
// turns the same part of a head; a scale of 1/sqrt(head_dim) stays that; additional layers repeat the pattern of windows and of sparse
// layers. `window` is the width of the layers that have one, or of all layers if none has. Setting n_experts of a dense model makes every
// layer sparse from dense_layers on; 0 makes all dense. kBadInput names the key, what was given and what was expected; and what no longer
// fits together.
Result<Recipe> ChangeRecipe(Recipe recipe, std::span<const std::string> settings);

// The keys and what they take, for people, in one line.
std::string RecipeKeys();

}  // namespace tally
