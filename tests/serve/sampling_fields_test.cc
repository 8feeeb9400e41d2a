// SPDX-License-Identifier: Apache-2.0
// Fields that say how tokens are drawn, where an answer ends, and what is known of a prompt, on answers that are known to the letter.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "engine/serve/api_stream.h"
#include "engine/serve/completion.h"
#include "engine/session/logprobs.h"
#include "engine/session/scheduler.h"
#include "engine/studies/logits.h"
#include "tests/serve/text_served.h"
#include "tests/session/fake_engine.h"

namespace tally {
namespace {

using enum ApiEndpoint;

// The answer, or its error; and the texts of a stream, joined.
struct Answered {
  OrderedJson whole = {};
  std::string streamed = {}, events = {};
  const OrderedJson& choice(size_t i = 0) const { return whole.at("choices").at(i); }
  std::string text() const { return choice().at("text").get<std::string>(); }
};

Answered Ask(const ServedModel& model, ApiEndpoint endpoint, const std::string& body) {
  static ApiIds ids;
  Answered answered;
  for (const bool streams : {false, true}) {
    OrderedJson json = OrderedJson::parse(body);
    if (streams && (json.contains("prompt_logprobs") || (json.contains("echo") && json.contains("logprobs")))) continue;
    if (streams && endpoint == kMessages) continue;
    json["stream"] = streams;
    ApiRequest request;
    std::optional<ApiError> error = ParseApiRequest(endpoint, json, &request);
    std::unique_ptr<Completion> completion;
    if (!error) error = Completion::Make(model, request, ids, &completion);
    if (error) {
      answered.whole = ErrorJson(*error);
      return answered;
    }
    Scheduler scheduler(*model.engine);
    for (const auto& one : completion->requests()) scheduler.Add(one);
    const std::unique_ptr<ApiStream> stream = streams ? NewApiStream(request) : nullptr;
    std::string events = streams ? stream->Begin(*completion) : "";
    for (int i = 0; i < 10000 && !completion->ended(); ++i) {
      scheduler.Step();
      for (const ApiDelta& delta : completion->Collect()) {
        if (streams) events += stream->Add(*completion, delta);
      }
    }
    if (!completion->status().ok()) {
      answered.whole = ErrorJson(ApiErrorOf(completion->status()));
      return answered;
    }
    if (!streams) {
      answered.whole = completion->Answer();
      continue;
    }
    answered.events = events + stream->End(*completion);
    for (size_t at = 0; (at = events.find("data: ", at)) != events.npos; ++at) {
      const OrderedJson chunk = OrderedJson::parse(events.substr(at + 6, events.find("\n\n", at) - at - 6));
      const OrderedJson& choice = chunk.at("choices").at(0);
      if (choice.at("index") != 0) continue;
      answered.streamed += choice.contains("text") ? choice["text"].get<std::string>() : choice["delta"].value("content", "");
    }
  }
  return answered;
}

std::string Message(const Answered& answered) { return answered.whole.at("error").at("message"); }

TEST(SamplingFields, WhereAnAnswerEnds) {
  const TextServed served;
  // TEXT FINISH STOP_REASON; streamed, the same text.
  const auto end_of = [&](const std::string& fields) {
    const Answered a = Ask(served.model, kCompletions, R"({"prompt": "t", )" + fields + "}");
    if (!a.whole.contains("choices")) return Message(a);
    EXPECT_EQ(a.streamed, a.text());
    const std::string reason = a.choice().contains("stop_reason") ? a.choice()["stop_reason"].dump() : "-";
    EXPECT_EQ(a.events.find("stop_reason") != a.events.npos, reason != "-");
    return a.text() + " " + a.choice()["finish_reason"].get<std::string>() + " " + reason;
  };
  EXPECT_EQ(end_of(R"("temperature": 0)"), "uvwxyz stop -");
  EXPECT_EQ(end_of(R"("stop": "x")"), R"(uvw stop "x")");
  EXPECT_EQ(end_of(R"("stop": ["none", "xy"], "include_stop_str_in_output": true)"), R"(uvwxy stop "xy")");
  EXPECT_EQ(end_of(R"("stop_token_ids": [120])"), "uvw stop 120");
  EXPECT_EQ(end_of(R"("stop_token_ids": [120], "include_stop_str_in_output": true)"), "uvwx stop 120");
  // Nothing ends the first tokens: neither a stop string, nor a token, nor the end.
  EXPECT_EQ(end_of(R"("stop": "v", "min_tokens": 2)"), "uvwxyz stop -");
  EXPECT_EQ(end_of(R"("stop": "w", "min_tokens": 2)"), R"(uv stop "w")");
  EXPECT_NE(end_of(R"("stop_token_ids": [117], "min_tokens": 2, "max_tokens": 4)"), " stop 117");
  EXPECT_EQ(end_of(R"("min_tokens": 8, "max_tokens": 10)"), "uvwxyz abc length -");
  EXPECT_EQ(end_of(R"("n_predict": 2)"), "uv length -");
  EXPECT_EQ(end_of(R"("min_tokens": 1, "guided_regex": "u*")"),
            "min_tokens: an answer that follows a grammar ends where the grammar does");
  // A token that a grammar forces stops as one that was drawn does.
  EXPECT_EQ(end_of(R"("guided_choice": ["uvwxyz"], "stop_token_ids": [120])"), "uvw stop 120");
  EXPECT_EQ(end_of(R"("stop_token_ids": [300])"), "stop_token_ids has the token 300, and the vocabulary has 300");
}

TEST(SamplingFields, WhichTokensAreDrawn) {
  const TextServed served;
  const auto text = [&](const std::string& fields, const char* prompt = "t") {
    const Answered a =
        Ask(served.model, kCompletions, R"({"prompt": ")" + std::string(prompt) + R"(", "max_tokens": 6, )" + fields + "}");
    return a.whole.contains("choices") ? a.text() : Message(a);
  };
  EXPECT_EQ(text(R"("allowed_token_ids": [65])"), "AAAAAA");
  EXPECT_EQ(text(R"("allowed_token_ids": [300])"), "allowed_token_ids has the token 300, and the vocabulary has 300");
  // A word of one token is never drawn; of a longer one, not its last token behind the others.
  EXPECT_EQ(text(R"("bad_words": ["w"])").substr(0, 2), "uv");
  EXPECT_EQ(text(R"("bad_words": ["w"])").find('w'), std::string::npos);
  EXPECT_EQ(text(R"("bad_words": ["vwx"])").substr(0, 3), "uvw");
  EXPECT_NE(text(R"("bad_words": ["vwx"])")[3], 'x');
  EXPECT_EQ(text(R"("bad_words": ["wwx"])"), "uvwxyz");
  // Bias by id, by text, and never.
  EXPECT_EQ(text(R"("logit_bias": {"65": 100})"), "AAAAAA");
  EXPECT_EQ(text(R"("logit_bias": [["A", 100]])"), "AAAAAA");
  std::string many = R"(["A", 1])";
  for (int i = 0; i < 8; ++i) many += R"(, [")" + std::string(1000, 'A') + R"(", 1])";
  EXPECT_EQ(text(R"("logit_bias": [)" + many + "]"), "logit_bias has texts of more than 4096 tokens");
  EXPECT_EQ(text(R"("logit_bias": [[118, false]])").find('v'), std::string::npos);
  // With a grammar, what both allow.
  EXPECT_EQ(text(R"("guided_regex": "u(v|A)*", "allowed_token_ids": [117, 65])"), "uAAAAA");
  EXPECT_EQ(text(R"("guided_regex": "uv", "bad_words": ["u"])"),
            "no token is left to draw: the request allows none of those that the grammar allows");
}

// Published meanings: of tokens drawn, not of the prompt's.
TEST(SamplingFields, Penalties) {
  const TextServed served;
  const auto text = [&](const std::string& fields) {
    return Ask(served.model, kCompletions,
               R"({"prompt": "u", "max_tokens": 30, "ignore_eos": true, "allowed_token_ids": [65, 66], )" + fields + "}")
        .text();
  };
  const std::string plain = text(R"("temperature": 0)"), often = text(R"("temperature": 0, "frequency_penalty": 2)"),
                    once = text(R"("temperature": 0, "presence_penalty": 2)");
  EXPECT_EQ(plain, std::string(30, 'A'));
  EXPECT_EQ(once, "AB" + std::string(28, 'A')) << "both have been drawn then";
  EXPECT_EQ(often.substr(0, 6), "ABABAB");
}

// The logits of one run are those of another, so the log probabilities are equal to the digit.
TEST(SamplingFields, LogprobsOfAPrompt) {
  TextServed served;
  const std::string prompt = "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz0123456789";  // longer than a step has logits
  const std::string quoted = '"' + prompt + '"';
  const Answered a =
      Ask(served.model, kCompletions, R"({"prompt": )" + quoted + R"(, "echo": true, "logprobs": 2, "max_tokens": 3, "n": 2})");
  EXPECT_EQ(a.text(), prompt + "abc");
  const Result<std::vector<int32_t>> tokens = served.model.engine->model().tokenizer()->Encode(prompt, {.add_special = true});
  ASSERT_TRUE(tokens.ok());
  std::vector<TokenLogprobs> expected;
  ASSERT_TRUE(RunLogits(*served.model.engine, *tokens, {.take = [&](int64_t first, const Mat<const float>& logits) {
                for (int64_t r = 0; r < logits.rows; ++r) {
                  const size_t next = static_cast<size_t>(first + r) + 1;
                  const std::span<const float> row(logits.Row(r), static_cast<size_t>(logits.cols));
                  if (next < tokens->size()) expected.push_back(LogprobsOf(row, (*tokens)[next], 2));
                }
                return Status();
              }}).ok());
  for (size_t c = 0; c < 2; ++c) {
    const OrderedJson& logprobs = a.choice(c)["logprobs"];
    ASSERT_EQ(logprobs["tokens"].size(), tokens->size() + 3);
    EXPECT_EQ(logprobs["tokens"][0], "<|begin|>");
    EXPECT_TRUE(logprobs["token_logprobs"][0].is_null() && logprobs["top_logprobs"][0].is_null());
    EXPECT_EQ(logprobs["text_offset"][1], 0) << "a special token is none of the text";
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(logprobs["token_logprobs"][i + 1], expected[i].logprob) << i;
      EXPECT_GE(logprobs["top_logprobs"][i + 1].size(), 2u);
      const size_t at = logprobs["text_offset"][i + 1];
      EXPECT_EQ(prompt.substr(at, 1), logprobs["tokens"][i + 1].get<std::string>().substr(0, 1));
    }
  }
  const Answered scored =
      Ask(served.model, kCompletions, R"({"prompt": )" + quoted + R"(, "prompt_logprobs": 1, "max_tokens": 0})");
  const OrderedJson& list = scored.choice()["prompt_logprobs"];
  ASSERT_EQ(list.size(), tokens->size());
  EXPECT_TRUE(list[0].is_null());
  for (size_t i = 0; i < expected.size(); ++i) {
    const OrderedJson& own = list[i + 1][std::to_string((*tokens)[i + 1])];
    EXPECT_EQ(own["logprob"], expected[i].logprob);
    EXPECT_EQ(own["rank"], expected[i].rank);
    EXPECT_EQ(list[i + 1].size(), expected[i].rank == 1 ? 1u : 2u);
  }
  const Answered chat =
      Ask(served.model, kChat,
          R"({"messages": [{"role": "user", "content": "ab"}], "prompt_logprobs": 0, "return_token_ids": true})");
  EXPECT_EQ(chat.whole["prompt_logprobs"].size(), chat.whole["prompt_token_ids"].size());
  EXPECT_EQ(chat.choice()["token_ids"], OrderedJson({'x', 'y', 'z'}));
  // What an answer would have of them is bounded, all choices together.
  const auto refused = [&](ApiEndpoint endpoint, const std::string& body) {
    const Answered much = Ask(served.model, endpoint, body);
    return much.whole.contains("error") ? much.whole["error"]["param"] : OrderedJson();
  };
  std::string prompts = quoted;
  for (int i = 0; i < 3; ++i) prompts += ", " + quoted;
  EXPECT_EQ(refused(kCompletions, R"({"prompt": [)" + prompts + R"(], "prompt_logprobs": 20, "n": 64, "max_tokens": 0})"),
            "prompt_logprobs");
  EXPECT_EQ(refused(kCompletions, R"({"prompt": "a", "prompt_logprobs": -1})"), "prompt_logprobs") << "the whole vocabulary";
  EXPECT_EQ(refused(kCompletions, R"({"prompt": "a", "logprobs": -1})"), "logprobs");
}

TEST(SamplingFields, PromptsOfIdsAndTexts) {
  const TextServed served;
  const auto ids = [&](const std::string& fields) {
    const Answered a = Ask(served.model, kCompletions, "{" + fields + R"(, "max_tokens": 1, "return_token_ids": true})");
    EXPECT_NE(a.events.find("\"prompt_token_ids\":"), std::string::npos);
    return a.choice()["prompt_token_ids"];
  };
  EXPECT_EQ(ids(R"("prompt": "xy")"), OrderedJson({257, 'x', 'y'}));
  const Answered chat =
      Ask(served.model, kChat, R"({"messages": [{"role": "user", "content": "ab"}], "return_token_ids": true, "max_tokens": 2})");
  EXPECT_NE(chat.events.find(R"("token_ids":[120])"), std::string::npos) << chat.events;
  EXPECT_NE(chat.events.find(R"("token_ids":[121])"), std::string::npos);
  EXPECT_EQ(Ask(served.model, kCompletions, R"({"prompt": [300]})").whole["error"]["param"], "prompt");
  EXPECT_EQ(ids(R"("prompt": "xy", "add_special_tokens": false)"), OrderedJson({'x', 'y'}));
  EXPECT_EQ(ids(R"("prompt": ["xy", 5, "z"])"), OrderedJson({257, 'x', 'y', 5, 'z'}));
  EXPECT_EQ(ids(R"("prompt": [5, "xy", 6])"), OrderedJson({5, 'x', 'y', 6}));
  const Answered echoed = Ask(served.model, kCompletions, R"({"prompt": [120, "y"], "echo": true, "max_tokens": 1})");
  EXPECT_EQ(echoed.text(), "xyz");
  EXPECT_EQ(echoed.streamed, "xyz");
}

TEST(SamplingFields, AnAssistantsLastMessageIsContinued) {
  TextServed served;
  Result<ChatSide> side =
      MakeChatSide({.text = "{% for m in messages %}<|turn|>{{ m.role }}:{{ m.content | trim }}<|end|>{% endfor %}"
                            "{% if add_generation_prompt %}<|turn|>{% endif %}"},
                   /*native=*/true);
  ASSERT_TRUE(side.ok());
  served.model.chat = side;
  const auto answer = [&](ApiEndpoint endpoint, const std::string& last, const std::string& fields = "") {
    const Answered a =
        Ask(served.model, endpoint,
            R"({"max_tokens": 9, "messages": [{"role": "user", "content": "Go on."}, )" + last + "]" + fields + "}");
    if (a.whole.contains("error")) return Message(a);
    return endpoint == kMessages ? a.whole["content"][0]["text"].get<std::string>()
                                 : a.choice()["message"]["content"].get<std::string>();
  };
  const std::string begun = R"({"role": "assistant", "content": "stuv"})";
  for (const ApiEndpoint endpoint : {kChat, kMessages}) {
    EXPECT_EQ(answer(endpoint, begun), "wxyz");
    EXPECT_EQ(answer(endpoint, R"({"role": "user", "content": "stuv"})"), "xyz") << "after <|turn|>";
  }
  EXPECT_EQ(answer(kChat, begun, R"(, "continue_final_message": true, "add_generation_prompt": false)"), "wxyz");
  EXPECT_EQ(answer(kChat, R"({"role": "assistant", "content": "stuv", "prefix": true})"), "wxyz");
  EXPECT_EQ(answer(kChat, begun, R"(, "add_generation_prompt": true)"), "xyz");
  EXPECT_EQ(answer(kChat, begun, R"(, "continue_final_message": false)"), "xyz");
  EXPECT_EQ(answer(kChat, R"({"role": "assistant", "content": "st  "})"), "abcdeéfg") << "its last blanks are the prompt's";
  EXPECT_EQ(answer(kChat, begun, R"(, "guided_regex": "wx|yz")"), "wx") << "a format is the continuation's";
  EXPECT_NE(answer(kChat, R"({"role": "assistant", "content": "", "reasoning": "Hm"})", R"(, "continue_final_message": true)")
                .find("thinking, which cannot be continued"),
            std::string::npos);
  EXPECT_NE(answer(kMessages, R"({"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]})")
                .find("without calls"),
            std::string::npos);
}

TEST(SamplingFields, UsageWithEveryChunk) {
  TextServed served;
  served.model.fingerprint = "fp_1";
  const Answered a = Ask(served.model, kCompletions, R"({"prompt": "x", "max_tokens": 2})");
  EXPECT_EQ(a.whole["system_fingerprint"], "fp_1");
  ApiRequest request;
  ASSERT_FALSE(ParseApiRequest(
      kCompletions,
      OrderedJson::parse(
          R"({"prompt": "u", "max_tokens": 3, "stream": true, "stream_options": {"include_usage": true, "continuous_usage_stats": true}})"),
      &request));
  ApiIds ids;
  std::unique_ptr<Completion> completion;
  ASSERT_FALSE(Completion::Make(served.model, request, ids, &completion));
  const std::unique_ptr<ApiStream> stream = NewApiStream(request);
  (void)stream->Begin(*completion);
  Scheduler scheduler(*served.model.engine);
  scheduler.Add(completion->requests().front());
  std::vector<int64_t> counts;
  while (!completion->ended()) {
    scheduler.Step();
    for (const ApiDelta& delta : completion->Collect()) {
      const std::string events = stream->Add(*completion, delta);
      const OrderedJson chunk = OrderedJson::parse(events.substr(6, events.find("\n\n") - 6));
      EXPECT_EQ(chunk["system_fingerprint"], "fp_1");
      counts.push_back(chunk["usage"]["completion_tokens"]);
    }
  }
  EXPECT_EQ(counts, (std::vector<int64_t>{1, 2, 3}));
}

TEST(SamplingFields, VariablesOfTheServersTemplate) {
  TextServed served;
  Result<ChatSide> side = MakeChatSide({.text = "{{ letter }}"}, /*native=*/true);
  ASSERT_TRUE(side.ok());
  served.model.chat = side;
  served.model.template_variables = {{"letter", "\"w\""}};
  const std::string body = R"({"messages": [{"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f"}}]}])";
  EXPECT_EQ(Ask(served.model, kChat, body + "}").choice()["message"]["content"], "xyz");
  EXPECT_EQ(Ask(served.model, kChat, body + R"(, "chat_template_kwargs": {"letter": "x"}})").choice()["message"]["content"],
            "yz");
}

}  // namespace
}  // namespace tally
