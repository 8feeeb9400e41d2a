// SPDX-License-Identifier: Apache-2.0
// Parts of paths, for the one line that an error is.
#pragma once

#include <string>

#include "engine/base/format.h"

namespace tally::internal {

// The directory part of a path, "." if it has none; and the part after it.
std::string DirectoryOf(const std::string& path);
std::string FileNameOf(const std::string& path);
std::string JoinPath(const std::string& directory, const std::string& name);

}  // namespace tally::internal
