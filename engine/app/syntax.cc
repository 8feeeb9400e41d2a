// SPDX-License-Identifier: Apache-2.0
#include "engine/app/syntax.h"

#include <algorithm>

#include "engine/render/words.h"

namespace tally::app {
namespace {

constexpr std::string_view kExamples = "Examples:";

std::vector<std::string> Split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const size_t end = std::min(text.find(separator), text.size());
    if (end > 0) parts.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(text.size(), end + 1));
  }
  return parts;
}

}  // namespace

CommandOption Choices(CommandOption option, const std::vector<std::string_view>& choices) { return option.Choices(choices); }

CommandOption FileOption(CommandOption option) { return option.Type(kFileType); }

void AddExamples(Command& command, const std::vector<std::string>& examples) {
  std::string footer = command.footer();
  footer += (footer.empty() ? "" : "\n") + std::string(kExamples);
  for (const std::string& example : examples) footer += "\n" + example;
  command.Footer(footer);
}

CommandSyntax SyntaxOf(const Command& command) {
  CommandSyntax syntax{.name = command.name(), .description = command.description()};
  std::vector<std::string>* lines = &syntax.notes;
  for (const std::string& line : Split(command.footer(), '\n')) {
    if (line == kExamples) {
      lines = &syntax.examples;
    } else {
      lines->push_back(line);
    }
  }
  syntax.options = command.options();
  return syntax;
}

ProgramSyntax ProgramSyntaxOf(const Command& app) {
  ProgramSyntax program{.program = SyntaxOf(app)};
  for (const Command& command : app.commands()) program.commands.push_back(SyntaxOf(command));
  return program;
}

std::string OptionTitle(const OptionSyntax& option) {
  if (option.names.empty()) return option.place + (option.many ? "..." : "");
  return Join(option.names, ", ") + (option.type.empty() ? "" : " " + option.type);
}

std::string OptionText(const OptionSyntax& option) {
  std::string text = option.description;
  if (!option.choices.empty()) text += (text.empty() ? "" : ": ") + Join(option.choices, ", ");
  if (!option.type.empty() && !option.preset.empty()) text += " [default: " + option.preset + "]";
  return text;
}

std::string PlaceText(const OptionSyntax& option) {
  if (option.place.empty()) return "";
  const std::string text = option.place + (option.many ? "..." : "");
  return option.required ? text : "[" + text + "]";
}

std::string Summary(const std::string& description) {
  size_t end = description.size();
  for (const char* mark : {" (", ": ", "; ", ". "}) end = std::min(end, description.find(mark));
  return description.substr(0, end);
}

}  // namespace tally::app
