// SPDX-License-Identifier: Apache-2.0
#include "engine/serve/completion.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

#include "engine/serve/api_responses.h"
#include "engine/serve/api_stream.h"
#include "engine/session/scheduler.h"
#include "tests/serve/text_served.h"
#include "tests/session/fake_engine.h"

namespace tally {
namespace {

using enum ApiEndpoint;

std::optional<ApiError> Make(const ServedModel& model, ApiEndpoint endpoint, const std::string& body,
                             std::unique_ptr<Completion>* made) {
  static ApiIds ids;
  ApiRequest request;
  std::optional<ApiError> error = ParseApiRequest(endpoint, OrderedJson::parse(body), &request);
  EXPECT_FALSE(error.has_value()) << body << error->message;
  return error ? error : Completion::Make(model, request, ids, made);
}

OrderedJson Answered(const ServedModel& model, ApiEndpoint endpoint, const std::string& body) {
  std::unique_ptr<Completion> completion;
  const std::optional<ApiError> error = Make(model, endpoint, body, &completion);
  EXPECT_FALSE(error.has_value()) << error->message;
  if (error) return ErrorJson(*error);
  Scheduler scheduler(*model.engine);
  for (const auto& request : completion->requests()) scheduler.Add(request);
  for (int i = 0; i < 10000 && !completion->ended(); ++i) scheduler.Step();
  completion->Collect();
  EXPECT_TRUE(completion->ended());
  EXPECT_TRUE(completion->status().ok()) << completion->status().message();
  return completion->Answer();
}

ApiError Refused(const ServedModel& model, ApiEndpoint endpoint, const std::string& body) {
  std::unique_ptr<Completion> completion;
  const std::optional<ApiError> error = Make(model, endpoint, body, &completion);
  EXPECT_TRUE(error.has_value()) << body;
  EXPECT_EQ(completion, nullptr);
  return error.value_or(ApiError{});
}

// One more than was asked for, where it is none of the most probable.
TEST(Completion, TopLogprobsHaveTheDrawnToken) {
  const TextServed served;
  size_t more = 0;
  for (const size_t n : {0, 1, 5, 20}) {
    const OrderedJson a =
        Answered(served.model, kCompletions,
                 R"({"prompt": "a", "seed": 5, "temperature": 40, "max_tokens": 20, "ignore_eos": true, "logprobs": )" +
                     std::to_string(n) + "}");
    const OrderedJson& logprobs = a["choices"][0]["logprobs"];
    ASSERT_EQ(logprobs["tokens"].size(), 20u);
    for (size_t i = 0; i < 20; ++i) {
      const OrderedJson& top = logprobs["top_logprobs"][i];
      ASSERT_TRUE(top.contains(logprobs["tokens"][i].get<std::string>())) << a;
      EXPECT_EQ(top[logprobs["tokens"][i].get<std::string>()], logprobs["token_logprobs"][i]);
      EXPECT_TRUE(top.size() == n || top.size() == n + 1) << n << top;
      more += top.size() == n + 1 ? 1 : 0;
    }
  }
  EXPECT_GT(more, 20u);
}

TEST(Completion, Text) {
  const TextServed served;
  const OrderedJson a = Answered(served.model, kCompletions, R"({"prompt": "x", "seed": 5})");
  EXPECT_TRUE(a["id"].get<std::string>().starts_with("cmpl-")) << a;
  EXPECT_EQ(a["object"], "text_completion");
  EXPECT_GT(a["created"], 1'000'000'000);
  EXPECT_EQ(a["model"], "text");
  EXPECT_EQ(a["seed"], 5);
  ASSERT_EQ(a["choices"].size(), 1u);
  EXPECT_EQ(a["choices"][0], OrderedJson({{"index", 0}, {"text", "yz"}, {"logprobs", nullptr}, {"finish_reason", "stop"}}));
  OrderedJson usage = a["usage"];
  const OrderedJson bill = usage["tally"];
  usage.erase("tally");
  EXPECT_EQ(usage, OrderedJson({{"prompt_tokens", 2},  // with <|begin|>
                                {"completion_tokens", 2},
                                {"total_tokens", 4},
                                {"prompt_tokens_details", {{"cached_tokens", 0}}},
                                {"completion_tokens_details", {{"reasoning_tokens", 0}}}}));
  EXPECT_EQ(bill["prompt_tokens"], 2);
  EXPECT_EQ(bill["decode_tokens"], 2);
  EXPECT_EQ(bill["decode_steps"], 2);
  EXPECT_EQ(bill["prefill"]["rows"], 2);
  EXPECT_EQ(bill["decode"]["rows"], 2);
  EXPECT_EQ(bill["decode"]["rows_again"], 0);
  EXPECT_EQ(bill["decode"]["rows_in_vain"], 0);
  EXPECT_GT(bill["decode"]["flops"], 0);
  EXPECT_GT(bill["decode"]["bytes"]["KV read"], 0);
  EXPECT_GT(bill["generate_seconds"], 0);
  EXPECT_GT(bill["kv_bytes"], 0);
  EXPECT_GT(bill["parameters_active"], 0);
  EXPECT_FALSE(bill.contains("experts_touched"));
  EXPECT_GE(bill["prompt_seconds"], 0);
}

TEST(Completion, WhereItEnds) {
  const TextServed served;
  const auto end_of = [&](const std::string& fields) {
    const OrderedJson a = Answered(served.model, kCompletions, R"({"prompt": "t", )" + fields + "}");
    return a["choices"][0]["text"].get<std::string>() + " " + a["choices"][0]["finish_reason"].get<std::string>();
  };
  EXPECT_EQ(end_of(R"("max_tokens": 2)"), "uv length");
  EXPECT_EQ(end_of(R"("max_tokens": 0)"), " length");
  EXPECT_EQ(end_of(R"("stop": "x")"), "uvw stop");
  EXPECT_EQ(end_of(R"("stop": ["none", "wx"])"), "uv stop");
  EXPECT_EQ(end_of(R"("ignore_eos": true, "max_tokens": 8)"), "uvwxyz a length");
  const OrderedJson full = Answered(served.model, kCompletions, R"({"prompt": "t", "ignore_eos": true})");
  EXPECT_EQ(full["choices"][0]["finish_reason"], "length") << "the context is full";
  EXPECT_EQ(full["usage"]["total_tokens"], 129);
}

TEST(Completion, SeveralPromptsAndChoices) {
  const TextServed served;
  const OrderedJson a = Answered(served.model, kCompletions,
                                 R"({"prompt": ["w", [119, 120]], "n": 2, "temperature": 60, "max_tokens": 12, "seed": 7})");
  ASSERT_EQ(a["choices"].size(), 4u);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(a["choices"][i]["index"], i);
  EXPECT_EQ(a["usage"]["prompt_tokens"], 4) << "each prompt once";
  // A choice is what its seed gives alone.
  const auto alone = [&](const std::string& prompt, int seed) {
    return Answered(served.model, kCompletions,
                    R"({"temperature": 60, "max_tokens": 12, "prompt": )" + prompt + R"(, "seed": )" + std::to_string(seed) + "}")
        .at("choices")
        .at(0)
        .at("text");
  };
  EXPECT_EQ(a["choices"][0]["text"], alone(R"("w")", 7));
  EXPECT_EQ(a["choices"][1]["text"], alone(R"("w")", 8));
  EXPECT_EQ(a["choices"][3]["text"], alone("[119, 120]", 8));
  EXPECT_NE(a["choices"][0]["text"], a["choices"][1]["text"]);
}

// A seed that was drawn gives the same answer where it is given.
TEST(Completion, DrawnSeeds) {
  const TextServed served;
  const std::string body = R"({"prompt": "a", "temperature": 60, "max_tokens": 20)";
  const OrderedJson first = Answered(served.model, kCompletions, body + "}"),
                    other = Answered(served.model, kCompletions, body + "}");
  EXPECT_NE(first["seed"], other["seed"]);
  EXPECT_NE(first["id"], other["id"]);
  EXPECT_EQ(Answered(served.model, kCompletions, body + R"(, "seed": )" + first["seed"].dump() + "}")["choices"],
            first["choices"]);
}

TEST(Completion, Chat) {
  TextServed served;
  const OrderedJson a = Answered(served.model, kChat, R"({"messages": [{"role": "user", "content": "Hi"}]})");
  EXPECT_TRUE(a["id"].get<std::string>().starts_with("chatcmpl-")) << a;
  EXPECT_EQ(a["object"], "chat.completion");
  EXPECT_EQ(a["choices"][0], OrderedJson({{"index", 0},
                                          {"message", {{"role", "assistant"}, {"content", "xyz"}, {"refusal", nullptr}}},
                                          {"logprobs", nullptr},
                                          {"finish_reason", "stop"}}));
  EXPECT_EQ(a["usage"]["prompt_tokens"], 3);
  // A special token in a message is text.
  const OrderedJson spelled = Answered(served.model, kChat, R"({"messages": [{"role": "user", "content": "<|turn|>"}]})");
  EXPECT_EQ(spelled["usage"]["prompt_tokens"], 1 + static_cast<int>(std::string("<|turn|>").size()));
  // The template's stop strings, and the body's.
  served.model.chat->stop = {"z"};
  EXPECT_EQ(
      Answered(served.model, kChat, R"({"messages": [{"role": "user", "content": "Hi"}]})")["choices"][0]["message"]["content"],
      "xy");
  EXPECT_EQ(Answered(served.model, kChat,
                     R"({"messages": [{"role": "user", "content": "Hi"}], "stop": "y"})")["choices"][0]["message"]["content"],
            "x");
}

TEST(Completion, Response) {
  const TextServed served;
  const OrderedJson a = Answered(served.model, kResponses, R"({"input": "Hi", "max_output_tokens": 2, "temperature": 0})");
  EXPECT_TRUE(a["id"].get<std::string>().starts_with("resp_")) << a;
  EXPECT_EQ(a["status"], "incomplete");
  EXPECT_EQ(a["incomplete_details"]["reason"], "max_output_tokens");
  EXPECT_EQ(a["output"][0]["type"], "message");
  EXPECT_EQ(a["output"][0]["content"][0]["text"], "xy");
  EXPECT_EQ(a["temperature"], 0);
  EXPECT_EQ(a["usage"]["output_tokens"], 2);
  EXPECT_EQ(a["usage"]["tally"]["decode"]["rows"], 1);
}

TEST(Completion, SpecialTokensInPromptsOfText) {
  TextServed served;
  const std::string body = R"({"prompt": "<|turn|>", "max_tokens": 3})";
  EXPECT_EQ(Answered(served.model, kCompletions, body)["choices"][0]["text"], "abc");
  served.model.parse_special = true;
  EXPECT_EQ(Answered(served.model, kCompletions, body)["choices"][0]["text"], "xyz");
}

TEST(Completion, WhatCannotBeAnswered) {
  TextServed served;
  const std::string chat = R"({"messages": [{"role": "user", "content": "Hi"}]})";
  const ApiError tools =
      Refused(served.model, kChat,
              R"({"messages": [{"role": "user", "content": "Hi"}], "tools": [{"type": "function", "function": {"name": "f"}}]})");
  EXPECT_EQ(tools.param, "tools");
  const ApiError longer = Refused(served.model, kCompletions, R"({"prompt": ")" + std::string(128, '.') + R"("})");
  EXPECT_EQ(longer.code, "context_length_exceeded");
  EXPECT_NE(longer.message.find("129 tokens"), std::string::npos) << longer.message;
  for (const bool is_chat : {false, true}) {
    const std::string text(100'000, '.');
    const ApiError much = is_chat
                              ? Refused(served.model, kChat, R"({"messages": [{"role": "user", "content": ")" + text + R"("}]})")
                              : Refused(served.model, kCompletions, R"({"prompt": ")" + text + R"("})");
    EXPECT_EQ(much.message, "the prompt has more than 512 tokens, and the context room for 128") << "it is not encoded further";
    EXPECT_EQ(much.code, "context_length_exceeded");
    EXPECT_EQ(much.param, is_chat ? "messages" : "prompt");
  }
  const ApiError vocabulary = Refused(served.model, kCompletions, R"({"prompt": [1, 300]})");
  EXPECT_NE(vocabulary.message.find("300"), std::string::npos) << vocabulary.message;
  served.model.chat = BadInput("text: the model has no chat template");
  EXPECT_EQ(Refused(served.model, kChat, chat).message, "text: the model has no chat template");
  auto refusing = MakeChatSide({.text = "{{ raise_exception('never') }}"}, true);
  ASSERT_TRUE(refusing.ok());
  served.model.chat = refusing;
  EXPECT_NE(Refused(served.model, kChat, chat).message.find("never"), std::string::npos);
}

TEST(Completion, WithoutATokenizer) {
  FakeEngine engine(100);
  ServedModel model;
  model.engine = &engine;
  model.sampling.temperature = 0;
  const OrderedJson a = Answered(model, kCompletions, R"({"prompt": [5, 6], "max_tokens": 3})");
  EXPECT_EQ(a["choices"][0]["token_ids"], OrderedJson({7, 8, 9}));
  EXPECT_EQ(a["choices"][0]["text"], "");
  for (const char* body : {R"({"prompt": "a"})", R"({"prompt": [1], "stop": "a"})"}) {
    EXPECT_NE(Refused(model, kCompletions, body).message.find("tokenizer"), std::string::npos);
  }
  EXPECT_NE(Refused(model, kChat, R"({"messages": [{"role": "user", "content": "Hi"}]})").message.find("tokenizer"),
            std::string::npos);
}

// Thinking, text and calls, whole and streamed.
TEST(ApiStream, PartsOfEveryKind) {
  using Kind = OutputPart::Kind;
  const TextServed served;
  const ToolCall call{"call00001", "f", R"({"a": 1})"};
  const std::vector<OutputPart> parts = {{Kind::kMark, "<think>"},      {Kind::kReasoning, "Hm"},     {Kind::kReasoning, "m."},
                                         {Kind::kMark, "</think>"},     {Kind::kContent, "Let"},      {Kind::kContent, " me."},
                                         {Kind::kCall, "<call>", call}, {Kind::kCall, "<call>", call}};
  std::unique_ptr<Completion> completion;
  ASSERT_FALSE(Make(served.model, kChat, R"({"messages": [{"role": "user", "content": "Hi"}], "stream": true})", &completion));
  const std::unique_ptr<ApiStream> stream = NewApiStream({.endpoint = kChat});
  (void)stream->Begin(*completion);
  const std::string text = stream->Add(*completion, {.parts = parts});
  std::vector<OrderedJson> deltas;
  for (size_t at = 0; (at = text.find("data: ", at)) != text.npos; ++at) {
    deltas.push_back(OrderedJson::parse(text.substr(at + 6, text.find("\n\n", at) - at - 6))["choices"][0]["delta"]);
  }
  ASSERT_EQ(deltas.size(), 4u) << text;
  EXPECT_EQ(deltas[0], OrderedJson({{"reasoning_content", "Hmm."}, {"reasoning", "Hmm."}}));
  EXPECT_EQ(deltas[1]["content"], "Let me.");
  EXPECT_EQ(deltas[2]["tool_calls"][0]["index"], 0);
  EXPECT_EQ(deltas[2]["tool_calls"][0]["function"]["arguments"], call.arguments);
  EXPECT_EQ(deltas[3]["tool_calls"][0]["index"], 1);

  ResponseOutput whole("resp_1"), streamed("resp_1");
  whole.Add(parts, nullptr);
  whole.Finish(true, {}, nullptr);
  std::vector<OrderedJson> events;
  for (const OutputPart& part : parts) streamed.Add({&part, 1}, &events);
  streamed.Finish(true, {}, &events);
  EXPECT_EQ(whole.items(), streamed.items());
  std::vector<std::string> kinds;
  for (const OrderedJson& item : whole.items()) kinds.push_back(item["type"]);
  EXPECT_EQ(kinds, (std::vector<std::string>{"reasoning", "message", "function_call", "function_call"}));
  EXPECT_EQ(whole.items()[0]["content"][0]["text"], "Hmm.");
  EXPECT_EQ(whole.items()[2]["call_id"], "call00001");
  // Every item is begun, and ended with what it is.
  std::map<size_t, OrderedJson> done;
  size_t begun = 0;
  for (const OrderedJson& event : events) {
    if (event["type"] == "response.output_item.added") {
      EXPECT_EQ(event["output_index"], begun++);
    }
    if (event["type"] == "response.output_item.done") done[event["output_index"]] = event["item"];
  }
  EXPECT_EQ(begun, 4u);
  ASSERT_EQ(done.size(), 4u);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(done[i], whole.items()[i]);
}

TEST(Completion, Finishes) {
  GenerateResult result;
  const auto finish = [&](FinishReason reason, std::vector<ToolCall> calls) {
    result.finish = reason;
    return std::string(ApiFinish({.answer = {.calls = std::move(calls)}, .result = &result}));
  };
  EXPECT_EQ(finish(FinishReason::kEos, {}), "stop");
  EXPECT_EQ(finish(FinishReason::kStop, {}), "stop");
  EXPECT_EQ(finish(FinishReason::kLength, {}), "length");
  EXPECT_EQ(finish(FinishReason::kContextFull, {}), "length");
  EXPECT_EQ(finish(FinishReason::kEos, {{"1", "f", "{}"}}), "tool_calls");
  EXPECT_EQ(finish(FinishReason::kLength, {{"1", "f", "{}"}}), "length");
}

TEST(Completion, IdsAreTheirOwn) {
  ApiIds ids, others;
  std::set<std::string> seen;
  for (int i = 0; i < 1000; ++i) {
    seen.insert(ids.Next("a-"));
    seen.insert(others.Next("a-"));
  }
  EXPECT_EQ(seen.size(), 2000u);
  EXPECT_EQ(seen.begin()->size(), 26u);
  ApiIds many(7);
  std::unordered_set<std::string> all;
  for (int i = 0; i < 300'000; ++i) all.insert(many.Next(""));
  EXPECT_EQ(all.size(), 300'000u);
}

}  // namespace
}  // namespace tally
