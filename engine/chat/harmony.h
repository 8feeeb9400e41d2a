// SPDX-License-Identifier: Apache-2.0
// Harmony, the response format of gpt-oss, rendered and parsed without its Jinja template. The format is that of openai/harmony
// v0.0.8: docs/format.md, and the encoder of src/encoding.rs, which is followed where the model's own chat template differs:
//
//                                    encoder, and here                    template
//   result of a tool                 the text as it is                    as a JSON string
//   arguments of a call              the text as it is                    as JSON: quoted where they came as text
//   type of a call's content         <|constrain|>json                    json
//   content beside calls             commentary                           analysis
//   second call of a message         rendered                             left out
//   earlier analysis                 dropped before the first final       dropped, except before calls that no final answer follows
//   last answer, no prompt after it  ends with <|end|>                    ends with <|return|>
//   a later system message           a developer message                  left out
//   end of the instructions          no white space                       an empty line
//   function without properties      (_: {\n}) => any                     () => any
//   nested objects, oneOf, titles,   src/encoding.rs                      a layout of its own
//   examples, defaults
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "engine/base/status.h"
#include "engine/chat/chat_format.h"
#include "engine/chat/message.h"
#include "engine/chat/output.h"

namespace tally {

struct HarmonyTool {
  std::string name = {};
  std::string description = {};
  std::string parameters = {};  // a JSON schema; empty: the function takes nothing
};

struct HarmonyNamespace {
  std::string name = {};
  std::string description = {};
  std::vector<HarmonyTool> tools = {};  // empty: a tool that takes free text
};
// The tools that gpt-oss was trained with.
HarmonyNamespace HarmonyBrowser();
HarmonyNamespace HarmonyPython();

struct HarmonySystem {
  std::optional<std::string> model_identity = "You are ChatGPT, a large language model trained by OpenAI.";
  std::optional<std::string> knowledge_cutoff = "2024-06";
  std::optional<std::string> start_date = {};  // of the conversation: "2025-06-28"
  std::optional<std::string> reasoning_effort = "medium";
  std::vector<HarmonyNamespace> tools = {};
  std::vector<std::string> channels = {"analysis", "commentary", "final"};  // the valid ones; empty: not said
};

struct HarmonyDeveloper {
  std::optional<std::string> instructions = {};
  std::vector<HarmonyNamespace> tools = {};
};

struct HarmonyMessage {
  enum class Role : uint8_t { kSystem, kDeveloper, kUser, kAssistant, kTool };
  Role role = Role::kUser;
  std::string name = {};          // of the author; a tool's stands in place of its role: "functions.get_weather"
  std::string recipient = {};     // empty: everyone
  std::string channel = {};       // empty: not said
  std::string content_type = {};  // "json", "<|constrain|>json"; empty: not said
  std::variant<std::string, HarmonySystem, HarmonyDeveloper> content = {};
};

struct HarmonyOptions {
  bool drop_analysis = true;  // where the last message of the assistant is final: the analysis before the first final one
  bool add_generation_prompt = true;
};

// Special tokens are control segments, all other text is not. kBadInput: a tool's message without a name, a schema that is no JSON.
Result<std::vector<PromptSegment>> RenderHarmony(const std::vector<HarmonyMessage>& conversation, HarmonyOptions options = {});

// The section "# Tools": each namespace as TypeScript. kBadInput: a schema that is no JSON, or one of unreasonable size.
Result<std::string> HarmonyToolsText(const std::vector<HarmonyNamespace>& namespaces);
// A JSON schema as a TypeScript type.
Result<std::string> HarmonyTypeText(const std::string& schema);

// Requests as conversations:
//   * The system message is generated. ChatRequest::variables may have "model_identity" (a string) and "builtin_tools" (a list of
//     "browser" and "python").
//   * Messages of the roles system and developer at the beginning are the developer message's instructions, later ones are developer
//     messages of their own.
//   * A tool's message goes by its `name`, else by the name of the call that it answers.
//   * Calls of built-in tools and their results ("browser.search", "python") are on the channel analysis, as content of type "code".
// kBadInput: an effort other than low, medium and high; a tool, role or variable that is none; a tool's message without a name.
std::unique_ptr<ChatFormat> MakeHarmonyFormat();
// ChatFormat::CallNotations: in the channel "commentary", to a function. One call ends the answer.
std::vector<CallNotation> HarmonyCallNotations();
AnswerStart HarmonyStart();  // ChatFormat::StartOf

// Of answers to a prompt that ends with <|start|>assistant. Only control pieces are special tokens. These rules give every sequence
// of pieces an answer, which does not depend on where text is cut into pieces:
//   * A message is a header and a body: header <|message|> body, then <|end|>, <|return|>, <|call|> or <|endoftext|>. The next
//     one may begin with or without <|start|>; <|start|>, or <|channel|> in a body, ends the message before.
//   * Headers and control tokens are marks. A header is made of roles, channels, content types and recipients ("to=NAME",
//     "functions.NAME"), in any section and order. The last channel counts, and the last recipient; an unknown or empty channel does
//     not replace a known one, and recipients that are no tools (assistant, user, all) are none.
//   * An unknown word belongs to the header where a token of the header follows at once; an unknown role or channel also where a
//     recipient follows. Any other one begins the body, as if <|message|> stood before it. Where <|message|> comes later, the body
//     begins anew, and what was before is text of the message.
//   * Text without any token before it is content as soon as it cannot be a header, and at the end of the message where it could.
//   * The body is thinking on the channel analysis and content on all others, but for calls.
//   * On the channel commentary, or none, a body with a recipient is a call. On other channels, and without <|message|>, it is one if
//     it ended with <|call|> or is a JSON object; such a body is held back to its end. A header with a recipient that is ended by
//     <|call|> is a call without arguments.
//
// `continues`: the output goes on with the content of a message on the channel final.
std::unique_ptr<OutputParser> NewHarmonyParser(bool calls = true, bool continues = false);

}  // namespace tally
