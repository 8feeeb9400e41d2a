// SPDX-License-Identifier: Apache-2.0
// One HTTP request and its answer; what carries it is behind this interface.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/status.h"
#include "engine/hub/hub.h"

namespace tally::hub {

struct Request {
  std::string url;
  std::string token;    // empty: none is sent
  std::string range;    // "100-", "0-99"; empty: the whole
  bool direct = false;  // through no proxy, whatever the environment says
};

struct Response {
  int status = 0;                                            // 0: none came
  std::vector<std::pair<std::string, std::string>> headers;  // names in lower case, in the order sent
  std::string_view Header(std::string_view name) const;      // the first of that name; empty: there is none
};

class Receiver {
 public:
  virtual ~Receiver() = default;
  virtual bool Body(const Response& response, std::span<const uint8_t> bytes) = 0;  // false: no more is wanted
  virtual bool GoOn() = 0;  // about once a second while nothing comes, too; false: stop
};

// How a request ended.
struct Exchange {
  Response response;
  bool whole = false;     // the body is complete, if its length was announced
  bool stopped = false;   // by the receiver
  std::string trouble;    // in words, if neither of these
  bool hopeless = false;  // another attempt will meet the same trouble
};

class Transport {
 public:
  virtual ~Transport() = default;
  // Redirects are answers like others.
  virtual Exchange Send(const Request& request, Receiver& receiver) = 0;
};

// libcurl, loaded on the first call. kBadInput: it cannot be loaded, or was missing when Tally was built.
Result<std::unique_ptr<Transport>> OpenCurl(const Settings& settings);

}  // namespace tally::hub
