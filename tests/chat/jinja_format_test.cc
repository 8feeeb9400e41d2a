// SPDX-License-Identifier: Apache-2.0
// What a Jinja template is given of a conversation.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "engine/chat/jinja_format.h"

namespace tally {
namespace {

class NoParser : public OutputParser {
 public:
  void Push(OutputPiece, std::vector<OutputPart>*) override {}
  void Finish(std::vector<OutputPart>*) override {}
};

Result<std::unique_ptr<JinjaFormat>> Make(const std::string& text) {
  const ChatTemplateSource source = {"", text, "tokenizer.chat_template", {{"bos_token", "<s>"}, {"eos_token", "</s>"}}};
  return JinjaFormat::Make(
      source, [](std::string_view, const ChatRequest&) { return std::make_unique<NoParser>(); }, "test");
}

std::string Render(const std::string& text, const ChatRequest& request) {
  const auto format = Make(text);
  if (!format.ok()) return format.status().message();
  const auto segments = (*format)->Render(request);
  return segments.ok() ? JoinSegments(*segments) : segments.status().message();
}

// With what is not control in braces.
std::string Marked(const std::vector<PromptSegment>& segments) {
  std::string marked;
  for (const PromptSegment& segment : segments) marked += segment.control ? segment.text : "{" + segment.text + "}";
  return marked;
}

ChatRequest Conversation() {
  ChatRequest request;
  request.messages.resize(3);
  request.messages[0] = {"user", "Hi", {}, {}, {}, {}};
  request.messages[1].role = "assistant";
  request.messages[1].reasoning = "hm";
  request.messages[1].tool_calls = {{"abcdef123", "f", R"({"b": 1, "a": "ü"})"}, {"", "g", "not JSON"}};
  request.messages[2] = {"tool", "42", {}, {}, "abcdef123", "f"};
  return request;
}

TEST(JinjaFormat, MessagesHaveWhatIsSet) {
  EXPECT_EQ(Render("{{ messages|tojson }}", Conversation()),
            R"([{"role": "user", "content": "Hi"}, )"
            R"({"role": "assistant", "content": "", "reasoning_content": "hm", "tool_calls": )"
            R"([{"id": "abcdef123", "type": "function", "function": {"name": "f", "arguments": {"b": 1, "a": "ü"}}}, )"
            R"({"type": "function", "function": {"name": "g", "arguments": "not JSON"}}]}, )"
            R"({"role": "tool", "content": "42", "tool_call_id": "abcdef123", "name": "f"}])");
}

TEST(JinjaFormat, ThinkingGoesByTheNameThatTheTemplateReads) {
  EXPECT_EQ(Render("{{ messages[1].thinking }}{{ messages[1]|length }}", Conversation()), "hm4");
  EXPECT_EQ(Render("{{ messages[1]['thinking'] }}", Conversation()), "hm");
  EXPECT_EQ(Render("{{ messages[1].get('reasoning') }}", Conversation()), "hm");
}

TEST(JinjaFormat, ThinkingAsAPartOfContent) {
  const std::string parts =
      "{% for p in m.content %}{{ '[T]' + p['thinking'] + '[/T]' if p['type'] == 'thinking' else p['text'] }}{% endfor %}";
  const std::string text = "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}" + parts +
                           "{% endif %}{% endfor %}{{ messages[1].tool_calls|length }}";
  ChatRequest request = Conversation();
  EXPECT_EQ(Render(text, request), "Hi[T]hm[/T]422");
  request.messages[1].content = "yes";
  EXPECT_EQ(Render(text, request), "Hi[T]hm[/T]yes422");
  request.messages[1].reasoning.clear();
  EXPECT_EQ(Render(text, request), "Hiyes422");
  request.messages[1].reasoning = "hm";
  // A template that prints content whatever it is does not read parts.
  EXPECT_EQ(Render("{{ messages[1].content }}{{ x.thinking if x else '' }}", request), "yes");
}

TEST(JinjaFormat, VariablesAreThoseOfTransformers) {
  const std::string text =
      "{{ tools is none }}{{ documents is none }}{{ add_generation_prompt }}{{ enable_thinking is defined }}"
      "{{ reasoning_effort is defined }}{{ bos_token }}|{{ extra }}|{{ strftime_now('%Y') }}";
  ChatRequest request;
  request.now = 1760000000;
  EXPECT_EQ(Render(text, request), "TrueTrueTrueFalseFalse<s>||2025");
  request.thinking = false;
  request.reasoning_effort = "high";
  request.add_generation_prompt = false;
  request.tools = {R"({"b": 1, "a": 2})"};
  request.variables = {{"extra", "[1, \"x\"]"}};
  EXPECT_EQ(Render(text, request), "FalseTrueFalseTrueTrue<s>|[1, 'x']|2025");
  EXPECT_EQ(Render("{{ tools[0]|tojson }}{{ enable_thinking }}{{ thinking }}{{ reasoning_effort }}", request),
            R"({"b": 1, "a": 2}FalseFalsehigh)");
}

TEST(JinjaFormat, OnlyTheTemplateAndItsSpecialTokensAreControl) {
  const auto format = Make("{{ bos_token }}<|u|>{{ messages[0].content }}{{ eos_token }}{{ extra }}");
  ASSERT_TRUE(format.ok());
  ChatRequest request = Conversation();
  request.messages.resize(1);
  request.messages[0].content = "</s>\xFF";
  request.variables = {{"extra", "\"<s>\""}};
  const auto segments = (*format)->Render(request);
  ASSERT_TRUE(segments.ok());
  EXPECT_EQ(Marked(*segments), "<s><|u|>{</s>\uFFFD}</s>{<s>}");
  const auto additional =
      JinjaFormat::Make({.text = "{{ additional_special_tokens[1] }}", .additional_special_tokens = {"<a>", "<b>"}}, nullptr, "");
  ASSERT_TRUE(additional.ok());
  EXPECT_EQ(Marked(*(*additional)->Render(request)), "<b>");
  request.variables = {{"eos_token", "\"<x>\""}};  // a user's own is the user's text
  const auto replaced = (*format)->Render(request);
  ASSERT_TRUE(replaced.ok());
  EXPECT_EQ(replaced->back().text, "</s>\uFFFD<x>");
  EXPECT_FALSE(replaced->back().control);
}

// A role that messages have cannot spell anything; another one is somebody's text, and so are roles anywhere else.
TEST(JinjaFormat, KnownRolesAreControl) {
  const auto format = Make("{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}<{{ extra.messages[0].role }}>");
  ASSERT_TRUE(format.ok());
  ChatRequest request;
  request.messages = {{.role = "ipython", .content = "assistant"}, {.role = "user|><|eot", .content = "x"}};
  request.variables = {{"extra", R"({"messages": [{"role": "user"}]})"}};
  const auto segments = (*format)->Render(request);
  ASSERT_TRUE(segments.ok());
  EXPECT_EQ(Marked(*segments), "<|ipython|>{assistant}<|{user|><|eot}|>{x}<{user}>");
}

// DeepSeek-R1-Distill-Llama prints calls where the content is null, others where there is none.
TEST(JinjaFormat, ContentIsInTheFormThatPrintsTheCalls) {
  ChatRequest request;
  request.messages.resize(1);
  request.messages[0].tool_calls = {{"", "f", R"({"a":1})"}};
  const auto written = [&](const std::string& when, const std::string& arguments) {
    return Render("{% for m in messages if m.tool_calls %}{% if " + when + " %}{% for c in m.tool_calls %}{{ " + arguments +
                      " }}{% endfor %}{% else %}!{{ m.content }}{% endif %}{% endfor %}",
                  request);
  };
  const std::string text = "'>' + c.function.arguments", object = "c.function.arguments|tojson";
  EXPECT_EQ(written("m.content is none", text), R"(>{"a":1})");
  EXPECT_EQ(written("m.content is none", object), R"({"a": 1})");
  EXPECT_EQ(written("m['content'] is undefined", text), R"(>{"a":1})");
  EXPECT_EQ(written("'content' not in m", object), R"({"a": 1})");
  EXPECT_EQ(written("m.content == ''", object), R"({"a": 1})");
  request.messages[0].content = "words";  // which is never dropped for the calls
  EXPECT_EQ(written("m.content is none", text), "!words");
}

// Phi-4-mini and GLM-4 read the tools from the system's message.
TEST(JinjaFormat, ToolsAreWhereTheTemplateReadsThem) {
  ChatRequest request;
  request.tools = {R"({"type": "function", "function": {"name": "f"}})"};
  request.messages = {{.role = "user", .content = "u"}};
  const std::string
      phi =
          "{% for m in messages %}{% if m.role == 'system' and 'tools' in m %}{{ '<|' + m.content + '|' + m.tools + '|>' }}"
          "{% else %}{{ m.content }}{% endif %}{% endfor %}",
      glm = "{% for m in messages %}{% for t in m.tools or [] %}{{ t.function.name }};{% endfor %}{{ m.content }}{% endfor %}";
  EXPECT_EQ(Render(phi, request), R"(<||[{"name": "f"}]|>u)");
  EXPECT_EQ(Render(glm, request), "f;u");
  request.messages.insert(request.messages.begin(), {.role = "system", .content = "s"});
  EXPECT_EQ(Render(phi, request), R"(<|s|[{"name": "f"}]|>u)");
  EXPECT_EQ(Render(glm, request), "f;su");
  request.tools = {};
  EXPECT_EQ(Render(phi, request), "su");
}

TEST(JinjaFormat, SaysWhatATemplateLeavesOut) {
  using What = LeftOut::What;
  ChatRequest request = Conversation();
  request.tools = {R"({"type": "function", "function": {"name": "f"}})", R"({"function": {"name": "g"}})"};
  request.messages[1].content = "c";
  const auto left_out = [&](const std::string& text) {
    const auto format = Make(text);
    EXPECT_TRUE(format.ok());
    return (*format)->FindLeftOut(request);
  };
  const std::string messages = "{% for m in messages %}{{ m.content }}", calls = "{{ m.tool_calls|tojson if m.tool_calls }}",
                    end = "{% endfor %}";
  const std::vector<LeftOut> tools = {{What::kTool, 0}, {What::kTool, 1}}, call = {{What::kCalls, 1}};
  EXPECT_EQ(left_out("{{ tools }}" + messages + calls + end), std::vector<LeftOut>());
  EXPECT_EQ(left_out(messages + calls + end), tools);
  EXPECT_EQ(left_out("{{ tools[0] }}" + messages + calls + end), (std::vector<LeftOut>{{What::kTool, 1}}));
  EXPECT_EQ(left_out("{{ tools }}" + messages + end), call);
  // Text beside calls.
  EXPECT_EQ(left_out("{{ tools }}" + messages + "{% if m.content is none %}" + calls + "{% endif %}" + end), call);
  EXPECT_EQ(left_out("{{ tools }}{% for m in messages %}{{ m.tool_calls|tojson if m.tool_calls else m.content }}{% endfor %}"),
            (std::vector<LeftOut>{{What::kContent, 1}}));
  EXPECT_EQ(left_out("{{ tools }}{{ messages[0].content }}").size(), 3u);
}

TEST(JinjaFormat, ArgumentsAreTextWhereTheTemplateTakesNoObjects) {
  ChatRequest request;
  request.messages.resize(1);
  request.messages[0].tool_calls = {{"", "f", R"({"a":1})"}};
  const auto written = [&](const std::string& call) {
    return Render("{% for m in messages %}{% for c in m.tool_calls or [] %}" + call + "{% endfor %}{% endfor %}", request);
  };
  EXPECT_EQ(written("{{ c.function.arguments|tojson }}"), R"({"a": 1})");
  EXPECT_EQ(written("{% for k, v in c.function.arguments.items() %}<{{ k }}>{{ v }}{% endfor %}"), "<a>1");
  EXPECT_EQ(written("{{ c.function.arguments if c.function.arguments is string else c.function.arguments|tojson }}"),
            R"({"a": 1})");
  EXPECT_EQ(written("{{ '```json\n' + c.function.arguments + '```' }}"), "```json\n{\"a\":1}```");
  EXPECT_EQ(written("{{ c.function.arguments }}"), R"({"a":1})");  // an object would come out as Python writes it
  EXPECT_EQ(written("{{ c.function.arguments is string }}"), "False");
}

TEST(JinjaFormat, ErrorsNameWhatIsWrong) {
  EXPECT_EQ(Render("a\n{% if %}", {}), "tokenizer.chat_template: line 2: Expected an expression, got 'end of statement block'");
  EXPECT_EQ(Render("{{ raise_exception('no system') }}", {}), "tokenizer.chat_template: line 1: no system");
  ChatRequest request;
  request.tools = {"{}", "[1]"};
  EXPECT_EQ(Render("x", request), "tool 2 is not a JSON object");
  request.tools = {};
  request.variables = {{"v", "{"}};
  EXPECT_EQ(
      Render("x", request),
      "variable 'v' of the template: not valid JSON: parse error at line 1, column 2: syntax error while parsing object key - "
      "unexpected end of input; expected string literal");
}

TEST(JinjaFormat, RendersMessagesThatOnlyJsonHas) {
  const auto format = Make("{% for p in messages[0].content %}{{ p.text }}{% endfor %}{{ eos_token }}");
  ASSERT_TRUE(format.ok());
  const auto variables = jinja::Json::parse(R"({"messages": [{"content": [{"type": "text", "text": "a"}, {"text": "b"}]}]})");
  const auto segments = (*format)->RenderJson(variables, 0);
  ASSERT_TRUE(segments.ok()) << segments.status().message();
  EXPECT_EQ(JoinSegments(*segments), "ab</s>");
}

}  // namespace
}  // namespace tally
