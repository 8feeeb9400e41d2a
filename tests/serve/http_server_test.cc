// SPDX-License-Identifier: Apache-2.0
// The HTTP server against clients that are slow, leave, flood, or send what is too large.
#include "engine/serve/http_server.h"

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/serve/client.h"

namespace tally {
namespace {

// Answers "/echo" with the body, and keeps the other exchanges for the test.
class Served {
 public:
  explicit Served(const HttpLimits& limits = {}) {
    Result<Listener> listener = Listener::Open("127.0.0.1", 0);
    EXPECT_TRUE(listener.ok());
    port = listener->port();
    HttpHandlers handlers;
    handlers.admit = [](const HttpRequest& head) {
      return head.path == "/never" ? std::optional(HttpAnswer{.status = 403, .body = "never"}) : std::nullopt;
    };
    handlers.request = [this](std::shared_ptr<HttpExchange> exchange) {
      if (exchange->request().path == "/echo") return exchange->Answer({.body = exchange->request().body});
      const std::lock_guard lock(mutex_);
      kept_.push_back(std::move(exchange));
      came_.notify_all();
    };
    handlers.refuse = [](const HttpRequest&, int status, const std::string& message) {
      return HttpAnswer{.status = status, .body = message};
    };
    Result<std::unique_ptr<HttpServer>> started = HttpServer::Start(std::move(*listener), limits, std::move(handlers));
    EXPECT_TRUE(started.ok()) << started.status().message();
    server = std::move(*started);
  }
  ~Served() {
    kept_.clear();
    server->Stop(0);
  }
  std::shared_ptr<HttpExchange> Next() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(came_.wait_for(lock, std::chrono::seconds(20), [&] { return !kept_.empty(); }));
    if (kept_.empty()) return nullptr;
    std::shared_ptr<HttpExchange> next = std::move(kept_.front());
    kept_.erase(kept_.begin());
    return next;
  }

  uint16_t port = 0;
  std::unique_ptr<HttpServer> server;

 private:
  std::mutex mutex_;
  std::condition_variable came_;
  std::vector<std::shared_ptr<HttpExchange>> kept_;
};

bool Becomes(const std::function<bool()>& holds) {
  for (int i = 0; i < 500 && !holds(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return holds();
}

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
  Served served({.header_bytes = 4096, .body_bytes = 10'000, .bodies_bytes = 15'000});
  EXPECT_EQ(Post(served.port, "/echo", std::string(10'000, 'x')).status, 200);
  EXPECT_EQ(Post(served.port, "/echo", std::string(10'001, 'x')).status, 413);
  TestClient expecting(served.port);
  EXPECT_EQ(expecting.Post("/never", "", "Expect: 100-continue\r\n").status, 403) << "the body is not asked for";
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
  const int refused = headers.Read().status;
  EXPECT_TRUE(refused == 431 || refused == 413 || refused == 0) << refused;
  // All bodies together.
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
}

TEST(HttpServer, Floods) {
  Served served({.connections = 20, .connections_per_address = 10, .request_seconds = 1});
  std::vector<std::unique_ptr<TestClient>> flood;
  for (int i = 0; i < 100; ++i) flood.push_back(std::make_unique<TestClient>(served.port));
  EXPECT_TRUE(Becomes([&] { return served.server->connections() == 10; }));
  int closed = 0;
  for (const auto& client : flood) closed += client->Ends(0.02) ? 1 : 0;
  EXPECT_GE(closed, 80);
  flood.clear();
  EXPECT_TRUE(Becomes([&] { return Post(served.port, "/echo", "x").status == 200; }));
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
    EXPECT_TRUE(status == 0 || status >= 400) << status << garbage;
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
