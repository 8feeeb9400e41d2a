// SPDX-License-Identifier: Apache-2.0
// The safetensors format: 8 bytes of header length (little-endian), a JSON header, the tensors' bytes.
// Source: the format section of huggingface/safetensors' README.
#pragma once

#include <cstdint>
#include <string>

#include "loaders/inventory/inventory.h"

namespace tally::internal {

// Adds the file and its tensors, in the order of their bytes, to the inventory. Every byte of the file must
// be the header's or one tensor's.
Status ReadSafetensors(const std::string& path, Inventory* inventory);

}  // namespace tally::internal
