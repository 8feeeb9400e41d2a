// SPDX-License-Identifier: Apache-2.0
// /v1/messages and /v1/messages/count_tokens: what bodies are read into, what is refused, and answers over sockets.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "engine/serve/api_anthropic.h"
#include "engine/serve/api_request.h"
#include "tests/serve/served_api.h"
#include "tests/serve/text_served.h"

namespace tally {
namespace {

const OrderedJson kHi = {{"max_tokens", 20}, {"messages", OrderedJson::array({{{"role", "user"}, {"content", "Hi"}}})}};

OrderedJson With(OrderedJson body, const OrderedJson& more) {
  body.update(more);
  return body;
}

TEST(Anthropic, Conversations) {
  ApiRequest r;
  const std::optional<ApiError> error = ParseApiRequest(ApiEndpoint::kMessages, OrderedJson::parse(R"({
    "model": "m", "max_tokens": 9, "temperature": 0.5, "top_p": 0.9, "top_k": 5, "stop_sequences": ["a", "b"], "stream": true,
    "metadata": {"user_id": "u"}, "service_tier": "auto", "thinking": {"type": "enabled", "budget_tokens": 1024},
    "system": [{"type": "text", "text": "Be", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "brief."}],
    "messages": [
      {"role": "user", "content": "Weather"},
      {"role": "user", "content": [{"type": "text", "text": "in Rome?"}]},
      {"role": "assistant", "content": [{"type": "thinking", "thinking": "Ask.", "signature": ""}, {"type": "text", "text": "Let me see."},
        {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Rome"}},
        {"type": "tool_use", "id": "t2", "name": "time", "input": {}}]},
      {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "sunny"}]},
        {"type": "tool_result", "tool_use_id": "t2", "is_error": true}, {"type": "text", "text": "And?"}]}],
    "tools": [{"name": "weather", "description": "d", "input_schema": {"type": "object"}, "cache_control": null},
              {"type": "custom", "name": "time", "input_schema": {"type": "object"}, "strict": true}],
    "tool_choice": {"type": "auto", "disable_parallel_tool_use": false}})"),
                                                        &r);
  ASSERT_FALSE(error.has_value()) << error->message;
  const std::vector<ChatMessage> expected = {{.role = "system", .content = "Be\nbrief."},
                                             {.role = "user", .content = "Weather\nin Rome?"},
                                             {.role = "assistant",
                                              .content = "Let me see.",
                                              .reasoning = "Ask.",
                                              .tool_calls = {{"t1", "weather", R"({"city":"Rome"})"}, {"t2", "time", "{}"}}},
                                             {.role = "tool", .content = "sunny", .tool_call_id = "t1", .name = "weather"},
                                             {.role = "tool", .content = "", .tool_call_id = "t2", .name = "time"},
                                             {.role = "user", .content = "And?"}};
  EXPECT_EQ(r.chat.messages, expected);
  EXPECT_EQ(r.chat.tools[0],
            R"({"type":"function","function":{"name":"weather","description":"d","parameters":{"type":"object"}}})");
  EXPECT_EQ(r.chat.tools.size(), 2u);
  EXPECT_EQ(r.chat.thinking, true);
  EXPECT_EQ(r.max_tokens, 9);
  EXPECT_EQ(r.temperature, 0.5);
  EXPECT_EQ(r.top_k, 5);
  EXPECT_EQ(r.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(r.stream);
  ASSERT_FALSE(ParseApiRequest(ApiEndpoint::kMessages,
                               With(kHi, OrderedJson::parse(R"({"tools": [{"name": "f", "input_schema": {}}],
    "tool_choice": {"type": "none"}, "thinking": {"type": "disabled"}, "output_config": {"effort": "high"}})")),
                               &r));
  EXPECT_TRUE(r.chat.tools.empty());
  EXPECT_EQ(r.chat.thinking, false);
  EXPECT_EQ(r.chat.reasoning_effort, "high");
}

TEST(Anthropic, Refusals) {
  const auto message = [](const char* content) {
    return R"({"messages": [{"role": "user", "content": )" + std::string(content) + "}]}";
  };
  const std::pair<std::string, const char*> cases[] = {
      {R"({"max_tokens": null})", "max_tokens"},
      {R"({"max_tokens": -1})", "max_tokens"},
      {R"({"messages": []})", "messages"},
      {R"({"messages": [{"role": "assistant", "content": []}]})", "messages"},
      {R"({"messages": [{"role": "tool", "content": "a"}]})", "messages[0].role"},
      {R"({"messages": [{"role": "user"}]})", "messages[0].content"},
      {message("5"), "messages[0].content"},
      {message("[]"), "messages[0].content"},
      {message(R"([{"type": "image", "source": {"type": "base64"}}])"), "messages[0].content[0].type"},
      {message(R"([{"type": "text", "text": "a"}, {"type": "document"}])"), "messages[0].content[1].type"},
      {message(R"([{"type": "tool_use", "id": "a", "name": "f", "input": {}}])"), "messages[0].content[0].type"},
      {message(R"([{"type": "tool_result"}])"), "messages[0].content[0].tool_use_id"},
      {message(R"([{"type": "tool_result", "tool_use_id": "a", "content": [{"type": "image"}]}])"),
       "messages[0].content[0].content[0].type"},
      {R"({"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": "{}"}]}]})",
       "messages[0].content[0].input"},
      {R"({"system": [{"type": "image"}]})", "system[0].type"},
      {R"({"tools": [{"name": "f"}]})", "tools[0].input_schema"},
      {R"({"tools": [{"input_schema": {}}]})", "tools[0].name"},
      {R"({"tools": [{"type": "web_search_20250305", "name": "web_search"}]})", "tools[0].type"},
      {R"({"tool_choice": {"type": "any"}})", "tool_choice.type"},
      {R"({"tool_choice": {"type": "tool", "name": "f"}})", "tool_choice.type"},
      {R"({"thinking": {"type": "much"}})", "thinking.type"},
      {R"({"output_config": {"effort": "utmost"}})", "output_config.effort"},
      {R"({"output_config": {"format": {"type": "json_schema"}}})", "output_config.format.schema"},
      {R"({"stop_sequences": [1]})", "stop_sequences"},
      {R"({"mcp_servers": [{"url": "http://localhost"}]})", "mcp_servers"},
      {R"({"container": "c"})", "container"},
      {R"({"thread": {"type": "create"}})", "thread"},
      {R"({"n": 2})", "n"},
      {R"({"stop": "a"})", "stop"},
      {R"({"temperature": "warm"})", "temperature"},
  };
  for (const auto& [fields, param] : cases) {
    ApiRequest request;
    const std::optional<ApiError> error =
        ParseApiRequest(ApiEndpoint::kMessages, With(kHi, OrderedJson::parse(fields)), &request);
    ASSERT_TRUE(error.has_value()) << fields;
    EXPECT_EQ(error->param, param) << fields;
    EXPECT_TRUE(error->message.starts_with(std::string(param) + " ")) << error->message;
  }
}

TEST(Anthropic, ErrorsHaveItsNames) {
  const std::pair<int, const char*> types[] = {
      {400, "invalid_request_error"}, {401, "authentication_error"}, {403, "permission_error"}, {404, "not_found_error"},
      {413, "request_too_large"},     {429, "rate_limit_error"},     {500, "api_error"},        {503, "overloaded_error"},
      {504, "timeout_error"}};
  for (const auto& [status, type] : types) {
    EXPECT_EQ(ErrorJson({.status = status, .message = "m"}, ApiEndpoint::kMessages),
              OrderedJson({{"type", "error"}, {"error", {{"type", type}, {"message", "m"}}}}));
  }
  EXPECT_TRUE(ErrorJson({.message = "m"}, ApiEndpoint::kChat)["error"].contains("param"));
}

// Whole and streamed; calls whose arguments are no object too.
TEST(Anthropic, Blocks) {
  using Kind = OutputPart::Kind;
  const std::vector<OutputPart> parts = {{Kind::kMark, "<think>"},
                                         {Kind::kReasoning, "Hm"},
                                         {Kind::kReasoning, "m."},
                                         {Kind::kContent, "Let"},
                                         {Kind::kContent, " me."},
                                         {Kind::kCall, "", ToolCall{"c1", "f", R"({"a": 1})"}},
                                         {Kind::kCall, "", ToolCall{"c2", "f", ""}},
                                         {Kind::kCall, "", ToolCall{"c3", "f", "{\"a\": "}}};
  AnthropicOutput whole, streamed;
  whole.Add(parts, nullptr);
  whole.Finish(nullptr);
  std::vector<OrderedJson> events;
  for (const OutputPart& part : parts) streamed.Add({&part, 1}, &events);
  streamed.Finish(&events);
  EXPECT_EQ(whole.blocks(), streamed.blocks());
  ASSERT_EQ(whole.blocks().size(), 5u);
  EXPECT_EQ(whole.blocks()[0], OrderedJson({{"type", "thinking"}, {"thinking", "Hmm."}, {"signature", ""}}));
  EXPECT_EQ(whole.blocks()[1], OrderedJson({{"type", "text"}, {"text", "Let me."}, {"citations", nullptr}}));
  EXPECT_EQ(whole.blocks()[2], OrderedJson({{"type", "tool_use"}, {"id", "c1"}, {"name", "f"}, {"input", {{"a", 1}}}}));
  EXPECT_EQ(whole.blocks()[3]["input"], OrderedJson::object());
  EXPECT_EQ(whole.blocks()[4]["input"], OrderedJson({{"arguments", "{\"a\": "}}));
  size_t begun = 0, ended = 0;
  for (const OrderedJson& event : events) {
    if (event["type"] == "content_block_start") {
      EXPECT_EQ(event["index"], begun++);
    }
    if (event["type"] == "content_block_stop") {
      EXPECT_EQ(event["index"], ended++);
    }
  }
  EXPECT_EQ(begun, 5u);
  EXPECT_EQ(ended, 5u);
}

TEST(Anthropic, WholeAnswers) {
  const TextServed text;
  const ServedApi api(text.model);
  const OrderedJson answer = api.Ask("/v1/messages", With(kHi, {{"system", "Be brief."}, {"seed", 3}}));
  ASSERT_EQ(answer["status"], 200) << answer;
  EXPECT_TRUE(answer["id"].get<std::string>().starts_with("msg_"));
  EXPECT_EQ(answer["type"], "message");
  EXPECT_EQ(answer["role"], "assistant");
  EXPECT_EQ(answer["content"], OrderedJson::array({{{"type", "text"}, {"text", "xyz"}, {"citations", nullptr}}}));
  EXPECT_EQ(answer["stop_reason"], "end_turn");
  EXPECT_EQ(answer["seed"], 3);
  EXPECT_EQ(
      answer["usage"],
      OrderedJson(
          {{"input_tokens", 12}, {"cache_creation_input_tokens", 0}, {"cache_read_input_tokens", 0}, {"output_tokens", 3}}));
  // What had run is not counted again.
  const OrderedJson again = api.Ask("/v1/messages", With(kHi, {{"system", "Be brief."}, {"tally", true}}))["usage"];
  EXPECT_GT(again["cache_read_input_tokens"], 0);
  EXPECT_EQ(again["input_tokens"].get<int>() + again["cache_read_input_tokens"].get<int>(), 12);
  EXPECT_GT(again["tally"]["decode"]["flops"], 0);
  EXPECT_EQ(api.Ask("/v1/messages", kHi, "X-Tally: 1\r\n")["usage"].contains("tally"), true);
  EXPECT_EQ(api.Ask("/v1/messages/count_tokens", With(kHi, {{"system", "Be brief."}}))["input_tokens"], 12);
  EXPECT_EQ(api.Ask("/v1/messages/count_tokens", {{"messages", kHi["messages"]}})["input_tokens"], 3);
  const auto stop = [&](const OrderedJson& more) {
    const OrderedJson a = api.Ask("/v1/messages", With(kHi, more));
    return std::pair(a["stop_reason"].get<std::string>(),
                     a["stop_sequence"].is_null() ? "" : a["stop_sequence"].get<std::string>());
  };
  EXPECT_EQ(stop({{"max_tokens", 2}}), std::pair(std::string("max_tokens"), std::string()));
  EXPECT_EQ(stop({{"stop_sequences", {"q", "z"}}}), std::pair(std::string("stop_sequence"), std::string("z")));
  EXPECT_EQ(stop({{"ignore_eos", true}, {"max_tokens", 1000}}),
            std::pair(std::string("model_context_window_exceeded"), std::string()));
  EXPECT_EQ(api.Metric("tally_requests_total{path=\"/v1/messages/count_tokens\",status=\"200\"}"), 2u);
}

TEST(Anthropic, Streams) {
  const TextServed text;
  const ServedApi api(text.model);
  const std::vector<OrderedJson> events = api.Stream("/v1/messages", With(kHi, {{"tally", true}}));
  EXPECT_FALSE(api.done) << "there is no [DONE]";
  std::vector<std::string> types;
  std::string said;
  for (const OrderedJson& event : events) {
    if (types.empty() || types.back() != event["type"]) types.push_back(event["type"]);
    if (event["type"] == "content_block_delta") said += event["delta"]["text"];
  }
  EXPECT_EQ(types, (std::vector<std::string>{"message_start", "content_block_start", "content_block_delta", "content_block_stop",
                                             "message_delta", "message_stop"}));
  EXPECT_EQ(said, "xyz");
  EXPECT_EQ(events[0]["message"]["usage"]["input_tokens"], 3);
  EXPECT_TRUE(events[0]["message"]["stop_reason"].is_null());
  const OrderedJson& end = events[events.size() - 2];
  EXPECT_EQ(end["delta"]["stop_reason"], "end_turn");
  EXPECT_EQ(end["usage"]["output_tokens"], 3);
  EXPECT_GT(end["usage"]["tally"]["decode"]["flops"], 0);
}

TEST(Anthropic, KeysAndErrors) {
  const TextServed text;
  const ServedApi api(text.model, {.keys = {"first-key-0123456789"}, .http = {.body_bytes = 10'000}});
  const std::string key = "X-Api-Key: first-key-0123456789\r\nAnthropic-Version: 2023-06-01\r\n",
                    bearer = "Authorization: Bearer first-key-0123456789\r\n";
  const struct {
    const char* path;
    std::string headers;
    OrderedJson body;
    int status;
    const char* type;
  } cases[] = {
      {"/v1/messages", "", kHi, 401, "authentication_error"},
      {"/v1/messages", "X-Api-Key: first-key-0123456788\r\n", kHi, 401, "authentication_error"},
      {"/v1/messages", "X-Api-Key: first-key-0123456789\r\nX-Api-Key: first-key-0123456789\r\n", kHi, 401,
       "authentication_error"},
      {"/v1/messages", "X-Api-Key: first-key-0123456789\r\nAuthorization: Bearer other-key-0123456789\r\n", kHi, 401,
       "authentication_error"},
      {"/v1/messages", key, {{"messages", kHi["messages"]}}, 400, "invalid_request_error"},
      {"/v1/messages", key, With(kHi, {{"system", std::string(1000, 'a')}}), 400, "invalid_request_error"},
      {"/v1/messages/count_tokens", key, OrderedJson::object(), 400, "invalid_request_error"},
      {"/v1/messages/batches", key, OrderedJson::object(), 404, "not_found_error"},
      {"/v1/messages", key, OrderedJson(std::string(10'000, 'a')), 413, "request_too_large"},
  };
  for (const auto& c : cases) {
    const OrderedJson answer = api.Ask(c.path, c.body, c.headers);
    EXPECT_EQ(answer["status"], c.status) << answer;
    EXPECT_EQ(answer["type"], "error") << answer;
    EXPECT_EQ(answer["error"]["type"], c.type) << answer;
  }
  EXPECT_EQ(api.Ask("/v1/messages", kHi, key)["status"], 200);
  EXPECT_EQ(api.Ask("/v1/messages", kHi, bearer)["status"], 200);
  EXPECT_EQ(api.Ask("/v1/chat/completions", {{"messages", kHi["messages"]}}, key)["status"], 200);
  const OrderedJson models = OrderedJson::parse(Get(api.port, "/v1/models", key).body);
  EXPECT_EQ(models["data"][0]["type"], "model");
  EXPECT_EQ(models["has_more"], false);
  EXPECT_EQ(models["data"][0]["created_at"].get<std::string>().size(), 20u);
}

}  // namespace
}  // namespace tally
