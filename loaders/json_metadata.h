// SPDX-License-Identifier: Apache-2.0
// JSON of configurations as metadata.
#pragma once

#include <string>
#include <string_view>

#include "engine/base/status.h"
#include "loaders/inventory/inventory.h"

namespace tally::internal {

// Reads a JSON file and adds its values to `metadata`, keys flattened with dots and `prefix` in front of them. Arrays of scalars of one
// kind become vectors (integers and fractions mixed: doubles). Other arrays, objects and null are recorded as present (IsOther, IsNull).
// The key `skip`, unless it is empty, and keys below it are left out.
Status ReadJsonMetadata(const std::string& path, std::string_view prefix, std::string_view skip, Metadata* metadata);
// The same of a text. `place` goes in front of every message.
Status ParseJsonMetadata(const std::string& place, std::string_view text, std::string_view prefix, std::string_view skip,
                         Metadata* metadata);

}  // namespace tally::internal
