// SPDX-License-Identifier: Apache-2.0
// Lines of the log, ids of requests, and that every answer of a server has both.
#include "engine/serve/request_log.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <string>
#include <vector>

#include "tests/serve/served_api.h"
#include "tests/serve/text_served.h"

namespace tally {
namespace {

const OrderedJson kAsked = {{"messages", OrderedJson::array({{{"role", "user"}, {"content", "Hi"}}})}};

OrderedJson Plus(OrderedJson body, const OrderedJson& more) {
  body.update(more);
  return body;
}

TEST(RequestLog, Lines) {
  RequestRecord record = {.time = 1'769'860'800,
                          .client = "127.0.0.1",
                          .key = "key 1",
                          .method = "POST",
                          .path = "/v1/chat/completions",
                          .status = 200,
                          .seconds = 1.2344,
                          .id = "req_1",
                          .model = "demo",
                          .usage = ApiUsage{.prompt_tokens = 120, .cached_tokens = 96, .completion_tokens = 40},
                          .ignored = {"verbosity", "messages[].parsed"}};
  EXPECT_EQ(LogLine(record, LogForm::kPlain),
            "2026-01-31T12:00:00Z 127.0.0.1 POST /v1/chat/completions 200 1.234s key=\"key 1\" model=demo prompt=120 cached=96 "
            "generated=40 id=req_1 ignored=\"verbosity, messages[].parsed\"");
  EXPECT_EQ(LogLine(record, LogForm::kJson),
            R"({"time":"2026-01-31T12:00:00Z","client":"127.0.0.1","key":"key 1","method":"POST","path":"/v1/chat/completions",)"
            R"("status":200,"seconds":1.234,"id":"req_1","model":"demo","prompt_tokens":120,"cached_tokens":96,)"
            R"("completion_tokens":40,"ignored":["verbosity","messages[].parsed"]})");
  record = {.client = "::1", .method = "GET", .path = "/x", .status = 401, .id = "req_2", .error = "a \"key\" is needed"};
  EXPECT_EQ(LogLine(record, LogForm::kPlain),
            R"(1970-01-01T00:00:00Z ::1 GET /x 401 0.000s id=req_2 error="a \"key\" is needed")");
}

TEST(RequestLog, ListsOfNamesAreBounded) {
  const std::vector<std::string> names(100, "a_name_of_20_letters");
  EXPECT_LE(JoinNames(names).size(), kLongestNames + 5);
  EXPECT_TRUE(JoinNames(names).ends_with("a_name_of_20_letters, ..."));
  EXPECT_EQ(JoinNames({"a", "b"}), "a, b");
}

// Whatever a client sends stays within its line, and its word.
TEST(RequestLog, NothingGetsInUnescaped) {
  for (const std::string& text :
       {std::string("/\r\n2026-01-31T12:00:00Z 10.0.0.1 GET / 200"), std::string("/a b=c"), std::string("/\x1b[2J"),
        std::string("/\xff\xfe\xc3\xa9"), std::string("/\0x", 3), std::string(100'000, '\x01')}) {
    const RequestRecord record = {
        .client = text, .method = text, .path = text, .id = "i", .model = text, .notes = {text}, .error = text};
    for (const LogForm form : {LogForm::kPlain, LogForm::kJson}) {
      const std::string line = LogLine(record, form);
      EXPECT_LE(line.size(), kLongestLogLine);
      EXPECT_TRUE(std::all_of(line.begin(), line.end(), [](char c) { return c >= ' ' && c <= '~'; })) << line;
    }
    EXPECT_TRUE(OrderedJson::parse(LogLine(record, LogForm::kJson)).is_object());
    EXPECT_EQ(LogLine(record, LogForm::kPlain).find("c=c"), std::string::npos);
  }
}

TEST(RequestLog, Ids) {
  ApiIds ids;
  const auto id = [&](HttpHeaders headers) { return RequestId({.headers = std::move(headers)}, ids); };
  for (const std::string& given : {std::string("a"), std::string("0b5c-11:x/y.z+=@_"), std::string(128, 'x')}) {
    EXPECT_EQ(id({{"x-request-id", given}}), given);
  }
  for (const std::string& given : {std::string(), std::string("a b"), std::string("a\"b"), std::string("a\r\nSet-Cookie: b"),
                                   std::string("\xc3\xa9"), std::string(129, 'x')}) {
    EXPECT_TRUE(id({{"x-request-id", given}}).starts_with("req_")) << given;
  }
  EXPECT_TRUE(id({{"x-request-id", "a"}, {"x-request-id", "b"}}).starts_with("req_"));
  EXPECT_NE(id({}), id({}));
}

class LoggedApi {
 public:
  LoggedApi() {
    ApiServerOptions options = {.keys = {"first-key-0123456789"}};
    options.log_form = LogForm::kJson;
    options.http.body_bytes = 100'000;
    options.log = [this](const std::string& line) {
      const std::lock_guard lock(mutex_);
      lines_.push_back(OrderedJson::parse(line));
    };
    api = std::make_unique<ServedApi>(text_.model, options);
  }
  // The line of the request with this id; it comes after the answer.
  OrderedJson LineOf(const std::string& id) {
    OrderedJson found;
    Becomes([&] {
      const std::lock_guard lock(mutex_);
      const auto at = std::find_if(lines_.begin(), lines_.end(), [&](const OrderedJson& line) { return line["id"] == id; });
      if (at != lines_.end()) found = *at;
      return at != lines_.end();
    });
    EXPECT_TRUE(found.is_object()) << id;
    return found;
  }
  size_t lines() {
    const std::lock_guard lock(mutex_);
    return lines_.size();
  }

 private:
  TextServed text_;
  std::mutex mutex_;
  std::vector<OrderedJson> lines_;

 public:
  std::unique_ptr<ServedApi> api;  // ends first
};

TEST(RequestLog, EveryAnswerHasAnIdAndALine) {
  LoggedApi logged;
  const uint16_t port = logged.api->port;
  const std::string key = "Authorization: Bearer first-key-0123456789\r\n";
  OrderedJson streamed = Plus(kAsked, {{"stream", true}});
  const OrderedJson messages = Plus(kAsked, {{"max_tokens", 2}, {"metadata", {{"user_id", "u"}}}});
  const struct {
    const char* path;
    std::string body;
    std::string headers;
    int status;
  } cases[] = {
      {"/v1/chat/completions", kAsked.dump(), key, 200},
      {"/v1/chat/completions", streamed.dump(), key, 200},
      {"/v1/messages", messages.dump(), key, 200},
      {"/v1/messages/count_tokens", messages.dump(), key, 200},
      {"/tokenize", R"({"content": "a"})", key, 200},
      {"/v1/chat/completions", "{}", key, 400},
      {"/v1/chat/completions", "{", key, 400},
      {"/v1/chat/completions", kAsked.dump(), "", 401},
      {"/v1/chat/completions", kAsked.dump(), "Authorization: Bearer wrong-key-0123456789\r\n", 401},
      {"/v1/models", "", key, 405},
      {"/no/such", "", key, 404},
      {"/v1/completions", kAsked.dump(), key + "Host: evil.example\r\n", 403},
  };
  int n = 0;
  for (const auto& c : cases) {
    SCOPED_TRACE(std::string(c.path) + " " + std::to_string(c.status));
    const std::string id = "test-" + std::to_string(++n);
    HttpReply reply = Post(port, c.path, c.body, c.headers + "X-Request-Id: " + id + "\r\n");
    EXPECT_EQ(reply.status, c.status) << reply.body;
    EXPECT_EQ(reply.headers["x-request-id"], id);
    const bool anthropic = std::string(c.path).starts_with("/v1/messages");
    EXPECT_EQ(reply.headers["request-id"], anthropic ? id : "");
    const OrderedJson line = logged.LineOf(id);
    EXPECT_EQ(line["status"], c.status);
    EXPECT_EQ(line["path"], c.path);
    EXPECT_EQ(line["client"], "127.0.0.1");
    EXPECT_EQ(line["key"], c.status == 401 || c.status == 403 ? OrderedJson() : OrderedJson("key 1"));
    EXPECT_EQ(line.contains("error"), c.status != 200) << line;
    EXPECT_EQ(line.dump().find("-key-0123456789"), std::string::npos) << "a key is no one's business";
    EXPECT_GE(line["seconds"], 0);
  }
  EXPECT_EQ(logged.lines(), std::size(cases));
  const OrderedJson first = logged.LineOf("test-1"), stream = logged.LineOf("test-2");
  EXPECT_EQ(first["model"], "text");
  EXPECT_EQ(first["prompt_tokens"], 3);
  EXPECT_EQ(first["completion_tokens"], 3);
  EXPECT_EQ(stream["completion_tokens"], 3);
  EXPECT_EQ(logged.LineOf("test-3")["ignored"], OrderedJson({"metadata"}));
  // An id of ours; what is asked every few seconds has no line.
  HttpReply ours = Post(port, "/v1/chat/completions", kAsked.dump(), key);
  EXPECT_TRUE(ours.headers["x-request-id"].starts_with("req_"));
  (void)logged.LineOf(ours.headers["x-request-id"]);
  EXPECT_EQ(Get(port, "/health").headers.count("x-request-id"), 1u);
  EXPECT_EQ(logged.lines(), std::size(cases) + 1);
}

// What is ignored stands in a header, whole and streamed, which pages elsewhere can read; a strict server refuses it.
TEST(RequestLog, WhatIsIgnoredIsNamed) {
  const TextServed text;
  const ServedApi api(text.model, {.origins = {"local"}}), strict(text.model, {.strict = true});
  const OrderedJson more = {{"verbosity", "low"}, {"no_such", nullptr}, {"store", true}};
  for (const bool stream : {false, true}) {
    const std::string body = Plus(Plus(kAsked, more), {{"stream", stream}}).dump();
    HttpReply reply = Post(api.port, "/v1/chat/completions", body, "Origin: http://localhost:5173\r\n");
    EXPECT_EQ(reply.status, 200) << reply.body;
    EXPECT_EQ(reply.headers["x-tally-ignored"], "verbosity, no_such, store");
    EXPECT_NE(reply.headers["access-control-expose-headers"].find("x-tally-ignored"), std::string::npos);
    EXPECT_EQ(Post(strict.port, "/v1/chat/completions", body).status, 400);
  }
  HttpReply plain = Post(api.port, "/v1/chat/completions", kAsked.dump());
  EXPECT_FALSE(plain.headers.contains("x-tally-ignored"));
  EXPECT_EQ(Post(strict.port, "/v1/chat/completions", kAsked.dump()).status, 200);
  const OrderedJson response = api.Ask("/v1/responses", {{"input", "Hi"}, {"store", true}});
  EXPECT_EQ(response["store"], false);
  const OrderedJson templated = Plus(kAsked, {{"add_generation_prompt", false}});
  EXPECT_EQ(api.Ask("/apply-template", templated)["status"], 200);
}

}  // namespace
}  // namespace tally
