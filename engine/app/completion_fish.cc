// SPDX-License-Identifier: Apache-2.0
// Completion for fish.
#include "engine/app/syntax.h"
#include "engine/render/words.h"

namespace tally::app {
namespace {

std::string FishText(const std::string& text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return out + "'";
}

// What can stand where `option` wants something: options of `complete`.
std::string FishKind(const OptionSyntax& option) {
  const std::string choices = Join(option.choices, " ");
  if (!choices.empty()) return option.type == kListType ? "-a '(__tally_list " + choices + ")'" : "-a " + FishText(choices);
  if (option.type == kFileType) return "-F";
  if (option.type == kFolderType) return "-a '(__fish_complete_directories)'";
  if (option.type == kModelType) return "-k -a '(__tally_models)'";
  if (option.type == kNameType) return "-k -a '(__tally_models; __tally_names)'";
  return "";
}

// "complete" for an option, by its names, or, without them, for an argument.
std::string FishLine(const std::string& condition, const OptionSyntax& option, bool by_name) {
  std::string line = "complete -c tally -n " + FishText(condition);
  if (by_name) {
    for (const std::string& name : option.names)
      line += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  }
  if (const std::string kind = FishKind(option); !option.type.empty()) {
    if (by_name) line += kind == "-F" ? " -r" : " -x";
    line += kind.empty() ? "" : " " + kind;
  }
  if (by_name) line += " -d " + FishText(Summary(option.description));
  return line + "\n";
}

std::string FishLines(const std::string& condition, const CommandSyntax& command) {
  std::string out;
  for (const OptionSyntax& option : command.options) {
    if (!option.names.empty()) out += FishLine(condition, option, true);
    if (!option.place.empty() && !FishKind(option).empty()) out += FishLine(condition, option, false);
  }
  return out;
}

constexpr const char* kFishFunctions = R"sh(# fish completion for tally, written by `tally completion fish`.

function __tally_command # COMMAND: it is the one of this line; without: there is none yet
    set -l words (commandline -opc)
    if test (count $argv) -eq 0
        test (count $words) -eq 1
    else
        test (count $words) -ge 2; and test $words[2] = $argv[1]
    end
end

function __tally_models
    echo demo
    __fish_complete_suffix .gguf
    set -l cache $HOME/.cache
    set -q XDG_CACHE_HOME; and set cache $XDG_CACHE_HOME
    set cache $cache/huggingface
    set -q HF_HOME; and set cache $HF_HOME
    set cache $cache/hub
    set -q HF_HUB_CACHE; and set cache $HF_HUB_CACHE
    for folder in $cache/models--*--*
        string replace -r '.*/models--(.*?)--' '$1/' $folder
    end
end

function __tally_list # WORD...: one more of them, behind what this argument has already
    set -l head (string match -r '.*,' -- (commandline -ct))
    printf '%s\n' "$head"$argv
end
)sh";

}  // namespace

std::string FishCompletion(const ProgramSyntax& program, const std::vector<std::string>& names) {
  std::string out = kFishFunctions;
  out += "\nfunction __tally_names\n    printf '%s\\n' " + Join(names, " ") + "\nend\n\ncomplete -c tally -f\n";
  out += FishLines("__tally_command", program.program);
  for (const CommandSyntax& command : program.commands) {
    out += "complete -c tally -n __tally_command -a " + command.name + " -d " + FishText(command.description) + "\n";
  }
  for (const CommandSyntax& command : program.commands) out += FishLines("__tally_command " + command.name, command);
  return out;
}

}  // namespace tally::app
