// SPDX-License-Identifier: Apache-2.0
// A line for each request that has been answered, and the ids by which clients and the log name requests.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/serve/api_answer.h"
#include "engine/serve/http_server.h"

namespace tally {

enum class LogForm : uint8_t { kPlain, kJson };

struct RequestRecord {
  int64_t time = 0;         // of the answer's end: seconds since 1970
  std::string client = {};  // its address
  std::string key = {};     // the key's name; empty: there was none
  std::string method = {}, path = {};
  int status = 0;
  double seconds = 0;                                 // since the request arrived
  std::string id = {};                                // RequestId
  std::string model = {};                             // that answered; empty: none
  std::optional<ApiUsage> usage = {};                 // none: no model ran
  std::vector<std::string> ignored = {}, notes = {};  // ApiRequest::ignored; Completion::notes
  std::string error = {};                             // the message of one; empty: none is known
};

// One line of at most kLongestLogLine bytes of ASCII, without its newline. Whatever a client sent is escaped.
//   2026-01-31T12:00:00Z 127.0.0.1 POST /v1/chat/completions 200 1.234s key="key 1" model=demo prompt=120 cached=96 generated=40 id=req_...
//   {"time", "client", "key", "method", "path", "status", "seconds", "id", "model", "prompt_tokens", "cached_tokens", "completion_tokens",
//    "ignored", "notes", "error"}
// Fields without a value are left out; key and model are null in JSON.
std::string LogLine(const RequestRecord& record, LogForm form);
inline constexpr size_t kLongestLogLine = 4095;  // with its newline no more than a pipe takes at once

// The names with ", " between them, as many as have kLongestNames bytes.
std::string JoinNames(const std::vector<std::string>& names);
inline constexpr size_t kLongestNames = 600;

// The X-Request-Id of a request, if it is there once and is 1 to 128 letters, digits and -_.:+/=@; else one of ours.
std::string RequestId(const HttpRequest& head, ApiIds& ids);

// "2026-01-31T12:00:00Z"
std::string UtcText(int64_t seconds);

}  // namespace tally
