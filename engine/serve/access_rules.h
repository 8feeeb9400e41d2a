// SPDX-License-Identifier: Apache-2.0
// Access control by API keys and by the headers Host and Origin. A web page in a browser can send requests to a server on the same
// machine, under a host name that its owner lets resolve to 127.0.0.1 (DNS rebinding). Such requests are refused by their Host and
// Origin, which have that name.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/serve/api_error.h"
#include "engine/serve/http_server.h"

namespace tally {

struct AccessOptions {
  std::vector<std::string> keys = {};   // none: everybody may ask
  std::vector<std::string> hosts = {};  // names besides localhost and addresses, without port; "*": any
  std::vector<std::string> origins =
      {};                   // "https://chat.example.com", besides the server's own; "*": any; "local": those of this machine
  std::string prefix = {};  // of all paths, "/llm"
  bool loopback = true;     // the server listens on a loopback address, and answers to no other addresses
};

class AccessRules {
 public:
  explicit AccessRules(AccessOptions options) : options_(std::move(options)) {}

  // `client`, of an allowed request: "" if there are no keys, else the name of its key ("key 1"). An error: 401 no key or a wrong one;
  // 403 a Host or an Origin that is not allowed, or another site's page without an Origin. "/" and "/health", behind the prefix, need no
  // key.
  struct Decision {
    std::optional<ApiError> error = {};
    std::string client = {};
    std::string key = {};  // SHA-256 of the key, so that its place in the file does not matter; "" if there are no keys
  };
  Decision Check(const HttpRequest& head) const;
  // Headers of CORS (https://fetch.spec.whatwg.org/#http-cors-protocol) for the answer to a request with an Origin that is allowed; nothing
  // if the request has none, or its own.
  HttpHeaders CorsHeaders(const HttpRequest& head) const;

 private:
  bool IsRoot(std::string_view path) const;
  bool AllowsHost(std::string_view host) const;
  bool AllowsOrigin(std::string_view origin, std::string_view host) const;

  const AccessOptions options_;
};

// The keys of a file's text: a line each, without white space around them; empty lines and those that begin with # are skipped. kBadInput:
// no key, one of less than 16 or more than 512 bytes, one that is not of printable ASCII.
Result<std::vector<std::string>> ReadKeys(const std::string& place, std::string_view text);

// A prefix of all paths as `option` has it, "/llm" or "/llm/": without a slash at its end, so that "/" is none. kBadInput: it begins
// otherwise, has an empty or dotted part, or characters that a path would have to escape.
Result<std::string> ReadPathPrefix(const std::string& option, const std::string& text);
// Whether both are equal, in a time that depends on the length of `given` alone.
bool EqualInConstantTime(std::string_view given, std::string_view secret);

}  // namespace tally
