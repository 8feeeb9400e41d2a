// SPDX-License-Identifier: Apache-2.0
// Answers as templates render them, parsed again. Harmony's are in harmony_render_test.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "engine/app/chat_templates.h"
#include "engine/chat/chat_format.h"
#include "engine/chat/template_source.h"
#include "engine/grammar/grammar.h"
#include "loaders/loaders.h"
#include "tests/support/temp_folder.h"

namespace tally {
namespace {

using Json = nlohmann::json;

enum class Thinks : uint8_t {
  kNot,        // the template renders no thinking of an answer
  kWithCalls,  // of an answer that has calls
  kAlways,
};

enum class Renders : uint8_t {
  kNoCalls,
  kCalls,         // but no content in an answer that has them
  kCallsContent,  // both
};

struct Family {
  std::string_view model, format;  // the template's file; whose calls
  std::string_view end;            // of an answer; empty: the template writes none
  Thinks thinks = Thinks::kNot;
  Renders renders = Renders::kCallsContent;
  std::string_view calls_end = {};  // of an answer with calls, where it is another
  std::string_view without = {};    // a statement of the template that no sandbox runs, jinja2's neither
};

constexpr std::string_view kQwenEnd = "<|im_end|>", kDeepSeekEnd = "<｜end▁of▁sentence｜>";
constexpr Family kFamilies[] = {
    {"Apertus-8B-Instruct", "Apertus", ""},
    {"ByteDance-Seed-OSS", "Seed-OSS", "<seed:eos>", Thinks::kAlways},
    {"EXAONE-4.0-32B", "Qwen/Hermes", "[|endofturn|]"},
    {"GLM-4.6", "GLM", "", Thinks::kAlways},
    {"GLM-4.7-Flash", "GLM", "", Thinks::kAlways},
    {"HuggingFaceTB-SmolLM3-3B", "none", kQwenEnd, Thinks::kNot, Renders::kNoCalls},
    {"Kimi-K2-Instruct",
     "Kimi K2",
     kQwenEnd,
     Thinks::kNot,
     Renders::kCallsContent,
     {},
     "{%- set _ = tool_response_queue.ids.append(formatted_id) -%}"},
    {"Kimi-K2-Thinking",
     "Kimi K2",
     kQwenEnd,
     Thinks::kWithCalls,
     Renders::kCallsContent,
     {},
     "{%- set _ = tool_response_queue.ids.append(formatted_id) -%}"},
    {"LFM2-8B-A1B", "LFM2", kQwenEnd, Thinks::kNot, Renders::kNoCalls},
    {"LFM2.5-8B-A1B", "LFM2", kQwenEnd, Thinks::kAlways},
    {"Ling-flash-2.0", "Qwen/Hermes", "<|role_end|>", Thinks::kAlways},
    {"MiniMax-M2", "MiniMax", "[e~[", Thinks::kAlways},
    {"Mistral-Small-3.2-24B-Instruct-2506", "Mistral", "</s>", Thinks::kNot, Renders::kCalls},
    {"NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "Qwen3-Coder", kQwenEnd, Thinks::kAlways},
    {"NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", "Qwen/Hermes", kQwenEnd, Thinks::kNot, Renders::kCalls},
    {"Olmo-3.1-32B-Instruct", "OLMo 3", "</s>"},
    {"Qwen-QwQ-32B", "Qwen/Hermes", kQwenEnd},
    {"Qwen-Qwen2.5-7B-Instruct", "Qwen/Hermes", kQwenEnd},
    {"Qwen-Qwen3-0.6B", "Qwen/Hermes", kQwenEnd, Thinks::kAlways},
    {"Qwen3-Coder", "Qwen3-Coder", kQwenEnd},
    {"Qwen3.5-4B", "Qwen3-Coder", kQwenEnd, Thinks::kAlways},
    {"deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", "DeepSeek", kDeepSeekEnd, Thinks::kNot, Renders::kCalls},
    {"deepseek-ai-DeepSeek-V3.1", "DeepSeek", kDeepSeekEnd},
    {"google-gemma-4-31B-it", "Gemma 4", "<turn|>", Thinks::kWithCalls, Renders::kCallsContent, "<|tool_response>"},
    {"ibm-granite-granite-3.3-2B-Instruct", "Granite", "<|end_of_text|>", Thinks::kNot, Renders::kNoCalls},
    {"ibm-granite-granite-4.0", "Qwen/Hermes", "<|end_of_text|>"},
    {"microsoft-Phi-3.5-mini-instruct", "none", "<|end|>", Thinks::kNot, Renders::kNoCalls},
    {"mistralai-Ministral-3-14B-Reasoning-2512", "Mistral", "</s>", Thinks::kAlways},
    {"mistralai-Mistral-Nemo-Instruct-2407", "Mistral", "</s>", Thinks::kNot, Renders::kCalls},
    {"stepfun-ai-Step-3.5-Flash", "Qwen3-Coder", kQwenEnd, Thinks::kAlways},
    {"unsloth-mistral-Devstral-Small-2507", "Mistral", "</s>"},
    {"upstage-Solar-Open-100B", "Solar Open", "", Thinks::kAlways, Renders::kCalls},
};

ChatRequest Asked() {
  ChatRequest request;
  request.messages = {{.role = "user", .content = "Is it warm there?"}};
  request.tools = {
      R"({"type": "function", "function": {"name": "get_weather", "description": "The weather.", "parameters": {"type": "object",
          "properties": {"place": {"type": "object", "description": "where"}, "zip": {"type": "string", "description": "code"},
                         "days": {"type": "integer", "description": "how many"}, "metric": {"type": "boolean", "description": "unit"},
                         "text": {"type": "string", "description": "free"}}, "required": ["place"]}}})",
      R"({"type": "function", "function": {"name": "now", "description": "The time.", "parameters": {"type": "object", "properties": {}}}})"};
  return request;
}

const std::string kContent = "Let me look: 1 < 2, [x].\n\n  - *São* Paulo";
const std::string kThinking = "Two calls.\n\n{\"a\": 1} is <b>JSON</b>.";

std::vector<ToolCall> Calls() {
  return {
      {"call00001", "get_weather",
       R"({"place": {"city": "São Paulo", "tags": ["it's", "\"<b>\"", []], "at": {"lat": -23.5, "near": null}}, "zip": "90210",)"
       R"( "days": 3, "metric": true, "note": null, "text": "two\nlines {"})"},
      {"call00002", "now", "{}"}};
}

std::string Render(const ChatFormat& format, const ChatRequest& request) {
  const auto segments = format.Render(request);
  EXPECT_TRUE(segments.ok()) << segments.status().message();
  return segments.ok() ? JoinSegments(*segments) : "";
}

// Renders a conversation that ends with `answer`, parses the answer, in pieces of `size` bytes, and expects what was rendered.
void ExpectRoundTrip(const ChatFormat& format, const ChatMessage& answer, std::string_view end, size_t size) {
  ChatRequest request = Asked();
  std::string prompt = Render(format, request);
  request.messages.push_back(answer);
  request.add_generation_prompt = false;
  std::string output = Render(format, request);
  // The history's beginning of an answer may be another than the prompt's, which is to make the model think, or not to.
  size_t begin = static_cast<size_t>(std::ranges::mismatch(prompt, output).in1 - prompt.begin());
  if (begin < prompt.size()) begin = prompt.substr(0, begin).find_last_of(">]\n") + 1;
  prompt.resize(begin);
  output.erase(0, begin);
  if (!end.empty()) {
    ASSERT_NE(output.find(end), output.npos) << output;
    output.resize(output.find(end));
  }
  SCOPED_TRACE(output);

  const auto parser = format.NewParser(prompt, request);
  std::vector<OutputPart> parts;
  for (size_t at = 0; at < output.size(); at += size) parser->Push({std::string_view(output).substr(at, size)}, &parts);
  parser->Finish(&parts);
  ChatAnswer read;
  read.Add(parts);
  EXPECT_EQ(read.content, answer.content);
  EXPECT_EQ(read.reasoning, answer.reasoning);
  ASSERT_EQ(read.calls.size(), answer.tool_calls.size());
  for (size_t i = 0; i < read.calls.size(); ++i) {
    const ToolCall& call = answer.tool_calls[i];
    EXPECT_EQ(read.calls[i].name, call.name);
    EXPECT_EQ(Json::parse(read.calls[i].arguments, nullptr, false), Json::parse(call.arguments)) << read.calls[i].arguments;
    if (output.find(call.id) != output.npos) {
      EXPECT_EQ(read.calls[i].id, call.id);
    }
  }
}

void ExpectRoundTrip(const ChatFormat& format, const ChatMessage& answer, std::string_view end) {
  for (const size_t size : {std::string::npos, size_t{1}}) ExpectRoundTrip(format, answer, end, size);
}

class PublishedTemplate : public testing::TestWithParam<Family> {};

// Null: the template is not here.
std::unique_ptr<ChatFormat> FormatOf(const Family& family) {
  const std::filesystem::path file =
      std::filesystem::path(TALLY_SOURCE_DIR) / "../shared/templates" / (std::string(family.model) + ".jinja");
  if (!std::filesystem::exists(file)) return nullptr;
  ChatTemplateSource source = {.text = ReadAll(file)};
  source.special_tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
  if (!family.without.empty()) source.text.erase(source.text.find(family.without), family.without.size());
  auto format = MakeChatFormat(source);
  EXPECT_TRUE(format.ok()) << format.status().message();
  return format.ok() ? std::move(*format) : nullptr;
}

TEST_P(PublishedTemplate, ComesBack) {
  const Family& family = GetParam();
  const std::unique_ptr<ChatFormat> format = FormatOf(family);
  if (format == nullptr) GTEST_SKIP() << "no chat template " << family.model;
  EXPECT_EQ(format->Description(), "Jinja, calls: " + std::string(family.format));
  const auto expect = [&](const std::string& content, const std::vector<ToolCall>& calls) {
    const bool thinks = family.thinks == Thinks::kAlways || (family.thinks == Thinks::kWithCalls && !calls.empty());
    ExpectRoundTrip(*format, {.role = "assistant", .content = content, .reasoning = thinks ? kThinking : "", .tool_calls = calls},
                    calls.empty() || family.calls_end.empty() ? family.end : family.calls_end);
  };
  expect(kContent, {});
  if (family.renders != Renders::kNoCalls) expect("", Calls());
  if (family.renders == Renders::kCallsContent) expect(kContent, Calls());
}

// A message that is continued ends the prompt, and what follows is content.
void ExpectContinues(const ChatFormat& format) {
  constexpr std::string_view kBegun = "The weather is\nfine, and ", kRest = "warm.";
  ChatRequest request = Asked();
  if (ChatRequest bare = request; bare.tools.clear(), format.Render(bare).ok()) request = std::move(bare);
  request.messages.push_back({.role = "assistant", .content = std::string(kBegun)});
  request.continue_last = true;
  const Result<std::vector<PromptSegment>> segments = format.Render(request);
  ASSERT_TRUE(segments.ok()) << segments.status().message();
  const std::string prompt = JoinSegments(*segments);
  EXPECT_TRUE(prompt.ends_with(kBegun)) << prompt;
  EXPECT_FALSE(segments->back().control);
  const std::unique_ptr<OutputParser> parser = format.NewParser(prompt, request);
  std::vector<OutputPart> parts;
  parser->Push({kRest, false}, &parts);
  parser->Finish(&parts);
  ChatAnswer answer;
  answer.Add(parts);
  EXPECT_EQ(answer.content, kRest);
  EXPECT_EQ(answer.reasoning, "");
}

TEST_P(PublishedTemplate, Continues) {
  const std::unique_ptr<ChatFormat> format = FormatOf(GetParam());
  if (format == nullptr) GTEST_SKIP() << "no chat template " << GetParam().model;
  ExpectContinues(*format);
}

// A thought that a client has begun goes on, and ends where its mark comes.
TEST(TaggedFormat, ContinuesAThought) {
  const Result<std::unique_ptr<ChatFormat>> format =
      MakeChatFormat({.text = "{% for m in messages %}{{ m.content }}{% endfor %}{# <think> </think> #}"});
  ASSERT_TRUE(format.ok()) << format.status().message();
  const auto parsed = [&](const std::string& begun, std::string_view rest) {
    ChatRequest request;
    request.messages = {{.role = "user", .content = "u"}, {.role = "assistant", .content = begun}};
    request.continue_last = true;
    const std::string prompt = JoinSegments(*(*format)->Render(request));
    EXPECT_EQ((*format)->StartOf(prompt, request).in_thinking, begun.find("</think>") == begun.npos);
    const std::unique_ptr<OutputParser> parser = (*format)->NewParser(prompt, request);
    std::vector<OutputPart> parts;
    parser->Push({rest, false}, &parts);
    parser->Finish(&parts);
    ChatAnswer answer;
    answer.Add(parts);
    return answer.reasoning + "|" + answer.content;
  };
  EXPECT_EQ(parsed("<think>\nOkay,", "so.</think>Yes"), "so.|Yes");
  EXPECT_EQ(parsed("<think>\nOkay.</think>", "Yes"), "|Yes");
}

TEST(Harmony, Continues) {
  const Result<std::unique_ptr<ChatFormat>> format = MakeChatFormat({.text = "<|start|><|channel|><|message|>"});
  ASSERT_TRUE(format.ok()) << format.status().message();
  ExpectContinues(**format);
}

// Calls that a template writes are those that a model is held to: the grammar has them, but for white space around them.
TEST_P(PublishedTemplate, WritesWhatCallsAreHeldTo) {
  const Family& family = GetParam();
  if (family.renders == Renders::kNoCalls) GTEST_SKIP() << "the template writes no calls";
  if (family.model.starts_with("mistralai-Mistral-Nemo")) GTEST_SKIP() << "its ids, behind the arguments, are left out";
  const std::unique_ptr<ChatFormat> format = FormatOf(family);
  if (format == nullptr) GTEST_SKIP() << "no chat template " << family.model;
  ChatRequest request = Asked();
  request.messages.push_back({.role = "assistant",
                              .tool_calls = {{"call00001", "get_weather", R"({"zip": "90210", "days": 3, "text": "two\nlines"})"},
                                             {"call00002", "now", "{}"}}});
  request.add_generation_prompt = false;
  const std::string text = Render(*format, request);
  const std::vector<CallNotation> notations = format->CallNotations(/*json=*/false);
  ASSERT_FALSE(notations.empty());
  const Result<std::shared_ptr<Grammar>> grammar =
      Grammar::FromCalls(notations, std::vector<CallTool>{{.name = "get_weather"}, {.name = "now"}});
  ASSERT_TRUE(grammar.ok()) << grammar.status().message();
  const size_t begin = text.rfind(notations.front().sign.text, text.rfind("get_weather"));
  ASSERT_NE(begin, text.npos) << text;
  std::string calls = text.substr(begin);
  while (!calls.empty() && !(*grammar)->Accepts(calls)) calls.pop_back();
  EXPECT_NE(calls.find("get_weather"), calls.npos) << text.substr(begin);
  if (family.model.starts_with("stepfun")) return;  // no line feed between calls
  EXPECT_NE(calls.rfind("now"), calls.npos) << text.substr(begin);
}

INSTANTIATE_TEST_SUITE_P(RoundTrip, PublishedTemplate, testing::ValuesIn(kFamilies), [](const auto& tested) {
  std::string name(tested.param.model);
  std::ranges::replace_if(
      name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
});

// Special tokens that a text spells, by the forms that published ones have.
const std::regex kSpecialToken(
    R"(<\|[^<>|\s]+\|>|<｜[^<>\s]+?｜>|\[/?[A-Z_]{3,}\]|<(start|end)_of_\w+>|</?s>|<\w+:\w+>|<\|\w+>|<\w+\|>|)"
    R"(\[\|\w+\|\]|\]~!?b[\[\]]|\[e~\[)");

// A conversation whose texts spell none: all of them are the template's, and each must become a token. Of what a template refuses
// (results, a system prompt) the rest is tried.
void ExpectTokensOfItsOwn(const ChatTemplateSource& source, size_t at_least) {
  SCOPED_TRACE(source.origin);
  const auto format = MakeChatFormat(source, /*native=*/false);
  ASSERT_TRUE(format.ok()) << format.status().message();
  ChatRequest request = Asked();
  request.messages = {{.role = "system", .content = "Be kind."},
                      {.role = "user", .content = "Is it warm?"},
                      {.role = "assistant", .content = "I think so.", .reasoning = "Hm."},
                      {.role = "user", .content = "And there?"},
                      {.role = "assistant", .tool_calls = {{"call00001", "now", "{}"}}},
                      {.role = "tool", .content = "12", .tool_call_id = "call00001", .name = "now"}};
  auto segments = (*format)->Render(request);
  if (!segments.ok()) {
    request.messages.resize(4);
    segments = (*format)->Render(request);
  }
  if (!segments.ok()) {
    request.messages.erase(request.messages.begin());
    segments = (*format)->Render(request);
  }
  ASSERT_TRUE(segments.ok()) << segments.status().message();
  const std::string text = JoinSegments(*segments);
  const auto count = [](const std::string& in) {
    return std::distance(std::sregex_iterator(in.begin(), in.end(), kSpecialToken), {});
  };
  std::ptrdiff_t in_control = 0;
  for (const PromptSegment& segment : *segments) in_control += segment.control ? count(segment.text) : 0;
  EXPECT_EQ(in_control, count(text)) << text;
  EXPECT_GE(static_cast<size_t>(in_control), at_least) << text;
}

TEST(SpecialTokens, LieWithinOneControlStretch) {
  for (const app::NamedTemplate& named : app::ChatTemplates()) {
    if (named.name == "harmony") continue;  // no Jinja
    ExpectTokensOfItsOwn(
        {.text = std::string(named.text), .origin = std::string(named.name), .special_tokens = {{"eos_token", "</s>"}}}, 3);
  }
  // Ways to make a token of a role. Of the first kind are Phi-4-mini, GLM-4, ChatGLM3 and Jamba.
  for (const char* token :
       {"<|{{ m.role }}|>", "{{ '<|' + m['role'] + '|>' }}", "{{ '<|' ~ m.role ~ '|>' }}", "{{ '<|%s|>' % m.role }}",
        "{{ '<|{}|>'.format(m.role) }}", "{{ '<|' + m.role|upper + '|>' }}", "{{ '<|' + m.role.title() + '|>' }}",
        "{{ ['<', m.role, '>']|join('|') }}", "{{ '<|role|>'|replace('role', m.role) }}",
        "{{ '<|role|>'.replace('role', m.role) }}", "{% set r = 'model' if m.role == 'assistant' else m.role %}<|{{ r }}|>",
        "{% set t %}<|{{ m.role }}|>{% endset %}{{ t }}", "{{ {'tool': '<|observation|>'}.get(m.role, '<|' ~ m.role ~ '|>') }}",
        "<|{{ m.role[0]|upper }}{{ m.role[1:] }}|>", "{% macro t(r) %}<|{{ r|trim }}|>{% endmacro %}{{ t(m.role) }}",
        "<|{{ (m.role + ':x').split(':')[0] }}|>", "{{ '<|' + (m|attr('role') or m.get('role', ''))|string + '|>' }}",
        "{{ '<|' + (m.items()|list)[0][1] + '|>' }}",
        "{% for c in m.role %}{{ ('<|' if loop.first else '') + c + ('|>' if loop.last else '') }}{% endfor %}"}) {
    ExpectTokensOfItsOwn(
        {.text = "{% for m in messages %}" + std::string(token) + "{{ m.content }}{% endfor %}", .origin = token}, 6);
  }
  const std::filesystem::path folder = std::filesystem::path(TALLY_SOURCE_DIR) / "../shared/templates";
  if (!std::filesystem::is_directory(folder)) GTEST_SKIP() << "no chat templates in " << folder;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".jinja") continue;
    ExpectTokensOfItsOwn(
        {.text = ReadAll(entry.path()), .origin = entry.path(), .special_tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}}},
        3);
  }
}

TEST(RoundTrip, Demo) {
  const auto inventory = ReadGguf(std::string(TALLY_SOURCE_DIR) + "/models/demo/demo.gguf");
  ASSERT_TRUE(inventory.ok()) << inventory.status().message();
  const auto sources = ReadChatTemplates(*inventory, nullptr);
  ASSERT_TRUE(sources.ok()) << sources.status().message();
  ASSERT_EQ(sources->size(), 1u);
  ASSERT_EQ(sources->front().stop.size(), 1u);
  const auto format = MakeChatFormat(sources->front());
  ASSERT_TRUE(format.ok()) << format.status().message();
  ExpectRoundTrip(**format, {.role = "assistant", .content = "Ay, sad; [I would]\nI did < thee."}, sources->front().stop[0]);
}

}  // namespace
}  // namespace tally
