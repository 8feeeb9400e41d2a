// SPDX-License-Identifier: Apache-2.0
// Shared by families that are DeepSeek-V3 with additions.
#pragma once

#include "engine/recipe/model_spec.h"
#include "models/config.h"

namespace tally {

// DeepSeekMoE, V2 or V3 by the architecture's name; names that are not DeepSeek's are read as V3.
void ReadDeepseek(Config& config, ModelSpec& spec);

}  // namespace tally
