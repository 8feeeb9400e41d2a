// What of a recipe the engine cannot run.
#pragma once

#include <string>
#include <vector>

#include "engine/recipe/recipe.h"

namespace tally {

// The options of a recipe that no kernel or graph covers, in words: "latent attention". Empty: the recipe can be run.
std::vector<std::string> CannotRun(const Recipe& recipe);

}  // namespace tally
