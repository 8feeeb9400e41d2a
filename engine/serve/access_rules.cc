// SPDX-License-Identifier: Apache-2.0
#include "engine/serve/access_rules.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "engine/base/digest.h"
#include "engine/base/format.h"

namespace tally {
namespace {

constexpr size_t kShortestKey = 16, kLongestKey = 512;  // bytes

// Host without its port, and an address of IPv6 without its brackets. Empty: it is malformed.
std::string HostName(std::string_view host) {
  if (host.starts_with('[')) {
    const size_t end = host.find(']');
    return end == host.npos ? "" : AsciiLower(host.substr(1, end - 1));
  }
  const size_t colon = host.find(':');
  if (colon != host.npos && host.find(':', colon + 1) != host.npos) return "";
  std::string name = AsciiLower(host.substr(0, colon));
  if (name.ends_with('.')) name.pop_back();
  return name;
}

// The origin of a page that this machine serves, on any port.
bool IsLocalOrigin(const std::string& lower) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!lower.starts_with(scheme)) continue;
    const std::string name = HostName(std::string_view(lower).substr(scheme.size()));
    return name == "localhost" || name.ends_with(".localhost") || IsLoopback(name);
  }
  return false;
}

bool IsAddress(const std::string& name) {
  in_addr v4{};
  in6_addr v6{};
  return ::inet_pton(AF_INET, name.c_str(), &v4) == 1 || ::inet_pton(AF_INET6, name.c_str(), &v6) == 1;
}

bool Contains(const std::vector<std::string>& list, std::string_view text) {
  return std::ranges::any_of(list, [&](const std::string& one) { return one == "*" || AsciiLower(one) == text; });
}

// The value of a header that occurs once. Programs disagree about one that occurs twice.
std::optional<std::string_view> OnlyHeader(const HttpHeaders& headers, std::string_view name) {
  if (std::ranges::count(headers, name, &std::pair<std::string, std::string>::first) != 1) return std::nullopt;
  return FindHeader(headers, name);
}

// True for names of headers with commas between them.
bool IsHeaderList(std::string_view text) {
  return text.size() <= 1024 && std::ranges::all_of(text, [](char c) {
           return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == ',' || c == ' ';
         });
}

ApiError Forbidden(std::string message, const char* code) {
  return {.status = 403, .message = std::move(message), .type = "invalid_request_error", .code = code};
}

}  // namespace

bool EqualInConstantTime(std::string_view given, std::string_view secret) {
  if (secret.empty()) return false;
  unsigned different = given.size() == secret.size() ? 0 : 1;
  size_t at = 0;  // in the secret, over and over
  for (const char c : given) {
    different |= static_cast<unsigned>(static_cast<unsigned char>(c) ^ static_cast<unsigned char>(secret[at]));
    at = at + 1 == secret.size() ? 0 : at + 1;
  }
  return different == 0;
}

bool AccessRules::AllowsHost(std::string_view host) const {
  const std::string name = HostName(host);
  if (name.empty()) return false;
  if (name == "localhost" || IsLoopback(name)) return true;
  if (!options_.loopback && IsAddress(name)) return true;  // rebinding needs a name
  return Contains(options_.hosts, name);
}

bool AccessRules::AllowsOrigin(std::string_view origin, std::string_view host) const {
  const std::string lower = AsciiLower(origin);
  // Behind a proxy the scheme may be another than ours.
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (lower.starts_with(scheme) && lower.substr(scheme.size()) == AsciiLower(host)) return true;
  }
  if (IsLocalOrigin(lower) && Contains(options_.origins, "local")) return true;
  return lower != "local" && Contains(options_.origins, lower);
}

// With the prefix alone too, from where clients are sent to the root.
bool AccessRules::IsRoot(std::string_view path) const { return path == options_.prefix + "/" || path == options_.prefix; }

AccessRules::Decision AccessRules::Check(const HttpRequest& head) const {
  const std::optional<std::string_view> host = OnlyHeader(head.headers, "host");
  if (!host || !AllowsHost(*host)) {
    return {.error = Forbidden("the Host " + (host ? Quote(*host) : std::string("that is missing or there twice")) +
                                   " is not allowed: --allow-host adds names",
                               "host_not_allowed")};
  }
  if (FindHeader(head.headers, "origin")) {
    const std::optional<std::string_view> origin = OnlyHeader(head.headers, "origin");
    if (!origin || !AllowsOrigin(*origin, *host)) {
      return {.error =
                  Forbidden("the Origin " + (origin ? Quote(*origin) : std::string("that is there twice")) +
                                " is not allowed: --allow-origin local allows pages on localhost, --allow-origin ORIGIN others",
                            "origin_not_allowed")};
    }
  }
  // If a page of another site fetches without CORS, the browser sends Sec-Fetch-Site and no Origin. "/" is allowed: a link to the chat
  // does no harm.
  if (!IsRoot(head.path) && !FindHeader(head.headers, "origin") && FindHeader(head.headers, "sec-fetch-site") == "cross-site") {
    return {.error = Forbidden("a page of another site may not ask", "origin_not_allowed")};
  }
  if (options_.keys.empty() || IsRoot(head.path) || head.path == options_.prefix + "/health" || head.method == "OPTIONS")
    return {};
  std::string_view given;
  if (const std::optional<std::string_view> value = OnlyHeader(head.headers, "authorization")) {
    constexpr std::string_view kScheme = "bearer ";
    if (AsciiLower(value->substr(0, kScheme.size())) == kScheme) given = value->substr(kScheme.size());
  } else if (!FindHeader(head.headers, "authorization")) {
    given = OnlyHeader(head.headers, "x-api-key").value_or("");
  }
  std::string client;
  for (size_t i = 0; i < options_.keys.size(); ++i) {  // all keys are compared, so that the time does not tell which one it is
    if (EqualInConstantTime(given, options_.keys[i])) client = "key " + std::to_string(i + 1);
  }
  if (!client.empty()) {
    Digest digest = Digest::Sha256();
    digest.Add({reinterpret_cast<const uint8_t*>(given.data()), given.size()});
    return {.client = std::move(client), .key = digest.Hex()};
  }
  return {.error = ApiError{.status = 401,
                            .message = given.empty() ? "a key is needed: Authorization: Bearer KEY, or X-Api-Key: KEY"
                                                     : "the key is not known here",
                            .type = "authentication_error",
                            .code = "invalid_api_key"}};
}

HttpHeaders AccessRules::CorsHeaders(const HttpRequest& head) const {
  const std::optional<std::string_view> origin = OnlyHeader(head.headers, "origin"), host = OnlyHeader(head.headers, "host");
  if (!origin || !host || !AllowsOrigin(*origin, *host)) return {};
  HttpHeaders headers = {{"Access-Control-Allow-Origin", std::string(*origin)}, {"Vary", "Origin"}};
  if (head.method != "OPTIONS") {
    headers.emplace_back("Access-Control-Expose-Headers", "x-request-id, x-tally-ignored, retry-after");
  } else {
    const std::string_view wanted = FindHeader(head.headers, "access-control-request-headers").value_or("");
    headers.emplace_back("Access-Control-Allow-Methods", "GET, POST, OPTIONS");
    headers.emplace_back("Access-Control-Allow-Headers",
                         IsHeaderList(wanted) && !wanted.empty()
                             ? std::string(wanted)
                             : "authorization, content-type, x-api-key, anthropic-version, x-tally");
    headers.emplace_back("Access-Control-Max-Age", "600");
  }
  return headers;
}

Result<std::vector<std::string>> ReadKeys(const std::string& place, std::string_view text) {
  std::vector<std::string> keys;
  for (size_t line = 1; !text.empty(); ++line) {
    const size_t end = text.find('\n');
    std::string_view key = text.substr(0, end);
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
    constexpr std::string_view kWhite = " \t\r";
    key.remove_prefix(std::min(key.find_first_not_of(kWhite), key.size()));
    while (!key.empty() && kWhite.find(key.back()) != kWhite.npos) key.remove_suffix(1);
    if (key.empty() || key.starts_with('#')) continue;
    const bool printable = std::ranges::all_of(key, [](char c) { return c > ' ' && c <= '~'; });
    if (!printable || key.size() < kShortestKey || key.size() > kLongestKey) {  // the message does not show the key
      return BadInput(place + ":" + std::to_string(line) + ": a key must be " + std::to_string(kShortestKey) + " to " +
                      std::to_string(kLongestKey) + " characters of printable ASCII without spaces");
    }
    keys.emplace_back(key);
  }
  if (keys.empty()) return BadInput(place + ": no key in it: expected one a line");
  return keys;
}

Result<std::string> ReadPathPrefix(const std::string& option, const std::string& text) {
  const std::string prefix = text.ends_with('/') ? text.substr(0, text.size() - 1) : text;
  const auto plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || std::string_view("/-._~").find(c) != std::string_view::npos;
  };
  const std::string parts = prefix + "/";
  const bool dots = parts.find("/./") != parts.npos || parts.find("/../") != parts.npos;
  if (prefix.empty()) return prefix;
  if (!prefix.starts_with('/') || dots || prefix.find("//") != prefix.npos || prefix.ends_with('/') ||
      !std::ranges::all_of(prefix, plain)) {
    return BadInput(option + ": " + Quote(text) + " is no path such as /llm: expected / and names of letters, digits and -._~");
  }
  return prefix;
}

}  // namespace tally
