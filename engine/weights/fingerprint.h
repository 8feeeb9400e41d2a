// SPDX-License-Identifier: Apache-2.0
// A checksum of all weights of a model.
#pragma once

#include <cstdint>

#include "engine/machine/parallel.h"
#include "engine/weights/weights.h"

namespace tally {

// Covers the types, the shapes and all packed bytes: a changed bit in one weight always changes it. Excludes the padding between slices.
// Reads all weights once, in parallel on the team, those that are on disk from there. The same for any number of threads, with and
// without guards, for any place of the weights, and on every machine; another number where weights cannot be read.
uint64_t FingerprintOf(const PackedWeights& weights, Team& team);

}  // namespace tally
