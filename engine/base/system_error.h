// SPDX-License-Identifier: Apache-2.0
// What the operating system refuses, as a status.
#pragma once

#include <string>

#include "engine/base/status.h"

namespace tally {

// kNoRoom if memory, disk, descriptors or threads are missing (ENOMEM, ENOSPC, EDQUOT, EMFILE, ENFILE, ENOBUFS, EAGAIN), else kBadInput.
StatusCode SystemErrorCode(int error_number);
// "No space left on device".
std::string SystemErrorText(int error_number);
// "WHAT: No space left on device".
Status SystemError(const std::string& what, int error_number);

}  // namespace tally
