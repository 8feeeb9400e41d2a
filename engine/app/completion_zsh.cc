// SPDX-License-Identifier: Apache-2.0
// Completion for zsh, by _arguments.
#include "engine/app/syntax.h"
#include "engine/render/words.h"

namespace tally::app {
namespace {

// Text inside an argument of _arguments, in single quotes.
std::string ZshText(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
      continue;
    }
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

// "MESSAGE:ACTION": what can stand where `option` wants something.
std::string ZshArgument(const OptionSyntax& option) {
  const std::string message = option.place.empty() ? option.type : option.place, choices = Join(option.choices, " ");
  if (!choices.empty()) return message + (option.type == kListType ? ":_values -s , value " + choices : ":(" + choices + ")");
  if (option.type == kFileType) return message + ":_files";
  if (option.type == kFolderType) return message + ":_files -/";
  if (option.type == kModelType) return message + ":__tally_models";
  if (option.type == kNameType) return message + ":__tally_names";
  return message + ": ";
}

std::string ZshOption(const OptionSyntax& option) {
  std::string out;
  for (const std::string& name : option.names) {
    out += "      '" + (option.many ? "*" : "(" + Join(option.names, " ") + ")") + name;
    if (!option.type.empty()) out += name.starts_with("--") ? "=" : "+";
    out += "[" + ZshText(Summary(option.description)) + "]" + (option.type.empty() ? "" : ":" + ZshArgument(option)) + "' \\\n";
  }
  return out;
}

std::string ZshCommand(const CommandSyntax& command) {
  std::string out = "    " + command.name + ")\n      _arguments -s -S \\\n", places;
  int place = 0;
  for (const OptionSyntax& option : command.options) {
    out += ZshOption(option);
    if (option.place.empty()) continue;
    // "*:", not "*::", which would hide the words before from what completes.
    places += "      '" + (option.many ? "*:" : std::to_string(++place) + (option.required ? ":" : "::")) + ZshArgument(option) +
              "' \\\n";
  }
  out += places;
  out.resize(out.size() - 3);  // the last " \\\n"
  return out + "\n      ;;\n";
}

constexpr const char* kZshFunctions = R"sh(#compdef tally
# zsh completion for tally, written by `tally completion zsh`.

__tally_models() {
  local cache=${HF_HUB_CACHE:-${HF_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/huggingface}/hub}
  local -a models
  models=($cache/models--*--*(N/:t))
  models=(demo ${${models#models--}/--//})
  _alternative 'models:model:compadd -a models' 'files:file:_files -g "*.gguf(-.)"'
}
)sh";

constexpr const char* kZshMain = R"sh(
_tally() {
  local context curcontext=$curcontext state state_descr line
  local -A opt_args
)sh";

}  // namespace

std::string ZshCompletion(const ProgramSyntax& program, const std::vector<std::string>& names) {
  std::string commands, cases, options;
  for (const CommandSyntax& command : program.commands) {
    commands += "    '" + command.name + ":" + ZshText(command.description) + "'\n";
    cases += ZshCommand(command);
  }
  for (const OptionSyntax& option : program.program.options) options += ZshOption(option);
  return kZshFunctions + ("\n__tally_names() {\n  local -a names=(" + Join(names, " ") + ")\n") +
         "  _alternative \"names:built-in name:compadd -M 'm:{a-zA-Z}={A-Za-z}' -a names\" 'models:model:__tally_models'\n}\n\n" +
         "__tally_commands() {\n  local -a commands=(\n" + commands + "  )\n  _describe command commands\n}\n" + kZshMain +
         "  _arguments -C \\\n" + options + "      '1:command:__tally_commands' \\\n      '*::argument:->argument' && return\n" +
         "  case $line[1] in\n" + cases + "  esac\n}\n\n" +
         "if [[ $funcstack[1] == _tally ]]; then _tally \"$@\"; else compdef _tally tally; fi\n";
}

}  // namespace tally::app
