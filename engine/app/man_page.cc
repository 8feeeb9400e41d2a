// SPDX-License-Identifier: Apache-2.0
// Manual pages, in the macros of man(7).
#include <algorithm>
#include <cctype>

#include "engine/app/syntax.h"

namespace tally::app {
namespace {

// Text that roff prints as it stands: what is typed can be copied from the page.
std::string Roff(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '\\': out += "\\e"; break;
      case '-': out += "\\-"; break;
      case '\'': out += "\\(aq"; break;
      case '`': out += "\\(ga"; break;
      case '^': out += "\\(ha"; break;
      case '~': out += "\\(ti"; break;
      case '"': out += "\\(dq"; break;
      default: out += c;
    }
  }
  return out.starts_with('.') ? "\\&" + out : out;
}

std::string Bold(const std::string& text) { return "\\fB" + Roff(text) + "\\fR"; }
std::string Italic(const std::string& text) { return "\\fI" + Roff(text) + "\\fR"; }

std::string Upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

std::string ManEntry(const std::string& title, const std::string& text) { return ".TP\n" + title + "\n" + Roff(text) + "\n"; }

std::string ManSynopsis(const ProgramSyntax& program, const CommandSyntax& command) {
  std::string line = Bold(program.program.name);
  if (&command == &program.program) return line + " " + Italic("COMMAND") + " [" + Italic("OPTIONS") + "]\n";
  line += " " + Bold(command.name) + " [" + Italic("OPTIONS") + "]";
  for (const OptionSyntax& option : command.options) {
    if (!option.place.empty()) line += " " + Roff(PlaceText(option));
  }
  return line + "\n";
}

std::string ManOption(const OptionSyntax& option) {
  std::string title;
  for (const std::string& name : option.names) title += (title.empty() ? "" : ", ") + Bold(name);
  if (option.names.empty()) {
    title = Italic(option.place);
  } else if (!option.type.empty()) {
    title += " " + Italic(option.type);
  }
  return ManEntry(title, OptionText(option));
}

std::string ManOptions(const CommandSyntax& command) {
  std::string out;
  for (const OptionSyntax& option : command.options) out += ManOption(option);
  return ".SH OPTIONS\n" + out;
}

std::string ManCommands(const ProgramSyntax& program) {
  std::string out = ".SH COMMANDS\n";
  for (const CommandSyntax& command : program.commands) out += ManEntry(Bold(command.name), command.description);
  return out;
}

std::string ManNotes(const CommandSyntax& command) {
  std::string out;
  for (const std::string& note : command.notes) out += (out.empty() ? ".SH NOTES\n" : ".PP\n") + Roff(note) + "\n";
  return out;
}

std::string ManExamples(const CommandSyntax& command) {
  std::string out;
  for (const std::string& example : command.examples) out += (out.empty() ? ".SH EXAMPLES\n.nf\n" : "") + Roff(example) + "\n";
  return out.empty() ? out : out + ".fi\n";
}

std::string ManRelatives(const ProgramSyntax& program, const CommandSyntax& command) {
  std::string out;
  const auto add = [&](const CommandSyntax& other) {
    if (&other != &command) out += (out.empty() ? "" : ",\n") + Bold(ManPageName(program, other)) + "(1)";
  };
  add(program.program);
  for (const CommandSyntax& other : program.commands) add(other);
  return ".SH SEE ALSO\n" + out + "\n";
}

}  // namespace

std::string ManPageName(const ProgramSyntax& program, const CommandSyntax& command) {
  return program.program.name + (&command == &program.program ? "" : "-" + command.name);
}

std::string ManPage(const ProgramSyntax& program, const CommandSyntax& command, const std::string& version) {
  const std::string page = ManPageName(program, command);
  std::string out = ".TH " + Roff(Upper(page)) + " 1 \"\" \"" + Roff(version) + "\" \"User Commands\"\n";
  out += ".SH NAME\n" + Roff(page) + " \\- " + Roff(command.description) + "\n.SH SYNOPSIS\n" + ManSynopsis(program, command);
  if (&command == &program.program) out += ManCommands(program);
  return out + ManOptions(command) + ManNotes(command) + ManExamples(command) + ManRelatives(program, command);
}

}  // namespace tally::app
