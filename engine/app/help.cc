// SPDX-License-Identifier: Apache-2.0
// What --help prints.
#include <algorithm>

#include "engine/app/syntax.h"
#include "engine/render/words.h"

namespace tally::app {
namespace {

constexpr size_t kOptionColumn = 26;  // where descriptions of options begin

// A title and, from column `indent` on, words that say what it is; below it where the title is too long.
std::string HelpRow(const std::string& title, const std::string& text, size_t indent, size_t width) {
  const std::string label = "  " + title;
  if (label.size() + 2 <= indent) return Paragraph(label, text, width, indent);
  return label + "\n" + Paragraph("", text, width, indent);
}

std::string HelpLines(const std::string& text, size_t width) {
  std::string out;
  for (const std::string& line : WrapWords(text, width)) out += line + "\n";
  return out;
}

std::string HelpUsage(const CommandSyntax& command, const std::string& parent) {
  std::string usage = "Usage: " + (parent.empty() ? "" : parent + " ") + command.name;
  if (parent.empty()) return usage + " COMMAND [OPTIONS]\n";
  usage += " [OPTIONS]";
  for (const OptionSyntax& option : command.options) {
    if (!option.place.empty()) usage += " " + PlaceText(option);
  }
  return usage + "\n";
}

std::string HelpArguments(const CommandSyntax& command, size_t width) {
  std::string out;
  for (OptionSyntax option : command.options) {
    if (option.place.empty()) continue;
    option.names.clear();
    out += HelpRow(OptionTitle(option), OptionText(option), kOptionColumn, width);
  }
  return out.empty() ? out : "\nArguments:\n" + out;
}

std::string HelpOptions(const CommandSyntax& command, size_t width) {
  std::string out = "\nOptions:\n";
  for (const OptionSyntax& option : command.options) {
    if (option.names.empty()) continue;
    out += HelpRow(OptionTitle(option), option.place.empty() ? OptionText(option) : "the same as " + option.place, kOptionColumn,
                   width);
  }
  return out;
}

std::string HelpCommands(const ProgramSyntax& program, size_t width) {
  size_t longest = 0;
  for (const CommandSyntax& command : program.commands) longest = std::max(longest, command.name.size());
  std::string out = "\nCommands:\n";
  for (const CommandSyntax& command : program.commands) out += HelpRow(command.name, command.description, longest + 4, width);
  return out;
}

}  // namespace

std::string HelpText(const Command& app, const std::string& parent, size_t width) {
  const CommandSyntax command = SyntaxOf(app);
  std::string out = HelpLines(command.description, width) + (parent.empty() ? "" : "\n") + HelpUsage(command, parent);
  if (parent.empty()) out += HelpCommands(ProgramSyntaxOf(app), width);
  out += HelpArguments(command, width) + HelpOptions(command, width);
  if (!command.notes.empty() && !parent.empty()) out += "\n";  // the program's fits a screen
  for (const std::string& note : command.notes) out += HelpLines(note, width);
  if (!command.examples.empty()) out += "\nExamples:\n";
  for (const std::string& example : command.examples) out += "  " + example + "\n";
  return out;
}

}  // namespace tally::app
