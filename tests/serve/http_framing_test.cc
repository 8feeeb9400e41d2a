// SPDX-License-Identifier: Apache-2.0
// Where a request ends. What two programs may read in two ways is refused, and so are the bytes behind it, which one of them would take for
// a request; all else that RFC 9112 has is read.
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "tests/serve/served_http.h"

namespace tally {
namespace {

using std::string_literals::operator""s;

const std::string kPost = "POST /echo HTTP/1.1\r\nHost: localhost\r\n";
const std::string kHidden = "GET /hidden HTTP/1.1\r\nHost: localhost\r\n\r\n";

struct FramingCase {
  const char* what;
  std::string bytes;
  int status = 400;
};

std::vector<FramingCase> Ambiguous() {
  const std::string chunked = kPost + "Transfer-Encoding: chunked\r\n";
  return {
      {"a length and a coding", chunked + "Content-Length: 4\r\n\r\n0\r\n\r\n"},
      {"the same, the length first", kPost + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
      {"two lengths", kPost + "Content-Length: 4\r\nContent-Length: 5\r\n\r\nabcd"},
      {"two equal lengths", kPost + "Content-Length: 4\r\ncontent-length: 4\r\n\r\nabcd"},
      {"a list of lengths", kPost + "Content-Length: 4, 4\r\n\r\nabcd"},
      {"a length with a sign", kPost + "Content-Length: +4\r\n\r\nabcd"},
      {"a negative length", kPost + "Content-Length: -4\r\n\r\nabcd"},
      {"a hexadecimal length", kPost + "Content-Length: 0x4\r\n\r\nabcd"},
      {"a length with a blank in it", kPost + "Content-Length: 4 0\r\n\r\nabcd"},
      {"a fraction", kPost + "Content-Length: 4.0\r\n\r\nabcd"},
      {"an empty length", kPost + "Content-Length:\r\n\r\nabcd"},
      {"a length of no ASCII digits", kPost + "Content-Length: \xd9\xa4\r\n\r\nabcd"},
      {"two codings", kPost + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
      {"chunked and identity", kPost + "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n"},
      {"identity", kPost + "Transfer-Encoding: identity\r\n\r\n0\r\n\r\n"},
      {"gzip, chunked", kPost + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"},
      {"an unknown coding", kPost + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"},
      {"a coding with a parameter", kPost + "Transfer-Encoding: chunked;q=1\r\n\r\n0\r\n\r\n"},
      {"a coding in quotes", kPost + "Transfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n"},
      {"a coding behind a vertical tab", kPost + "Transfer-Encoding: \x0b" + "chunked\r\n\r\n0\r\n\r\n"},
      {"an empty coding", kPost + "Transfer-Encoding:\r\n\r\n0\r\n\r\n"},
      {"a coding of HTTP/1.0", "POST /echo HTTP/1.0\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
      {"a blank before the colon", kPost + "Content-Length : 4\r\n\r\nabcd"},
      {"a tab before the colon", kPost + "Transfer-Encoding\t: chunked\r\n\r\n0\r\n\r\n"},
      {"a blank before the name", kPost + " Content-Length: 4\r\n\r\nabcd"},
      {"a blank in the name", kPost + "Content Length: 4\r\n\r\nabcd"},
      {"a folded header", kPost + "X-One: a\r\n Content-Length: 4\r\n\r\nabcd"},
      {"a folded coding", kPost + "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n"},
      {"the first header folded", "POST /echo HTTP/1.1\r\n Host: localhost\r\n\r\n"},
      {"no colon", kPost + "Content-Length\r\n\r\n"},
      {"no name", kPost + ": 4\r\n\r\n"},
      {"a bare CR in a value", kPost + "X-One: a\rContent-Length: 4\r\n\r\nabcd"},
      {"a bare CR in a name", kPost + "X\r-One: a\r\n\r\n"},
      {"a bare CR as a line's end", kPost + "X-One: a\r\rContent-Length: 4\r\n\r\nabcd"},
      {"a CR too many", kPost + "X-One: a\r\r\n\r\n"},
      {"a bare LF in a value", kPost + "X-One: a\nContent-Length: 4\r\n\r\nabcd"},
      {"a bare LF as the last line's end", kPost + "X-One: a\r\n\n"},
      {"LFs alone", "GET /echo HTTP/1.1\nHost: localhost\n\n"},
      {"an LF behind the first line", "GET /echo HTTP/1.1\nHost: localhost\r\n\r\n"},
      {"a NUL in a value", kPost + "X-One: a\0b\r\n\r\n"s},
      {"a NUL in a name", kPost + "X-\0One: a\r\n\r\n"s},
      {"a NUL in the length", kPost + "Content-Length: 4\0\r\n\r\nabcd"s},
      {"a NUL in the target", "GET /echo\0 HTTP/1.1\r\nHost: localhost\r\n\r\n"s},
      {"%00 in the target", "GET /echo%00 HTTP/1.1\r\nHost: localhost\r\n\r\n"},
      {"half a % in the target", "GET /echo%4 HTTP/1.1\r\nHost: localhost\r\n\r\n"},
      {"a control character in a value", kPost + "X-One: a\x1b\r\n\r\n"},
      {"a DEL in a value", kPost + "X-One: a\x7f\r\n\r\n"},
      {"a blank too many in the first line", "GET  /echo HTTP/1.1\r\nHost: localhost\r\n\r\n"},
      {"a tab in the first line", "GET\t/echo HTTP/1.1\r\nHost: localhost\r\n\r\n"},
      {"a blank behind the version", "GET /echo HTTP/1.1 \r\nHost: localhost\r\n\r\n"},
      {"a blank in the target", "GET /ec ho HTTP/1.1\r\nHost: localhost\r\n\r\n"},
      {"no version", "GET /echo\r\nHost: localhost\r\n\r\n"},
      {"a version in small letters", "GET /echo http/1.1\r\nHost: localhost\r\n\r\n"},
      {"a version of many digits", "GET /echo HTTP/1.10\r\nHost: localhost\r\n\r\n"},
      {"a method that is none", "G(T /echo HTTP/1.1\r\nHost: localhost\r\n\r\n"},
      {"a target that is none", "GET echo HTTP/1.1\r\nHost: localhost\r\n\r\n"},
      {"a proxy's target", "CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n"},
      {"HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505},
      {"TLS", "\x16\x03\x01\x02"s + "\x00\x01\x00\x01"s},
      {"no host", "GET /echo HTTP/1.1\r\n\r\n"},
      {"two hosts", "GET /echo HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n"},
      {"two empty lines before it", "\r\n\r\nGET /echo HTTP/1.1\r\nHost: localhost\r\n\r\n"},
      {"a chunk's size that is no number", chunked + "\r\nzz\r\n"},
      {"a chunk without a size", chunked + "\r\n\r\nabc\r\n0\r\n\r\n"},
      {"a chunk's size with a sign", chunked + "\r\n+3\r\nabc\r\n0\r\n\r\n"},
      {"a negative size", chunked + "\r\n-3\r\nabc\r\n0\r\n\r\n"},
      {"a size with 0x", chunked + "\r\n0x3\r\nabc\r\n0\r\n\r\n"},
      {"a blank before a size", chunked + "\r\n 3\r\nabc\r\n0\r\n\r\n"},
      {"a blank behind a size", chunked + "\r\n3 \r\nabc\r\n0\r\n\r\n"},
      {"a size of more than 64 bits", chunked + "\r\n10000000000000003\r\nabc\r\n0\r\n\r\n"},
      {"a size of too many zeros", chunked + "\r\n00000000000000003\r\nabc\r\n0\r\n\r\n"},
      {"an LF behind a size", chunked + "\r\n3\nabc\r\n0\r\n\r\n"},
      {"a CR behind a size", chunked + "\r\n3\rabc\r\n0\r\n\r\n"},
      {"an LF behind data", chunked + "\r\n3\r\nabc\n0\r\n\r\n"},
      {"data longer than the size", chunked + "\r\n3\r\nabcd\r\n0\r\n\r\n"},
      {"data shorter than the size", chunked + "\r\n4\r\nabc\r\n0\r\n\r\n"},
      {"an extension without a name", chunked + "\r\n3;\r\nabc\r\n0\r\n\r\n"},
      {"an extension without a value", chunked + "\r\n3;a=\r\nabc\r\n0\r\n\r\n"},
      {"an extension with a blank", chunked + "\r\n3; a\r\nabc\r\n0\r\n\r\n"},
      {"an extension with an LF", chunked + "\r\n3;a\nb\r\nabc\r\n0\r\n\r\n"},
      {"an extension with a CR", chunked + "\r\n3;a\rb\r\nabc\r\n0\r\n\r\n"},
      {"an extension with a NUL", chunked + "\r\n3;a=\"\0\"\r\nabc\r\n0\r\n\r\n"s},
      {"an extension whose quotes have no end", chunked + "\r\n3;a=\"b\r\nabc\r\n0\r\n\r\n"},
      {"a size's line without end", chunked + "\r\n3;" + std::string(5000, 'a')},
      {"a trailer without a colon", chunked + "\r\n0\r\nX-One\r\n\r\n"},
      {"a folded trailer", chunked + "\r\n0\r\nX-One: a\r\n b\r\n\r\n"},
      {"an LF behind the last chunk", chunked + "\r\n0\r\n\n"},
      {"a trailer with a NUL", chunked + "\r\n0\r\nX-One: \0\r\n\r\n"s},
  };
}

TEST(HttpFraming, WhatCanBeReadInTwoWaysIsRefused) {
  ServedHttp served;
  for (const FramingCase& c : Ambiguous()) {
    for (const bool second : {false, true}) {
      TestClient client(served.port);
      if (second) {
        EXPECT_EQ(client.Post("/echo", "first").body, "first");
      }
      const int before = served.requests;
      ASSERT_TRUE(client.Send(c.bytes + kHidden)) << c.what;
      HttpReply reply = client.Read();
      EXPECT_EQ(reply.status, c.status) << c.what << second;
      EXPECT_EQ(reply.headers["connection"], "close") << c.what << second;
      EXPECT_FALSE(reply.body.empty()) << c.what << second;
      EXPECT_TRUE(client.Peek().empty()) << c.what << client.Peek();
      EXPECT_TRUE(client.Ends(5)) << c.what << second;
      EXPECT_EQ(served.requests, before) << c.what << second;
    }
  }
}

TEST(HttpFraming, WhatIsReadInOneWayIsServed) {
  ServedHttp served;
  const FramingCase cases[] = {
      {"no body", "POST /echo HTTP/1.1\r\nHost: localhost\r\n\r\n"},
      {"blanks around a value", kPost + "Content-Length: \t 3 \t\r\n\r\nabc"},
      {"no blank before a value", kPost + "Content-Length:3\r\nX-Empty:\r\n\r\nabc"},
      {"a length with zeros", kPost + "Content-Length: 003\r\n\r\nabc"},
      {"a tab and Latin letters in a value", kPost + "X-One: a\tb\xe9\r\nContent-Length: 3\r\n\r\nabc"},
      {"chunks", kPost + "Transfer-Encoding: Chunked\r\n\r\n1\r\na\r\n02\r\nbc\r\n0\r\n\r\n"},
      {"a large size in small and large letters", kPost + "Transfer-Encoding: chunked\r\n\r\n1a\r\n" + std::string(26, 'a') +
                                                      "\r\n1A\r\n" + std::string(26, 'a') + "\r\n0\r\n\r\n"},
      {"extensions", kPost + "Transfer-Encoding: chunked\r\n\r\n3;a;b=c;d=\"e \\\" f\"\r\nabc\r\n0;last\r\n\r\n"},
      {"trailers", kPost + "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-One: two\r\nContent-Length: 7\r\n\r\n"},
      {"an empty line before it", "\r\n" + kPost + "Content-Length: 3\r\n\r\nabc"},
      {"an absolute target", "POST http://localhost/echo HTTP/1.1\r\nHost: other\r\nContent-Length: 3\r\n\r\nabc"},
      {"an encoded target and a query", "POST /%65cho?a=%zz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc"},
      {"a later version", "POST /echo HTTP/1.2\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc"},
      {"no close among the words", kPost + "Connection: keep-alive, closed\r\nContent-Length: 3\r\n\r\nabc"},
  };
  for (const FramingCase& c : cases) {
    for (const bool bytewise : {false, true}) {
      TestClient client(served.port);
      const std::string both = c.bytes + kPost + "Content-Length: 4\r\n\r\nnext";
      for (size_t at = 0; at < both.size(); at += bytewise ? 1 : both.size()) {
        ASSERT_TRUE(client.Send(std::string_view(both).substr(at, bytewise ? 1 : both.size())));
      }
      HttpReply reply = client.Read();
      EXPECT_EQ(reply.status, 200) << c.what << reply.body;
      EXPECT_TRUE(reply.body.empty() || reply.body == "abc" || reply.body == std::string(52, 'a')) << c.what << reply.body;
      EXPECT_FALSE(reply.headers.contains("connection")) << c.what;
      EXPECT_EQ(client.Read().body, "next") << c.what;
    }
  }
}

// HTTP/1.0, words before a body, and answers without one.
TEST(HttpFraming, OtherWaysOfAnAnswer) {
  ServedHttp served;
  TestClient old(served.port);
  ASSERT_TRUE(old.Send("GET /stream HTTP/1.0\r\n\r\n"));
  std::shared_ptr<HttpExchange> exchange = served.Next();
  ASSERT_NE(exchange, nullptr);
  exchange->Begin({.body = "some."});
  exchange->Write("more.");
  exchange->End(true);
  EXPECT_TRUE(old.ReadUntil("\r\n\r\nsome.more.")) << "no chunks";
  EXPECT_TRUE(old.Ends(5));
  TestClient late(served.port);
  ASSERT_TRUE(late.Ask("GET", "/stream"));
  exchange = served.Next();
  exchange->Begin({.headers = {{"X-One", "two"}}});
  EXPECT_TRUE(late.ReadUntil("X-One: two\r\n\r\n")) << "before there is anything of its body";
  exchange->Write("some");
  EXPECT_TRUE(late.ReadUntil("4\r\nsome\r\n"));
  TestClient head(served.port);
  ASSERT_TRUE(head.Ask("HEAD", "/kept") && head.Ask("GET", "/echo"));
  served.Next()->Answer({.body = "12345"});
  EXPECT_TRUE(head.ReadUntil("Content-Length: 5\r\n\r\nHTTP/1.1 200 OK")) << head.Peek();
  TestClient waits(served.port);
  ASSERT_TRUE(waits.Send(kPost + "Expect: 100-Continue\r\nContent-Length: 3\r\n\r\n"));
  EXPECT_TRUE(waits.ReadUntil("HTTP/1.1 100 Continue\r\n\r\n"));
  ASSERT_TRUE(waits.Send("abc"));
  EXPECT_TRUE(waits.ReadUntil("\r\n\r\nabc"));
  TestClient closes(served.port);
  EXPECT_EQ(closes.Post("/echo", "abc", "Connection: Close\r\n").headers["connection"], "close");
  EXPECT_TRUE(closes.Ends(5));
}

}  // namespace
}  // namespace tally
