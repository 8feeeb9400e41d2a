// SPDX-License-Identifier: Apache-2.0
#include "engine/app/chat_options.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "engine/app/chat_templates.h"
#include "engine/app/draft.h"
#include "engine/app/numbers.h"
#include "engine/app/syntax.h"
#include "engine/base/format.h"
#include "engine/base/json.h"

namespace tally::app {
namespace {

using ReadDocument = nlohmann::ordered_json;

constexpr std::array<std::string_view, 3> kEfforts = {"low", "medium", "high"};

Status ReadTools(const std::string& path, ChatRequest* request) {
  const std::string where = "--tools " + Quote(path);
  TALLY_ASSIGN_OR_RETURN(const std::string text, ReadText(path));
  TALLY_ASSIGN_OR_RETURN(const ReadDocument tools, ReadJson<ReadDocument>(where, text, kOrderedJsonLimits));
  if (!tools.is_array()) return BadInput(where + ": expected an array of tools");
  for (const ReadDocument& tool : tools) {
    const auto function = tool.find("function");
    const bool named = tool.is_object() && function != tool.end() && function->is_object() && function->contains("name") &&
                       function->at("name").is_string();
    if (!named) {
      return BadInput(where + ": tool " + std::to_string(request->tools.size() + 1) +
                      R"(: expected {"type": "function", "function": {"name": ...}})");
    }
    request->tools.push_back(tool.dump());
  }
  return {};
}

// Of a template that is not the checkpoint's: what the tokenizer has.
std::map<std::string, std::string> SpecialTokens(const Model& model) {
  std::map<std::string, std::string> special;
  const Tokenizer* const tokenizer = model.tokenizer();
  if (tokenizer == nullptr) return special;
  const std::vector<int32_t> ends = tokenizer->eos();
  for (const auto& [name, id] : {std::pair{"bos_token", tokenizer->bos()}, {"eos_token", ends.empty() ? -1 : ends.front()}}) {
    if (std::string text = id >= 0 ? tokenizer->ControlText(id) : ""; !text.empty()) special.emplace(name, std::move(text));
  }
  return special;
}

}  // namespace

void AddChatFlags(Command& command, ChatFlags& flags) {
  AddModelFlags(command, flags.model);
  TextOption(command.Option("-p,--prompt", flags.prompt,
                            "the first message (-: standard input, also read, as one message, if it is no terminal)"));
  FileOption(command.Option("-f,--file", flags.file, "file with the first message; one newline at its end is dropped"));
  const CommandOption system =
      TextOption(command.Option("--system", flags.system, "system prompt: what holds for the whole conversation"));
  FileOption(command.Option("--system-file", flags.system_file, "file with the system prompt")).Excludes(system);
  AddChatTemplate(command, flags.chat_template);
  TextOption(command.Option("--template-vars", flags.template_vars, "further variables of the template, as a JSON object"))
      .Type("JSON");
  Choices(command.Option("--reasoning-effort", flags.effort, "how much to think, for models that know it"),
          {kEfforts.begin(), kEfforts.end()});
  const CommandOption think = command.Flag("--thinking", flags.think, "ask for thinking (the template's enable_thinking)");
  command.Flag("--no-thinking", flags.no_think, "ask for none").Excludes(think);
  FileOption(command.Option("--tools", flags.tools, "JSON file with an array of tools; calls are shown, /tool gives a result"));
  FileOption(
      command.Option("--session", flags.session, "file that the conversation goes on from, if it is there, and is kept in"));
  AddNumber(command, "-n,--tokens", flags.tokens, "most tokens of an answer (-1 or -2: until the context is full)");
  AddSampling(command, flags.sampling, flags.seed_drawn);
  TextOption(command.Option("--stop", flags.stop, "end an answer before this text (may be repeated)"));
  AddDraft(command, flags.draft);
  AddGrammar(command, flags.grammar);
  AddJump(command, flags.grammar);
  command.Flag("--show-prompt", flags.show_prompt, "say what the template made of the conversation, before every answer");
  command.Flag("-q,--quiet", flags.quiet, "the answers alone, neither thinking nor books");
  command.Flag("--json", flags.json, "one message, one answer, one JSON document on standard output");
}

std::string ToolText(const std::string& tool) {
  const ReadDocument function = ReadDocument::parse(tool, nullptr, false).value("function", ReadDocument::object());
  return Printable(function.value("name", "")) + "  " + Printable(function.value("description", ""));
}

Result<ChatRequest> RequestOf(const ChatFlags& flags) {
  ChatRequest request;
  if (!flags.effort.empty()) {
    TALLY_RETURN_IF_ERROR(CheckOneOf("--reasoning-effort", flags.effort, {kEfforts.begin(), kEfforts.end()}));
  }
  request.reasoning_effort = flags.effort;
  if (flags.think || flags.no_think) request.thinking = flags.think;
  request.now = std::time(nullptr);
  if (flags.tools) TALLY_RETURN_IF_ERROR(ReadTools(*flags.tools, &request));
  if (flags.template_vars) {
    TALLY_ASSIGN_OR_RETURN(request.variables, ReadTemplateVars(*flags.template_vars));
  }
  std::optional<std::string> system = flags.system;
  if (flags.system_file) {
    TALLY_ASSIGN_OR_RETURN(system, ReadPromptText(*flags.system_file));
  }
  if (system) request.messages.push_back({.role = "system", .content = *system});
  return request;
}

Result<std::optional<std::string>> FirstMessage(const ChatFlags& flags) {
  if (flags.prompt && flags.file) return BadInput("give the first message once: -p TEXT or -f FILE");
  if (flags.file || flags.prompt == "-") {
    TALLY_ASSIGN_OR_RETURN(std::string text, ReadPromptText(flags.file.value_or("-")));
    return std::optional(std::move(text));
  }
  if (flags.prompt) return flags.prompt;
  return GivenInput();
}

Result<std::map<std::string, std::string>> ReadTemplateVars(const std::string& text) {
  TALLY_ASSIGN_OR_RETURN(const ReadDocument read, ReadJson<ReadDocument>("--template-vars", text, kOrderedJsonLimits));
  if (!read.is_object()) return BadInput("--template-vars: expected an object, {\"name\": value}");
  std::map<std::string, std::string> variables;
  for (const auto& [name, value] : read.items()) {
    if (name == "messages" || name == "tools" || name == "add_generation_prompt") {
      return BadInput("--template-vars cannot set " + name);
    }
    variables[name] = value.dump();
  }
  return variables;
}

void AddChatTemplate(Command& command, std::optional<std::string>& chat_template) {
  FileOption(command.Option("--chat-template", chat_template,
                            "how a conversation is written for the model, a file of Jinja or one of " + ChatTemplateNames() +
                                " (else the checkpoint's own)"));
}

bool IsTemplateFile(const std::optional<std::string>& chat_template) {
  return chat_template && FindChatTemplate(*chat_template) == nullptr;
}

Result<ChatTemplateSource> FindTemplate(const std::optional<std::string>& chat_template, const std::string& name,
                                        const Model& model, bool tools) {
  if (!chat_template) {
    TALLY_RETURN_IF_ERROR(model.chat_templates().status());
    const std::vector<ChatTemplateSource>& found = *model.chat_templates();
    if (found.empty()) {
      return BadInput(name + ": the model has no chat template: give --chat-template FILE|NAME (" + ChatTemplateNames() + ")");
    }
    const auto for_tools = std::ranges::find(found, "tool_use", &ChatTemplateSource::name);  // as transformers names it
    return tools && for_tools != found.end() ? *for_tools : found.front();
  }
  const std::string& given = *chat_template;
  ChatTemplateSource source = {.special_tokens = SpecialTokens(model)};
  std::error_code ignored;
  if (const NamedTemplate* const named = FindChatTemplate(given); named != nullptr) {
    source.text = named->text;
    source.origin = "--chat-template " + given;
  } else if (!std::filesystem::exists(given, ignored)) {
    return BadInput("--chat-template " + Quote(given) + ": no such file, and none of the names " + ChatTemplateNames());
  } else {
    TALLY_ASSIGN_OR_RETURN(source.text, ReadText(given));
    source.origin = given;
  }
  return source;
}

}  // namespace tally::app
