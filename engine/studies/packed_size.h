// SPDX-License-Identifier: Apache-2.0
// The size of weights as LoadWeights packs them, without data; internal to studies.
#pragma once

#include <cstdint>

#include "engine/kernels/weight_view.h"
#include "engine/recipe/recipe.h"
#include "engine/recipe/roles.h"
#include "engine/recipe/shard.h"

namespace tally {

// The type that a matrix is multiplied in. Latent attention's key matrix is packed transposed, which quantised types are widened for.
DType PackedType(Role role, DType stored);

// What a shard holds of a weight of this type (PackedType); empty: nothing.
WeightView PackedView(const Recipe& recipe, const Shard& shard, Role role, int32_t layer, DType type);
// Of all slices, without what rounds a slice up to a page.
uint64_t PackedBytes(const WeightView& view);

}  // namespace tally
