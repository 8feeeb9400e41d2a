// SPDX-License-Identifier: Apache-2.0
// The options of `tally chat`, and what they make: the template, and the request that every turn sends.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/api/tally.h"
#include "engine/app/command.h"
#include "engine/app/grammar_options.h"
#include "engine/app/options.h"
#include "engine/base/status.h"

namespace tally::app {

struct ChatFlags {
  ModelFlags model;
  std::optional<std::string> prompt, file;         // the first message
  std::optional<std::string> system, system_file;  // the system prompt
  std::optional<std::string> chat_template, template_vars, tools, session;
  std::string effort;
  bool think = false, no_think = false;
  int64_t tokens = -1;
  SamplingOptions sampling;
  std::string draft;
  GrammarFlags grammar;
  std::vector<std::string> stop;
  bool show_prompt = false, json = false, quiet = false, seed_drawn = false;
};
void AddChatFlags(Command& command, ChatFlags& flags);

// Settings of the request: tools, effort, thinking, variables, the date; its messages: the system prompt, where one was given.
// kBadInput names the option.
Result<ChatRequest> RequestOf(const ChatFlags& flags);

// "NAME  what it does" of a tool of these settings.
std::string ToolText(const std::string& tool);

// The first message, where an option gives one, or standard input that is no terminal, which is read for it. kBadInput: several.
Result<std::optional<std::string>> FirstMessage(const ChatFlags& flags);

// --template-vars: each variable's JSON text. kBadInput: no object, or one that names what a request sets itself.
Result<std::map<std::string, std::string>> ReadTemplateVars(const std::string& text);

// --chat-template
void AddChatTemplate(Command& command, std::optional<std::string>& chat_template);
// What --chat-template names; without it the checkpoint's own, or of several the one for tools where the request has some. `name`: of the
// model, in messages. kBadInput: there is none, and no other is taken in its place.
Result<ChatTemplateSource> FindTemplate(const std::optional<std::string>& chat_template, const std::string& name,
                                        const Model& model, bool tools);
// Whether --chat-template names a file, which is run as it is.
bool IsTemplateFile(const std::optional<std::string>& chat_template);

}  // namespace tally::app
