// SPDX-License-Identifier: Apache-2.0
// Limits and checks that the readers of all formats share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "loaders/inventory/inventory.h"

namespace tally::internal {

// The largest checkpoints published so far have some 200,000 tensors.
inline constexpr uint64_t kMaxTensors = uint64_t{1} << 20;
inline constexpr uint64_t kMaxTensorNameBytes = 1024;
// Published checkpoints have some dozens. A key takes some ten times its bytes.
inline constexpr uint64_t kMaxMetadataKeys = uint64_t{1} << 18;

// Two tensors of one name are an error. (Sorted comparison: a hash table could be made slow by the file.)
Status CheckUniqueNames(const std::string& path, const std::vector<StoredTensor>& tensors);

}  // namespace tally::internal
