// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "engine/kernels/pack_act/act_pack.h"

namespace tally {

// Packs row `j` of a tile of `rows` rows, in runs of `run` bytes; the layout is act_pack.h's. Dispatched by Highway.
void PackRowHwy(const ActPack& pack, const float* x, uint8_t* tile, int64_t rows, int64_t j, int64_t run);

}  // namespace tally
