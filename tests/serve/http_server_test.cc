// SPDX-License-Identifier: Apache-2.0
// The HTTP server against clients that are slow, leave, flood, or send what is too large.
#include "engine/serve/http_server.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/serve/served_http.h"

namespace tally {
namespace {

using Served = ServedHttp;

TEST(HttpServer, WholeAnswersOverOneConnection) {
  Served served;
  TestClient client(served.port);
  for (const size_t size : {size_t{0}, size_t{5}, size_t{300'000}}) {
    const HttpReply reply = client.Post("/echo", std::string(size, 'x'));
    EXPECT_EQ(reply.status, 200);
    EXPECT_EQ(reply.body, std::string(size, 'x'));
  }
  ASSERT_TRUE(client.Ask("GET", "/kept?query=1", "", "X-One: two\r\n"));
  const std::shared_ptr<HttpExchange> exchange = served.Next();
  ASSERT_NE(exchange, nullptr);
  EXPECT_EQ(exchange->request().method, "GET");
  EXPECT_EQ(exchange->request().path, "/kept");
  EXPECT_EQ(FindHeader(exchange->request().headers, "x-one"), "two");
  EXPECT_EQ(exchange->request().address, "127.0.0.1");
  exchange->Answer({.status = 418, .headers = {{"X-Three", "four"}}, .body = "later"});
  exchange->Answer({.status = 200, .body = "too late"});
  HttpReply reply = client.Read();
  EXPECT_EQ(reply.status, 418);
  EXPECT_EQ(reply.body, "later");
  EXPECT_EQ(reply.headers["x-three"], "four");
}

TEST(HttpServer, StreamsComePieceByPiece) {
  Served served;
  TestClient client(served.port);
  ASSERT_TRUE(client.Ask("GET", "/stream"));
  std::shared_ptr<HttpExchange> exchange = served.Next();
  ASSERT_NE(exchange, nullptr);
  exchange->Begin({.headers = {{"Content-Type", "text/event-stream"}}, .body = "first."});
  EXPECT_TRUE(client.ReadUntil("first.")) << "before the rest is there";
  for (int i = 0; i < 100; ++i) exchange->Write("piece" + std::to_string(i) + ".");
  exchange->End(true);
  HttpReply reply = client.Read();
  EXPECT_TRUE(reply.whole);
  EXPECT_TRUE(reply.body.starts_with("first.piece0.piece1.")) << reply.body;
  EXPECT_TRUE(reply.body.ends_with("piece99."));
  // One that is cut is seen to be, and so is one that is dropped.
  for (const bool dropped : {false, true}) {
    TestClient cut(served.port);
    ASSERT_TRUE(cut.Ask("GET", "/stream"));
    exchange = served.Next();
    exchange->Begin({.body = "some"});
    if (!dropped) exchange->End(false);
    exchange.reset();
    EXPECT_FALSE(cut.Read().whole);
  }
  // Nobody answers: 500.
  ASSERT_TRUE(client.Ask("GET", "/dropped"));
  served.Next().reset();
  EXPECT_EQ(client.Read().status, 500);
}

TEST(HttpServer, ClientsThatLeaveAreNoticed) {
  Served served;
  for (const bool half : {false, true}) {
    TestClient client(served.port);
    ASSERT_TRUE(client.Ask("POST", "/kept", "body"));
    const std::shared_ptr<HttpExchange> exchange = served.Next();
    ASSERT_NE(exchange, nullptr);
    EXPECT_FALSE(exchange->left());
    if (half) {
      client.HalfClose();
    } else {
      client.Close();
    }
    EXPECT_TRUE(Becomes([&] { return exchange->left(); })) << half;
    EXPECT_TRUE(Becomes([&] { return served.server->connections() == 0; })) << half;
  }
}

// A client that reads in bursts, while more is written: room in its window and news of the stream come at once.
TEST(HttpServer, AReaderInBursts) {
  Served served;
  for (int i = 0; i < 20; ++i) {
    TestClient client(served.port, 4096);
    ASSERT_TRUE(client.Ask("GET", "/stream"));
    const std::shared_ptr<HttpExchange> exchange = served.Next();
    ASSERT_NE(exchange, nullptr);
    exchange->Begin({.body = std::string(400'000, 'x')});
    std::thread writer([&] {
      for (int piece = 0; piece < 50; ++piece) {
        exchange->Write(std::string(1000, 'y'));
        std::this_thread::sleep_for(std::chrono::microseconds(200));
      }
      exchange->End(/*whole=*/true);
    });
    const HttpReply reply = client.Read();
    writer.join();
    ASSERT_TRUE(reply.whole) << i;
    EXPECT_EQ(reply.body.size(), 450'000u);
  }
}

// A client that reads nothing: what it has not read is bounded, and the stream ends.
TEST(HttpServer, AReaderThatStalls) {
  Served served({.unread_bytes = 100'000});
  TestClient client(served.port, 4096);
  ASSERT_TRUE(client.Ask("GET", "/stream"));
  const std::shared_ptr<HttpExchange> exchange = served.Next();
  ASSERT_NE(exchange, nullptr);
  exchange->Begin({.body = ""});
  const std::string piece(10'000, 'x');
  int written = 0;
  // The system's buffers take some megabytes before that.
  for (; written < 5000 && !exchange->left(); ++written) {
    exchange->Write(piece);
    std::this_thread::sleep_for(std::chrono::milliseconds(written % 10 == 0 ? 1 : 0));
  }
  EXPECT_LT(written, 5000);
  EXPECT_TRUE(exchange->left());
  EXPECT_TRUE(Becomes([&] { return served.server->connections() == 0; }));
}

TEST(HttpServer, WhatIsTooLargeIsRefused) {
  Served served({.header_bytes = 4096, .body_bytes = 10'000, .bodies_bytes = 20'000});
  EXPECT_EQ(Post(served.port, "/echo", std::string(10'000, 'x')).status, 200);
  EXPECT_EQ(Post(served.port, "/echo", std::string(10'001, 'x')).status, 413);
  TestClient expecting(served.port);
  ASSERT_TRUE(expecting.Send("POST /never HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n"));
  HttpReply unasked = expecting.Read();
  EXPECT_EQ(unasked.status, 403) << "the body is not asked for";
  EXPECT_EQ(unasked.headers["connection"], "close");
  EXPECT_EQ(Post(served.port, "/never", std::string(9'000, 'x')).body, "never");
  // Without a length: it is known when it has come.
  TestClient chunked(served.port);
  std::string body;
  for (int i = 0; i < 11; ++i) body += "3e8\r\n" + std::string(1000, 'x') + "\r\n";
  ASSERT_TRUE(chunked.Send("POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n" + body + "0\r\n\r\n"));
  EXPECT_EQ(chunked.Read().status, 413);
  // A body without an end.
  TestClient endless(served.port);
  endless.Send("POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (int i = 0; i < 100; ++i) endless.Send(body);
  EXPECT_TRUE(endless.Ends(5));
  // Headers.
  TestClient headers(served.port);
  headers.Ask("GET", "/echo", "", "X-Long: " + std::string(20'000, 'x') + "\r\n");
  EXPECT_EQ(headers.Read().status, 431);
  // All bodies of an address together.
  TestClient first(served.port), second(served.port);
  ASSERT_TRUE(first.Ask("POST", "/kept", std::string(9'000, 'x')));
  const std::shared_ptr<HttpExchange> exchange = served.Next();
  EXPECT_EQ(second.Post("/echo", std::string(9'000, 'x')).status, 503);
  exchange->Answer({});
  EXPECT_EQ(first.Read().status, 200);
  EXPECT_EQ(Post(served.port, "/echo", std::string(9'000, 'x')).status, 200);
}

// Connections that bring no request, whole or half, are closed, and meanwhile others are served.
TEST(HttpServer, SlowClients) {
  Served served({.request_seconds = 1});
  TestClient silent(served.port), slow(served.port);
  ASSERT_TRUE(slow.Send("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n"));
  EXPECT_EQ(Post(served.port, "/echo", "x").body, "x");
  bool cut = false;
  for (int i = 0; i < 100 && !cut; ++i) {  // a byte now and then does not help
    cut = !slow.Send(i == 0 ? "\r\n" : "x") || slow.Ends(0.05);
  }
  EXPECT_TRUE(cut);
  EXPECT_TRUE(silent.Ends(5));
  TestClient half(served.port);
  ASSERT_TRUE(half.Send("POST /echo HTTP/1.1\r\nHost: localhost\r\n"));
  EXPECT_EQ(half.Read().status, 408);
}

// A client that sends all before it reads has the answer, as long as what it sends is not endless.
TEST(HttpServer, WhatIsRefusedIsReadToItsEnd) {
  Served served({.body_bytes = 10'000, .dropped_bytes = 10'000'000});
  const std::string large(3'000'000, 'x');
  for (const std::string& framing :
       {"Content-Length: 3000000\r\n\r\n" + large, "Transfer-Encoding: chunked\r\n\r\n2dc6c0\r\n" + large + "\r\n0\r\n\r\n"}) {
    TestClient client(served.port);
    EXPECT_TRUE(client.Send("POST /echo HTTP/1.1\r\nHost: localhost\r\n" + framing));
    HttpReply reply = client.Read();
    EXPECT_EQ(reply.status, 413);
    EXPECT_EQ(reply.headers["connection"], "close");
    EXPECT_TRUE(reply.whole);
    EXPECT_TRUE(client.Ends(5));
  }
  TestClient endless(served.port);
  ASSERT_TRUE(endless.Send("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\n"));
  bool cut = false;
  for (int i = 0; i < 30 && !cut; ++i) cut = !endless.Send(large);
  EXPECT_TRUE(cut);
  EXPECT_TRUE(Becomes([&] { return served.server->connections() == 0; }));
}

// Connections beyond the limits have an answer that says so, whether they wait for it or not.
TEST(HttpServer, Floods) {
  Served served({.connections = 20, .connections_per_address = 10});
  std::vector<std::unique_ptr<TestClient>> flood;
  for (int i = 0; i < 100; ++i) flood.push_back(std::make_unique<TestClient>(served.port));
  EXPECT_TRUE(Becomes([&] { return served.server->connections() == 20; })) << "10 are served, 10 wait to be refused";
  std::vector<std::shared_ptr<HttpExchange>> kept;
  for (size_t i = 10; i < flood.size(); ++i) {  // at once: they are given some seconds to ask
    flood[i]->Ask("GET", "/kept");
    const HttpReply reply = flood[i]->Read();
    EXPECT_EQ(reply.status, 429) << i;
    EXPECT_EQ(reply.body, "too many connections from this address: try again later");
  }
  for (size_t i = 0; i < 10; ++i) {
    flood[i]->Ask("GET", "/kept");
    kept.push_back(served.Next());
  }
  for (size_t i = 0; i < kept.size(); ++i) {
    kept[i]->Answer({.body = "kept"});
    EXPECT_EQ(flood[i]->Read().body, "kept");
  }
  // Of all addresses together.
  Served few({.connections = 1, .connections_per_address = 10});
  TestClient one(few.port), two(few.port);
  ASSERT_TRUE(one.Ask("GET", "/kept"));
  const std::shared_ptr<HttpExchange> exchange = few.Next();
  EXPECT_EQ(two.Post("/echo", "x").status, 503);
  // There is room once the request comes.
  TestClient three(few.port);
  EXPECT_TRUE(Becomes([&] { return few.server->connections() >= 3; })) << "the second is being dropped";
  one.Close();
  EXPECT_TRUE(Becomes([&] { return exchange->left(); }));
  EXPECT_EQ(three.Post("/echo", "x").status, 200);
}

// One that is kept alive and brings nothing gives way.
TEST(HttpServer, IdleConnectionsMakeRoom) {
  Served served({.connections_per_address = 2});
  TestClient idle(served.port), busy(served.port);
  EXPECT_EQ(idle.Post("/echo", "x").status, 200);
  ASSERT_TRUE(busy.Ask("GET", "/kept"));
  const std::shared_ptr<HttpExchange> exchange = served.Next();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_EQ(Post(served.port, "/echo", "x").status, 200);
  EXPECT_TRUE(idle.Ends(5));
  exchange->Answer({.body = "kept"});
  EXPECT_EQ(busy.Read().body, "kept");
}

TEST(HttpServer, GarbageIsNoRequest) {
  Served served;
  for (const std::string& garbage :
       {std::string("\0\1\2\3\r\n\r\n", 8), std::string(100, '\xff') + "\r\n\r\n", std::string("GET\r\n\r\n"),
        std::string("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\n\r\n"),
        std::string("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\n"),
        std::string("POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")}) {
    TestClient client(served.port);
    ASSERT_TRUE(client.Send(garbage));
    client.HalfClose();
    const int status = client.Read().status;
    EXPECT_GE(status, 400) << garbage;
  }
  EXPECT_EQ(Post(served.port, "/echo", "x").body, "x");
}

TEST(HttpServer, StopsWithAnswersInProgress) {
  auto served = std::make_unique<Served>();
  TestClient waits(served->port), streams(served->port);
  ASSERT_TRUE(waits.Ask("GET", "/kept") && streams.Ask("GET", "/kept"));
  const std::shared_ptr<HttpExchange> first = served->Next(), second = served->Next();
  second->Begin({.body = "some"});
  served->server->StopAccepting();
  EXPECT_FALSE(TestClient(served->port).connected());
  served->server->Stop(0.1);
  first->Answer({});  // nobody is there: no harm
  second->Write("more");
  second->End(true);
  EXPECT_TRUE(waits.Ends(5));
}

TEST(Listener, WhereItListens) {
  const Result<Listener> any = Listener::Open("127.0.0.1", 0);
  ASSERT_TRUE(any.ok());
  EXPECT_GT(any->port(), 0);
  EXPECT_TRUE(any->loopback());
  const Result<Listener> same = Listener::Open("127.0.0.1", any->port());
  ASSERT_FALSE(same.ok());
  EXPECT_NE(same.status().message().find(std::to_string(any->port())), std::string::npos) << same.status().message();
  const Result<Listener> all = Listener::Open("0.0.0.0", 0);
  ASSERT_TRUE(all.ok());
  EXPECT_FALSE(all->loopback());
  EXPECT_FALSE(Listener::Open("no such host", 0).ok());
  for (const char* address : {"127.0.0.1", "127.9.9.9", "::1"}) EXPECT_TRUE(IsLoopback(address)) << address;
  for (const char* address : {"128.0.0.1", "0.0.0.0", "::", "localhost", ""}) EXPECT_FALSE(IsLoopback(address)) << address;
}

}  // namespace
}  // namespace tally
