// SPDX-License-Identifier: Apache-2.0
#include "engine/chat/tool_formats.h"

#include <algorithm>
#include <utility>

#include "engine/chat/bare_calls.h"
#include "engine/chat/call_format.h"
#include "engine/chat/marks.h"
#include "engine/chat/tagged_parser.h"

namespace tally {
namespace {

constexpr CallTags kInlineFunctionTags = {
    .name_begin = "<function=",
    .name_end = ">",
    .key_begin = "<parameter=",
    .key_end = ">",
    .value_end = "</parameter>",
    .end = "</function>",
};
constexpr CallTags OnLines(CallTags tags) {
  tags.value_on_lines = true;
  return tags;
}
constexpr CallTags kFunctionTags = OnLines(kInlineFunctionTags);
// Behind the section's mark, which begins the call.
constexpr CallTags kParamTags = {
    .name_end = "\">",
    .key_begin = "<param name=\"",
    .key_end = "\">",
    .value_end = "</param>",
    .end = "</function>",
    .cdata = true,
};
constexpr CallTags kArgTags = {
    .name_end = "\n",
    .key_begin = "<arg_key>",
    .key_end = "</arg_key>",
    .value_begin = "<arg_value>",
    .value_end = "</arg_value>",
};
constexpr CallTags NamedUpTo(std::string_view name_end, CallTags tags) {
  tags.name_end = name_end;
  return tags;
}
constexpr CallTags kHunyuanTags = NamedUpTo("<tool_sep>", kArgTags);
constexpr CallTags kOpenHunyuanTags = {
    .name_end = "<tool_sep:opensource>",
    .key_begin = "<arg_key:opensource>",
    .key_end = "</arg_key:opensource>",
    .value_begin = "<arg_value:opensource>",
    .value_end = "</arg_value:opensource>",
};
constexpr CallTags kElementTags = {
    .name_begin = "]<]minimax[>[<invoke name=\"",
    .name_end = "\">",
    .end = "]<]minimax[>[</invoke>",
    .element = "]<]minimax[>[<",
};
constexpr CallTags kInvokeTags = {
    .name_begin = "<invoke name=\"",
    .name_end = "\">",
    .key_begin = "<parameter name=\"",
    .key_end = "\"",
    .value_begin = ">",
    .value_end = "</parameter>",
    .end = "</invoke>",
};
constexpr CallTags kAtemTags = {
    .name_begin = "<atem:invoke name=\"",
    .name_end = "\">",
    .key_begin = "<atem:parameter name=\"",
    .key_end = "\"",
    .value_begin = ">",
    .value_end = "</atem:parameter>",
    .end = "</atem:invoke>",
};
constexpr CallTags kDsmlTags = {
    .name_begin = "<｜DSML｜invoke name=\"",
    .name_end = "\">",
    .key_begin = "<｜DSML｜parameter name=\"",
    .key_end = "\"",
    .value_begin = ">",
    .value_end = "</｜DSML｜parameter>",
    .end = "</｜DSML｜invoke>",
    .typed = true,
};

// The first models write a word and a fence around the arguments, V3.1 neither.
constexpr CallFormat DeepSeek(std::string_view sign, bool fenced) {
  return {.name = "DeepSeek",
          .signs = {"<｜tool▁calls▁begin｜>", sign},
          .groups = {{{"<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"},
                      {"<｜tool_calls_begin｜>", "<｜tool_calls_end｜>"},
                      {"<｜tool calls begin｜>", "<｜tool calls end｜>"},
                      {"<｜tool\\_calls\\_begin｜>", "<｜tool\\_calls\\_end｜>"},
                      {"<|tool_calls_begin|>", "<|tool_calls_end|>"},
                      {"<｜tool▁calls｜>", ""}}},
          .sections = {{{{"<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"}, CallBody::kNamed}}},
          .between = " \t\r\n`",  // the fence around the arguments
          .args_mark = "<｜tool▁sep｜>",
          .type_word = "function",
          .fenced = fenced};
}

constexpr CallSection kLfm = {{"<|tool_call_start|>", "<|tool_call_end|>"}, CallBody::kPython};

// From the templates of the models and, where those do not say it, from what their publishers document: DeepSeek-V3.2's
// encoding/encoding_dsv32.py, ai.google.dev/gemma/docs/functiongemma/formatting-and-best-practices and
// ai.google.dev/gemma/docs/core/prompt-formatting-gemma4, the model cards of LFM2, Granite 3, OLMo 3, ERNIE 4.5 and Hunyuan-A13B, Llama's
// llama.com/docs/model-cards-and-prompt-formats. The misspelled marks of DeepSeek are those that llama.cpp has seen (common/chat). Of
// Functionary, GigaChat, Hunyuan 3, MiniCPM5, MiniMax-M3, Muse Glimmer, OLMo 3 and Solar Open also what the parsers of llama.cpp
// (common/parsers), vLLM (vllm/tool_parsers) and SGLang (srt/function_call) take. The first row whose signs are all in a template counts.
constexpr CallFormat kCallFormats[] = {
    {.name = "MiniMax-M3",
     .signs = {"]<]minimax[>["},
     .sections = {{{{"]<]minimax[>[<tool_call>", "]<]minimax[>[</tool_call>"}, CallBody::kTagged}}},
     .between = " \t\r\n",
     .tags = &kElementTags},
    {.name = "Hunyuan 3",
     .signs = {"<tool_sep", ":opensource"},
     .groups = {{{"<tool_calls:opensource>", "</tool_calls:opensource>"}}},
     .sections = {{{{"<tool_call:opensource>", "</tool_call:opensource>"}, CallBody::kTagged}}},
     .tags = &kOpenHunyuanTags},
    {.name = "Hunyuan 3",
     .signs = {"<tool_sep"},
     .groups = {{{"<tool_calls>", "</tool_calls>"}}},
     .sections = {{{{"<tool_call>", "</tool_call>"}, CallBody::kTagged}}},
     .tags = &kHunyuanTags},
    {.name = "Solar Open",
     .signs = {"<|tool_call:begin|>"},
     .groups = {{{"<|tool_calls|>", "<|calls|>"}}},
     .sections = {{{{"<|tool_call:begin|>", "<|tool_call:end|>"}, CallBody::kNamed}}},
     .others = {"<|begin|>assistant", "<|content|>", "<|end|>", "<|flush|>"},
     .args_mark = "<|tool_call:args|>",
     .name_mark = "<|tool_call:name|>"},
    {.name = "MiniCPM5",
     .signs = {"<function name=", "<param name="},
     .sections = {{{{"<function name=\"", ""}, CallBody::kTagged}}},
     .tags = &kParamTags},
    {.name = "GigaChat",
     .signs = {"<|role_sep|>", "<|message_sep|>"},
     .sections = {{{{"function call<|role_sep|>", ""}}, {{"<|function_call|>", ""}}}},
     .others = {"<|message_sep|>"}},
    {.name = "Functionary",
     .signs = {">>>${recipient}"},
     .sections = {{{{">>>", ""}, CallBody::kNamed}}},
     .args_mark = "\n",
     .content_word = "all\n"},
    {.name = "Seed-OSS",
     .signs = {"<seed:tool_call>"},
     .sections = {{{{"<seed:tool_call>", "</seed:tool_call>"}, CallBody::kTagged}}},
     .tags = &kInlineFunctionTags},
    {.name = "MiniMax",
     .signs = {"<minimax:tool_call>"},
     .sections = {{{{"<minimax:tool_call>", "</minimax:tool_call>"}, CallBody::kTagged}}},
     .tags = &kInvokeTags},
    {.name = "Muse Glimmer",
     .signs = {"<atem:function_calls>"},
     .sections = {{{{"<atem:function_calls>", "</atem:function_calls>"}, CallBody::kTagged}}},
     .others = {"<|start|>assistant", "<|eom|>", "<|eot|>"},
     .header = {"to=", "<|message|>"},  // whom a message is to: the user, the model itself (thinking), or a tool
     .tags = &kAtemTags},
    {.name = "DeepSeek V3.2",
     .signs = {"｜DSML｜"},
     .sections = {{{{"<｜DSML｜function_calls>", "</｜DSML｜function_calls>"}, CallBody::kTagged},
                   {{"<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>"}, CallBody::kTagged}}},
     .tags = &kDsmlTags},
    DeepSeek("```json", /*fenced=*/true),
    DeepSeek("", /*fenced=*/false),
    {.name = "Kimi K2",
     .signs = {"<|tool_calls_section_begin|>"},
     .groups = {{{"<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"}}},
     .sections = {{{{"<|tool_call_begin|>", "<|tool_call_end|>"}, CallBody::kNamed}}},
     .args_mark = "<|tool_call_argument_begin|>",
     .id = CallId::kNumber},
    {.name = "GLM",
     .signs = {"<tool_call>", "<arg_key>"},
     .sections = {{{{"<tool_call>", "</tool_call>"}, CallBody::kTagged}}},
     .tags = &kArgTags},
    {.name = "Qwen3-Coder",
     .signs = {"<tool_call>", "<function="},
     .sections = {{{{"<tool_call>", "</tool_call>"}, CallBody::kTagged}}},
     .unmarked = kFunctionTags.name_begin,
     .tags = &kFunctionTags},
    {.name = "Mistral",
     .signs = {"[TOOL_CALLS]", "[CALL_ID]"},
     .sections = {{{{"[TOOL_CALLS]", ""}, CallBody::kNamed}}},
     .args_mark = "[ARGS]",
     .id_mark = "[CALL_ID]",
     .id = CallId::kNineLetters},
    {.name = "Mistral",
     .signs = {"[TOOL_CALLS]", "[ARGS]"},
     .sections = {{{{"[TOOL_CALLS]", ""}, CallBody::kNamed}}},
     .args_mark = "[ARGS]",
     .id_mark = "[CALL_ID]"},
    {.name = "Mistral",
     .signs = {"[TOOL_CALLS]"},
     .sections = {{{{"[TOOL_CALLS]", ""}, CallBody::kNamed}}},
     .args_mark = "[ARGS]",
     .id_mark = "[CALL_ID]",
     .json_list = true},
    {.name = "Gemma 4",
     .signs = {"<|tool_call>"},
     .sections = {{{{"<|tool_call>", "<tool_call|>"}, CallBody::kBraced}}},
     // In content too: models end an answer with empty thinking or with its end, and calls with what the template writes next.
     .others = {"<|channel>thought", "<channel|>", "<|tool_response>"},
     .quote = "<|\"|>"},
    {.name = "FunctionGemma",
     .signs = {"<start_function_call>"},
     .sections = {{{{"<start_function_call>", "<end_function_call>"}, CallBody::kBraced}}},
     .quote = "<escape>"},
    {.name = "OLMo 3",
     .signs = {"<function_calls>", "<functions>"},
     .sections = {{{{"<function_calls>", "</function_calls>"}, CallBody::kPython}}}},
    {.name = "LFM2", .signs = {"<|tool_list_start|>"}, .sections = {kLfm}},
    {.name = "LFM2", .signs = {"<|tool_call_start|>"}, .sections = {kLfm}},
    {.name = "LFM2", .signs = {"List of tools: ", "<|im_start|>"}, .sections = {kLfm}},  // LFM2.5
    {.name = "Apertus",
     .signs = {"<|tools_prefix|>"},
     .sections = {{{{"<|tools_prefix|>", "<|tools_suffix|>"}}}},
     .name_is_key = true,
     .json_list = true,
     .calls_in_thinking = true},
    {.name = "Command R7B",
     .signs = {"<|START_ACTION|>"},
     .sections = {{{{"<|START_ACTION|>", "<|END_ACTION|>"}}}},
     .others = {"<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"},
     .json_list = true},
    {.name = "Command-R+", .signs = {"<|CHATBOT_TOKEN|>", "Action:"}, .sections = {{{{"Action:", ""}}}}, .json_list = true},
    {.name = "Granite",
     .signs = {"<|tool_call|>", "<|start_of_role|>"},
     .sections = {{{{"<|tool_call|>", ""}}, {{"<tool_call>", "</tool_call>"}}}},
     .others = {"<response>", "</response>"},
     .json_list = true},
    {.name = "Phi-4-mini",
     .signs = {"<|/tool|>"},
     .sections = {{{{"<|tool_call|>", "<|/tool_call|>"}}, {{"functools[", ""}}}},
     .json_list = true},
    {.name = "Phi-4-mini", .signs = {"<|tool_call|>"}, .sections = {{{{"<|tool_call|>", "<|/tool_call|>"}}}}, .json_list = true},
    {.name = "FireFunction", .signs = {"functools["}, .sections = {{{{"functools[", ""}}}}, .json_list = true},
    {.name = "Nemotron", .signs = {"<TOOLCALL>"}, .sections = {{{{"<TOOLCALL>", "</TOOLCALL>"}}}}, .json_list = true},
    {.name = "Apriel",
     .signs = {"<tool_calls>", "[BEGIN FINAL RESPONSE]"},
     .sections = {{{{"<tool_calls>", "</tool_calls>"}}}},
     .others = {"[END FINAL RESPONSE]"},
     .json_list = true},
    {.name = "Hunyuan",
     .signs = {"<tool_calls>", "<answer>"},
     .sections = {{{{"<tool_calls>", "</tool_calls>"}}}},
     .others = {"<answer>", "</answer>"},
     .json_list = true},
    {.name = "Jamba/Hunyuan", .signs = {"<tool_calls>"}, .sections = {{{{"<tool_calls>", "</tool_calls>"}}}}, .json_list = true},
    {.name = "ERNIE",
     .signs = {"<tool_call>", "<response>"},
     .sections = {{{{"<tool_call>", "</tool_call>"}}}},
     .others = {"<response>", "</response>"}},
    {.name = "Qwen/Hermes", .signs = {"<tool_call>"}, .sections = {{{{"<tool_call>", "</tool_call>"}}}}},
    {.name = "Llama 3",
     .signs = {"<|start_header_id|>ipython"},
     .sections = {{{{"<|python_tag|>", ""}, CallBody::kPython}, {{"<function=", "</function>"}, CallBody::kNamed}}},
     .between = " \t\r\n;",
     .args_mark = ">",
     .bare = true},
    {.name = "Llama 4",
     .signs = {"<|header_start|>ipython"},
     .sections = {{{{"<|python_start|>", "<|python_end|>"}, CallBody::kPython}, {{"<|python_end|>", ""}}}},
     .bare = true},
    {.name = "none"},
};

constexpr ThinkingMarks kThinkingMarks[] = {
    {"<seed:think>", {"<seed:think>", "</seed:think>"}},
    {"<atem:function_calls>", {"to=self<|message|>", "<|eom|>"}},
    {"[THINK]", {"[THINK]", "[/THINK]"}},
    {"<|inner_prefix|>", {"<|inner_prefix|>", "<|inner_suffix|>"}},
    {"<|START_THINKING|>", {"<|START_THINKING|>", "<|END_THINKING|>"}},
    {"<|channel>", {"<|channel>thought", "<channel|>"}},
    {"<mm:think>", {"<mm:think>", "</mm:think>"}},
    {":opensource", {"<think:opensource>", "</think:opensource>"}},
    {"<|tool_call:begin|>", {"<|think|>", "<|end|>"}},
    {"[BEGIN FINAL RESPONSE]", {"Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]"}},
    {"", {"<think>", "</think>"}},
};

}  // namespace

AnswerSyntax DetectAnswerSyntax(std::string_view template_text) {
  const auto has = [&](std::string_view sign) { return template_text.find(sign) != template_text.npos; };  // the empty one too
  const auto fits = [&](const CallFormat& format) { return std::ranges::all_of(format.signs, has); };
  return {std::ranges::find_if(kCallFormats, fits), std::ranges::find_if(kThinkingMarks, has, &ThinkingMarks::sign)};
}

AnswerStart StartOfAnswer(const AnswerSyntax& syntax, std::string_view prompt) {
  const Tags& thinking = syntax.thinking->tags;
  AnswerStart start{.thinking_begin = std::string(thinking.begin),
                    .thinking_end = std::string(thinking.end),
                    .in_thinking = Trimmed(prompt).ends_with(thinking.begin)};
  for (const CallSection& section : syntax.calls->sections) {
    const std::string_view mark = syntax.calls->groups[0].begin.empty() ? section.marks.begin : syntax.calls->groups[0].begin;
    if (!mark.empty() && !syntax.calls->bare) start.call_marks.emplace_back(mark);
  }
  start.calls_in_thinking = syntax.calls->calls_in_thinking;
  return start;
}

namespace {

// Arguments between tags, each on a line.
CallNotation TaggedNotation(const CallTags& tags, const Tags& section) {
  const std::string begin(section.begin), line = tags.value_on_lines ? "\n" : "";
  const bool typed = tags.typed;
  CallNotation notation{.call_begin = begin + (tags.name_begin.empty() ? "" : "\n") + std::string(tags.name_begin),
                        .after_name = std::string(tags.name_end),
                        .call_end = std::string(tags.end) + (tags.end.empty() ? "" : "\n") + std::string(section.end),
                        .between = "\n",
                        .arguments = ArgumentNotation::kTagged,
                        .key_begin = std::string(tags.key_begin),
                        .key_end = std::string(tags.key_end),
                        .text_begin = (typed ? " string=\"true\"" : "") + std::string(tags.value_begin) + line,
                        .json_begin = (typed ? " string=\"false\"" : "") + std::string(tags.value_begin) + line,
                        .value_end = line + std::string(tags.value_end) + "\n",
                        .text_stop = std::string(tags.value_end)};
  if (!notation.after_name.ends_with('\n')) notation.after_name += '\n';
  if (notation.key_end.starts_with("</")) notation.key_end += '\n';
  return notation;
}

CallNotation PythonNotation(const std::string& begin, const std::string& end, const std::string& between) {
  return {
      .begin = begin, .end = end, .after_name = "(", .call_end = ")", .between = between, .arguments = ArgumentNotation::kPython};
}

CallNotation JsonNotation(const CallFormat& format, const Tags& section, bool list) {
  CallNotation notation{.call_begin = "{\"name\": \"",
                        .after_name = format.bare ? "\", \"parameters\": " : "\", \"arguments\": ",
                        .call_end = "}",
                        .name_in_string = true};
  if (format.name_is_key) {
    notation.call_begin = "{\"";
    notation.after_name = "\": ";
  }
  const std::string begin(section.begin), end(section.end);
  if (list) {
    notation.begin = begin + (begin.ends_with('[') ? "" : "[");
    notation.end = "]" + end;
    notation.between = ", ";
    return notation;
  }
  const bool lines = begin.ends_with("call>") && end.starts_with("</");  // <tool_call> on a line of its own
  notation.call_begin = begin + (lines ? "\n" : "") + notation.call_begin;
  notation.call_end += (lines ? "\n" : "") + end;
  notation.between = lines ? "\n" : "";
  return notation;
}

CallNotation NotationOf(const CallFormat& format, const CallSection& section, bool json) {
  const std::string begin(section.marks.begin), end(section.marks.end);
  if (!json) {
    switch (section.body) {
      case CallBody::kNamed:
        if (format.args_mark.empty() || !format.name_mark.empty() || format.json_list) break;
        if (format.fenced) {
          return {.call_begin = begin + std::string(format.type_word) + std::string(format.args_mark),
                  .after_name = "\n```json\n",
                  .call_end = "\n```" + end,
                  .between = "\n"};
        }
        return {.call_begin = begin + (format.id == CallId::kNumber ? "functions." : ""),
                .id_begin = format.id == CallId::kNumber ? ":" : std::string(format.id_mark),
                .after_name = std::string(format.args_mark),
                .call_end = end,
                .id = format.id};
      case CallBody::kTagged:
        if (format.tags->element.empty() && !format.tags->cdata) return TaggedNotation(*format.tags, section.marks);
        break;
      case CallBody::kBraced:
        return {.call_begin = begin + "call:",
                .call_end = end,
                .arguments = ArgumentNotation::kBraced,
                .quote = std::string(format.quote),
                .text_stop = std::string(format.quote)};
      case CallBody::kPython:
        if (format.bare) break;
        if (begin.ends_with(">") && end.starts_with("</")) return PythonNotation(begin + "\n", "\n" + end, "\n");
        return PythonNotation(begin + "[", "]" + end, ", ");
      default: break;
    }
  }
  return JsonNotation(format, section.marks,
                      format.json_list && section.body != CallBody::kPython && end.find("call>") == end.npos);
}

}  // namespace

std::vector<CallNotation> CallNotationsOf(const AnswerSyntax& syntax, bool json) {
  std::vector<CallNotation> notations;
  if (!KnowsCalls(syntax)) return notations;
  const CallFormat& format = *syntax.calls;
  const Tags& group = format.groups[0];
  if (format.bare) {  // without any mark
    notations.push_back(JsonNotation(format, {}, /*list=*/false));
    notations.back().sign = {.text = "{", .at_beginning = true};
    notations.back().once = true;
    notations.push_back(PythonNotation("[", "]", ", "));
    notations.back().sign = {.text = "[", .at_beginning = true, .with_name = true};
  }
  for (const CallSection& section : format.sections) {
    if (section.marks.begin.empty()) continue;
    CallNotation notation = NotationOf(format, section, json);
    notation.sign = {.text = std::string(group.begin.empty() ? section.marks.begin : group.begin),
                     .with_name = !format.content_word.empty()};
    notation.begin = std::string(group.begin) + notation.begin;
    notation.end += group.end;
    if (format.bare) notation.once = true;
    notations.push_back(std::move(notation));
  }
  return notations;
}

std::string_view AnswerSyntaxName(const AnswerSyntax& syntax) { return syntax.calls->name; }

bool KnowsCalls(const AnswerSyntax& syntax) { return !syntax.calls->signs[0].empty(); }

std::unique_ptr<OutputParser> NewAnswerParser(const AnswerSyntax& syntax, std::string_view prompt,
                                              const std::vector<std::string>& tools, bool calls) {
  using Begun = TaggedParser::Begun;
  const std::string_view section = syntax.calls->sections[0].marks.begin;
  const bool calling = calls && !section.empty() && Trimmed(prompt).ends_with(section);
  const bool thinks = Trimmed(prompt).ends_with(syntax.thinking->tags.begin);
  const Begun begun = thinks ? Begun::kThinking : calling ? Begun::kSection : Begun::kNothing;
  ToolTypes types(tools);
  auto tagged = std::make_unique<TaggedParser>(*syntax.calls, syntax.thinking->tags, begun, types, calls);
  if (!calls || !syntax.calls->bare || begun != Begun::kNothing) return tagged;
  return std::make_unique<BareCallParser>(*syntax.calls, std::move(types), std::move(tagged));
}

}  // namespace tally
