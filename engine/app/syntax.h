// SPDX-License-Identifier: Apache-2.0
// The command line as data, read from what the commands have added. Help, man pages and completions are written from it, so that
// each name, description, choice and example stands once: where a command adds its options.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/app/command.h"

namespace tally::app {

// Type names of options (CommandOption::Type) that say what can be completed. Others are text, which cannot.
inline constexpr const char* kFileType = "FILE";
inline constexpr const char* kFolderType = "DIR";
inline constexpr const char* kModelType = "MODEL";  // demo, a GGUF file, a folder, a name of the hub
inline constexpr const char* kNameType = "NAME";    // these, and built-in names
inline constexpr const char* kListType = "LIST";    // several, with commas between them

// Says what an option takes. Whether it is one of them is checked by who reads the option.
CommandOption Choices(CommandOption option, const std::vector<std::string_view>& choices);

// An option that names a file.
CommandOption FileOption(CommandOption option);

// Adds examples, each a line of a shell, to the end of a command's help. What the footer has already stays before them.
void AddExamples(Command& command, const std::vector<std::string>& examples);

struct CommandSyntax {
  std::string name = {}, description = {};
  std::vector<std::string> notes = {};  // paragraphs
  std::vector<std::string> examples = {};
  std::vector<OptionSyntax> options = {};  // in the order of their definition; without hidden ones
};

struct ProgramSyntax {
  CommandSyntax program = {};  // its own options
  std::vector<CommandSyntax> commands = {};
};

CommandSyntax SyntaxOf(const Command& command);
ProgramSyntax ProgramSyntaxOf(const Command& app);

// "-m, --model MODEL", or an argument's "MODEL..."
std::string OptionTitle(const OptionSyntax& option);
// The description with choices and default.
std::string OptionText(const OptionSyntax& option);
// "[MODEL...]"; empty where an option is no argument.
std::string PlaceText(const OptionSyntax& option);
// The part of a description that says enough in a list: up to its first parenthesis, colon or semicolon.
std::string Summary(const std::string& description);

// What --help prints, in lines of at most `width` columns. `parent`: "tally", or empty for the program itself.
std::string HelpText(const Command& command, const std::string& parent, size_t width);

// A page of section 1 in roff's man macros: of a command of `program`, or of program.program, both by reference. `version`: "tally 0.2.0".
std::string ManPage(const ProgramSyntax& program, const CommandSyntax& command, const std::string& version);
std::string ManPageName(const ProgramSyntax& program, const CommandSyntax& command);  // "tally-run", "tally"

// Scripts that complete command lines. `names`: what kNameType takes besides models.
std::string BashCompletion(const ProgramSyntax& program, const std::vector<std::string>& names);
std::string ZshCompletion(const ProgramSyntax& program, const std::vector<std::string>& names);
std::string FishCompletion(const ProgramSyntax& program, const std::vector<std::string>& names);

}  // namespace tally::app
