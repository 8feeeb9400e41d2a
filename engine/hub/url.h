// SPDX-License-Identifier: Apache-2.0
// Addresses (RFC 3986), as far as redirects need them, and what headers say.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "engine/base/status.h"

namespace tally::hub {

struct Url {
  std::string scheme, host;  // lower case
  uint16_t port = 0;
  std::string path;  // and query: "" or "/..." or "?..."
  std::string origin() const { return scheme + "://" + host + ":" + std::to_string(port); }
  std::string text() const;
};

// http or https. kBadInput: another scheme, a user or password in it, characters that no address has. The message has no query, which
// may be a signature.
Result<Url> ParseUrl(std::string_view text);

// Where a redirect from `base` leads. kBadInput also if it leaves https for http.
Result<Url> ResolveRedirect(const Url& base, std::string_view location);

// This machine by name or address: localhost, 127.0.0.0/8 in four decimal numbers, [::1].
bool IsLoopback(std::string_view host);

// Whether a token for `endpoint` may be sent with a request to `url`: same scheme, host and port, and not in the clear over a network.
bool MaySendToken(const Url& endpoint, const Url& url);

std::string EscapePath(std::string_view path);  // %XX for all but unreserved characters and '/'

// The value of an ETag: "abc" and W/"abc" are abc.
std::string EtagValue(std::string_view header);

// Retry-After in seconds; none: absent, or a date.
std::optional<double> RetryAfterSeconds(std::string_view header);

// "bytes 100-199/1000"
struct ContentRange {
  uint64_t first = 0, last = 0;
  std::optional<uint64_t> total;
};
std::optional<ContentRange> ParseContentRange(std::string_view header);

std::optional<uint64_t> ParseCount(std::string_view digits);  // decimal digits only

}  // namespace tally::hub
