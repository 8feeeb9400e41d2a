// SPDX-License-Identifier: Apache-2.0
#include "engine/hub/url.h"

#include <algorithm>
#include <charconv>

#include "engine/base/format.h"

namespace tally::hub {
namespace {

constexpr size_t kMaxUrlBytes = 16384;  // signed addresses have some thousand

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

uint16_t DefaultPort(std::string_view scheme) { return scheme == "https" ? 443 : 80; }

bool IsHostByte(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '-' || c == '_'; }

std::string_view Trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r')) text.remove_suffix(1);
  return text;
}

}  // namespace

std::string Url::text() const {
  return scheme + "://" + host + (port == DefaultPort(scheme) ? "" : ":" + std::to_string(port)) + path;
}

Result<Url> ParseUrl(std::string_view text) {
  const auto bad = [&](const char* why) { return BadInput(Quote(text.substr(0, text.find_first_of("?#"))) + " " + why); };
  if (text.size() > kMaxUrlBytes) return BadInput("an address of " + std::to_string(text.size()) + " bytes is too long");
  const auto is_url_byte = [](char c) { return c > 0x20 && c < 0x7f && c != '\\' && c != '"' && c != '<' && c != '>'; };
  if (!std::all_of(text.begin(), text.end(), is_url_byte)) return bad("has characters that no address has");
  const size_t colon = text.find("://");
  if (colon == text.npos) return bad("is no address: expected http:// or https://");
  Url url;
  for (const char c : text.substr(0, colon)) url.scheme += Lower(c);
  if (url.scheme != "http" && url.scheme != "https") return bad("is no address of http or https");
  const size_t begin = colon + 3, end = std::min(text.find_first_of("/?#", begin), text.size());
  std::string_view authority = text.substr(begin, end - begin);
  if (authority.find('@') != authority.npos) return BadInput("an address with a user's name or password in it is not taken");
  url.path = std::string(text.substr(end, text.find('#', end) - end));
  url.port = DefaultPort(url.scheme);
  const size_t bracket = authority.rfind(']'), port = authority.find(':', bracket == authority.npos ? 0 : bracket);
  if (port != authority.npos) {
    const std::optional<uint64_t> number = ParseCount(authority.substr(port + 1));
    if (!number || *number == 0 || *number > 65535) return bad("has a port that is no number from 1 to 65535");
    url.port = static_cast<uint16_t>(*number);
  }
  for (const char c : authority.substr(0, port)) url.host += Lower(c);
  const bool address = url.host.size() > 2 && url.host.front() == '[' && url.host.back() == ']';  // IPv6
  const bool plain = std::all_of(url.host.begin(), url.host.end(), IsHostByte);
  const auto hexadecimal = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || c == ':' || c == '.'; };
  if (url.host.empty() || !(address ? std::all_of(url.host.begin() + 1, url.host.end() - 1, hexadecimal) : plain)) {
    return bad("has no host that is one");
  }
  return url;
}

Result<Url> ResolveRedirect(const Url& base, std::string_view location) {
  location = Trimmed(location);
  if (location.empty()) return BadInput("a redirect that leads nowhere");
  const std::string root = base.scheme + "://" + base.host + ":" + std::to_string(base.port);
  std::string target(location);
  const size_t scheme = location.find(':'), stop = location.find_first_of("/?#");
  if (location.starts_with("//")) {
    target = base.scheme + ":" + target;
  } else if (location.starts_with("/")) {
    target = root + target;
  } else if (scheme == location.npos || (stop != location.npos && stop < scheme)) {  // relative to the folder
    const std::string_view path = std::string_view(base.path).substr(0, base.path.find_first_of("?#"));
    const size_t slash = path.rfind('/');
    target = root + (slash == path.npos ? "/" : std::string(path.substr(0, slash + 1))) + target;
  }
  TALLY_ASSIGN_OR_RETURN(Url url, ParseUrl(target));
  if (base.scheme == "https" && url.scheme != "https") {
    return BadInput("a redirect from https to http, at " + base.host + ", is not followed");
  }
  return url;
}

bool IsLoopback(std::string_view host) {
  if (host == "localhost" || host == "[::1]") return true;
  if (!host.starts_with("127.")) return false;
  int parts = 0;
  for (size_t begin = 0; begin <= host.size(); ++parts) {
    const size_t end = std::min(host.find('.', begin), host.size());
    const std::optional<uint64_t> number = ParseCount(host.substr(begin, end - begin));
    if (!number || *number > 255 || end - begin > 3) return false;
    begin = end + 1;
  }
  return parts == 4;
}

bool MaySendToken(const Url& endpoint, const Url& url) {
  return url.origin() == endpoint.origin() && (url.scheme == "https" || IsLoopback(url.host));
}

std::string EscapePath(std::string_view path) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  std::string out;
  for (const char c : path) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view("-._~/").find(c) != std::string_view::npos;
    const auto byte = static_cast<unsigned char>(c);
    if (plain) {
      out += c;
    } else {
      out += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
    }
  }
  return out;
}

std::string EtagValue(std::string_view header) {
  header = Trimmed(header);
  if (header.starts_with("W/")) header.remove_prefix(2);
  if (header.size() >= 2 && header.front() == '"' && header.back() == '"') header = header.substr(1, header.size() - 2);
  return std::string(header);
}

std::optional<uint64_t> ParseCount(std::string_view digits) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (digits.empty() || error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return value;
}

std::optional<double> RetryAfterSeconds(std::string_view header) {
  const std::optional<uint64_t> seconds = ParseCount(Trimmed(header));
  if (!seconds) return std::nullopt;
  return static_cast<double>(*seconds);
}

std::optional<ContentRange> ParseContentRange(std::string_view header) {
  header = Trimmed(header);
  if (!header.starts_with("bytes ")) return std::nullopt;
  header = Trimmed(header.substr(6));
  const size_t dash = header.find('-'), slash = header.find('/');
  if (dash == header.npos || slash == header.npos || slash < dash) return std::nullopt;
  const auto first = ParseCount(header.substr(0, dash)), last = ParseCount(header.substr(dash + 1, slash - dash - 1));
  const auto total = ParseCount(header.substr(slash + 1));
  if (!first || !last || *last < *first || (!total && header.substr(slash + 1) != "*")) return std::nullopt;
  return ContentRange{*first, *last, total};
}

}  // namespace tally::hub
