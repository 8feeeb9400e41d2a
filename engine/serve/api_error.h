// SPDX-License-Identifier: Apache-2.0
// Errors as OpenAI's API has them (https://platform.openai.com/docs/guides/error-codes).
#pragma once

#include <string>

#include "engine/base/status.h"
#include "engine/chat/limited_json.h"

namespace tally {

struct ApiError {
  int status = 400;          // of HTTP
  std::string message = {};  // one line
  std::string type = "invalid_request_error";
  std::string param = {};  // the field of the body, "messages[2].content"; empty: none
  std::string code = {};   // "unknown_parameter"; empty: none
};

// In the log: the client has left, and nobody is told. As nginx has it.
inline constexpr int kClientLeft = 499;

ApiError ShuttingDown();  // 503

// 400 for requests that cannot be honoured, 503 for no room, 500 for a defect.
ApiError ApiErrorOf(const Status& status);

// {"error": {"message", "type", "param", "code"}}
OrderedJson ErrorJson(const ApiError& error);

}  // namespace tally
