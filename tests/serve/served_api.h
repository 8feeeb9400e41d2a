// SPDX-License-Identifier: Apache-2.0
// A server of the API on a port of its own, for a test.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>

#include "engine/serve/api_server.h"
#include "tests/serve/client.h"

namespace tally {

class ServedApi {
 public:
  // `socket`: the path of a Unix socket to listen on in place of a port; empty: none.
  explicit ServedApi(const ServedModel& model, ApiServerOptions options = {}, const std::string& socket = "") {
    options.metrics = true;
    Result<Listener> listener = socket.empty() ? Listener::Open("127.0.0.1", 0) : Listener::OpenUnix(socket);
    EXPECT_TRUE(listener.ok()) << listener.status().message();
    Result<std::unique_ptr<ApiServer>> started = ApiServer::Start(model, std::move(*listener), options);
    EXPECT_TRUE(started.ok()) << started.status().message();
    server = std::move(*started);
    port = server->port();
  }
  // The body of an answer, with its status under "status".
  OrderedJson Ask(const std::string& path, const OrderedJson& body, const std::string& headers = "") const {
    const HttpReply reply = Post(port, path, body.dump(), headers);
    OrderedJson json = OrderedJson::parse(reply.body, nullptr, false);
    EXPECT_FALSE(json.is_discarded()) << reply.body;
    EXPECT_TRUE(reply.whole);
    if (json.is_object()) json["status"] = reply.status;
    return json;
  }
  // The events of a stream.
  std::vector<OrderedJson> Stream(const std::string& path, OrderedJson body, const std::string& headers = "") const {
    body["stream"] = true;
    HttpReply reply = Post(port, path, body.dump(), headers);
    EXPECT_EQ(reply.status, 200) << reply.body;
    EXPECT_EQ(reply.headers["content-type"], "text/event-stream");
    EXPECT_TRUE(reply.whole);
    std::vector<OrderedJson> events;
    std::vector<std::string> texts = EventsOf(reply.body);
    if (!texts.empty() && texts.back() == "[DONE]") {
      done = true;
      texts.pop_back();
    } else {
      done = false;
    }
    for (const std::string& text : texts) events.push_back(OrderedJson::parse(text));
    return events;
  }
  // The value of one line of /metrics.
  uint64_t Metric(const std::string& name, const std::string& headers = "") const {
    const std::string text = "\n" + Get(port, "/metrics", headers).body;
    const size_t at = text.find("\n" + name + " ");
    EXPECT_NE(at, text.npos) << name << text;
    return at == text.npos ? 0 : std::strtoull(text.c_str() + at + name.size() + 2, nullptr, 10);
  }

  std::unique_ptr<ApiServer> server;
  uint16_t port = 0;
  mutable std::atomic<bool> done{false};  // the last stream ended with [DONE]
};

}  // namespace tally
