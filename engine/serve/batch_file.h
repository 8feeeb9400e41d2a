// SPDX-License-Identifier: Apache-2.0
// The lines of OpenAI's batch files (https://platform.openai.com/docs/api-reference/batch), and which requests of a file have their
// answers in another.
//
//   {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {...}}
//   {"id": "batch_req_...", "custom_id": "a", "response": {"status_code": 200, "request_id": "req_...", "body": {...}},
//    "error": null}
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/serve/api_request.h"
#include "engine/serve/line_reader.h"

namespace tally {

inline constexpr size_t kLongestBatchLine = size_t{16} << 20;  // bytes of a request

struct BatchRequest {
  std::optional<std::string> custom_id = {};  // none: the line has no readable one
  ApiRequest request = {};
  std::optional<ApiError> error = {};  // the line is refused
};
// A line of a file of requests. `strict`: a field of a body that would be ignored is refused.
BatchRequest ReadBatchRequest(const TextLine& line, bool strict = false);
// A blank line gets no answer.
bool IsBlank(const TextLine& line);

// A line of a file of answers, without its newline. `custom_id` may be none. A `status` of 200 is a success. `ignored`: ApiRequest's; the
// response has them if there are any.
std::string BatchAnswer(const std::optional<std::string>& custom_id, int status, OrderedJson body, const std::string& id,
                        const std::string& request_id, const std::vector<std::string>& ignored = {});

// What a run has to do.
struct BatchPlan {
  std::string requests, answers;  // paths
  uint64_t total = 0;             // requests
  uint64_t kept = 0;              // answers that exist already, to the first requests
  uint64_t kept_bytes = 0;        // of them
  uint64_t torn_bytes = 0;        // after them: the beginning of a line, to be dropped
  bool anew = false;              // all existing answers are dropped
  uint64_t left() const { return total - kept; }
};
// Reads both files and changes nothing. `anew`: existing answers do not count. The file of answers need not exist; a pipe or a device holds
// nothing. kBadInput: requests that cannot be read, or not twice; two requests of one custom_id; answers to other requests. kInterrupted.
Result<BatchPlan> PlanBatch(const std::string& requests, const std::string& answers, bool anew,
                            const std::function<bool()>& interrupted);

}  // namespace tally
