// SPDX-License-Identifier: Apache-2.0
#include "engine/app/syntax.h"

#include <CLI/CLI.hpp>
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

// Of "TEXT:{a,b}", which CLI11 makes of a type name and what its validators say of themselves.
std::vector<std::string> ChoicesOf(const std::string& full_type) {
  const size_t begin = full_type.find(":{");
  if (begin == std::string::npos) return {};
  const size_t end = full_type.find('}', begin);
  return Split(std::string_view(full_type).substr(begin + 2, end - begin - 2), ',');
}

OptionSyntax SyntaxOf(const CLI::Option& option) {
  OptionSyntax syntax;
  for (const std::string& name : option.get_snames()) syntax.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) syntax.names.push_back("--" + name);
  if (option.get_positional()) syntax.place = option.get_name(true, false);
  const std::string type = option.get_type_name();
  if (option.get_items_expected_max() > 0) syntax.type = type.substr(0, type.find(':'));
  syntax.choices = ChoicesOf(type);
  syntax.description = option.get_description();
  syntax.preset = option.get_default_str();
  syntax.required = option.get_required();
  syntax.many = option.get_expected_max() == CLI::detail::expected_max_vector_size;
  return syntax;
}

}  // namespace

CLI::Option* Choices(CLI::Option* option, const std::vector<std::string_view>& choices) {
  std::string text;
  for (const std::string_view choice : choices) text += (text.empty() ? "{" : ",") + std::string(choice);
  return option->check(CLI::Validator([](std::string&) { return std::string(); }, text + "}"));
}

CLI::Option* FileOption(CLI::Option* option) { return option->type_name(kFileType); }

void AddExamples(CLI::App& command, const std::vector<std::string>& examples) {
  std::string footer = command.get_footer();
  footer += (footer.empty() ? "" : "\n") + std::string(kExamples);
  for (const std::string& example : examples) footer += "\n" + example;
  command.footer(footer);
}

CommandSyntax SyntaxOf(const CLI::App& command) {
  CommandSyntax syntax{.name = command.get_name(), .description = command.get_description()};
  std::vector<std::string>* lines = &syntax.notes;
  for (const std::string& line : Split(command.get_footer(), '\n')) {
    if (line == kExamples) {
      lines = &syntax.examples;
    } else {
      lines->push_back(line);
    }
  }
  for (const CLI::Option* option : command.get_options()) {
    if (!option->get_group().empty()) syntax.options.push_back(SyntaxOf(*option));
  }
  return syntax;
}

ProgramSyntax ProgramSyntaxOf(const CLI::App& app) {
  ProgramSyntax program{.program = SyntaxOf(app)};
  for (const CLI::App* command : app.get_subcommands({})) program.commands.push_back(SyntaxOf(*command));
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
