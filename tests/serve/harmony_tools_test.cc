// SPDX-License-Identifier: Apache-2.0
// Calls of tools by a model of harmony, over all endpoints, whole and streamed, and the turn after them. The engine plays a script: what
// is tested is all that stands between a model's tokens and a client. The published cases of gpt-oss's compatibility test
// (https://github.com/openai/gpt-oss/tree/main/compatibility-test) are tried too where they are at hand.
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/serve/scripted_harmony.h"
#include "tests/serve/served_api.h"
#include "tests/text/text_test_util.h"

namespace tally {
namespace {

struct Case {
  std::string tool, input, arguments;
};

class HarmonyTools : public testing::Test {
 protected:
  void SayCall(const Case& c) {
    harmony_.Say("<|channel|>analysis<|message|>A tool will tell.<|end|><|start|>assistant<|channel|>commentary to=functions." +
                 c.tool + " <|constrain|>json<|message|>" + c.arguments + "<|call|>");
  }
  void SayDone() {
    harmony_.Say("<|channel|>analysis<|message|>Good.<|end|><|start|>assistant<|channel|>final<|message|>It is done.<|return|>");
  }

  // The message that a chat's stream adds up to.
  OrderedJson Streamed(const OrderedJson& body, std::string* finish) {
    OrderedJson message = {{"role", ""}, {"content", ""}, {"reasoning_content", ""}};
    for (const OrderedJson& chunk : api_->Stream("/v1/chat/completions", body)) {
      const OrderedJson& choice = chunk.at("choices").at(0);
      if (choice.at("finish_reason").is_string()) *finish = choice.at("finish_reason");
      for (const auto& [name, value] : choice.at("delta").items()) {
        if (name != "tool_calls") {
          if (value.is_string() && message.contains(name))
            message[name] = message[name].get<std::string>() + value.get<std::string>();
          continue;
        }
        for (const OrderedJson& part : value) {
          OrderedJson& call = message["tool_calls"][part.at("index").get<size_t>()];
          if (part.contains("id")) call["id"] = part.at("id");
          if (part.contains("type")) call["type"] = part.at("type");
          if (!call.contains("function")) call["function"] = OrderedJson::object();
          for (const auto& [field, text] : part.at("function").items()) {
            call["function"][field] = call["function"].value(field, "") + text.get<std::string>();
          }
        }
      }
    }
    return message;
  }

  void TryChat(const Case& c, bool stream) {
    OrderedJson body = {
        {"messages", OrderedJson::array({{{"role", "user"}, {"content", c.input}}})},
        {"tools",
         OrderedJson::array({{{"type", "function"}, {"function", {{"name", c.tool}, {"parameters", {{"type", "object"}}}}}}})},
        {"reasoning_effort", "low"}};
    const auto ask = [&](std::string* finish) {
      if (stream) return Streamed(body, finish);
      const OrderedJson answer = api_->Ask("/v1/chat/completions", body);
      EXPECT_EQ(answer.at("status"), 200) << answer;
      *finish = answer.at("choices")[0].at("finish_reason");
      return answer.at("choices")[0].at("message");
    };
    std::string finish;
    SayCall(c);
    const OrderedJson message = ask(&finish);
    EXPECT_EQ(finish, "tool_calls");
    ASSERT_EQ(message["tool_calls"].size(), 1u) << message;
    EXPECT_EQ(message["tool_calls"][0]["function"]["name"], c.tool);
    EXPECT_EQ(message["tool_calls"][0]["function"]["arguments"], c.arguments);
    EXPECT_EQ(message["reasoning_content"], "A tool will tell.");
    body["messages"].push_back(message);
    body["messages"].push_back(
        {{"role", "tool"}, {"tool_call_id", message["tool_calls"][0]["id"]}, {"content", "{\"ok\": true}"}});
    SayDone();
    EXPECT_EQ(ask(&finish)["content"], "It is done.");
    EXPECT_EQ(finish, "stop");
  }

  void TryResponses(const Case& c, bool stream) {
    OrderedJson body = {
        {"input", OrderedJson::array({{{"role", "user"}, {"content", c.input}}})},
        {"tools", OrderedJson::array({{{"type", "function"}, {"name", c.tool}, {"parameters", {{"type", "object"}}}}})}};
    const auto ask = [&] {
      if (!stream) return api_->Ask("/v1/responses", body).at("output");
      const std::vector<OrderedJson> events = api_->Stream("/v1/responses", body);
      std::string arguments, text;
      for (const OrderedJson& event : events) {
        if (event.at("type") == "response.function_call_arguments.delta") arguments += event.at("delta");
        if (event.at("type") == "response.output_text.delta") text += event.at("delta");
      }
      EXPECT_EQ(events.back().at("type"), "response.completed");
      const OrderedJson& output = events.back().at("response").at("output");
      EXPECT_EQ(
          output.back().at("type") == "function_call" ? output.back().at("arguments") : output.back().at("content")[0].at("text"),
          arguments + text);
      return output;
    };
    SayCall(c);
    const OrderedJson output = ask();
    ASSERT_EQ(output.size(), 2u) << output;
    EXPECT_EQ(output[0]["type"], "reasoning");
    EXPECT_EQ(output[1]["type"], "function_call");
    EXPECT_EQ(output[1]["name"], c.tool);
    EXPECT_EQ(output[1]["arguments"], c.arguments);
    for (const OrderedJson& item : output) body["input"].push_back(item);
    body["input"].push_back({{"type", "function_call_output"}, {"call_id", output[1]["call_id"]}, {"output", "{\"ok\": true}"}});
    SayDone();
    EXPECT_EQ(ask().back()["content"][0]["text"], "It is done.");
  }

  // The blocks that a stream of /v1/messages adds up to.
  static OrderedJson Blocks(const std::vector<OrderedJson>& events, OrderedJson* stop) {
    OrderedJson blocks = OrderedJson::array();
    std::string input;
    for (const OrderedJson& event : events) {
      const std::string type = event.at("type");
      if (type == "content_block_start") {
        EXPECT_EQ(event.at("index"), blocks.size());
        blocks.push_back(event.at("content_block"));
        input.clear();
      } else if (type == "content_block_delta") {
        EXPECT_EQ(event.at("index"), blocks.size() - 1);
        for (const auto& [name, text] : event.at("delta").items()) {
          if (name == "partial_json") input += text;
          if (name == "text" || name == "thinking")
            blocks.back()[name] = blocks.back()[name].get<std::string>() + text.get<std::string>();
        }
      } else if (type == "content_block_stop" && !input.empty()) {
        blocks.back()["input"] = OrderedJson::parse(input);
      } else if (type == "message_delta") {
        *stop = event.at("delta").at("stop_reason");
      }
    }
    EXPECT_EQ(events.back().at("type"), "message_stop");
    return blocks;
  }

  void TryMessages(const Case& c, bool stream) {
    OrderedJson body = {{"max_tokens", 1000},
                        {"messages", OrderedJson::array({{{"role", "user"}, {"content", c.input}}})},
                        {"thinking", {{"type", "enabled"}, {"budget_tokens", 1024}}},
                        {"tools", OrderedJson::array({{{"name", c.tool}, {"input_schema", {{"type", "object"}}}}})}};
    OrderedJson stop;
    const auto ask = [&] {
      if (stream) return Blocks(api_->Stream("/v1/messages", body), &stop);
      const OrderedJson answer = api_->Ask("/v1/messages", body);
      EXPECT_EQ(answer.at("status"), 200) << answer;
      stop = answer.at("stop_reason");
      return answer.at("content");
    };
    SayCall(c);
    const OrderedJson content = ask();
    EXPECT_EQ(stop, "tool_use");
    ASSERT_EQ(content.size(), 2u) << content;
    EXPECT_EQ(content[0]["thinking"], "A tool will tell.");
    EXPECT_EQ(content[1]["type"], "tool_use");
    EXPECT_EQ(content[1]["name"], c.tool);
    EXPECT_EQ(content[1]["input"], OrderedJson::parse(c.arguments));
    body["messages"].push_back({{"role", "assistant"}, {"content", content}});
    body["messages"].push_back(
        {{"role", "user"},
         {"content",
          OrderedJson::array({{{"type", "tool_result"}, {"tool_use_id", content[1]["id"]}, {"content", "{\"ok\": true}"}}})}});
    SayDone();
    EXPECT_EQ(ask().back()["text"], "It is done.");
    EXPECT_EQ(stop, "end_turn");
  }

  void Try(const Case& c) {
    SCOPED_TRACE(c.tool + ": " + c.input);
    for (const bool stream : {false, true}) {
      TryMessages(c, stream);
      TryChat(c, stream);
      TryResponses(c, stream);
    }
  }

  ScriptedHarmony harmony_;
  const ServedApi* const api_ = &harmony_.api();
};

TEST_F(HarmonyTools, CallsAndWhatFollowsThem) {
  Try({"status", "Is all well?", "{}"});
  Try({"to_html", "Turn\n\n> this\n\ninto HTML.", R"({"markdown":"> this"})"});
  Try({"language_of", "¿Qué?", R"({"text":"¿Qué?","more":[1,{"a":null}]})"});
}

TEST_F(HarmonyTools, PublishedCases) {
  std::ifstream file(test::Shared("harmony/compatibility_cases.jsonl"));
  if (!file) GTEST_SKIP() << "../shared/harmony is not here";
  size_t n = 0;
  for (std::string line; std::getline(file, line); ++n) {
    const OrderedJson json = OrderedJson::parse(line);
    Try({json.at("tool_name"), json.at("input"), json.at("expected_arguments")});
  }
  EXPECT_EQ(n, 30u);
}

}  // namespace
}  // namespace tally
