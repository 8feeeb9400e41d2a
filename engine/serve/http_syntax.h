// SPDX-License-Identifier: Apache-2.0
// HTTP/1.1 as bytes (RFC 9112): the head of a request, and a body in chunks.
//
// Strict: what two programs may read in two ways is a fault. A proxy that takes the body's end elsewhere would pass one client's bytes on
// as the next one's request. So a head that has a bare CR or LF, a NUL or another control character, a folded line, white space before a
// colon, more than one length, a length beside a transfer coding, or a coding other than "chunked" is refused, never repaired.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tally {

// Names in small letters.
using HttpHeaders = std::vector<std::pair<std::string, std::string>>;
// The value of the first header of that name; none: there is none.
std::optional<std::string_view> FindHeader(const HttpHeaders& headers, std::string_view name);

std::string AsciiLower(std::string_view text);
// The value of a field of a query, "model=a%20b&x=1", decoded. Nullopt: it has none, or one that is not encoded rightly.
std::optional<std::string> QueryValue(std::string_view query, std::string_view name);

// Why a request is refused. The connection must end after it, as it is not known where the client's next request begins.
struct HttpFault {
  int status = 400;
  std::string message = {};
};

struct HttpHead {
  std::string method = {}, path = {};  // path: decoded, without the query
  std::string query = {};              // as it came
  HttpHeaders headers = {};
  bool version_1_0 = false;
  bool keep_alive = true;         // the client does not ask to close
  bool expects_continue = false;  // the client waits for "100 Continue" before it sends the body
  bool chunked = false;
  uint64_t length = 0;  // of the body, if it is not chunked; 2^64 - 1: that or more
};

// Looks for the end of the head that `bytes` begin with. `scanned`: how many of them an earlier call has seen. Returns the head's size, 0
// if its end has not come.
[[nodiscard]] std::optional<HttpFault> FindHeadEnd(std::string_view bytes, size_t scanned, size_t* size);
// `bytes`: a head that FindHeadEnd has found. After a fault `head` has what stands before it.
[[nodiscard]] std::optional<HttpFault> ReadHead(std::string_view bytes, HttpHead* head);

// A body in chunks, as it comes. Extensions and trailers are checked and dropped.
class ChunkReader {
 public:
  // Takes bytes, appends to `body` what they hold of it, and adds to `taken` how many belong to it: all, unless it ends among them.
  [[nodiscard]] std::optional<HttpFault> Read(std::string_view bytes, std::string* body, size_t* taken);
  bool ended() const { return state_ == State::kEnded; }

 private:
  enum class State : uint8_t { kSize, kData, kDataEnd, kTrailer, kEnded };
  std::optional<HttpFault> TakeLine();

  State state_ = State::kSize;
  std::string line_;           // without its end
  bool after_return_ = false;  // a CR came, whose LF has not
  uint64_t left_ = 0;          // of the chunk
  size_t trailer_bytes_ = 0;
};

}  // namespace tally
