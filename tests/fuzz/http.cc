// SPDX-License-Identifier: Apache-2.0
// Requests of HTTP/1.1, whole and byte by byte: the same is read, and it can be written in one way.
#include "engine/serve/http_syntax.h"
#include "tests/fuzz/harness.h"
#include "tests/fuzz/targets.h"

namespace tally::fuzz {
namespace {

void RequireFault(const HttpFault& fault) {
  Require(fault.status >= 400 && fault.status < 600, "a fault of no status");
  RequireOneLine(BadInput(fault.message));
}

void RequireHead(const HttpHead& head) {
  Require(!head.method.empty() && !head.path.empty(), "no method, or no path");
  Require(!(head.chunked && (head.length != 0 || head.version_1_0)), "two ends of a body");
  int framings = 0;
  std::string text = "GET / HTTP/1." + std::string(head.version_1_0 ? "0" : "1") + "\r\n";
  for (const auto& [name, value] : head.headers) {
    Require(!name.empty() && name == AsciiLower(name), "a name that is not in small letters");
    for (const char c : name + value) Require(c != '\r' && c != '\n' && c != '\0', "a line's end in a header");
    Require(!value.starts_with(' ') && !value.ends_with('\t'), "blanks around a value");
    framings += name == "content-length" || name == "transfer-encoding" ? 1 : 0;
    text += name + ": " + value + "\r\n";
  }
  Require(framings <= 1, "two framings");
  text += "\r\n";
  size_t size = 0;
  HttpHead again;
  Require(!FindHeadEnd(text, 0, &size) && size == text.size() && !ReadHead(text, &again), "not read again");
  Require(again.headers == head.headers && again.chunked == head.chunked && again.length == head.length, "read otherwise");
}

void RunHttp(std::string_view input) {
  size_t size = 0;
  const std::optional<HttpFault> fault = FindHeadEnd(input, 0, &size);
  std::optional<HttpFault> bytewise;
  size_t seen = 0, found = 0;
  while (seen < input.size() && !bytewise && found == 0) {
    bytewise = FindHeadEnd(input.substr(0, seen + 1), seen, &found);
    ++seen;
  }
  Require(found == size && fault.has_value() == bytewise.has_value(), "another end byte by byte");
  if (fault) return RequireFault(*fault);
  HttpHead head;
  if (size == 0) return;
  if (const std::optional<HttpFault> bad = ReadHead(input.substr(0, size), &head)) return RequireFault(*bad);
  RequireHead(head);
  const std::string_view rest = input.substr(size);
  ChunkReader whole, pieces;
  std::string body, body_of_pieces;
  size_t taken = 0, taken_of_pieces = 0;
  const std::optional<HttpFault> bad = whole.Read(rest, &body, &taken);
  std::optional<HttpFault> bad_piece;
  for (size_t i = 0; i < rest.size() && !bad_piece && !pieces.ended(); ++i) {
    bad_piece = pieces.Read(rest.substr(i, 1), &body_of_pieces, &taken_of_pieces);
  }
  Require(body == body_of_pieces && bad.has_value() == bad_piece.has_value() && whole.ended() == pieces.ended(),
          "another body byte by byte");
  if (bad) return RequireFault(*bad);
  Require(taken == taken_of_pieces, "another end of the body byte by byte");
}

std::vector<std::string> HttpSeeds() {
  const std::string post = "POST /v1/chat/completions?a=%41 HTTP/1.1\r\nHost: localhost:8080\r\n";
  return {
      post + "Content-Length: 4\r\nAuthorization: Bearer abc\r\n\r\nabcd",
      post +
          "transfer-encoding: chunked\r\nExpect: "
          "100-continue\r\n\r\n4;a=b;c=\"d\\\"\"\r\nabcd\r\n0a\r\n0123456789\r\n0\r\nX-One: two\r\n\r\nGET",
      "GET http://localhost/%7e HTTP/1.0\r\nConnection: keep-alive, close\r\nX-Empty:\r\n\r\n",
      "OPTIONS * HTTP/1.1\r\nHost: [::1]\r\nX-One: \t a\tb\xe9 \r\n\r\n",
      post + "Content-Length: 4\r\nContent-Length: 4\r\nTransfer-Encoding: gzip\r\n folded\r\nBlank : a\r\n\r\n",
  };
}

}  // namespace

const Target kHttp = {"http", RunHttp, HttpSeeds};

}  // namespace tally::fuzz
