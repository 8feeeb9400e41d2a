// SPDX-License-Identifier: Apache-2.0
#include "engine/serve/api_request.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/serve/api_answer.h"

namespace tally {
namespace {

using enum ApiEndpoint;

// `fields` of a body that lacks nothing else.
OrderedJson Body(ApiEndpoint endpoint, const std::string& fields) {
  const std::string least = endpoint == kChat ? R"("messages": [{"role": "user", "content": "Hi"}])" : R"("prompt": "Hi")";
  return OrderedJson::parse("{" + fields + (fields.empty() ? "" : ", ") + least + "}");
}

ApiRequest Parsed(ApiEndpoint endpoint, const OrderedJson& body) {
  ApiRequest request;
  const std::optional<ApiError> error = ParseApiRequest(endpoint, body, &request);
  EXPECT_FALSE(error.has_value()) << body.dump() << ": " << error->message;
  return request;
}
ApiRequest Completions(const std::string& fields) { return Parsed(kCompletions, Body(kCompletions, fields)); }
ApiRequest Chat(const std::string& text) { return Parsed(kChat, OrderedJson::parse(text)); }

TEST(ApiRequest, WhatIsLeftOutHasNoValue) {
  const ApiRequest request = Completions("");
  ASSERT_EQ(request.prompts.size(), 1u);
  EXPECT_EQ(request.prompts[0][0].text, "Hi");
  EXPECT_FALSE(request.prompts[0][0].tokens.has_value());
  EXPECT_FALSE(request.max_tokens || request.seed || request.temperature || request.top_p || request.min_p || request.top_k ||
               request.repeat_penalty || request.repeat_last_n);
  EXPECT_EQ(request.n, 1);
  EXPECT_FALSE(request.stream || request.ignore_eos);
  const ApiRequest nothing = Completions(
      R"("max_tokens": null, "seed": null, "temperature": null, "stop": null, "stream": null, "logprobs": null, "n": null)");
  EXPECT_FALSE(nothing.max_tokens || nothing.seed || nothing.temperature);
}

TEST(ApiRequest, Fields) {
  const ApiRequest r = Completions(
      R"("model": "m", "temperature": 0, "top_p": 0.5, "min_p": 0.1, "top_k": -1, "max_tokens": 7, "stop": "x", "seed": 18446744073709551615,
         "n": 3.0, "ignore_eos": true, "repeat_penalty": 1.5, "stream": true, "stream_options": {"include_usage": true})");
  EXPECT_EQ(r.model, "m");
  EXPECT_EQ(r.temperature, 0);
  EXPECT_EQ(r.top_p, 0.5);
  EXPECT_EQ(r.min_p, 0.1);
  EXPECT_EQ(r.top_k, -1);
  EXPECT_EQ(r.max_tokens, 7);
  EXPECT_EQ(r.stop, std::vector<std::string>{"x"});
  EXPECT_EQ(r.seed, UINT64_MAX);
  EXPECT_EQ(r.n, 3);
  EXPECT_TRUE(r.ignore_eos && r.stream && r.stream_usage);
  EXPECT_EQ(r.repeat_penalty, 1.5);
  EXPECT_FALSE(r.repeat_last_n.has_value());
  EXPECT_EQ(Completions(R"("repetition_penalty": 1.1)").repeat_penalty, 1.1);
  EXPECT_EQ(Completions(R"("repetition_penalty": 1.1)").repeat_last_n, -1);
  EXPECT_EQ(Completions(R"("repetition_penalty": 1.1, "repeat_last_n": 5)").repeat_last_n, 5);
  EXPECT_EQ(Completions(R"("max_completion_tokens": 9)").max_tokens, 9);
  EXPECT_EQ(Completions(R"("max_completion_tokens": 9, "max_tokens": 9)").max_tokens, 9);
  EXPECT_EQ(Completions(R"("stop": ["a", "b", "c", "d"])").stop.size(), 4u);
  EXPECT_FALSE(Completions(R"("seed": -1)").seed.has_value());
}

TEST(ApiRequest, LogitsAndBills) {
  EXPECT_EQ(Completions("").top_logprobs, -1);
  EXPECT_FALSE(Completions("").tally.has_value());
  const ApiRequest text = Completions(R"("logprobs": 3, "logit_bias": {"7": -100, "8": 0.5}, "tally": false)");
  EXPECT_EQ(text.top_logprobs, 3);
  EXPECT_EQ(text.logit_bias, (std::vector<std::pair<int32_t, float>>{{7, -100.0f}, {8, 0.5f}}));
  EXPECT_EQ(text.tally, false);
  EXPECT_EQ(Parsed(kChat, Body(kChat, R"("logprobs": true)")).top_logprobs, 0);
  EXPECT_EQ(Parsed(kChat, Body(kChat, R"("logprobs": true, "top_logprobs": 20)")).top_logprobs, 20);
}

// The items of a turn of the assistant are one message.
TEST(ApiRequest, Responses) {
  const ApiRequest r =
      Parsed(kResponses, OrderedJson::parse(R"({"instructions": "Be brief.", "max_output_tokens": 9, "store": false,
    "reasoning": {"effort": "low", "summary": "auto"}, "include": ["reasoning.encrypted_content"], "input": [
      {"role": "user", "content": "Weather?"},
      {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "Ask."}]},
      {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}", "status": "completed"},
      {"type": "function_call_output", "call_id": "c1", "output": "sunny"},
      {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Sunny.", "annotations": []}]},
      {"role": "assistant", "content": "Truly."},
      {"role": "user", "content": [{"type": "input_text", "text": "Thanks"}]}],
    "tools": [{"type": "function", "name": "weather", "description": "d", "parameters": {"type": "object"}, "strict": true}]})"));
  const std::vector<ChatMessage> expected = {{.role = "system", .content = "Be brief."},
                                             {.role = "user", .content = "Weather?"},
                                             {.role = "assistant", .reasoning = "Ask.", .tool_calls = {{"c1", "weather", "{}"}}},
                                             {.role = "tool", .content = "sunny", .tool_call_id = "c1", .name = "weather"},
                                             {.role = "assistant", .content = "Sunny."},
                                             {.role = "assistant", .content = "Truly."},
                                             {.role = "user", .content = "Thanks"}};
  EXPECT_EQ(r.chat.messages, expected);
  EXPECT_EQ(r.chat.reasoning_effort, "low");
  EXPECT_EQ(r.max_tokens, 9);
  ASSERT_EQ(r.chat.tools.size(), 1u);
  EXPECT_EQ(r.chat.tools[0],
            R"({"type":"function","function":{"name":"weather","description":"d","parameters":{"type":"object"}}})");
  EXPECT_EQ(r.echo->at("instructions"), "Be brief.");
}

TEST(ApiRequest, Prompts) {
  const auto prompts = [](const char* text) { return Parsed(kCompletions, {{"prompt", OrderedJson::parse(text)}}).prompts; };
  EXPECT_EQ(prompts("\"\"").size(), 1u);
  ASSERT_EQ(prompts("[1, 2, 3]").size(), 1u);
  EXPECT_EQ(prompts("[1, 2, 3]")[0][0].tokens, (std::vector<int32_t>{1, 2, 3}));
  ASSERT_EQ(prompts(R"(["a", "b"])").size(), 2u);
  EXPECT_EQ(prompts(R"(["a", "b"])")[1][0].text, "b");
  ASSERT_EQ(prompts("[[1], [2, 3]]").size(), 2u);
  EXPECT_EQ(prompts("[[1], [2, 3]]")[1][0].tokens, (std::vector<int32_t>{2, 3}));
  // Ids with texts between them are one prompt.
  ASSERT_EQ(prompts(R"([1, 2, "a", 3])").size(), 1u);
  const ApiPrompt mixed = prompts(R"([["b", 1, 2, "a"], "c"])")[0];
  ASSERT_EQ(mixed.size(), 3u);
  EXPECT_EQ(mixed[0].text, "b");
  EXPECT_EQ(mixed[1].tokens, (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(mixed[2].text, "a");
}

// What changes no answer is taken; what asks for nothing is taken too.
TEST(ApiRequest, WhatAsksForNothingIsTaken) {
  for (const ApiEndpoint endpoint : {kChat, kCompletions}) {
    (void)Parsed(endpoint,
                 Body(endpoint, R"("user": "u", "metadata": {"a": "b"}, "service_tier": "flex", "safety_identifier": "s",
        "prompt_cache_key": "k", "store": false, "parallel_tool_calls": true, "logprobs": false, "top_logprobs": 0, "logit_bias": {},
        "response_format": {"type": "text"}, "frequency_penalty": 0, "presence_penalty": 0.0, "best_of": 1, "echo": false, "suffix": "",
        "modalities": ["text"])"));
  }
}

struct Refusal {
  ApiEndpoint endpoint;
  const char* fields;
  const char* param;
  const char* code;
  const char* part;  // of the message
};

TEST(ApiRequest, RefusalsNameTheField) {
  const Refusal refusals[] = {
      {kChat, R"("logprobs": 1)", "logprobs", "invalid_type", "true or false"},
      {kCompletions, R"("logprobs": 21)", "logprobs", "invalid_value", "from 0 to 20"},
      {kCompletions, R"("logprobs": true)", "logprobs", "invalid_value", ""},
      {kCompletions, R"("top_logprobs": 2)", "top_logprobs", "unsupported_parameter", "logprobs is"},
      {kChat, R"("top_logprobs": 3)", "top_logprobs", "invalid_value", "needs logprobs"},
      {kChat, R"("logprobs": true, "top_logprobs": 21)", "top_logprobs", "invalid_value", "from 0 to 20"},
      {kChat, R"("logit_bias": {"5": 101})", "logit_bias", "invalid_value",
       "the token 5 the bias 101: expected a number from -100 to 100"},
      {kChat, R"("logit_bias": {"a": 1})", "logit_bias", "invalid_value", "the key 'a', which is no token id"},
      {kChat, R"("logit_bias": {"5 ": 1})", "logit_bias", "invalid_value", "the key '5 '"},
      {kChat, R"("tally": 1)", "tally", "invalid_type", ""},
      {kChat, R"("response_format": {"type": "sound"})", "response_format.type", "unsupported_value", "json_schema"},
      {kChat, R"("response_format": {"type": "json_schema", "json_schema": {"name": "x"}})", "response_format.json_schema.schema",
       "missing_required_parameter", ""},
      {kChat, R"("response_format": {"type": "json_object"}, "guided_regex": "a+")", "guided_regex", "invalid_value", "both"},
      {kChat, R"("guided_choice": [])", "guided_choice", "invalid_value", "empty"},
      {kChat, R"("structured_outputs": {"json": 1})", "structured_outputs.json", "invalid_type", "JSON Schema"},
      {kChat, R"("frequency_penalty": 2.1)", "frequency_penalty", "invalid_value", "from -2 to 2"},
      {kChat, R"("min_tokens": 3, "max_tokens": 2)", "min_tokens", "invalid_value", "more than max_tokens"},
      {kChat, R"("stop_token_ids": ["a"])", "stop_token_ids", "invalid_type", "token ids"},
      {kChat, R"("bad_words": [""])", "bad_words", "invalid_value", ""},
      {kChat, R"("logit_bias": [[1]])", "logit_bias", "invalid_type", "pairs"},
      {kChat, R"("stream": true, "prompt_logprobs": 1)", "prompt_logprobs", "invalid_value", "streams"},
      {kCompletions, R"("best_of": 2)", "best_of", "unsupported_parameter", ""},
      {kCompletions, R"("suffix": "end")", "suffix", "unsupported_parameter", ""},
      {kChat, R"("continue_final_message": true)", "messages", "unsupported_value", "only an assistant's"},
      {kChat, R"("continue_final_message": true, "add_generation_prompt": true)", "continue_final_message", "invalid_value",
       "both"},
      {kChat, R"("modalities": ["text", "audio"])", "modalities", "unsupported_parameter", ""},
      {kChat, R"("functions": [])", "functions", "unsupported_parameter", "tools"},
      {kCompletions, R"("tools": [{}])", "tools", "unsupported_parameter", ""},
      {kChat, R"("prompt": "a")", "prompt", "unsupported_parameter", "messages is"},
      {kChat, R"("n_predict": 5, "max_tokens": 6)", "n_predict", "invalid_value", "two names"},
      {kChat, R"("temperature": "warm")", "temperature", "invalid_type", "must be a number"},
      {kChat, R"("temperature": -1)", "temperature", "invalid_value", "at least 0, not -1"},
      {kChat, R"("top_p": 1.5)", "top_p", "invalid_value", "from 0 to 1, not 1.5"},
      {kChat, R"("top_k": 2.5)", "top_k", "invalid_value", "whole number"},
      {kChat, R"("max_tokens": -1)", "max_tokens", "invalid_value", "from 0"},
      {kChat, R"("max_tokens": 18446744073709551615)", "max_tokens", "invalid_value", ""},
      {kChat, R"("max_tokens": 1, "max_completion_tokens": 2)", "max_completion_tokens", "invalid_value", "two names"},
      {kChat, R"("repeat_penalty": 1, "repetition_penalty": 2)", "repetition_penalty", "invalid_value", "two names"},
      {kChat, R"("repeat_penalty": 0)", "repeat_penalty", "invalid_value", ""},
      {kChat, R"("seed": -2)", "seed", "invalid_value", ""},
      {kChat, R"("seed": 1.5)", "seed", "invalid_value", ""},
      {kChat, R"("n": 0)", "n", "invalid_value", "from 1 to 128"},
      {kChat, R"("n": 129)", "n", "invalid_value", ""},
      {kChat, R"("stop": [1])", "stop", "invalid_type", ""},
      {kChat, R"("stop": ["1", "2", "3", "4", "5"])", "stop", "invalid_value", "at most 4"},
      {kChat, R"("stream": 1)", "stream", "invalid_type", ""},
      {kChat, R"("stream_options": {"include_usage": null})", "stream_options", "invalid_value", "needs stream to be true"},
      {kCompletions, R"("stream": false, "stream_options": {})", "stream_options", "invalid_value", "needs stream"},
      {kChat, R"("stream": true, "stream_options": {"include_usage": 1})", "stream_options.include_usage", "invalid_type", ""},
      {kChat, R"("model": 1)", "model", "invalid_type", ""},
      {kChat, R"("tool_choice": "required")", "tool_choice", "invalid_value", "there are no tools"},
      {kChat, R"("tool_choice": {"type": "function", "function": {"name": "f"}})", "tool_choice", "invalid_value", "no tools"},
      {kChat, R"("tools": [{"function": {"name": "f"}}], "tool_choice": {"type": "function", "function": {"name": "g"}})",
       "tool_choice", "invalid_value", "not among the tools"},
      {kChat, R"("tool_choice": "any")", "tool_choice", "invalid_value", ""},
      {kChat, R"("tools": [{"type": "web_search"}])", "tools[0].type", "unsupported_value", ""},
      {kChat, R"("tools": [{"type": "function"}])", "tools[0].function", "missing_required_parameter", ""},
      {kChat, R"("tools": [{"function": {"name": "f"}}, {"function": {}}])", "tools[1].function.name",
       "missing_required_parameter", ""},
      {kChat, R"("reasoning_effort": "utmost")", "reasoning_effort", "unsupported_value", "low, medium, high or xhigh"},
      {kChat, R"("chat_template_kwargs": {"reasoning_effort": "utmost"})", "chat_template_kwargs.reasoning_effort",
       "unsupported_value", ""},
      {kChat, R"("chat_template_kwargs": {"messages": []})", "chat_template_kwargs", "invalid_value", ""},
      {kChat, R"("chat_template_kwargs": 1)", "chat_template_kwargs", "invalid_type", ""},
  };
  for (const Refusal& refusal : refusals) {
    SCOPED_TRACE(refusal.fields);
    ApiRequest request;
    const std::optional<ApiError> error = ParseApiRequest(refusal.endpoint, Body(refusal.endpoint, refusal.fields), &request);
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->status, 400);
    EXPECT_EQ(error->type, "invalid_request_error");
    EXPECT_EQ(error->param, refusal.param);
    EXPECT_EQ(error->code, refusal.code);
    EXPECT_TRUE(error->message.starts_with(std::string(refusal.param) + " ")) << error->message;
    EXPECT_NE(error->message.find(refusal.part), std::string::npos) << error->message;
    EXPECT_EQ(error->message.find('\n'), std::string::npos);
  }
}

TEST(ApiRequest, RefusedPromptsAndMessages) {
  const std::pair<const char*, const char*> completions[] = {
      {"{}", "prompt"},
      {"[]", ""},
      {R"({"prompt": []})", "prompt"},
      {R"({"prompt": [1, ["a"]]})", "prompt"},
      {R"({"prompt": [["a", ["b"]]]})", "prompt"},
      {R"({"prompt": [-1]})", "prompt"},
      {R"({"prompt": [[]]})", "prompt"},
      {R"({"prompt": {"a": 1}})", "prompt"},
      {R"({"prompt": ["a", "b", "c", "d", "e", "f", "g", "h", "i"], "n": 128})", "n"},
  };
  for (const auto& [text, param] : completions) {
    ApiRequest request;
    const std::optional<ApiError> error = ParseApiRequest(kCompletions, OrderedJson::parse(text), &request);
    ASSERT_TRUE(error.has_value()) << text;
    EXPECT_EQ(error->param, param) << text;
  }
  const std::pair<const char*, const char*> messages[] = {
      {"[]", "messages"},
      {"[1]", "messages[0]"},
      {R"([{"content": "a"}])", "messages[0].role"},
      {R"([{"role": "function", "content": "a"}])", "messages[0].role"},
      {R"([{"role": "user"}])", "messages[0].content"},
      {R"([{"role": "user", "content": null}])", "messages[0].content"},
      {R"([{"role": "user", "content": 5}])", "messages[0].content"},
      {R"([{"role": "assistant", "content": null}])", "messages[0].content"},
      {R"([{"role": "user", "content": "a"}, {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}])",
       "messages[1].content[0].type"},
      {R"([{"role": "user", "content": [{"type": "input_audio"}]}])", "messages[0].content[0].type"},
      {R"([{"role": "user", "content": [{"type": "text"}]}])", "messages[0].content[0].text"},
      {R"([{"role": "tool", "content": "a"}])", "messages[0].tool_call_id"},
      {R"([{"role": "assistant", "content": "a", "audio": {"id": "b"}}])", "messages[0].audio"},
      {R"([{"role": "assistant", "content": "a", "prefix": true}, {"role": "user", "content": "b"}])", "messages[0].prefix"},
      {R"([{"role": "assistant", "tool_calls": [{"id": "1", "type": "custom"}]}])", "messages[0].tool_calls[0].type"},
      {R"([{"role": "assistant", "tool_calls": [{"id": "1", "function": {"arguments": "{}"}}]}])",
       "messages[0].tool_calls[0].function.name"},
  };
  for (const auto& [text, param] : messages) {
    ApiRequest request;
    const std::optional<ApiError> error = ParseApiRequest(kChat, {{"messages", OrderedJson::parse(text)}}, &request);
    ASSERT_TRUE(error.has_value()) << text;
    EXPECT_EQ(error->param, param) << text;
  }
}

TEST(ApiRequest, Messages) {
  const ApiRequest r = Chat(R"({"messages": [
      {"role": "system", "content": [{"type": "text", "text": "Be"}, {"type": "text", "text": "kind"}]},
      {"role": "user", "content": "Hi", "name": "ann"},
      {"role": "assistant", "type": "function", "content": null, "reasoning": "hm", "refusal": null, "annotations": [], "audio": null, "function_call": null,
       "tool_calls": [{"id": "1", "type": "function", "index": 0, "function": {"name": "f", "arguments": "{\"a\": 1}"}},
                      {"id": "2", "function": {"name": "g", "arguments": {"b": 2}}}]},
      {"role": "tool", "tool_call_id": "2", "content": "two"},
      {"role": "tool", "tool_call_id": "1", "content": "one", "name": "given"},
      {"role": "assistant", "content": "Ho", "reasoning_content": "x", "reasoning": "x"}],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"z": 1, "a": 2}, "strict": true}}], "tool_choice": "auto",
    "reasoning_effort": "low", "chat_template_kwargs": {"enable_thinking": false, "speaker": "NURSE"}})");
  const std::vector<ChatMessage>& m = r.chat.messages;
  ASSERT_EQ(m.size(), 6u);
  EXPECT_EQ(m[0].content, "Be\nkind");
  EXPECT_EQ(m[1].name, "ann");
  EXPECT_EQ(m[2].reasoning, "hm");
  ASSERT_EQ(m[2].tool_calls.size(), 2u);
  EXPECT_EQ(m[2].tool_calls[0], (ToolCall{"1", "f", "{\"a\": 1}"}));
  EXPECT_EQ(m[2].tool_calls[1], (ToolCall{"2", "g", "{\"b\":2}"}));
  EXPECT_EQ(m[3].name, "g") << "the function that the call names";
  EXPECT_EQ(m[4].name, "given");
  EXPECT_EQ(m[5].reasoning, "x");
  EXPECT_EQ(r.chat.tools,
            std::vector<std::string>{R"({"type":"function","function":{"name":"f","parameters":{"z":1,"a":2},"strict":true}})"});
  EXPECT_EQ(r.chat.reasoning_effort, "low");
  EXPECT_EQ(r.chat.variables, (std::map<std::string, std::string>{{"enable_thinking", "false"}, {"speaker", "\"NURSE\""}}));
  EXPECT_TRUE(r.chat.add_generation_prompt);
}

TEST(ApiRequest, ToolsThatMayNotBeCalledAreNotInThePrompt) {
  const ApiRequest r = Parsed(kChat, Body(kChat, R"("tools": [{"function": {"name": "f"}}], "tool_choice": "none")"));
  EXPECT_TRUE(r.chat.tools.empty());
  EXPECT_EQ(r.chat.most_calls, 0);
  EXPECT_EQ(Parsed(kChat, Body(kChat, R"("parallel_tool_calls": false)")).chat.most_calls, 1);
  EXPECT_FALSE(Parsed(kChat, Body(kChat, R"("parallel_tool_calls": true)")).chat.most_calls.has_value());
}

// The least and the most that clients know are the least and the most that templates know.
TEST(ApiRequest, Efforts) {
  const struct {
    const char* sent;
    const char* effort;
    std::optional<bool> thinking;
  } cases[] = {{"none", "low", false}, {"minimal", "low", false}, {"low", "low", {}}, {"medium", "medium", {}},
               {"high", "high", {}},   {"xhigh", "high", {}},     {"max", "high", {}}};
  for (const auto& c : cases) {
    const OrderedJson effort = {{"effort", c.sent}};
    const OrderedJson messages = OrderedJson::parse(R"([{"role": "user", "content": "Hi"}])");
    for (const ApiRequest& r : {Parsed(kChat, {{"messages", messages}, {"reasoning_effort", c.sent}}),
                                Parsed(kChat, {{"messages", messages}, {"chat_template_kwargs", {{"reasoning_effort", c.sent}}}}),
                                Parsed(kResponses, {{"input", "Hi"}, {"reasoning", effort}}),
                                Parsed(kMessages, {{"messages", messages}, {"max_tokens", 1}, {"output_config", effort}})}) {
      EXPECT_EQ(r.chat.reasoning_effort, c.effort) << c.sent;
      EXPECT_EQ(r.chat.thinking, c.thinking) << c.sent;
    }
  }
}

// What an answer refused is what it said; prompts may end without the beginning of an answer.
TEST(ApiRequest, RefusalsOfModels) {
  const ApiRequest r = Chat(R"({"add_generation_prompt": false, "messages": [
      {"role": "assistant", "content": null, "refusal": "No."},
      {"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "refusal", "refusal": "b"}]}]})");
  EXPECT_EQ(r.chat.messages[0].content, "No.");
  EXPECT_EQ(r.chat.messages[1].content, "a\nb");
  EXPECT_FALSE(r.chat.add_generation_prompt);
}

// A template is given what is taken of a tool, in the client's order.
TEST(ApiRequest, ToolsForTemplates) {
  const ApiRequest r =
      Parsed(kChat, Body(kChat, R"("tools": [{"cache_control": {"type": "ephemeral"}, "type": "function", "function":
      {"parameters": {"b": null, "a": 1}, "name": "f", "description": null, "x": 1}}])"));
  EXPECT_EQ(r.chat.tools,
            std::vector<std::string>{R"({"type":"function","function":{"parameters":{"b":null,"a":1},"name":"f"}})"});
  EXPECT_EQ(r.ignored, (std::vector<std::string>{"tools[].cache_control", "tools[].function.x"}));
}

// Of formats that know an effort, whichever way it is given.
TEST(ApiRequest, EffortAsAVariable) {
  const ApiRequest r = Parsed(kChat, Body(kChat, R"("chat_template_kwargs": {"reasoning_effort": "high"})"));
  EXPECT_EQ(r.chat.reasoning_effort, "high");
  EXPECT_TRUE(r.chat.variables.empty());
}

// A client that sends an answer's message back says what the model said.
TEST(ApiRequest, AnAnswersMessageComesBackAsItWas) {
  GenerateResult result;
  result.finish = FinishReason::kEos;
  ApiAnswer answer;
  ChatAnswer& said = answer.choices.emplace_back(ApiChoice{.result = &result}).answer;
  said = {.content = "", .reasoning = "think", .calls = {{"call00001", "f", "{\"a\": \"b\"}"}}};
  const OrderedJson json = AnswerJson(answer, {});
  EXPECT_EQ(json["choices"][0]["finish_reason"], "tool_calls");
  EXPECT_TRUE(json["choices"][0]["message"]["content"].is_null());
  const ApiRequest back = Parsed(kChat, {{"messages", OrderedJson::array({json["choices"][0]["message"]})}});
  ASSERT_EQ(back.chat.messages.size(), 1u);
  EXPECT_EQ(back.chat.messages[0],
            (ChatMessage{.role = "assistant", .reasoning = "think", .tool_calls = {{"call00001", "f", "{\"a\": \"b\"}"}}}));
}

TEST(ApiRequest, Errors) {
  const OrderedJson json = ErrorJson({.message = "m", .param = "p"});
  EXPECT_EQ(json.dump(), R"({"error":{"message":"m","type":"invalid_request_error","param":"p","code":null}})");
  EXPECT_EQ(ApiErrorOf(BadInput("b")).status, 400);
  EXPECT_EQ(ApiErrorOf(NoRoom("n")).status, 503);
  EXPECT_EQ(ApiErrorOf(NotFinite("n")).status, 500);
  EXPECT_EQ(ApiErrorOf(InternalError("i")).status, 500);
  EXPECT_EQ(ApiEndpointOf("/v1/chat/completions"), kChat);
  EXPECT_EQ(ApiEndpointOf("/v1/completions"), kCompletions);
  EXPECT_EQ(ApiEndpointOf("/v1/embeddings"), std::nullopt);
}

}  // namespace
}  // namespace tally
