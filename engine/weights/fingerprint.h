// SPDX-License-Identifier: Apache-2.0
// A checksum of all weights of a model.
#pragma once

#include <cstdint>

#include "engine/machine/parallel.h"
#include "engine/weights/weights.h"

namespace tally {

// Of the types, shapes and all packed bytes; a changed bit in one weight always changes it. The padding between slices is left out. Reads
// all weights once, in parallel on the team. The same for any number of threads, with and without guards, and on every machine.
uint64_t FingerprintOf(const PackedWeights& weights, Team& team);

}  // namespace tally
