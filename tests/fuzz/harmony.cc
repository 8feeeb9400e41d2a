// SPDX-License-Identifier: Apache-2.0
// Harmony: there is an answer for any output of a model, and any conversation is rendered or refused.
#include "engine/chat/harmony.h"

#include <algorithm>

#include "tests/fuzz/harness.h"
#include "tests/fuzz/targets.h"

namespace tally::fuzz {
namespace {

constexpr std::string_view kTokens[] = {"<|start|>", "<|message|>", "<|channel|>",   "<|constrain|>", "<|end|>",
                                        "<|call|>",  "<|return|>",  "<|endoftext|>", "<|refusal|>"};
constexpr char kCut = '\x01';   // between two pieces of text
constexpr char kText = '\x02';  // a token after it is spelled by text

std::string_view TokenAt(std::string_view text) {
  for (const std::string_view token : kTokens) {
    if (text.starts_with(token)) return token;
  }
  return {};
}

struct Piece {
  std::string text;
  bool control;
};

std::vector<Piece> PiecesOf(std::string_view input) {
  std::vector<Piece> pieces;
  const auto text = [&](std::string_view characters) {
    if (pieces.empty() || pieces.back().control) pieces.push_back({"", false});
    pieces.back().text += characters;
  };
  while (!input.empty()) {
    const bool spelled = input[0] == kText;
    if (spelled) input.remove_prefix(1);
    const std::string_view token = TokenAt(input);
    if (!token.empty() && !spelled) {
      pieces.push_back({std::string(token), true});
    } else if (!token.empty()) {
      text(token);
    } else if (!input.empty() && input[0] == kCut) {
      pieces.push_back({"", false});
    } else {
      text(input.substr(0, 1));
    }
    input.remove_prefix(std::min(std::max<size_t>(token.size(), 1), input.size()));
  }
  return pieces;
}

// The parts, those of a kind joined where no call is between them.
std::vector<OutputPart> Parse(const std::vector<Piece>& pieces, bool by_bytes) {
  const std::unique_ptr<OutputParser> parser = NewHarmonyParser();
  std::vector<OutputPart> parts, joined;
  for (const Piece& piece : pieces) {
    const size_t step = by_bytes && !piece.control ? 1 : std::max<size_t>(piece.text.size(), 1);
    for (size_t at = 0; at < piece.text.size(); at += step) {
      parser->Push({std::string_view(piece.text).substr(at, step), piece.control}, &parts);
    }
  }
  parser->Finish(&parts);
  for (OutputPart& part : parts) {
    Require(part.call || !part.text.empty(), "a part with nothing in it");
    Require(!part.call || !part.call->name.empty(), "a call of nothing");
    if (joined.empty() || part.call || joined.back().call || joined.back().kind != part.kind) {
      joined.push_back(std::move(part));
    } else {
      joined.back().text += part.text;
    }
  }
  return joined;
}

void RequireSame(const std::vector<OutputPart>& a, const std::vector<OutputPart>& b) {
  Require(a.size() == b.size(), "the cuts change what the parts are");
  for (size_t i = 0; i < a.size(); ++i) {
    Require(a[i].kind == b[i].kind && a[i].text == b[i].text, "the cuts change a part");
    Require(a[i].call.has_value() == b[i].call.has_value(), "the cuts change what is a call");
    Require(!a[i].call || (a[i].call->name == b[i].call->name && a[i].call->arguments == b[i].call->arguments),
            "the cuts change a call");
  }
}

void RunHarmonyOutput(std::string_view input) {
  const std::vector<Piece> pieces = PiecesOf(input);
  const std::vector<OutputPart> parts = Parse(pieces, false);
  std::string given, got;
  for (const Piece& piece : pieces) given += piece.text;
  for (const OutputPart& part : parts) got += part.text;
  Require(given == got, "the parts are not the pieces");
  RequireSame(parts, Parse(pieces, true));
}

std::vector<std::string> HarmonyOutputSeeds() {
  return {
      "<|channel|>analysis<|message|>Sum.<|end|><|start|>assistant<|channel|>final<|message|>4\x01.<|return|>",
      "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"a\":\x01 1}<|call|><|start|>functions.f to=assistant",
      " to=browser.search<|channel|>analysis code<|message|>{\"query\": \"x\"}<|end|>final<|message|>\x02<|end|><|endoftext|>",
      "I must refuse<|end|>assistant<|channel|>commentary to=user<|channel|>final so<|message|>text<|start|>user<|refusal|>",
      "<|start|>bash to=python<|channel|><|message|>1+1<|constrain|><|call|>",
  };
}

// A tool, the variables builtin_tools and model_identity, then messages of all roles in turn.
void RunHarmonyPrompt(std::string_view input) {
  static constexpr std::string_view kRoles[] = {"developer", "user", "assistant", "tool", "assistant", "system"};
  std::vector<std::string_view> parts = Files(input);
  parts.resize(std::max<size_t>(parts.size(), 3));
  ChatRequest request;
  request.tools = {std::string(parts[0])};
  request.variables["builtin_tools"] = parts[1];
  if (!parts[2].empty()) request.variables["model_identity"] = parts[2];
  for (size_t i = 3; i < parts.size(); ++i) {
    ChatMessage message = {.role = std::string(kRoles[i % std::size(kRoles)]), .content = std::string(parts[i])};
    if (message.role == "assistant") message.reasoning = message.content.substr(0, message.content.size() / 2);
    if (message.role == "assistant" && i % 2 == 0) message.tool_calls = {{.id = "1", .name = message.content, .arguments = "{}"}};
    if (message.role == "tool") message.tool_call_id = "1";
    request.messages.push_back(std::move(message));
  }
  const auto segments = MakeHarmonyFormat()->Render(request);
  if (!segments.ok()) return RequireOneLine(segments.status());
  size_t size = 0;
  for (const PromptSegment& segment : *segments) {
    size += segment.text.size();
    std::string_view rest = segment.text;
    for (std::string_view token; segment.control && !rest.empty(); rest.remove_prefix(token.size())) {
      Require(!(token = TokenAt(rest)).empty(), "text that is no token is control");
    }
  }
  Require(size < 8192 + 300 * input.size(), "a prompt much longer than the conversation");
}

std::vector<std::string> HarmonyPromptSeeds() {
  const auto seed = [](std::string tool, std::initializer_list<std::string_view> more) {
    for (const std::string_view part : more) (tool += kNextFile) += part;
    return tool;
  };
  return {
      seed(
          R"({"type": "function", "function": {"name": "f", "description": "a\nb", "parameters": {"type": "object", "required": ["x"],
          "properties": {"x": {"type": "string", "title": "X", "description": "d", "examples": ["e", 1], "default": "v"},
          "y": {"oneOf": [{"type": "integer", "description": "i"}, {"type": "array", "items": {"type": ["number", "null"]}}],
          "description": "i", "default": [1]}, "z": {"type": "object", "nullable": true, "properties": {"k": {"enum": ["a"],
          "type": "string", "default": "a"}}}}}}})",
          {R"(["browser", "python"])", R"("You are.")", "hello", "f", "5"}),
      seed(R"({"function": {"name": "g"}})", {"[]", "", "<|end|>", "python", "", "be brief", "so", "x"}),
  };
}

}  // namespace

const Target kHarmonyOutput = {"harmony_output", RunHarmonyOutput, HarmonyOutputSeeds};
const Target kHarmonyPrompt = {"harmony_prompt", RunHarmonyPrompt, HarmonyPromptSeeds};

}  // namespace tally::fuzz
