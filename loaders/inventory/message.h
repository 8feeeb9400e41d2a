// SPDX-License-Identifier: Apache-2.0
// Pieces of the one line that an error is, beside those of engine/base/format.h: system errors in words, parts of paths.
#pragma once

#include <string>

#include "engine/base/format.h"

namespace tally::internal {

// strerror, thread-safe.
std::string ErrnoText(int error_number);

// The directory part of a path, "." if it has none; and the part after it.
std::string DirectoryOf(const std::string& path);
std::string FileNameOf(const std::string& path);
std::string JoinPath(const std::string& directory, const std::string& name);

}  // namespace tally::internal
