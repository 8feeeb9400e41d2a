// SPDX-License-Identifier: Apache-2.0
#include "engine/base/system_error.h"

#include <cerrno>
#include <system_error>

namespace tally {

StatusCode SystemErrorCode(int error_number) {
  switch (error_number) {
    case ENOMEM:
    case ENOSPC:
    case EDQUOT:
    case EMFILE:
    case ENFILE:
    case ENOBUFS:
    case EAGAIN: return StatusCode::kNoRoom;
    default: return StatusCode::kBadInput;
  }
}

std::string SystemErrorText(int error_number) { return std::generic_category().message(error_number); }

Status SystemError(const std::string& what, int error_number) {
  return {SystemErrorCode(error_number), what + ": " + SystemErrorText(error_number)};
}

}  // namespace tally
