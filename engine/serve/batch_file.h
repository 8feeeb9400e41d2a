// SPDX-License-Identifier: Apache-2.0
// The lines of OpenAI's batch files (https://platform.openai.com/docs/api-reference/batch), and which requests of a file have their
// answers in another.
//
//   {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {...}}
//   {"id": "batch_req_...", "custom_id": "a", "response": {"status_code": 200, "request_id": "req_...", "body": {...}},
//    "error": null, "tally": {"request": ..., "model": ..., "settings": ...}}
//
// "tally" is ours: what the answer is of. A file is continued only by the same (BatchOrigin). It stands in each line, not in a file beside,
// so that lines that are copied, cut or joined keep it.
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

// What answers are made by. Lines of files that others wrote, or older versions, have the model's name at most.
struct BatchOrigin {
  std::string name = {};      // of the model, as answers have it
  std::string model = {};     // a fingerprint of its weights and vocabulary
  std::string settings = {};  // what changes answers besides: NAME=VALUE, with spaces between
  bool operator==(const BatchOrigin&) const = default;
};
// Ok if answers of `there` (in the file) and of `now` (this run) may stand in one file. kBadInput names `path` and what differs. A field
// that is empty in either is not compared; names are compared only if a fingerprint is missing.
Status CheckOrigin(const std::string& path, const BatchOrigin& there, const BatchOrigin& now);

// A sum of the line without white space at its ends, in hexadecimal digits.
std::string RequestSum(const TextLine& line);

// A line of a file of answers, without its newline. `custom_id` may be none. A `status` of 200 is a success. `request`: its RequestSum.
// `ignored`: ApiRequest's; the response has them if there are any.
std::string BatchAnswer(const std::optional<std::string>& custom_id, int status, OrderedJson body, const std::string& id,
                        const std::string& request_id, const std::string& request, const BatchOrigin& origin,
                        const std::vector<std::string>& ignored = {});

// What a run has to do.
struct BatchPlan {
  std::string requests, answers;  // paths
  uint64_t total = 0;             // requests
  uint64_t kept = 0;              // answers that exist already, to the first requests
  uint64_t kept_bytes = 0;        // of them
  uint64_t torn_bytes = 0;        // after them: the beginning of a line, to be dropped
  bool anew = false;              // all existing answers are dropped
  BatchOrigin origin = {};        // of the existing answers
  uint64_t left() const { return total - kept; }
};
// Reads both files and changes nothing. `anew`: existing answers do not count. The file of answers need not exist; a pipe or a device holds
// nothing. kBadInput: requests that cannot be read, or not twice; two requests of one custom_id; answers to other requests,
// or of several origins. kInterrupted.
Result<BatchPlan> PlanBatch(const std::string& requests, const std::string& answers, bool anew,
                            const std::function<bool()>& interrupted);

}  // namespace tally
