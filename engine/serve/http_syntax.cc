// SPDX-License-Identifier: Apache-2.0
#include "engine/serve/http_syntax.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <limits>

namespace tally {
namespace {

constexpr size_t kMostSizeLine = 1024, kMostTrailer = 8192;  // bytes
constexpr size_t kMostSizeDigits = 16;

HttpFault Fault(std::string message, int status = 400) { return {status, std::move(message)}; }

// A control character other than a tab.
bool IsControlCharacter(char c) { return (static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7f; }

bool IsTokenCharacter(char c) {
  constexpr std::string_view kOthers = "!#$%&'*+-.^_`|~";
  return static_cast<unsigned char>(c) < 0x80 &&
         (std::isalnum(static_cast<unsigned char>(c)) != 0 || kOthers.find(c) != kOthers.npos);
}
bool IsHttpToken(std::string_view text) { return !text.empty() && std::ranges::all_of(text, IsTokenCharacter); }

bool IsDigits(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

std::string_view TrimBlanks(std::string_view text) {
  constexpr std::string_view kBlanks = " \t";
  text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
  return text.substr(0, text.find_last_not_of(kBlanks) + 1);
}

// "Name: value". FindHeadEnd and ChunkReader have looked for control characters.
std::optional<HttpFault> ReadField(std::string_view line, std::pair<std::string, std::string>* field) {
  if (line.starts_with(' ') || line.starts_with('\t')) return Fault("a header is folded over two lines");
  const size_t colon = line.find(':');
  if (colon == line.npos) return Fault("a line of the headers has no colon");
  const std::string_view name = line.substr(0, colon);
  if (!IsHttpToken(name)) return Fault("a header's name has a character that is not allowed there");
  *field = {AsciiLower(name), std::string(TrimBlanks(line.substr(colon + 1)))};
  return std::nullopt;
}

// The value of a header that occurs at most once.
std::optional<HttpFault> ReadOnly(const HttpHeaders& headers, std::string_view name, std::optional<std::string_view>* value) {
  *value = FindHeader(headers, name);
  if (std::ranges::count(headers, name, &std::pair<std::string, std::string>::first) <= 1) return std::nullopt;
  return Fault("the header " + std::string(name) + " is there twice");
}

// "http://host:port/path" -> "/path", and the host counts instead of the header's (RFC 9112, section 3.2.2).
std::optional<HttpFault> ReadTarget(std::string_view target, HttpHead* head, std::optional<std::string>* host) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (AsciiLower(target.substr(0, scheme.size())) != scheme) continue;
    target.remove_prefix(scheme.size());
    const size_t end = std::min(target.find_first_of("/?"), target.size());
    *host = std::string(target.substr(0, end));
    target.remove_prefix(end);
    if (!target.starts_with('/')) head->path = "/";
    break;
  }
  const bool asterisk = target == "*" && head->method == "OPTIONS";
  if (!target.starts_with('/') && !asterisk && !*host) return Fault("the request's target is no path");
  const size_t path_end = std::min(target.find('?'), target.size());
  head->query = target.substr(std::min(path_end + 1, target.size()));
  target = target.substr(0, path_end);
  for (size_t i = 0; i < target.size(); ++i) {
    if (target[i] != '%') {
      head->path += target[i];
      continue;
    }
    const int high = i + 2 < target.size() ? HexDigit(target[i + 1]) : -1, low = high >= 0 ? HexDigit(target[i + 2]) : -1;
    if (low < 0 || high * 16 + low == 0) return Fault("the request's target has a % without two digits behind it, or %00");
    head->path += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return std::nullopt;
}

std::optional<HttpFault> ReadRequestLine(std::string_view line, HttpHead* head, std::optional<std::string>* host) {
  const size_t first = line.find(' '), last = line.rfind(' ');
  if (first == line.npos || first == last || line.find(' ', first + 1) != last) {
    return Fault("the first line is not METHOD TARGET HTTP/1.1");
  }
  const std::string_view method = line.substr(0, first), target = line.substr(first + 1, last - first - 1),
                         version = line.substr(last + 1);
  if (!IsHttpToken(method)) return Fault("the request's method has a character that is not allowed there");
  if (target.empty() || target.find('\t') != target.npos) return Fault("the request's target is empty, or has white space");
  constexpr std::string_view kHttp = "HTTP/";
  const bool shaped = version.size() == kHttp.size() + 3 && version.starts_with(kHttp) && version[kHttp.size() + 1] == '.' &&
                      IsDigits(version.substr(kHttp.size(), 1)) && IsDigits(version.substr(kHttp.size() + 2));
  if (!shaped) return Fault("the first line is not METHOD TARGET HTTP/1.1");
  if (version[kHttp.size()] != '1') return Fault("only HTTP/1.1 and HTTP/1.0 are spoken here", 505);
  head->version_1_0 = version.back() == '0';
  head->method = method;
  return ReadTarget(target, head, host);
}

// Where the body ends (RFC 9112, section 6.3).
std::optional<HttpFault> ReadFraming(HttpHead* head) {
  std::optional<std::string_view> length, coding;
  if (std::optional<HttpFault> fault = ReadOnly(head->headers, "content-length", &length)) return fault;
  if (std::optional<HttpFault> fault = ReadOnly(head->headers, "transfer-encoding", &coding)) return fault;
  if (coding) {
    if (length) return Fault("content-length and transfer-encoding are both there");
    if (head->version_1_0) return Fault("HTTP/1.0 has no transfer-encoding");
    if (AsciiLower(*coding) != "chunked") return Fault("the transfer-encoding is not chunked");
    head->chunked = true;
  } else if (length) {
    if (!IsDigits(*length)) return Fault("the content-length is no number");
    const auto [end, error] = std::from_chars(length->data(), length->data() + length->size(), head->length);
    if (error != std::errc()) head->length = std::numeric_limits<uint64_t>::max();
  }
  return std::nullopt;
}

// Whether a list of words with commas between them has `word`.
bool Lists(const HttpHeaders& headers, std::string_view name, std::string_view word) {
  for (const auto& [key, value] : headers) {
    if (key != name) continue;
    for (std::string_view rest = value; !rest.empty();) {
      const size_t comma = std::min(rest.find(','), rest.size());
      if (AsciiLower(TrimBlanks(rest.substr(0, comma))) == word) return true;
      rest.remove_prefix(std::min(comma + 1, rest.size()));
    }
  }
  return false;
}

// ";name=value;name="quoted"", without white space.
bool AreExtensions(std::string_view text) {
  const auto skip = [&text](auto is) {
    const auto* const end = std::ranges::find_if_not(text, is);
    const auto n = static_cast<size_t>(end - text.begin());
    text.remove_prefix(n);
    return n > 0;
  };
  while (!text.empty()) {
    if (text[0] != ';') return false;
    text.remove_prefix(1);
    if (!skip(IsTokenCharacter)) return false;
    if (!text.starts_with('=')) continue;
    text.remove_prefix(1);
    if (!text.starts_with('"')) {
      if (!skip(IsTokenCharacter)) return false;
      continue;
    }
    size_t at = 1;
    while (at < text.size() && text[at] != '"') at += text[at] == '\\' ? 2 : 1;
    if (at >= text.size()) return false;
    text.remove_prefix(at + 1);
  }
  return true;
}

}  // namespace

std::string AsciiLower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

std::optional<std::string_view> FindHeader(const HttpHeaders& headers, std::string_view name) {
  for (const auto& [key, value] : headers) {
    if (key == name) return value;
  }
  return std::nullopt;
}

std::optional<std::string> QueryValue(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const std::string_view field = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(field.size() + 1, query.size()));
    if (!field.starts_with(name) || field.substr(name.size(), 1) != "=") continue;
    std::string value;
    for (std::string_view rest = field.substr(name.size() + 1); !rest.empty();) {
      if (rest[0] != '%') {
        value += rest[0] == '+' ? ' ' : rest[0];
        rest.remove_prefix(1);
        continue;
      }
      const int high = rest.size() > 2 ? HexDigit(rest[1]) : -1, low = high >= 0 ? HexDigit(rest[2]) : -1;
      if (low < 0) return std::nullopt;
      value += static_cast<char>(high * 16 + low);
      rest.remove_prefix(3);
    }
    return value;
  }
  return std::nullopt;
}

std::optional<HttpFault> FindHeadEnd(std::string_view bytes, size_t scanned, size_t* size) {
  *size = 0;
  for (size_t i = scanned; i < bytes.size(); ++i) {
    const char c = bytes[i];
    const bool after_return = i > 0 && bytes[i - 1] == '\r';
    if (after_return && c != '\n') return Fault("the headers have a CR without its LF");
    if (c == '\n') {
      if (!after_return) return Fault("the headers have an LF without its CR");
      if (i == 1) return Fault("the first line is empty");
      if (bytes.substr(0, i + 1).ends_with("\r\n\r\n")) {
        *size = i + 1;
        return std::nullopt;
      }
    } else if (c != '\r' && IsControlCharacter(c)) {
      return Fault("the headers have a control character");
    }
  }
  return std::nullopt;
}

std::optional<HttpFault> ReadHead(std::string_view bytes, HttpHead* head) {
  std::optional<std::string> host;  // of the target
  size_t end = bytes.find("\r\n");
  if (std::optional<HttpFault> fault = ReadRequestLine(bytes.substr(0, end), head, &host)) return fault;
  for (bytes.remove_prefix(end + 2); !bytes.starts_with("\r\n"); bytes.remove_prefix(end + 2)) {
    end = bytes.find("\r\n");
    std::pair<std::string, std::string> field;
    if (std::optional<HttpFault> fault = ReadField(bytes.substr(0, end), &field)) return fault;
    head->headers.push_back(std::move(field));
  }
  if (std::optional<HttpFault> fault = ReadFraming(head)) return fault;
  std::optional<std::string_view> given;
  if (std::optional<HttpFault> fault = ReadOnly(head->headers, "host", &given)) return fault;
  if (!given && !head->version_1_0) return Fault("there is no header host");
  if (host) {
    std::erase_if(head->headers, [](const auto& field) { return field.first == "host"; });
    head->headers.emplace_back("host", std::move(*host));
  }
  head->keep_alive = !head->version_1_0 && !Lists(head->headers, "connection", "close");
  head->expects_continue = !head->version_1_0 && Lists(head->headers, "expect", "100-continue");
  return std::nullopt;
}

// The end of a line has come: of a chunk's size, of its data, or of a trailer.
std::optional<HttpFault> ChunkReader::TakeLine() {
  const std::string line = std::exchange(line_, {});
  if (state_ == State::kDataEnd) {
    state_ = State::kSize;
    return std::nullopt;
  }
  if (state_ == State::kTrailer) {
    trailer_bytes_ += line.size() + 2;
    if (trailer_bytes_ > kMostTrailer) return Fault("the body's trailers are too long", 431);
    std::pair<std::string, std::string> dropped;
    if (!line.empty()) return ReadField(line, &dropped);
    state_ = State::kEnded;
    return std::nullopt;
  }
  const size_t digits = static_cast<size_t>(std::ranges::find_if(line, [](char c) { return HexDigit(c) < 0; }) - line.begin());
  if (digits == 0 || digits > kMostSizeDigits) return Fault("a chunk's size is no hexadecimal number, or too long");
  if (!AreExtensions(std::string_view(line).substr(digits))) return Fault("a chunk's size has something else behind it");
  left_ = 0;
  for (size_t i = 0; i < digits; ++i) left_ = left_ * 16 + static_cast<uint64_t>(HexDigit(line[i]));
  state_ = left_ > 0 ? State::kData : State::kTrailer;
  return std::nullopt;
}

std::optional<HttpFault> ChunkReader::Read(std::string_view bytes, std::string* body, size_t* taken) {
  size_t at = 0;
  while (at < bytes.size() && state_ != State::kEnded) {
    if (state_ == State::kData) {
      const auto n = static_cast<size_t>(std::min<uint64_t>(left_, bytes.size() - at));
      body->append(bytes.substr(at, n));
      at += n;
      left_ -= n;
      if (left_ == 0) state_ = State::kDataEnd;
      continue;
    }
    const char c = bytes[at++];
    if (std::exchange(after_return_, false)) {
      if (c != '\n') return Fault("the body's chunks have a CR without its LF");
      if (std::optional<HttpFault> fault = TakeLine()) return fault;
    } else if (c == '\r') {
      after_return_ = true;
    } else if (state_ == State::kDataEnd) {
      return Fault("a chunk is longer than its size");
    } else if (IsControlCharacter(c)) {
      return Fault("the body's chunks have a control character, or an LF without its CR");
    } else if (line_.size() >= (state_ == State::kSize ? kMostSizeLine : kMostTrailer)) {
      return Fault("a line of the body's chunks is too long");
    } else {
      line_ += c;
    }
  }
  *taken += at;
  return std::nullopt;
}

}  // namespace tally
