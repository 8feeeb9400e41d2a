// SPDX-License-Identifier: Apache-2.0
#include "engine/chat/chat_format.h"

#include <string>
#include <utility>

#include "engine/chat/harmony.h"
#include "engine/chat/jinja_format.h"
#include "engine/chat/tool_formats.h"

namespace tally {
namespace {

// What no other published format has all of.
bool IsHarmony(std::string_view text) {
  for (const std::string_view mark : {"<|start|>", "<|channel|>", "<|message|>"}) {
    if (text.find(mark) == text.npos) return false;
  }
  return true;
}

// Stands behind the text of the message that is continued, to find where it ends.
constexpr std::string_view kEnd = "xq7continued4v9n";

// Whether the message that is continued ends within a thought: marks stand in its text, as clients write it.
bool ContinuesThinking(const ChatRequest& request, const AnswerStart& start) {
  if (!request.continue_last || start.thinking_begin.empty()) return false;
  const std::string& content = request.messages.back().content;
  const size_t begin = content.rfind(start.thinking_begin);
  return begin != content.npos && content.find(start.thinking_end, begin) == content.npos;
}

}  // namespace

// What the template writes behind the text of the last message is cut off (transformers: continue_final_message).
Result<std::vector<PromptSegment>> ChatFormat::Render(const ChatRequest& request, std::vector<std::string>* notes) const {
  if (!request.continue_last) return RenderWhole(request, notes);
  if (request.messages.empty() || request.messages.back().role != "assistant" || !request.messages.back().tool_calls.empty()) {
    return BadInput("only an assistant's message without calls can be continued");
  }
  ChatRequest marked = request;
  marked.continue_last = marked.add_generation_prompt = false;
  marked.messages.back().content += kEnd;
  TALLY_ASSIGN_OR_RETURN(std::vector<PromptSegment> segments, RenderWhole(marked, notes));
  while (!segments.empty()) {
    std::string& text = segments.back().text;
    if (const size_t at = text.rfind(kEnd); at != text.npos) {
      text.resize(at);
      return segments;
    }
    segments.pop_back();
  }
  return BadInput("the last message cannot be continued: the chat template leaves it out");
}

AnswerStart ChatFormat::StartOf(std::string_view prompt, const ChatRequest& request) const {
  AnswerStart start = WholeStartOf(prompt);
  if (!request.continue_last) return start;
  start.in_thinking = ContinuesThinking(request, start);
  return start.in_thinking ? start : AnswerStart{.call_marks = std::move(start.call_marks)};
}

Result<std::unique_ptr<ChatFormat>> MakeChatFormat(const ChatTemplateSource& source, bool native) {
  const bool harmony = IsHarmony(source.text);
  if (harmony && native) return MakeHarmonyFormat();
  const AnswerSyntax syntax = DetectAnswerSyntax(source.text);
  const std::string answers = harmony ? "harmony" : std::string(AnswerSyntaxName(syntax));
  JinjaFormat::ParserFactory parsers = [harmony, syntax](std::string_view prompt, const ChatRequest& request) {
    const bool calls = MayCall(request);
    if (harmony) return NewHarmonyParser(calls, request.continue_last);
    const AnswerStart start = StartOfAnswer(syntax, prompt);
    const std::string_view end = ContinuesThinking(request, start) ? start.thinking_begin : prompt;
    return NewAnswerParser(syntax, end, request.tools, calls);
  };
  TALLY_ASSIGN_OR_RETURN(std::unique_ptr<JinjaFormat> format,
                         JinjaFormat::Make(source, std::move(parsers), "Jinja, calls: " + answers,
                                           /*reads_calls=*/harmony || KnowsCalls(syntax)));
  format->SetNotations([harmony, syntax](bool json) { return harmony ? HarmonyCallNotations() : CallNotationsOf(syntax, json); });
  format->SetStarts(
      [harmony, syntax](std::string_view prompt) { return harmony ? HarmonyStart() : StartOfAnswer(syntax, prompt); });
  return std::unique_ptr<ChatFormat>(std::move(format));
}

}  // namespace tally
