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

}  // namespace

Result<std::unique_ptr<ChatFormat>> MakeChatFormat(const ChatTemplateSource& source, bool native) {
  const bool harmony = IsHarmony(source.text);
  if (harmony && native) return MakeHarmonyFormat();
  const AnswerSyntax syntax = DetectAnswerSyntax(source.text);
  const std::string answers = harmony ? "harmony" : std::string(AnswerSyntaxName(syntax));
  JinjaFormat::ParserFactory parsers = [harmony, syntax](std::string_view prompt, const ChatRequest& request) {
    const bool calls = MayCall(request);
    return harmony ? NewHarmonyParser(calls) : NewAnswerParser(syntax, prompt, request.tools, calls);
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
