// SPDX-License-Identifier: Apache-2.0
// Statuses and shapes over the endpoints that llama.cpp's server has too: what its tests check there
// (https://github.com/ggml-org/llama.cpp/tree/master/tools/server/tests/unit) is checked here of ours.
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/serve/served_api.h"
#include "tests/serve/text_served.h"

namespace tally {
namespace {

constexpr const char* kChat = "/v1/chat/completions";
constexpr const char* kText = "/v1/completions";

// `more` beside a message or a prompt, whose answers are "xyz" and "uvwxyz".
OrderedJson Body(const std::string& path, const std::string& more) {
  OrderedJson body =
      OrderedJson::parse(path == kText ? R"({"prompt": "t"})" : R"({"messages": [{"role": "user", "content": "Hi"}]})");
  body.update(OrderedJson::parse("{" + more + "}"));
  return body;
}

class Shapes : public testing::Test {
 protected:
  const TextServed text_;
  const ServedApi api_{text_.model};
};

TEST_F(Shapes, Statuses) {
  const struct {
    const char* path;
    const char* more;
    int status;
    std::map<std::string, OrderedJson> values;  // by JSON pointer
  } cases[] = {
      // Whatever name a client knows, the model is the one that is served.
      {kChat,
       R"("model": "gpt-3.5-turbo")",
       200,
       {{"/model", "text"}, {"/object", "chat.completion"}, {"/choices/0/message/role", "assistant"}}},
      {kText,
       R"("model": "davinci-002")",
       200,
       {{"/model", "text"}, {"/choices/0/text", "uvwxyz"}, {"/choices/0/finish_reason", "stop"}}},
      {kChat,
       R"("messages": [{"role": "user", "content": [{"type": "text", "text": "What"}, {"type": "text", "text": "is"}]}])",
       200,
       {{"/usage/prompt_tokens", 8}}},
      {kText,
       R"("max_tokens": 4)",
       200,
       {{"/choices/0/finish_reason", "length"}, {"/usage/completion_tokens", 4}, {"/usage/total_tokens", 6}}},
      {kText,
       R"("max_tokens": 1000, "ignore_eos": true)",
       200,
       {{"/choices/0/finish_reason", "length"}, {"/usage/completion_tokens", 127}}},
      {kText, R"("prompt": [116])", 200, {{"/choices/0/text", "uvwxyz"}, {"/usage/prompt_tokens", 1}}},
      {kText, R"("prompt": [[116], [119]])", 200, {{"/choices/0/text", "uvwxyz"}, {"/choices/1/text", "xyz"}}},
      {kText,
       R"("prompt": ["t", [119]])",
       200,
       {{"/choices/0/text", "uvwxyz"}, {"/choices/1/text", "xyz"}, {"/choices/1/index", 1}}},
      {kText, R"("prompt": [116, {}])", 400, {{"/error/param", "prompt"}}},
      {kText, R"("prompt": [])", 400, {{"/error/param", "prompt"}}},
      {kText, R"("prompt": null)", 400, {{"/error/param", "prompt"}, {"/error/code", "missing_required_parameter"}}},
      {kText,
       R"("n": 2, "max_tokens": 2)",
       200,
       {{"/choices/1/text", "uv"}, {"/usage/prompt_tokens", 2}, {"/usage/completion_tokens", 4}}},
      {kText, R"("stop": ["w"])", 200, {{"/choices/0/text", "uv"}, {"/choices/0/finish_reason", "stop"}}},
      {kText, R"("stop": [])", 200, {{"/choices/0/text", "uvwxyz"}}},
      {kText,
       R"("logprobs": 2, "max_tokens": 1)",
       200,
       {{"/choices/0/logprobs/tokens/0", "u"}, {"/choices/0/logprobs/text_offset/0", 0}}},
      {kText, R"("grammar": "root ::= \"abc\"")", 200, {{"/choices/0/text", "abc"}, {"/choices/0/finish_reason", "stop"}}},
      {kText, R"("grammar": "root = 1")", 400, {{"/error/param", "grammar"}}},
      {kChat, R"("json_schema": {"const": "42"})", 200, {{"/choices/0/message/content", "\"42\""}}},
      {kChat, R"("response_format": {"type": "sound"})", 400, {{"/error/param", "response_format.type"}}},
      {kChat, R"("response_format": {"type": "json_object", "schema": 123})", 400, {{"/error/param", "response_format.schema"}}},
      {kChat, R"("response_format": {"type": "text"})", 200, {{"/choices/0/message/content", "xyz"}}},
      {kChat, R"("messages": null)", 400, {{"/error/param", "messages"}}},
      {kChat, R"("messages": "string")", 400, {{"/error/param", "messages"}}},
      {kChat, R"("messages": [123])", 400, {{"/error/param", "messages[0]"}}},
      {kChat, R"("messages": [{}])", 400, {{"/error/param", "messages[0].role"}}},
      {kChat, R"("messages": [{"role": 123}])", 400, {{"/error/param", "messages[0].role"}}},
      {kChat, R"("messages": [{"role": "system", "content": "test"}, {}])", 400, {{"/error/param", "messages[1].role"}}},
      // No file of the server's is read, nor anything fetched.
      {kChat,
       R"("messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}]}])",
       400,
       {{"/error/param", "messages[0].content[0].type"}}},
      // What llama.cpp's and vLLM's own tests send, and their clients.
      {kText, R"("prompt": [257, "t"])", 200, {{"/choices/0/text", "uvwxyz"}, {"/usage/prompt_tokens", 2}}},
      {kText, R"("n_probs": 10, "max_tokens": 1)", 200, {{"/choices/0/logprobs/tokens/0", "u"}}},
      {kText, R"("logprobs": 0, "max_tokens": 1)", 200, {{"/choices/0/logprobs/top_logprobs/0/u", 0}}},
      {kText, R"("logit_bias": [["A", 100]], "n_predict": 2)", 200, {{"/choices/0/text", "AA"}}},
      {kText, R"("use_beam_search": true)", 400, {{"/error/param", "use_beam_search"}}},
      {kText, R"("skip_special_tokens": false)", 400, {{"/error/param", "skip_special_tokens"}}},
      {kText, R"("truncate_prompt_tokens": 1)", 400, {{"/error/param", "truncate_prompt_tokens"}}},
      {kText, R"("logits_processors": ["a"])", 400, {{"/error/param", "logits_processors"}}},
      {kText,
       R"("priority": 1, "request_id": "a", "cache_salt": "b", "kv_transfer_params": {}, "timings_per_token": true)",
       200,
       {}},
      {kText, R"("stream_options": {"include_usage": null})", 400, {{"/error/param", "stream_options"}}},
      {kText, R"("stream": false, "stream_options": {"include_usage": true})", 400, {{"/error/param", "stream_options"}}},
      {kChat, R"("logit_bias": {"t": 1})", 400, {{"/error/param", "logit_bias"}}},
      {kChat,
       R"("return_progress": true, "add_generation_prompt": false, "continue_final_message": false, "documents": null)",
       200,
       {}},
      {kChat, R"("chat_template": null, "mm_processor_kwargs": null, "guided_json": null, "structured_outputs": null)", 200, {}},
      {kChat,
       R"("include_reasoning": true, "verbosity": "low", "prompt_cache_retention": "24h", "top_a": 0, "moderation": null)",
       200,
       {}},
      {kChat, R"("reasoning_effort": "none")", 200, {}},
      {kChat, R"("reasoning_effort": "minimal")", 200, {}},
      {kChat, R"("reasoning_effort": "xhigh")", 200, {}},
      {kChat, R"("tool_choice": "auto")", 200, {}},
      {kChat, R"("response_format": {"type": "json_object"})", 200, {}},
      {kChat, R"("messages": [{"role": "pirate", "content": "Ay"}])", 400, {{"/error/param", "messages[0].role"}}},
      {kChat,
       R"("messages": [{"role": "user", "content": "a"}, {"role": "assistant"}])",
       400,
       {{"/error/param", "messages[1].content"}}},
      {kChat, R"("messages": [{"role": "user", "content": [{"type": "text", "text": "a", "more": 1}]}])", 200, {}},
      {"/apply-template", R"("tools": [])", 200, {{"/prompt", "Hi<|turn|>"}, {"/prompt_tokens", 3}}},
      {"/apply-template", R"("tools": null)", 200, {{"/prompt", "Hi<|turn|>"}}},
      {"/chat/completions", "", 200, {{"/choices/0/message/content", "xyz"}}},
      {"/slots", "", 405, {{"/error/code", "method_not_allowed"}}},
      {"/v1/embeddings", "", 404, {{"/error/message", "'/v1/embeddings': this server has no embeddings"}}},
      {"/v1/audio/speech", "", 404, {{"/error/message", "'/v1/audio/speech': this server has no audio"}}},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(std::string(c.path) + " " + c.more);
    const OrderedJson answer = api_.Ask(c.path, Body(c.path, c.more));
    EXPECT_EQ(answer.at("status"), c.status) << answer;
    EXPECT_EQ(answer.contains("error"), c.status != 200);
    for (const auto& [pointer, value] : c.values) {
      const OrderedJson::json_pointer at(pointer);
      ASSERT_TRUE(answer.contains(at)) << pointer << answer;
      EXPECT_EQ(answer.at(at), value) << pointer;
    }
  }
}

// What cannot be answered is refused with its status before a stream begins.
TEST_F(Shapes, RefusedStreams) {
  for (const char* path : {kChat, kText, "/v1/responses", "/v1/messages"}) {
    OrderedJson body = Body(path, R"("stream": true, "max_tokens": 5)");
    const std::string longer(1000, 'a');
    if (std::string(path) == "/v1/responses") {
      body = {{"input", longer}, {"stream", true}};
    } else if (path == kText) {
      body["prompt"] = longer;
    } else {
      body["messages"][0]["content"] = longer;
    }
    HttpReply reply = Post(api_.port, path, body.dump());
    EXPECT_EQ(reply.status, 400) << path;
    EXPECT_EQ(reply.headers["content-type"], "application/json");
    EXPECT_NE(reply.body.find("tokens, and the context room for 128"), std::string::npos) << reply.body;
  }
}

TEST_F(Shapes, ChunksOfAChat) {
  const std::vector<OrderedJson> chunks =
      api_.Stream(kChat, Body(kChat, R"("stream_options": {"include_usage": true}, "logprobs": true, "top_logprobs": 3)"));
  ASSERT_GT(chunks.size(), 3u);
  std::string content, tokens;
  for (size_t i = 0; i + 1 < chunks.size(); ++i) {
    const OrderedJson &choice = chunks[i].at("choices").at(0), &delta = choice.at("delta");
    EXPECT_EQ(chunks[i].at("id"), chunks[0].at("id"));
    EXPECT_EQ(chunks[i].at("model"), "text");
    EXPECT_TRUE(chunks[i].at("usage").is_null());
    EXPECT_EQ(delta.contains("role"), i == 0);
    const bool last = i + 2 == chunks.size();
    EXPECT_EQ(choice.at("finish_reason"), last ? OrderedJson("stop") : OrderedJson());
    EXPECT_EQ(delta.contains("content"), !last);
    content += delta.value("content", "");
    if (!choice.at("logprobs").is_object()) continue;
    for (const OrderedJson& token : choice.at("logprobs").at("content")) {
      tokens += token.at("token");
      EXPECT_LE(token.at("logprob"), 0);
      EXPECT_EQ(token.at("top_logprobs").size(), 3u);
      EXPECT_EQ(token.at("bytes").size(), token.at("token").get<std::string>().size());
    }
  }
  EXPECT_EQ(content, "xyz");
  EXPECT_EQ(tokens, content);
  EXPECT_TRUE(chunks.back().at("choices").empty());
  EXPECT_EQ(chunks.back().at("usage").at("completion_tokens"), 3);
}

// No piece of a stop string is sent, however it falls into tokens.
TEST_F(Shapes, StopStringsInStreams) {
  for (const auto& [stop, expected] : {std::pair("wx", "uv"), {"wxq", "uvwxyz"}, {"uvwxyz", ""}, {"z", "uvwxy"}}) {
    std::string said;
    std::vector<OrderedJson> chunks = api_.Stream(kText, Body(kText, R"("stop": ")" + std::string(stop) + "\""));
    for (const OrderedJson& chunk : chunks) said += chunk.at("choices").at(0).at("text");
    EXPECT_EQ(said, expected) << stop;
    EXPECT_EQ(chunks.back().at("choices").at(0).at("finish_reason"), "stop");
  }
}

TEST_F(Shapes, TokensAndTexts) {
  for (const char* content : {"", "What is ab?", " \n\t ", "\xe5\xaa\xbd \xf0\x9f\xa4\x97 caf\xc3\xa9", "<|turn|> ab"}) {
    const OrderedJson tokens = api_.Ask("/tokenize", {{"content", content}, {"parse_special", false}})["tokens"];
    EXPECT_EQ(api_.Ask("/detokenize", {{"tokens", tokens}})["content"], content);
    // A piece is text, or bytes where it is no whole character.
    std::string pieces;
    const OrderedJson named =
        api_.Ask("/tokenize", {{"content", content}, {"parse_special", false}, {"with_pieces", true}}).at("tokens");
    for (const OrderedJson& token : named) {
      const OrderedJson& piece = token.at("piece");
      EXPECT_FALSE(piece.empty());
      if (piece.is_string()) {
        pieces += piece;
      } else {
        for (const OrderedJson& byte : piece) pieces += static_cast<char>(byte.get<int>());
      }
    }
    EXPECT_EQ(pieces, content);
  }
  EXPECT_EQ(api_.Ask("/tokenize", {{"content", "a"}, {"add_special", true}})["tokens"][0], TextModel::kBegin);
}

// A seed says what comes, alone or with others; another seed says something else.
TEST_F(Shapes, Seeds) {
  const auto said = [&](int seed) {
    return api_.Ask(kText,
                    Body(kText, R"("temperature": 60, "max_tokens": 20, "seed": )" + std::to_string(seed)))["choices"][0]["text"];
  };
  for (int seed = 0; seed < 3; ++seed) {
    EXPECT_EQ(said(seed), said(seed));
    EXPECT_NE(said(seed), said(seed + 1));
  }
}

// What is to be read of the server itself: no text of a client's is among it.
TEST_F(Shapes, WhatTheServerSaysOfItself) {
  const auto get = [&](const std::string& path) { return OrderedJson::parse(Get(api_.port, path).body); };
  EXPECT_EQ(get("/models"), get("/v1/models"));
  EXPECT_EQ(get("/models/text").at("status").at("value"), "loaded");
  EXPECT_TRUE(get("/version").at("version").is_string());
  const OrderedJson props = get("/props");
  EXPECT_EQ(props.at("default_generation_settings").at("n_ctx"), 128);
  EXPECT_EQ(props.at("default_generation_settings").at("params").at("temperature"), 0);
  EXPECT_EQ(props.at("total_slots"), 4);
  EXPECT_EQ(props.at("model_path"), "text");
  EXPECT_NE(props.at("chat_template").get<std::string>().find("<|turn|>"), std::string::npos);
  EXPECT_EQ(Get(api_.port, "/slots?fail_on_no_slot=1").status, 200);
  std::atomic<bool> asks = true;
  std::thread asking([&] {
    while (asks) api_.Ask(kText, {{"prompt", "t"}, {"max_tokens", 100}, {"ignore_eos", true}});
  });
  OrderedJson slot;
  EXPECT_TRUE(Becomes([&] {
    slot = get("/slots").at(0);
    return slot.at("is_processing") == true && slot.at("next_token").at("n_decoded") > 0;
  }));
  EXPECT_TRUE(Becomes([&] { return get("/load").at("server_load") == 1; }));
  asks = false;
  asking.join();
  EXPECT_EQ(slot.at("n_prompt_tokens"), 2);
  EXPECT_LE(slot.at("next_token").at("n_decoded"), 100);
  EXPECT_FALSE(slot.contains("prompt"));
  EXPECT_EQ(get("/slots").size(), 4u);
}

// What cannot be JSON is refused before its body comes; what clients send without being told is taken.
TEST_F(Shapes, ContentTypes) {
  const std::string body = Body(kChat, R"("max_tokens": 1)").dump();
  for (const auto& [type, status] : {std::pair("application/json; charset=utf-8", 200),
                                     {"application/vnd.api+json", 200},
                                     {"application/x-www-form-urlencoded", 200},
                                     {"text/plain;charset=UTF-8", 200},
                                     {"multipart/form-data; boundary=x", 415},
                                     {"application/octet-stream", 415},
                                     {"text/html", 415}}) {
    EXPECT_EQ(Post(api_.port, kChat, body, "Content-Type: " + std::string(type) + "\r\n").status, status) << type;
  }
}

}  // namespace
}  // namespace tally
