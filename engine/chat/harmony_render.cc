// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "engine/chat/harmony.h"

namespace tally {
namespace {

using Role = HarmonyMessage::Role;

constexpr std::string_view kConstrainToken = "<|constrain|>";

class HarmonySegments {
 public:
  void Token(std::string_view token) { Add(token, true); }
  void Text(std::string_view text) { Add(text, false); }
  std::vector<PromptSegment> Take() { return std::move(segments_); }

 private:
  void Add(std::string_view text, bool control) {
    if (text.empty()) return;
    if (segments_.empty() || segments_.back().control != control) segments_.push_back({.control = control});
    segments_.back().text += text;
  }

  std::vector<PromptSegment> segments_;
};

std::string_view RoleName(Role role) {
  switch (role) {
    case Role::kSystem: return "system";
    case Role::kDeveloper: return "developer";
    case Role::kUser: return "user";
    case Role::kAssistant: return "assistant";
    case Role::kTool: return "tool";
  }
  return "";
}

// Paragraphs with an empty line between them.
void AddParagraph(std::string_view paragraph, std::string* text) {
  if (!text->empty()) *text += "\n\n";
  *text += paragraph;
}

Result<std::string> SystemText(const HarmonySystem& system, bool has_functions) {
  std::string top;
  const auto line = [&](std::string_view label, const std::optional<std::string>& value) {
    if (value) ((top += top.empty() ? "" : "\n") += label) += *value;
  };
  line("", system.model_identity);
  line("Knowledge cutoff: ", system.knowledge_cutoff);
  line("Current date: ", system.start_date);

  std::string text = top;
  if (system.reasoning_effort) AddParagraph("Reasoning: " + *system.reasoning_effort, &text);
  if (!system.tools.empty()) {
    TALLY_ASSIGN_OR_RETURN(const std::string tools, HarmonyToolsText(system.tools));
    AddParagraph(tools, &text);
  }
  if (!system.channels.empty()) {
    std::string names;
    for (const std::string& channel : system.channels) names += (names.empty() ? "" : ", ") + channel;
    AddParagraph("# Valid channels: " + names + ". Channel must be included for every message.", &text);
    if (has_functions) text += "\nCalls to these tools must go to the commentary channel: 'functions'.";
  }
  return text;
}

Result<std::string> DeveloperText(const HarmonyDeveloper& developer) {
  std::string text;
  if (developer.instructions) text = "# Instructions\n\n" + *developer.instructions;
  if (!developer.tools.empty()) {
    TALLY_ASSIGN_OR_RETURN(const std::string tools, HarmonyToolsText(developer.tools));
    AddParagraph(tools, &text);
  }
  return text;
}

Result<std::string> ContentText(const HarmonyMessage& message, bool has_functions) {
  if (const auto* system = std::get_if<HarmonySystem>(&message.content)) return SystemText(*system, has_functions);
  if (const auto* developer = std::get_if<HarmonyDeveloper>(&message.content)) return DeveloperText(*developer);
  return std::get<std::string>(message.content);
}

void AddHeader(const HarmonyMessage& message, HarmonySegments* out) {
  if (message.role == Role::kTool) {
    out->Text(message.name);
  } else {
    out->Text(RoleName(message.role));
    if (!message.name.empty()) out->Text(":" + message.name);
  }
  if (!message.recipient.empty()) out->Text(" to=" + message.recipient);
  if (!message.channel.empty()) {
    out->Token("<|channel|>");
    out->Text(message.channel);
  }
  if (message.content_type.empty()) return;
  out->Text(" ");
  std::string_view type = message.content_type;
  if (type.starts_with(kConstrainToken)) {
    out->Token(kConstrainToken);
    type.remove_prefix(kConstrainToken.size());
  }
  out->Text(type);
}

Status AddMessage(const HarmonyMessage& message, bool has_functions, HarmonySegments* out) {
  if (message.role == Role::kTool && message.name.empty()) return BadInput("a tool's message without the name of the tool");
  TALLY_ASSIGN_OR_RETURN(const std::string content, ContentText(message, has_functions));
  out->Token("<|start|>");
  AddHeader(message, out);
  out->Token("<|message|>");
  out->Text(content);
  out->Token(message.role == Role::kAssistant && !message.recipient.empty() ? "<|call|>" : "<|end|>");
  return {};
}

bool HasFunctions(const std::vector<HarmonyMessage>& conversation) {
  for (const HarmonyMessage& message : conversation) {
    const auto* developer = std::get_if<HarmonyDeveloper>(&message.content);
    if (developer == nullptr) continue;
    for (const HarmonyNamespace& space : developer->tools) {
      if (space.name == "functions" && !space.tools.empty()) return true;
    }
  }
  return false;
}

// Analysis before this message is left out.
size_t FirstKept(const std::vector<HarmonyMessage>& conversation) {
  const auto from_assistant = [](const HarmonyMessage& message) { return message.role == Role::kAssistant; };
  const auto last = std::find_if(conversation.rbegin(), conversation.rend(), from_assistant);
  if (last == conversation.rend() || last->channel != "final") return 0;
  const auto is_final = [](const HarmonyMessage& message) { return message.channel == "final"; };
  return static_cast<size_t>(std::find_if(conversation.begin(), conversation.end(), is_final) - conversation.begin());
}

}  // namespace

Result<std::vector<PromptSegment>> RenderHarmony(const std::vector<HarmonyMessage>& conversation, HarmonyOptions options) {
  const bool has_functions = HasFunctions(conversation);
  const size_t kept = options.drop_analysis ? FirstKept(conversation) : 0;
  HarmonySegments out;
  for (size_t i = 0; i < conversation.size(); ++i) {
    if (i < kept && conversation[i].channel == "analysis") continue;
    TALLY_RETURN_IF_ERROR(AddMessage(conversation[i], has_functions, &out));
  }
  if (options.add_generation_prompt) {
    out.Token("<|start|>");
    out.Text("assistant");
  }
  return out.Take();
}

}  // namespace tally
