// SPDX-License-Identifier: Apache-2.0
// Calls that nobody asked for, calls one at a time, ids of calls, and white space, over all endpoints, whole and streamed. The engine plays
// a script.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <set>
#include <string>
#include <vector>

#include "tests/serve/scripted_harmony.h"
#include "tests/serve/text_served.h"

namespace tally {
namespace {

constexpr const char* kQwen =
    "{% if tools %}{{ tools|tojson }}{% endif %}{% for m in messages %}{{ m.role + m.content }}{% for c in m.tool_calls or [] %}"
    "<tool_call>{{ c.function.arguments|tojson }}</tool_call>{% endfor %}{% endfor %}";
constexpr const char* kHarmonyCall = "<|channel|>commentary to=functions.rm<|message|>{\"path\":\"/\"}<|call|>";
constexpr const char* kQwenCall =
    "Okay <tool_call>\n{\"name\": \"rm\", \"arguments\": {\"path\": \"/\"}}\n</tool_call><|return|>";

ChatSide Side(const std::string& text) { return *MakeChatSide({.text = text}, /*native=*/true); }

struct Said {
  std::string text, finish;
  std::vector<OrderedJson> calls;  // {"id", "arguments"}; arguments are text
};

struct Api {
  std::string path;
  OrderedJson body, tools, none, one;
  Said (*whole)(const OrderedJson& answer);
  Said (*streamed)(const std::vector<OrderedJson>& events);
};

Said OfChat(const OrderedJson& answer) {
  Said said;
  const OrderedJson& choice = answer.at("choices")[0];
  if (choice.at("message").at("content").is_string()) said.text = choice.at("message").at("content");
  for (const OrderedJson& call : choice.at("message").value("tool_calls", OrderedJson::array())) {
    said.calls.push_back({{"id", call.at("id")}, {"arguments", call.at("function").at("arguments")}});
  }
  said.finish = choice.at("finish_reason");
  return said;
}
Said OfChatStream(const std::vector<OrderedJson>& events) {
  Said said;
  for (const OrderedJson& event : events) {
    const OrderedJson& choice = event.at("choices").at(0);
    const OrderedJson& delta = choice.at("delta");
    if (delta.contains("content") && delta["content"].is_string()) said.text += delta["content"];
    for (const OrderedJson& part : delta.value("tool_calls", OrderedJson::array())) {
      if (part.contains("id")) said.calls.push_back({{"id", part.at("id")}, {"arguments", ""}});
      const std::string more = part.at("function").value("arguments", "");
      said.calls.back()["arguments"] = said.calls.back()["arguments"].get<std::string>() + more;
    }
    if (choice.at("finish_reason").is_string()) said.finish = choice.at("finish_reason");
  }
  return said;
}
Said OfResponse(const OrderedJson& answer) {
  Said said;
  for (const OrderedJson& item : answer.at("output")) {
    if (item.at("type") == "message") said.text += item.at("content")[0].at("text");
    if (item.at("type") == "function_call")
      said.calls.push_back({{"id", item.at("call_id")}, {"arguments", item.at("arguments")}});
  }
  said.finish = said.calls.empty() ? "stop" : "tool_calls";
  return said;
}
Said OfResponseStream(const std::vector<OrderedJson>& events) { return OfResponse(events.back().at("response")); }
Said OfMessage(const OrderedJson& answer) {
  Said said;
  for (const OrderedJson& block : answer.at("content")) {
    if (block.at("type") == "text") said.text += block.at("text");
    if (block.at("type") == "tool_use") said.calls.push_back({{"id", block.at("id")}, {"arguments", block.at("input").dump()}});
  }
  said.finish = answer.at("stop_reason") == "tool_use" ? "tool_calls" : answer.at("stop_reason") == "end_turn" ? "stop" : "?";
  return said;
}
Said OfMessageStream(const std::vector<OrderedJson>& events) {
  OrderedJson answer = {{"content", OrderedJson::array()}, {"stop_reason", ""}};
  for (const OrderedJson& event : events) {
    if (event.at("type") == "content_block_start") answer["content"].push_back(event.at("content_block"));
    if (event.at("type") == "content_block_delta" && event.at("delta").contains("text")) {
      OrderedJson& text = answer["content"].back()["text"];
      text = text.get<std::string>() + event.at("delta").at("text").get<std::string>();
    }
    if (event.at("type") == "content_block_delta" && event.at("delta").contains("partial_json")) {
      answer["content"].back()["input"] = OrderedJson::parse(event.at("delta").at("partial_json").get<std::string>());
    }
    if (event.at("type") == "message_delta") answer["stop_reason"] = event.at("delta").at("stop_reason");
  }
  return OfMessage(answer);
}

const std::vector<Api>& Apis() {
  static const std::vector<Api> kApis = [] {
    const OrderedJson user = OrderedJson::parse(R"([{"role": "user", "content": "hi"}])");
    const OrderedJson tool = OrderedJson::parse(R"([{"type": "function", "function": {"name": "rm", "parameters": {}}}])");
    const OrderedJson function = OrderedJson::parse(R"([{"type": "function", "name": "rm", "parameters": {}}])");
    const OrderedJson custom = OrderedJson::parse(R"([{"name": "rm", "input_schema": {}}])");
    const OrderedJson none = {{"tool_choice", "none"}}, one = {{"parallel_tool_calls", false}};
    return std::vector<Api>{{"/v1/chat/completions", {{"messages", user}}, tool, none, one, OfChat, OfChatStream},
                            {"/v1/responses", {{"input", "hi"}}, function, none, one, OfResponse, OfResponseStream},
                            {"/v1/messages",
                             {{"max_tokens", 500}, {"messages", user}},
                             custom,
                             {{"tool_choice", {{"type", "none"}}}},
                             {{"tool_choice", {{"type", "auto"}, {"disable_parallel_tool_use", true}}}},
                             OfMessage,
                             OfMessageStream}};
  }();
  return kApis;
}

// Asks whole and streamed.
std::vector<Said> Ask(ScriptedHarmony& model, const Api& api, const std::string& script, const OrderedJson& more) {
  OrderedJson body = api.body;
  body.update(more);
  std::vector<Said> said;
  model.Say(script);
  const OrderedJson answer = model.api().Ask(api.path, body);
  EXPECT_EQ(answer.at("status"), 200) << answer;
  if (answer.at("status") == 200) said.push_back(api.whole(answer));
  model.Say(script);
  said.push_back(api.streamed(model.api().Stream(api.path, body)));
  return said;
}

TEST(Calls, ThatNobodyAskedForAreText) {
  for (const bool harmony : {true, false}) {
    ScriptedHarmony model(harmony ? ChatSide{MakeHarmonyFormat(), {}} : Side(kQwen));
    const std::string script = harmony ? kHarmonyCall : kQwenCall, arguments = "{\"path\":\"/\"}";
    for (const Api& api : Apis()) {
      OrderedJson none = api.none;
      none["tools"] = api.tools;
      for (const OrderedJson& more : {none, OrderedJson::object(), OrderedJson{{"tools", OrderedJson::array()}}}) {
        for (const Said& said : Ask(model, api, script, more)) {
          SCOPED_TRACE(api.path + more.dump());
          EXPECT_TRUE(said.calls.empty());
          EXPECT_EQ(said.finish, "stop");
          EXPECT_EQ(said.text, harmony ? arguments : std::string(kQwenCall).substr(0, said.text.size()));
          EXPECT_NE(said.text.find("path"), said.text.npos);
        }
      }
      for (const Said& said : Ask(model, api, script, {{"tools", api.tools}})) {
        EXPECT_EQ(said.calls.size(), 1u) << api.path;
        EXPECT_EQ(said.finish, "tool_calls");
      }
    }
  }
}

TEST(Calls, OneWhereClientsAskForOne) {
  const std::string call = "<tool_call>{\"name\": \"rm\", \"arguments\": {\"path\": \"";
  const std::string script = "Two: " + call + "a\"}}</tool_call>\n" + call + "b\"}}</tool_call> and text<|return|>";
  ScriptedHarmony model(Side(kQwen));
  for (const Api& api : Apis()) {
    OrderedJson one = api.one;
    one["tools"] = api.tools;
    for (const Said& said : Ask(model, api, script, one)) {
      ASSERT_EQ(said.calls.size(), 1u) << api.path;
      EXPECT_NE(said.calls[0]["arguments"].get<std::string>().find("\"a\""), std::string::npos);
      EXPECT_EQ(said.finish, "tool_calls");
      EXPECT_EQ(said.text, "Two:");
    }
    for (const Said& said : Ask(model, api, script, {{"tools", api.tools}})) EXPECT_EQ(said.calls.size(), 2u) << api.path;
  }
}

const OrderedJson& RmSchema() {
  static const OrderedJson schema = OrderedJson::parse(
      R"({"type": "object", "properties": {"path": {"type": "string", "maxLength": 3}, "force": {"type": "boolean"}},
          "required": ["path", "force"], "additionalProperties": false})");
  return schema;
}

OrderedJson WithSchema(OrderedJson tools, const std::string& name, bool strict) {
  OrderedJson& function = tools[0].contains("function") ? tools[0]["function"] : tools[0];
  function["name"] = name;
  function[function.contains("input_schema") ? "input_schema" : "parameters"] = RmSchema();
  if (strict) function["strict"] = true;
  return tools[0];
}

void ExpectRmArguments(const OrderedJson& call) {
  const OrderedJson arguments = OrderedJson::parse(call["arguments"].get<std::string>(), nullptr, false);
  ASSERT_TRUE(arguments.is_object()) << call;
  EXPECT_EQ(arguments.size(), 2u);
  EXPECT_TRUE(arguments.at("path").is_string() && arguments.at("force").is_boolean()) << arguments;
}

// The model may say what it will; once it calls a strict tool, the call is what the schema allows. Calls of others are its own.
TEST(Calls, OfStrictToolsFollowTheirSchemas) {
  const std::string kLlama = "{{ messages[0].content }}{{ tools|tojson }}<|start_header_id|>ipython";
  const struct {
    ChatSide side;
    std::string script, text;
  } kCases[] = {{{MakeHarmonyFormat(), {}},
                 "<|channel|>analysis<|message|>to=functions.no<|end|><|start|>assistant<|channel|>commentary "
                 "to=functions.rm<|message|>no no no no",
                 ""},
                {Side(kQwen), "Okay <tool_call>no no no no no no no", "Okay"},
                {Side(kLlama), "{no no no no no no no", ""}};
  for (const auto& c : kCases) {
    ScriptedHarmony model(c.side);
    for (const Api& api : Apis()) {
      for (const bool strict : {true, false}) {
        OrderedJson more = api.one;
        more["tools"] = OrderedJson::array({WithSchema(api.tools, "rm", strict)});
        more[api.path == "/v1/responses" ? "max_output_tokens" : "max_tokens"] = 200;
        for (const Said& said : Ask(model, api, c.script, more)) {
          SCOPED_TRACE(api.path + c.script);
          if (!strict) {
            for (const OrderedJson& call : said.calls)
              EXPECT_NE(call["arguments"].get<std::string>().find("no"), std::string::npos);
            continue;
          }
          EXPECT_EQ(said.text, c.text);
          EXPECT_EQ(said.finish, "tool_calls");
          ASSERT_EQ(said.calls.size(), 1u);
          ExpectRmArguments(said.calls[0]);
        }
        // Nothing is held where it does not call.
        for (const Said& said : Ask(model, api, "Nothing { to [ do.<|return|>", more)) {
          EXPECT_EQ(said.text, "Nothing { to [ do.");
          EXPECT_TRUE(said.calls.empty());
        }
      }
    }
  }
}

// Whatever the model would say, the answer is a call of a tool that may be called, with arguments that its schema allows.
TEST(Calls, AreForced) {
  for (const bool harmony : {true, false}) {
    ScriptedHarmony model(harmony ? ChatSide{MakeHarmonyFormat(), {}} : Side(kQwen));
    for (const Api& api : Apis()) {
      const bool anthropic = api.path == "/v1/messages";
      const OrderedJson tools = {WithSchema(api.tools, "rm", false), WithSchema(api.tools, "rmdir", false)};
      const OrderedJson any = anthropic ? OrderedJson{{"type", "any"}} : OrderedJson("required");
      const OrderedJson named = anthropic ? OrderedJson{{"type", "tool"}, {"name", "rmdir"}}
                                : api.path == "/v1/chat/completions"
                                    ? OrderedJson{{"type", "function"}, {"function", {{"name", "rmdir"}}}}
                                    : OrderedJson{{"type", "function"}, {"name", "rmdir"}};
      for (const OrderedJson& choice : {any, named}) {
        OrderedJson more = {{"tools", tools}, {"tool_choice", choice}};
        if (anthropic) more["tool_choice"]["disable_parallel_tool_use"] = true;
        if (!anthropic) more["parallel_tool_calls"] = false;
        for (const Said& said : Ask(model, api, "no <|return|>", more)) {
          SCOPED_TRACE(api.path + choice.dump());
          ASSERT_EQ(said.calls.size(), 1u);
          EXPECT_EQ(said.text, "");
          EXPECT_EQ(said.finish, "tool_calls");
          ExpectRmArguments(said.calls[0]);
        }
      }
    }
  }
}

// What max_tokens cuts is no call that ended, though it is the only one that there may be.
TEST(Calls, ThatAreCutEndByLength) {
  ScriptedHarmony model(Side(kQwen));
  for (const Api& api : Apis()) {
    for (const int limit : {12, 60}) {
      const bool anthropic = api.path == "/v1/messages";
      OrderedJson more = {{"tools", {WithSchema(api.tools, "rm", false)}},
                          {"tool_choice", anthropic ? OrderedJson{{"type", "tool"}, {"name", "rm"}} : OrderedJson("required")},
                          {api.path == "/v1/responses" ? "max_output_tokens" : "max_tokens", limit}};
      if (!anthropic) more["parallel_tool_calls"] = false;
      OrderedJson body = api.body;
      body.update(more);
      model.Say("no <|return|>");
      const OrderedJson answer = model.api().Ask(api.path, body);
      SCOPED_TRACE(answer.dump());
      ASSERT_EQ(answer.at("status"), 200);
      if (anthropic) {
        EXPECT_EQ(answer.at("stop_reason"), "max_tokens");
      } else if (api.path == "/v1/responses") {
        EXPECT_EQ(answer.at("incomplete_details").at("reason"), "max_output_tokens");
        EXPECT_EQ(answer.at("output").back().at("status"), "incomplete");
      } else {
        EXPECT_EQ(answer.at("choices")[0].at("finish_reason"), "length");
      }
    }
  }
}

TEST(Calls, ToolsThatCannotBeHeldAreNamed) {
  ScriptedHarmony model(Side(kQwen));
  const Api& api = Apis()[0];
  OrderedJson nothing = WithSchema(api.tools, "g", true), twice = WithSchema(api.tools, "rm", true), hung = twice;
  nothing["function"]["parameters"] = {{"type", "string"}};
  OrderedJson definitions = {{"a30", {{"type", "string"}}}};
  for (int i = 0; i < 30; ++i) {
    const OrderedJson next = {{"$ref", "#/$defs/a" + std::to_string(i + 1)}};
    definitions["a" + std::to_string(i)] = {{"allOf", {next, next}}};
  }
  hung["function"]["parameters"] = {{"$defs", definitions}, {"not", {{"$ref", "#/$defs/a0"}}}};
  const std::vector<std::pair<OrderedJson, std::string>> kCases = {{{twice, nothing}, "g: no arguments are valid"},
                                                                   {{twice, twice}, "two are named"},
                                                                   {OrderedJson::array({hung}), "too many parts"}};
  for (const auto& [tools, message] : kCases) {
    OrderedJson body = api.body;
    body["tools"] = tools;
    model.Say("no <|return|>");
    const OrderedJson answer = model.api().Ask(api.path, body);
    EXPECT_EQ(answer.at("status"), 400);
    EXPECT_NE(answer.at("error").at("message").get<std::string>().find(message), std::string::npos) << answer;
  }
}

// Thinking is free; the content is what the schema allows, over all endpoints, whole and streamed.
TEST(Calls, ContentFollowsASchema) {
  const OrderedJson schema =
      OrderedJson::parse(R"({"type": "object", "properties": {"a": {"enum": ["yes", "no"]}, "b": {"type": "null"}},
      "required": ["a", "b"], "additionalProperties": false})");
  for (const bool harmony : {true, false}) {
    ScriptedHarmony model(harmony ? ChatSide{MakeHarmonyFormat(), {}} : Side(kQwen));
    for (const Api& api : Apis()) {
      const OrderedJson format = {{"type", "json_schema"}, {"name", "x"}, {"schema", schema}};
      OrderedJson more;
      if (api.path == "/v1/responses") more = {{"text", {{"format", format}}}};
      if (api.path == "/v1/messages") more = {{"output_format", {{"type", "json_schema"}, {"schema", schema}}}};
      if (api.path == "/v1/chat/completions")
        more = {{"response_format",
                 {{"type", "json_schema"}, {"json_schema", {{"name", "x"}, {"strict", true}, {"schema", schema}}}}}};
      std::vector<std::string> scripts = {"nonsense<|return|>"};
      if (harmony) {
        const std::string thinking = "<|channel|>analysis<|message|>Hm, {}.", next = "<|end|><|start|>assistant",
                          content = "<|channel|>final<|message|>nonsense<|return|>";
        scripts = {thinking + next + content,
                   thinking + content,
                   thinking + "<|return|>" + next + content,
                   "<|channel|>commentary<|message|>unheld" + next + content,
                   "unheld" + content,
                   "<|channel|>final<|constrain|>text<|message|>unheld<|return|>"};
      }
      for (const std::string& script : scripts) {
        SCOPED_TRACE(api.path + " " + script);
        for (const Said& said : Ask(model, api, script, more)) {
          EXPECT_TRUE(said.text == R"({"a":"no","b":null})" || said.text == R"({"a":"yes","b":null})") << said.text;
          EXPECT_EQ(said.finish, "stop");
          EXPECT_TRUE(said.calls.empty());
        }
      }
    }
  }
}

TEST(Calls, NoIdIsGivenTwice) {
  const std::string call = "<tool_call>{\"name\": \"rm\", \"arguments\": {}}</tool_call>";
  const std::string nine =
      "{% for m in messages %}{% for c in m.tool_calls or [] %}{% if c.id|length != 9 %}{{ raise_exception('9') }}"
      "{% endif %}{{ c.function.arguments|tojson }}{% endfor %}{{ m.content }}{% endfor %}{{ tools|tojson }}";
  for (const bool is_short : {false, true}) {
    ScriptedHarmony model(Side(is_short ? nine + "{# <tool_call> #}" : kQwen));
    for (const Api& api : Apis()) {
      std::set<std::string> ids;
      for (int turn = 0; turn < 3; ++turn) {
        for (const Said& said : Ask(model, api, call + "\n" + call + "<|return|>", {{"tools", api.tools}})) {
          ASSERT_EQ(said.calls.size(), 2u);
          for (const OrderedJson& made : said.calls) {
            const std::string id = made["id"];
            EXPECT_TRUE(ids.insert(id).second) << id;
            if (is_short) {
              EXPECT_EQ(id.size(), 9u);
              EXPECT_TRUE(std::ranges::all_of(id, [](unsigned char c) { return std::isalnum(c) != 0; })) << id;
            } else {
              EXPECT_TRUE(id.starts_with(api.path == "/v1/messages" ? "toolu_" : "call_")) << id;
            }
          }
        }
      }
    }
  }
  UniqueIds ids(7), same(7);
  std::set<std::string> seen;
  for (int i = 0; i < 10'000; ++i) {
    const std::string id = ids.NextShort();
    EXPECT_EQ(id, same.NextShort());
    EXPECT_TRUE(seen.insert(id).second) << id;
  }
}

TEST(Calls, WhiteSpaceAtTheBeginningIsText) {
  ScriptedHarmony model(Side(kQwen));
  const std::string text = "    def f():\n        pass";
  for (const Api& api : Apis()) {
    for (const Said& said : Ask(model, api, text + "<|return|>", OrderedJson::object())) EXPECT_EQ(said.text, text) << api.path;
    for (const Said& said : Ask(model, api, "\n<think>\nHm.\n</think>\n\n" + text + "<|return|>", OrderedJson::object())) {
      EXPECT_EQ(said.text, text) << api.path;
    }
  }
}

TEST(Calls, ArgumentsAsJsonReadersHaveThem) {
  ScriptedHarmony model(Side(kQwen));
  const auto call = [](const std::string& arguments) {
    return "<tool_call>{\"name\": \"rm\", \"arguments\": " + arguments + "}</tool_call><|return|>";
  };
  const struct {
    std::string said, object;
  } kCases[] = {
      {R"({"a": 1, "b": {"c": 2, "c": 3}, "a": "x"})", R"({"a":"x","b":{"c":3}})"},
      {R"({"a": 1e400, "b": [-1e999, "1e400"]})", R"({"a":1.7976931348623157e+308,"b":[-1.7976931348623157e+308,"1e400"]})"}};
  for (const auto& c : kCases) {
    for (const Api& api : Apis()) {
      for (const Said& said : Ask(model, api, call(c.said), {{"tools", api.tools}})) {
        ASSERT_EQ(said.calls.size(), 1u) << api.path;
        EXPECT_EQ(said.calls[0]["arguments"], api.path == "/v1/messages" ? c.object : c.said);
      }
    }
  }
}

// A system message behind users, with a template that refuses it: the second turn finds all of the first.
TEST(Calls, ALateSystemMessageIsReusedByTheNextTurn) {
  TextServed served;
  served.model.chat = Side(
      "{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('System message must be at the "
      "beginning.') }}{% endif %}{{ m.content }}{% endfor %}{{ '<|turn|>' if add_generation_prompt }}");
  const ServedApi api(served.model);
  OrderedJson body = {
      {"temperature", 0},
      {"messages", OrderedJson::parse(R"([{"role": "system", "content": "abc"}, {"role": "user", "content": "def"},
                                                          {"role": "system", "content": "ghi"}])")}};
  const OrderedJson first = api.Ask("/v1/chat/completions", body);
  ASSERT_EQ(first.at("status"), 200) << first;
  body["messages"].push_back({{"role", "assistant"}, {"content", "jkl"}});
  body["messages"].push_back({{"role", "user"}, {"content", "mno"}});
  const OrderedJson second = api.Ask("/v1/chat/completions", body);
  ASSERT_EQ(second.at("status"), 200) << second;
  EXPECT_EQ(second["usage"]["prompt_tokens_details"]["cached_tokens"], first["usage"]["prompt_tokens"].get<int64_t>() - 1)
      << second;
}

}  // namespace
}  // namespace tally
