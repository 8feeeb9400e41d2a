// SPDX-License-Identifier: Apache-2.0
// ollama's API: what bodies are read into, what is refused, and answers over sockets.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "engine/serve/api_ollama.h"
#include "engine/serve/api_request.h"
#include "tests/serve/scripted_harmony.h"
#include "tests/serve/served_api.h"
#include "tests/serve/text_served.h"

namespace tally {
namespace {

using enum ApiEndpoint;

const OrderedJson kHiThere = {{"messages", OrderedJson::array({{{"role", "user"}, {"content", "Hi"}}})}};

OrderedJson Joined(OrderedJson body, const OrderedJson& more) {
  body.update(more);
  return body;
}

ApiRequest BodyOf(ApiEndpoint endpoint, const OrderedJson& body) {
  ApiRequest request;
  const std::optional<ApiError> error = ParseApiRequest(endpoint, body, &request);
  EXPECT_FALSE(error.has_value()) << error->message;
  return request;
}

// The lines of a stream.
std::vector<OrderedJson> LinesOf(HttpReply reply) {
  EXPECT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(reply.headers["content-type"], "application/x-ndjson");
  EXPECT_TRUE(reply.whole);
  EXPECT_TRUE(reply.body.ends_with("\n"));
  std::vector<OrderedJson> lines;
  for (size_t at = 0; at < reply.body.size();) {
    const size_t end = reply.body.find('\n', at);
    lines.push_back(OrderedJson::parse(reply.body.substr(at, end - at)));
    at = end + 1;
  }
  return lines;
}

TEST(Ollama, Chats) {
  const ApiRequest r = BodyOf(kOllamaChat, OrderedJson::parse(R"({
    "model": "m:latest", "stream": false, "think": "high", "keep_alive": "5m", "format": {"type": "object"}, "logprobs": true,
    "top_logprobs": 3,
    "options": {"temperature": 0.5, "top_k": 5, "top_p": 0.9, "min_p": 0.1, "seed": 7, "num_predict": 9, "stop": ["a", "b"],
      "repeat_penalty": 1.2, "repeat_last_n": 33, "presence_penalty": 1.5, "frequency_penalty": 1,
      "num_ctx": 2048, "num_gpu": 1, "typical_p": 1.0, "use_mmap": true},
    "messages": [
      {"role": "system", "content": "Be brief."},
      {"role": "user", "content": "Weather?", "images": []},
      {"role": "assistant", "content": "", "thinking": "Ask.", "tool_calls": [
        {"function": {"name": "weather", "arguments": {"city": "Rome"}}}, {"function": {"index": 1, "name": "time", "arguments": {}}},
        {"id": "c9", "type": "function", "function": {"name": "weather", "arguments": "{}"}}]},
      {"role": "tool", "content": "noon", "tool_name": "time"},
      {"role": "tool", "content": "sunny", "tool_name": "weather"},
      {"role": "tool", "content": "rain", "tool_call_id": "c9"}],
    "tools": [{"type": "function", "function": {"name": "weather", "description": "d", "parameters": {"type": "object"}}}]})"));
  const std::vector<ChatMessage> expected = {
      {.role = "system", .content = "Be brief."},
      {.role = "user", .content = "Weather?"},
      {.role = "assistant",
       .reasoning = "Ask.",
       .tool_calls = {{"call00001", "weather", R"({"city":"Rome"})"}, {"call00002", "time", "{}"}, {"c9", "weather", "{}"}}},
      {.role = "tool", .content = "noon", .tool_call_id = "call00002", .name = "time"},
      {.role = "tool", .content = "sunny", .tool_call_id = "call00001", .name = "weather"},
      {.role = "tool", .content = "rain", .tool_call_id = "c9", .name = "weather"}};
  EXPECT_EQ(r.chat.messages, expected);
  EXPECT_EQ(r.chat.tools.size(), 1u);
  EXPECT_EQ(r.chat.thinking, true);
  EXPECT_EQ(r.chat.reasoning_effort, "high");
  EXPECT_EQ(r.format.kind, AnswerFormat::Kind::kSchema);
  EXPECT_EQ(r.top_logprobs, 3);
  EXPECT_EQ(r.temperature, 0.5);
  EXPECT_EQ(r.top_k, 5);
  EXPECT_EQ(r.seed, 7u);
  EXPECT_EQ(r.max_tokens, 9);
  EXPECT_EQ(r.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(r.repeat_penalty, 1.2);
  EXPECT_EQ(r.repeat_last_n, 33);
  EXPECT_EQ(r.presence_penalty, 1.5);
  EXPECT_EQ(r.frequency_penalty, 1);
  EXPECT_FALSE(r.chat.continue_last);
  EXPECT_EQ(r.context, 2048);
  EXPECT_FALSE(r.stream);
  EXPECT_FALSE(r.load);
  EXPECT_EQ(r.ignored, (std::vector<std::string>{"options.num_gpu", "options.use_mmap", "keep_alive"}));
  const ApiRequest plain =
      BodyOf(kOllamaChat, Joined(kHiThere, {{"format", "json"}, {"think", false}, {"options", {{"num_predict", -1}}}}));
  EXPECT_TRUE(plain.stream) << "streams are what is not refused";
  EXPECT_EQ(plain.format.kind, AnswerFormat::Kind::kJsonObject);
  EXPECT_EQ(plain.chat.thinking, false);
  EXPECT_EQ(plain.max_tokens, -1) << "until the context is full, whatever the server's option says";
  EXPECT_TRUE(BodyOf(kOllamaChat, {{"model", "m"}}).load);
  const ApiRequest begun =
      BodyOf(kOllamaChat, OrderedJson::parse(R"({"messages": [{"role": "assistant", "content": "Well,"}]})"));
  EXPECT_TRUE(begun.chat.continue_last);
}

TEST(Ollama, Prompts) {
  const ApiRequest chat = BodyOf(kOllamaGenerate, {{"prompt", "Hi"}, {"system", "Be brief."}, {"context", OrderedJson::array()}});
  EXPECT_EQ(chat.chat.messages,
            (std::vector<ChatMessage>{{.role = "system", .content = "Be brief."}, {.role = "user", .content = "Hi"}}));
  EXPECT_TRUE(chat.prompts.empty());
  const ApiRequest raw = BodyOf(kOllamaGenerate, {{"prompt", "Hi<|turn|>"}, {"raw", true}});
  ASSERT_EQ(raw.prompts.size(), 1u);
  EXPECT_EQ(raw.prompts[0][0].text, "Hi<|turn|>");
  EXPECT_TRUE(raw.prompts[0][0].parse_special);
  EXPECT_TRUE(raw.chat.messages.empty());
  EXPECT_TRUE(BodyOf(kOllamaGenerate, {{"prompt", ""}, {"keep_alive", -1}}).load);
}

TEST(Ollama, Refusals) {
  const struct {
    ApiEndpoint endpoint;
    const char* fields;
    const char* param;
  } cases[] = {
      {kOllamaChat, R"({"messages": [{"role": "user", "content": "a", "images": ["aa"]}]})", "messages[0].images"},
      {kOllamaChat, R"({"messages": [{"role": "developer", "content": "a"}]})", "messages[0].role"},
      {kOllamaChat, R"({"messages": [{"role": "user", "content": ["a"]}]})", "messages[0].content"},
      {kOllamaChat, R"({"messages": [{"role": "assistant", "tool_calls": [{"function": {}}]}]})",
       "messages[0].tool_calls[0].function.name"},
      {kOllamaChat, R"({"messages": [], "keep_alive": 0})", "keep_alive"},
      {kOllamaChat, R"({"format": "yaml"})", "format"},
      {kOllamaChat, R"({"think": "much"})", "think"},
      {kOllamaChat, R"({"top_logprobs": 2})", "top_logprobs"},
      {kOllamaChat, R"({"tools": [{"type": "function"}]})", "tools[0].function"},
      {kOllamaChat, R"({"options": {"temperature": "warm"}})", "options.temperature"},
      {kOllamaChat, R"({"options": {"mirostat": 2}})", "options.mirostat"},
      {kOllamaChat, R"({"options": {"typical_p": 0.5}})", "options.typical_p"},
      {kOllamaChat, R"({"options": {"num_predict": 1.5}})", "options.num_predict"},
      {kOllamaChat, R"({"options": []})", "options"},
      {kOllamaGenerate, R"({"suffix": "end"})", "suffix"},
      {kOllamaGenerate, R"({"template": "{{ .Prompt }}"})", "template"},
      {kOllamaGenerate, R"({"context": [1, 2]})", "context"},
      {kOllamaGenerate, R"({"images": ["aa"]})", "images"},
      {kOllamaGenerate, R"({"raw": true, "system": "a"})", "system"},
      {kOllamaGenerate, R"({"prompt": "", "keep_alive": "0s"})", "keep_alive"},
  };
  for (const auto& [endpoint, fields, param] : cases) {
    ApiRequest request;
    const std::optional<ApiError> error = ParseApiRequest(
        endpoint, Joined(endpoint == kOllamaChat ? kHiThere : OrderedJson{{"prompt", "a"}}, OrderedJson::parse(fields)),
        &request);
    ASSERT_TRUE(error.has_value()) << fields;
    EXPECT_EQ(error->param, param) << fields;
    EXPECT_EQ(ErrorJson(*error, endpoint), OrderedJson({{"error", error->message}}));
  }
}

TEST(Ollama, AnswersWholeAndStreamed) {
  const TextServed text;
  const ServedApi api(text.model);
  const OrderedJson body = Joined(kHiThere, {{"model", "text:latest"}});
  OrderedJson whole = api.Ask("/api/chat", Joined(body, {{"stream", false}}));
  EXPECT_EQ(whole["status"], 200);
  EXPECT_EQ(whole["model"], "text:latest");
  EXPECT_EQ(whole["message"], OrderedJson({{"role", "assistant"}, {"content", "xyz"}}));
  EXPECT_EQ(whole["done"], true);
  EXPECT_EQ(whole["done_reason"], "stop");
  EXPECT_EQ(whole["prompt_eval_count"], 3) << "Hi<|turn|>";
  EXPECT_EQ(whole["eval_count"], 3);
  for (const char* name : {"total_duration", "prompt_eval_duration", "eval_duration"}) EXPECT_GT(whole[name], 0) << name;
  EXPECT_GE(whole["total_duration"], whole["prompt_eval_duration"].get<int64_t>() + whole["eval_duration"].get<int64_t>());
  std::string said;
  const std::vector<OrderedJson> lines = LinesOf(Post(api.port, "/api/chat", body.dump()));
  for (const OrderedJson& line : lines) {
    EXPECT_EQ(line["done"], &line == &lines.back());
    said += line["message"]["content"].get<std::string>();
  }
  EXPECT_EQ(said, "xyz");
  EXPECT_EQ(lines.back()["eval_count"], 3);
  EXPECT_EQ(lines.back()["done_reason"], "stop");
  // A prompt: by the template, and raw, with its special tokens.
  const auto generate = [&](const OrderedJson& more) {
    return api.Ask("/api/generate", Joined({{"stream", false}, {"model", "text"}}, more));
  };
  EXPECT_EQ(generate({{"prompt", "Hi"}})["response"], "xyz");
  EXPECT_EQ(generate({{"prompt", "w"}, {"raw", true}})["response"], "xyz");
  EXPECT_EQ(generate({{"prompt", "a<|turn|>"}, {"raw", true}})["response"], "xyz");
  const OrderedJson cut = generate({{"prompt", "Hi"}, {"options", {{"num_predict", 2}, {"seed", 1}}}, {"tally", true}});
  EXPECT_EQ(cut["response"], "xy");
  EXPECT_EQ(cut["done_reason"], "length");
  EXPECT_GT(cut["tally"]["parameters_touched"], 0);
  EXPECT_EQ(generate({{"prompt", "Hi"}, {"options", {{"stop", "z"}}}})["response"], "xy");
  const OrderedJson held = generate({{"prompt", "Hi"}, {"format", {{"const", "q"}}}, {"logprobs", true}});
  EXPECT_EQ(held["response"], "\"q\"");
  EXPECT_EQ(held["logprobs"].size(), held["eval_count"]);
  OrderedJson loaded = generate(OrderedJson::object());
  EXPECT_EQ(loaded["done_reason"], "load");
  EXPECT_EQ(loaded["response"], "");
  // What the model says to it.
  HttpReply wide = Post(api.port, "/api/chat", Joined(body, {{"options", {{"num_ctx", 129}}}}).dump());
  EXPECT_EQ(wide.status, 200);
  EXPECT_EQ(wide.headers["x-tally-ignored"], "options.num_ctx");
  EXPECT_FALSE(
      Post(api.port, "/api/chat", Joined(body, {{"options", {{"num_ctx", 128}}}}).dump()).headers.contains("x-tally-ignored"));
  const OrderedJson thinking = api.Ask("/api/chat", Joined(body, {{"think", true}}));
  EXPECT_EQ(thinking["status"], 400);
  EXPECT_TRUE(thinking["error"].get<std::string>().starts_with("think ")) << thinking;
  const OrderedJson tools = api.Ask("/api/chat", Joined(body, OrderedJson::parse(R"({"tools": [{"function": {"name": "f"}}]})")));
  EXPECT_TRUE(tools["error"].get<std::string>().starts_with("tools ")) << tools;
}

TEST(Ollama, ThinkingAndCalls) {
  ScriptedHarmony harmony;
  harmony.Say(
      "<|channel|>analysis<|message|>A tool will tell.<|end|><|start|>assistant<|channel|>commentary to=functions.weather "
      "<|constrain|>json<|message|>{\"city\":\"Rome\"}<|call|>");
  const OrderedJson body = Joined(kHiThere, OrderedJson::parse(R"({"think": true, "tools": [{"type": "function", "function":
    {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}]})"));
  const OrderedJson whole = harmony.api().Ask("/api/chat", Joined(body, {{"stream", false}}));
  const OrderedJson function = {{"index", 0}, {"name", "weather"}, {"arguments", {{"city", "Rome"}}}};
  EXPECT_EQ(whole["message"]["thinking"], "A tool will tell.");
  EXPECT_EQ(whole["message"]["content"], "");
  ASSERT_EQ(whole["message"]["tool_calls"].size(), 1u) << whole;
  EXPECT_EQ(whole["message"]["tool_calls"][0]["function"], function);
  EXPECT_EQ(whole["done_reason"], "stop");
  std::string thought;
  OrderedJson calls = OrderedJson::array();
  for (const OrderedJson& line : LinesOf(Post(harmony.api().port, "/api/chat", body.dump()))) {
    thought += line["message"].value("thinking", "");
    if (line["message"].contains("tool_calls")) calls.push_back(line["message"]["tool_calls"][0]["function"]);
  }
  EXPECT_EQ(thought, "A tool will tell.");
  EXPECT_EQ(calls, OrderedJson::array({function}));
  const OrderedJson shown = harmony.api().Ask("/api/show", {{"model", "gpt-oss:latest"}});
  EXPECT_EQ(shown["capabilities"], OrderedJson({"completion", "tools", "thinking"}));
}

TEST(Ollama, Models) {
  const TextServed text;
  const ServedApi api(text.model, {.version = "1.2.3"});
  const auto get = [&](const char* path) { return OrderedJson::parse(Get(api.port, path).body); };
  EXPECT_EQ(get("/api/version")["version"], "1.2.3");
  const OrderedJson tags = get("/api/tags")["models"];
  ASSERT_EQ(tags.size(), 1u);
  EXPECT_EQ(tags[0]["name"], "text:latest");
  EXPECT_EQ(tags[0]["details"]["family"], "llama");
  EXPECT_EQ(tags[0]["digest"].get<std::string>().size(), 64u);
  EXPECT_GT(tags[0]["size"], 0);
  const OrderedJson running = get("/api/ps")["models"];
  ASSERT_EQ(running.size(), 1u);
  EXPECT_GT(running[0]["size"], tags[0]["size"]);
  EXPECT_EQ(running[0]["context_length"], 128);
  for (const char* name : {"text", "text:latest"}) {
    const OrderedJson shown = api.Ask("/api/show", {{"model", name}, {"verbose", true}});
    EXPECT_EQ(shown["model_info"]["llama.context_length"], 1024);
    EXPECT_EQ(shown["capabilities"], OrderedJson::array({"completion"}));
    EXPECT_NE(shown["parameters"].get<std::string>().find("num_ctx                        128\n"), std::string::npos) << shown;
  }
  EXPECT_EQ(api.Ask("/api/show", {{"model", "other"}})["status"], 404);
  EXPECT_EQ(api.Ask("/api/show", OrderedJson::object())["status"], 400);
  for (const char* path : {"/", "/api/tags", "/api/version"}) {
    TestClient head(api.port);
    ASSERT_TRUE(head.Ask("HEAD", path));
    EXPECT_TRUE(head.ReadUntil("200 OK")) << path;
  }
  // What changes models or is not there says so, in ollama's form.
  for (const char* path :
       {"/api/pull", "/api/push", "/api/create", "/api/copy", "/api/delete", "/api/embed", "/api/blobs/sha256:0"}) {
    const OrderedJson refused = api.Ask(path, OrderedJson::object());
    EXPECT_EQ(refused["status"], 404) << path;
    ASSERT_TRUE(refused["error"].is_string()) << refused;
    EXPECT_TRUE(refused["error"].get<std::string>().starts_with("'" + std::string(path) + "': ")) << refused;
  }
  EXPECT_TRUE(OrderedJson::parse(Post(api.port, "/api/chat", "{").body)["error"].is_string());
}

// Of which one at a time is in memory.
TEST(Ollama, SeveralModels) {
  const TextServed texts[2];
  std::vector<ModelSource> sources;
  for (const char* name : {"a", "b"}) {
    ServedModel served = texts[sources.size()].model;
    served.name = name;
    sources.push_back({.name = name, .bytes = 1, .context = 128});
    sources.back().load = [served](bool, const std::function<bool()>&) -> Result<ReadyModel> {
      return ReadyModel{.served = served};
    };
  }
  Result<Listener> listener = Listener::Open("127.0.0.1", 0);
  ASSERT_TRUE(listener.ok());
  ApiServerOptions options;
  options.pool.bytes = 1;
  const Result<std::unique_ptr<ApiServer>> server = ApiServer::Start(std::move(sources), std::move(*listener), options);
  ASSERT_TRUE(server.ok()) << server.status().message();
  const uint16_t port = (*server)->port();
  const auto names = [&](const char* path) {
    std::string all;
    const OrderedJson models = OrderedJson::parse(Get(port, path).body)["models"];
    for (const OrderedJson& model : models) all += model["name"].get<std::string>() + " ";
    return all;
  };
  EXPECT_EQ(names("/api/tags"), "a:latest b:latest ");
  EXPECT_EQ(names("/api/ps"), "a:latest ");
  const auto ask = [&](const char* path, const OrderedJson& body) {
    return OrderedJson::parse(Post(port, path, body.dump()).body);
  };
  EXPECT_EQ(ask("/api/show", {{"model", "b"}})["model_info"], OrderedJson::object()) << "it is not loaded to be shown";
  const OrderedJson chat = Joined(kHiThere, {{"stream", false}});
  for (const char* name : {"b:latest", "a", "b"}) {
    const OrderedJson answer = ask("/api/chat", Joined(chat, {{"model", name}}));
    EXPECT_EQ(answer["model"], std::string(name));
    EXPECT_EQ(answer["message"]["content"], "xyz");
    EXPECT_GT(answer["load_duration"], 0);
  }
  EXPECT_EQ(names("/api/ps"), "b:latest ");
  EXPECT_TRUE(ask("/api/show", {{"model", "b:latest"}})["model_info"].contains("general.architecture"));
  const OrderedJson other = ask("/api/chat", Joined(chat, {{"model", "c:latest"}}));
  EXPECT_TRUE(other["error"].get<std::string>().starts_with("there is no model 'c'")) << other;
}

TEST(Ollama, Names) {
  EXPECT_EQ(OllamaName("demo"), "demo:latest");
  EXPECT_EQ(OllamaName("demo:q8"), "demo:q8");
  EXPECT_EQ(OllamaName("host:80/demo"), "host:80/demo:latest");
  EXPECT_EQ(WithoutLatest("demo:latest"), "demo");
  EXPECT_EQ(WithoutLatest("demo:q8"), "demo:q8");
  EXPECT_EQ(OllamaName("demo:latest", "demo"), "demo:latest");
  EXPECT_EQ(OllamaName("other", "demo"), "demo");
}

}  // namespace
}  // namespace tally
