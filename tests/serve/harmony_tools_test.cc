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

#include "engine/chat/harmony.h"
#include "tests/serve/served_api.h"
#include "tests/session/fake_engine.h"
#include "tests/text/text_test_util.h"

namespace tally {
namespace {

const std::vector<std::string> kControl = {"<|start|>", "<|message|>", "<|channel|>", "<|constrain|>",
                                           "<|end|>",   "<|call|>",    "<|return|>",  "<|endoftext|>"};
constexpr int32_t kBytes = 256, kCall = kBytes + 5, kReturn = kBytes + 6;

// Bytes, and harmony's control tokens.
class HarmonyTokenizer final : public Tokenizer {
 public:
  Result<std::vector<int32_t>> Encode(std::string_view text, EncodeOptions options) const override {
    return EncodeSegments(std::vector<TextSegment>{{text, options.parse_special}});
  }
  Result<std::vector<int32_t>> EncodeSegments(std::span<const TextSegment> segments) const override {
    std::vector<int32_t> ids;
    for (const auto& [text, parse_special] : segments) {
      for (size_t at = 0; at < text.size();) {
        size_t c = kControl.size();
        for (size_t i = 0; parse_special && i < kControl.size(); ++i) c = text.substr(at).starts_with(kControl[i]) ? i : c;
        ids.push_back(c < kControl.size() ? kBytes + static_cast<int32_t>(c) : static_cast<uint8_t>(text[at]));
        at += c < kControl.size() ? kControl[c].size() : 1;
      }
    }
    return ids;
  }
  std::string ControlText(int32_t id) const override { return IsControl(id) ? TokenBytes(id) : ""; }
  std::string TokenBytes(int32_t id) const override {
    return IsControl(id) ? kControl[static_cast<size_t>(id - kBytes)] : std::string(1, static_cast<char>(id));
  }
  std::string Decode(std::span<const int32_t> ids) const override {
    std::string text;
    for (const int32_t id : ids) text += TokenBytes(id);
    return text;
  }
  bool DropsLeadingSpace() const override { return false; }
  bool IsControl(int32_t id) const override { return id >= kBytes; }
  int32_t vocab_size() const override { return kBytes + static_cast<int32_t>(kControl.size()); }
  int32_t bos() const override { return -1; }
  std::vector<int32_t> eos() const override { return {kCall, kReturn, kReturn + 1}; }
  std::string Description() const override { return "harmony"; }
};

struct Case {
  std::string tool, input, arguments;
};

class HarmonyTools : public testing::Test {
 protected:
  HarmonyTools() : engine_(std::make_unique<FakeEngine>(HarmonyTokenizer().vocab_size(), /*context=*/1 << 16)) {
    auto tokenizer = std::make_unique<HarmonyTokenizer>();
    tokenizer_ = tokenizer.get();
    FakeModel& model = engine_->fake_model();
    model.tokenizer_ = std::move(tokenizer);
    model.recipe_.eos_tokens = tokenizer_->eos();
    engine_->batch = 4096;
    engine_->room = 1 << 20;
    engine_->next = [this](int32_t, int64_t) { return script_[at_++ % script_.size()]; };
    served_.engine = engine_.get();
    served_.name = "gpt-oss";
    served_.sampling.temperature = 0;
    served_.chat = served_.tool_chat = ChatSide{MakeHarmonyFormat(), {}};
    api_ = std::make_unique<ServedApi>(served_);
  }

  // What the model says next; no request runs.
  void Say(std::string_view text) {
    script_ = *tokenizer_->EncodeSegments(std::vector<TextSegment>{{text, true}});
    at_ = 0;
  }
  void SayCall(const Case& c) {
    Say("<|channel|>analysis<|message|>A tool will tell.<|end|><|start|>assistant<|channel|>commentary to=functions." + c.tool +
        " <|constrain|>json<|message|>" + c.arguments + "<|call|>");
  }
  void SayDone() {
    Say("<|channel|>analysis<|message|>Good.<|end|><|start|>assistant<|channel|>final<|message|>It is done.<|return|>");
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

  void Try(const Case& c) {
    SCOPED_TRACE(c.tool + ": " + c.input);
    for (const bool stream : {false, true}) {
      TryChat(c, stream);
      TryResponses(c, stream);
    }
  }

  std::unique_ptr<FakeEngine> engine_;
  const HarmonyTokenizer* tokenizer_ = nullptr;
  std::vector<int32_t> script_;
  size_t at_ = 0;
  ServedModel served_;
  std::unique_ptr<ServedApi> api_;
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
