// SPDX-License-Identifier: Apache-2.0
// What may stand in names and paths. They become paths on this machine, so that nothing else passes.
#pragma once

#include <string>
#include <string_view>

#include "engine/base/status.h"
#include "engine/hub/hub.h"

namespace tally::hub {

// A path of a file in a repository: relative, without "." and "..", backslashes and control characters.
Status CheckFilePath(std::string_view path);

std::string FolderOf(const Name& name);  // models--ORG--NAME

bool IsHex(std::string_view text, size_t digits);  // lower case

}  // namespace tally::hub
