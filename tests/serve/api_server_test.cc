// SPDX-License-Identifier: Apache-2.0
// The endpoints over sockets: what whole and streamed answers hold, and what is refused.
#include "engine/serve/api_server.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/serve/served_api.h"
#include "tests/serve/text_served.h"

namespace tally {
namespace {

const OrderedJson kHi = {{"messages", OrderedJson::array({{{"role", "user"}, {"content", "Hi"}}})}};

OrderedJson With(OrderedJson body, const OrderedJson& more) {
  body.update(more);
  return body;
}

TEST(ApiServer, WholeAnswers) {
  const TextServed text;
  const ServedApi api(text.model);
  const OrderedJson chat = api.Ask("/v1/chat/completions", kHi);
  EXPECT_EQ(chat["status"], 200);
  EXPECT_EQ(chat["choices"][0]["message"]["content"], "xyz");
  EXPECT_EQ(chat["choices"][0]["finish_reason"], "stop");
  EXPECT_FALSE(chat["usage"].contains("tally")) << "it was not asked for";
  EXPECT_EQ(api.Ask("/v1/completions", {{"prompt", "w"}, {"seed", 3}})["seed"], 3);
  const OrderedJson response =
      api.Ask("/v1/responses", {{"input", "Hi"}, {"instructions", "Be brief."}, {"metadata", {{"a", "b"}}}});
  EXPECT_EQ(response["object"], "response");
  EXPECT_EQ(response["status"], 200) << "of HTTP: overwritten by the test";
  EXPECT_EQ(response["output"][0]["content"][0]["text"], "xyz");
  EXPECT_EQ(response["instructions"], "Be brief.");
  EXPECT_EQ(response["metadata"]["a"], "b");
  EXPECT_EQ(response["store"], false);
  EXPECT_EQ(response["usage"]["input_tokens"], 12) << "Be brief.Hi<|turn|>";
  EXPECT_EQ(api.Ask("/tokenize", {{"content", "ab<|turn|>"}, {"add_special", true}})["tokens"], OrderedJson({257, 256, 259}));
  EXPECT_EQ(api.Ask("/tokenize", {{"content", "ab"}, {"with_pieces", true}})["tokens"][0]["piece"], "ab");
  EXPECT_EQ(api.Ask("/detokenize", {{"tokens", {256, 'c'}}})["content"], "abc");
  EXPECT_EQ(api.Ask("/apply-template", kHi)["prompt"], "Hi<|turn|>");
  const OrderedJson count = api.Ask("/v1/responses/input_tokens", {{"input", "Hi"}, {"instructions", "Be brief."}});
  EXPECT_EQ(count["object"], "response.input_tokens");
  EXPECT_EQ(count["input_tokens"], 12);
  const OrderedJson models = OrderedJson::parse(Get(api.port, "/v1/models").body);
  EXPECT_EQ(models["data"][0]["id"], "text");
  EXPECT_EQ(Get(api.port, "/v1/models/text").status, 200);
  EXPECT_EQ(Get(api.port, "/v1/models/other").status, 404);
  EXPECT_EQ(OrderedJson::parse(Get(api.port, "/health").body)["status"], "ok");
  EXPECT_EQ(Get(api.port, "/").status, 200);
  EXPECT_EQ(Get(api.port, "/etc/passwd").status, 404);
  EXPECT_EQ(Get(api.port, "/../../etc/passwd").status, 404);
  EXPECT_EQ(Get(api.port, "/v1/chat/completions").status, 405);
  EXPECT_GT(api.Metric("tally_completion_tokens_total"), 0u);
  EXPECT_EQ(api.Metric("tally_requests_total{path=\"/v1/chat/completions\",status=\"200\"}"), 1u);
  EXPECT_EQ(api.Metric("tally_time_to_first_token_seconds_count"), 3u);
}

// Requests at once, whose drafts are by the model's layer for multi-token prediction: the answers are those without, and
// the bills name drafts.
TEST(ApiServer, DraftsOfSeveralAtOnce) {
  std::vector<std::string> texts[2];
  for (const int64_t draft : {0, 3}) {
    const TextServed text(4, draft);
    const ServedApi api(text.model);
    std::vector<std::string>& said = texts[draft > 0 ? 1 : 0];
    said.resize(6);
    std::atomic<int64_t> accepted = 0;
    std::vector<std::thread> clients;
    for (size_t i = 0; i < said.size(); ++i) {
      clients.emplace_back([&, i] {
        const OrderedJson answer = api.Ask("/v1/completions", {{"prompt", std::string(1, static_cast<char>('a' + i))},
                                                               {"max_tokens", 12 + 3 * i},
                                                               {"temperature", i % 2 == 0 ? 0 : 25},
                                                               {"seed", i},
                                                               {"ignore_eos", true},
                                                               {"tally", true}});
        said[i] = answer["choices"][0].dump();
        const OrderedJson& bill = answer["usage"]["tally"];
        if (bill.contains("drafts")) accepted += bill["drafts"]["accepted"].get<int64_t>();
      });
    }
    for (std::thread& client : clients) client.join();
    EXPECT_EQ(accepted > 10, draft > 0) << accepted;
    EXPECT_EQ(api.Metric("tally_drafted_tokens_total") > 10, draft > 0);
  }
  EXPECT_EQ(texts[0], texts[1]);
}

// Those who watch are told of the engine's steps, and no more of them than there is room for.
TEST(ApiServer, Live) {
  const TextServed text;
  const ServedApi api(text.model);
  TestClient head(api.port), watcher(api.port);
  ASSERT_TRUE(head.Ask("HEAD", "/live"));
  EXPECT_EQ(head.Read().status, 200);
  ASSERT_TRUE(watcher.Ask("GET", "/live"));
  ASSERT_TRUE(watcher.ReadUntil("\"tokens\":0"));
  api.Ask("/v1/chat/completions", kHi);
  EXPECT_TRUE(watcher.ReadUntil("\"tokens\":3"));
  EXPECT_TRUE(watcher.ReadUntil("<svg"));
  const auto watches = [&](TestClient& client) {
    return client.Ask("GET", "/live", "", "Connection: close\r\n") && client.ReadUntil("event: step");
  };
  std::vector<std::unique_ptr<TestClient>> more;
  do {
    more.push_back(std::make_unique<TestClient>(api.port));
  } while (more.size() < 40 && watches(*more.back()));
  EXPECT_EQ(more.size(), 16u);
  more.clear();
  EXPECT_TRUE(Becomes([&] {
    TestClient again(api.port);
    return watches(again);
  }));
}

// Figures of a token are of tokens that stayed: drafts that were not accepted are none.
TEST(ApiServer, LiveTokensAreThoseThatWereKept) {
  const TextServed text(1, 3);
  const ServedApi api(text.model);
  TestClient watcher(api.port);
  ASSERT_TRUE(watcher.Ask("GET", "/live"));
  ASSERT_TRUE(watcher.ReadUntil("\"tokens\":0"));
  const OrderedJson answer =
      api.Ask("/v1/completions",
              {{"prompt", "a"}, {"max_tokens", 40}, {"temperature", 25}, {"seed", 1}, {"ignore_eos", true}, {"tally", true}});
  const uint64_t prompt = answer["usage"]["prompt_tokens"], rejected = answer["usage"]["tally"]["drafts"]["not_accepted"];
  ASSERT_GT(rejected, prompt);
  ASSERT_TRUE(watcher.ReadUntil("\"tokens\":40,"));
  api.Ask("/v1/completions", {{"prompt", "a"}, {"max_tokens", 1}, {"ignore_eos", true}});
  const std::string next = "\"tokens\":41,";
  ASSERT_TRUE(watcher.ReadUntil(next));
  const std::string told = watcher.Peek().substr(0, watcher.Peek().find(next));
  const auto number = [&](const std::string& name, size_t from) {
    const size_t at = told.find("\"" + name + "\":", from);
    return at == told.npos ? -1 : std::atof(told.c_str() + at + name.size() + 3);
  };
  std::map<double, double> by_step;  // an event may be sent twice
  for (size_t at = told.find("\"step\":{"); at != told.npos; at = told.find("\"step\":{", at + 1)) {
    by_step[number("number", at)] = number("steps", at) * number("rows", at);
  }
  double rows = 0;
  for (const auto& [step, n] : by_step) rows += n;
  EXPECT_GE(rows, 39 - 1e-6);
  EXPECT_LE(rows, 39 + static_cast<double>(prompt) + 1e-6);
}

// A stream says what the whole answer says.
TEST(ApiServer, StreamedChats) {
  const TextServed text;
  const ServedApi api(text.model);
  const OrderedJson body =
      With(kHi, {{"n", 3}, {"seed", 5}, {"temperature", 60}, {"max_tokens", 12}, {"logprobs", true}, {"top_logprobs", 2}});
  const OrderedJson whole = api.Ask("/v1/chat/completions", body);
  ASSERT_EQ(whole["status"], 200) << whole;
  const std::vector<OrderedJson> events =
      api.Stream("/v1/chat/completions", With(body, {{"stream_options", {{"include_usage", true}}}}));
  EXPECT_TRUE(api.done);
  std::vector<std::string> texts(3), ends(3);
  std::vector<OrderedJson> logprobs(3, OrderedJson::array());
  for (const OrderedJson& chunk : events) {
    EXPECT_EQ(chunk["object"], "chat.completion.chunk");
    EXPECT_EQ(chunk["id"], events[0]["id"]);
    EXPECT_EQ(chunk["seed"], 5);
    for (const OrderedJson& choice : chunk["choices"]) {
      const size_t i = choice["index"];
      texts[i] += choice["delta"].value("content", "");
      if (choice["finish_reason"].is_string()) ends[i] = choice["finish_reason"];
      if (choice["logprobs"].is_object()) {
        for (const OrderedJson& token : choice["logprobs"]["content"]) logprobs[i].push_back(token);
      }
    }
  }
  for (size_t i = 0; i < 3; ++i) {
    const OrderedJson& choice = whole["choices"][i];
    EXPECT_EQ(texts[i], choice["message"]["content"]) << i;
    EXPECT_EQ(ends[i], choice["finish_reason"]) << i;
    EXPECT_EQ(logprobs[i], choice["logprobs"]["content"]) << i;
    EXPECT_EQ(logprobs[i][0]["top_logprobs"].size(), 2u);
  }
  OrderedJson usage = events.back()["usage"], expected = whole["usage"];
  usage.erase("prompt_tokens_details"), expected.erase("prompt_tokens_details");  // the second one found the first's
  EXPECT_EQ(usage, expected);
  EXPECT_EQ(events.back()["choices"], OrderedJson::array());
}

TEST(ApiServer, StreamedCompletions) {
  const TextServed text;
  const ServedApi api(text.model);
  std::string said;
  const std::vector<OrderedJson> events = api.Stream("/v1/completions", {{"prompt", "d"}, {"max_tokens", 6}, {"logprobs", 1}});
  for (const OrderedJson& chunk : events) {
    EXPECT_EQ(chunk["object"], "text_completion");
    EXPECT_FALSE(chunk.contains("usage"));
    said += chunk["choices"][0]["text"];
  }
  EXPECT_EQ(said,
            "e\xc3\xa9"
            "fgh")
      << "whole characters";
  EXPECT_EQ(events.back()["choices"][0]["finish_reason"], "length");
  EXPECT_TRUE(api.done);
}

TEST(ApiServer, StreamedResponses) {
  const TextServed text;
  const ServedApi api(text.model);
  const std::vector<OrderedJson> events = api.Stream("/v1/responses", {{"input", "Hi"}, {"tally", true}});
  EXPECT_FALSE(api.done);
  std::vector<std::string> types;
  std::string said;
  for (size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(events[i]["sequence_number"], i);
    types.push_back(events[i]["type"]);
    if (types.back() == "response.output_text.delta") said += events[i]["delta"];
  }
  EXPECT_EQ(types,
            (std::vector<std::string>{"response.created", "response.in_progress", "response.output_item.added",
                                      "response.content_part.added", "response.output_text.delta", "response.output_text.delta",
                                      "response.output_text.delta", "response.output_text.done", "response.content_part.done",
                                      "response.output_item.done", "response.completed"}));
  EXPECT_EQ(said, "xyz");
  const OrderedJson& response = events.back()["response"];
  EXPECT_EQ(response["status"], "completed");
  EXPECT_EQ(response["output"][0]["content"][0]["text"], "xyz");
  EXPECT_EQ(response["output"][0]["id"], events[2]["item"]["id"]);
  EXPECT_GT(response["usage"]["tally"]["decode"]["flops"], 0);
  const OrderedJson cut = api.Ask("/v1/responses", {{"input", "Hi"}, {"max_output_tokens", 2}});
  EXPECT_EQ(cut["incomplete_details"]["reason"], "max_output_tokens");
}

TEST(ApiServer, BiasAndStop) {
  const TextServed text;
  const ServedApi api(text.model);
  const auto said = [&](const OrderedJson& more) {
    return api.Ask("/v1/completions", With({{"prompt", "t"}, {"max_tokens", 4}}, more))["choices"][0]["text"];
  };
  EXPECT_EQ(said(OrderedJson::object()), "uvwx");
  EXPECT_EQ(
      said({{"logit_bias", {{std::to_string('v'), -100}}}, {"max_tokens", 2}, {"stop", "zz"}}).get<std::string>().substr(0, 1),
      "u");
  EXPECT_EQ(said({{"logit_bias", {{std::to_string('q'), 100}}}}), "qqqq");
  EXPECT_EQ(said({{"stop", "w"}}), "uv");
}

// What cannot be had is refused by name, and the server goes on.
TEST(ApiServer, Refusals) {
  const TextServed text;
  const ServedApi api(text.model);
  const struct {
    const char* path;
    OrderedJson body;
    const char* param;
  } cases[] = {
      {"/v1/chat/completions",
       With(kHi, {{"response_format", {{"type", "json_schema"}, {"json_schema", OrderedJson::object()}}}}),
       "response_format.json_schema.schema"},
      {"/v1/chat/completions", With(kHi, {{"guided_json", {{"$dynamicRef", "#x"}}}}), "guided_json"},
      {"/v1/chat/completions", With(kHi, {{"guided_regex", "(a)\\1"}}), "guided_regex"},
      {"/v1/chat/completions", With(kHi, {{"tool_choice", "required"}}), "tool_choice"},
      {"/v1/chat/completions", With(kHi, {{"stream_options", {{"include_usage", true}}}}), "stream_options"},
      {"/v1/responses", {{"input", "Hi"}, {"previous_response_id", "resp_1"}}, "previous_response_id"},
      {"/v1/responses", {{"input", "Hi"}, {"text", {{"format", {{"type", "sound"}}}}}}, "text.format.type"},
      {"/v1/responses", {{"input", "Hi"}, {"tool_choice", {{"type", "function"}, {"name", "f"}}}}, "tool_choice"},
      {"/v1/responses", {{"input", "Hi"}, {"tool_choice", {{"type", "web_search"}, {"name", "f"}}}}, "tool_choice"},
      {"/v1/responses", {{"input", "Hi"}, {"background", true}}, "background"},
      {"/v1/responses", {{"input", {{{"type", "image"}}}}}, "input[0].type"},
      {"/v1/responses", OrderedJson::object(), "input"},
      {"/v1/completions", {{"prompt", {4294967296}}}, "prompt"},
      {"/v1/completions", {{"prompt", "a"}, {"logit_bias", {{"99999999999", 1}}}}, "logit_bias"},
      {"/tokenize", OrderedJson::object(), "content"},
      {"/detokenize", {{"tokens", {1e30}}}, "tokens"},
      {"/detokenize", {{"tokens", {18446744073709551615u}}}, "tokens"},
      {"/apply-template", OrderedJson::object(), "messages"},
  };
  for (const auto& c : cases) {
    const OrderedJson answer = api.Ask(c.path, c.body);
    EXPECT_EQ(answer["status"], 400) << c.body;
    ASSERT_TRUE(answer.contains("error")) << answer;
    EXPECT_EQ(answer["error"]["param"], c.param) << answer;
  }
  for (const std::string& body :
       {std::string(), std::string("{"), std::string("[]"), std::string("{\"prompt\": \"\xff\xfe\"}"),
        "{\"prompt\": " + std::string(100'000, '[') + std::string(100'000, ']') + "}", std::string(1 << 20, '{'),
        "{\"prompt\": [" + std::string(1 << 20, '1') + "]}", std::string("{\"prompt\": 1e999}")}) {
    const HttpReply reply = Post(api.port, "/v1/completions", body);
    EXPECT_EQ(reply.status, 400) << body.substr(0, 40);
    EXPECT_LT(reply.body.size(), 1000u);
  }
  EXPECT_EQ(api.Ask("/v1/completions", {{"prompt", std::string(1000, 'a')}})["error"]["code"], "context_length_exceeded");
  EXPECT_EQ(api.Ask("/v1/chat/completions", kHi)["status"], 200);
}

// A template that would never end, by what the body gives it.
TEST(ApiServer, BombsOfTemplates) {
  TextServed text;
  const auto side = MakeChatSide(
      {.text = "{% for i in range(n) %}{% for j in range(n) %}{{ s * n }}{% endfor %}{% endfor %}{{ messages[0].content }}"},
      true);
  ASSERT_TRUE(side.ok());
  text.model.chat = side;
  const ServedApi api(text.model);
  for (const OrderedJson& n : {OrderedJson(1000), OrderedJson(1'000'000'000), OrderedJson(1e18)}) {
    for (const char* s : {"", "x"}) {
      const OrderedJson answer = api.Ask("/v1/chat/completions", With(kHi, {{"chat_template_kwargs", {{"n", n}, {"s", s}}}}));
      EXPECT_EQ(answer["status"], 400) << answer;
    }
  }
  EXPECT_EQ(
      api.Ask("/v1/chat/completions", With(kHi, {{"chat_template_kwargs", {{"n", 1}, {"s", ""}}}, {"max_tokens", 2}}))["status"],
      200);
}

TEST(ApiServer, WithoutThePage) {
  const TextServed text;
  const ServedApi api(text.model, {.page = false});
  for (const char* path : {"/", "/live"}) {
    const HttpReply reply = Get(api.port, path);
    EXPECT_EQ(reply.status, 404) << path;
    EXPECT_NE(reply.body.find("is off: --no-page was given"), std::string::npos) << reply.body;
  }
  EXPECT_EQ(Get(api.port, "/v1/models").status, 200);
}

TEST(ApiServer, KeysHostsAndOrigins) {
  const TextServed text;
  const std::string one = "first-key-0123456789", two = "second-key-012345678";
  const ServedApi api(text.model, {.keys = {one, two}, .origins = {"https://chat.example.com"}});
  const auto bearer = [](const std::string& key) { return "Authorization: Bearer " + key + "\r\n"; };
  const std::string body = kHi.dump();
  EXPECT_EQ(Post(api.port, "/v1/chat/completions", body).status, 401);
  EXPECT_EQ(Post(api.port, "/v1/chat/completions", body, bearer("wrong-key-0123456789")).status, 401);
  EXPECT_EQ(Get(api.port, "/metrics").status, 401);
  EXPECT_EQ(Get(api.port, "/health").status, 200);
  EXPECT_EQ(Get(api.port, "/health", "Host: evil.example\r\n").status, 403);
  EXPECT_EQ(Get(api.port, "/health", "Origin: https://evil.example\r\n").status, 403);
  HttpReply reply = Post(api.port, "/v1/chat/completions", body, bearer(one) + "Origin: https://chat.example.com\r\n");
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.headers["access-control-allow-origin"], "https://chat.example.com");
  TestClient preflight(api.port);
  ASSERT_TRUE(preflight.Ask("OPTIONS", "/v1/chat/completions", "", "Origin: https://chat.example.com\r\n"));
  reply = preflight.Read();
  EXPECT_EQ(reply.status, 204);
  EXPECT_EQ(reply.headers["access-control-allow-methods"], "GET, POST, OPTIONS");
  // What one key's requests have run is found by its own alone.
  const OrderedJson prompt = {{"prompt", "The quick brown fox jumps over the lazy dog."}, {"max_tokens", 1}};
  const auto cached = [&](const std::string& key) {
    return api.Ask("/v1/completions", prompt, bearer(key))["usage"]["prompt_tokens_details"]["cached_tokens"].get<int>();
  };
  EXPECT_EQ(cached(one), 0);
  EXPECT_GT(cached(one), 0);
  EXPECT_EQ(cached(two), 0);
}

TEST(ApiServer, OthersReachItWithAKeyOnly) {
  const TextServed text;
  Result<Listener> listener = Listener::Open("0.0.0.0", 0);
  ASSERT_TRUE(listener.ok());
  const auto refused = ApiServer::Start(text.model, std::move(*listener), {});
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("--api-key-file"), std::string::npos);
  listener = Listener::Open("0.0.0.0", 0);
  EXPECT_TRUE(ApiServer::Start(text.model, std::move(*listener), {.insecure = true}).ok());
}

}  // namespace
}  // namespace tally
