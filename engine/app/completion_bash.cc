// SPDX-License-Identifier: Apache-2.0
// Completion for bash. It needs nothing of the package bash-completion, so that it can be sourced by itself.
#include "engine/app/syntax.h"
#include "engine/render/words.h"

namespace tally::app {
namespace {

// __tally_offer's argument: what can stand where `option` wants something.
std::string BashKind(const OptionSyntax& option) {
  if (!option.choices.empty()) return (option.type == kListType ? "list " : "words ") + Join(option.choices, " ");
  if (option.type == kFileType) return "file";
  if (option.type == kFolderType) return "folder";
  if (option.type == kModelType) return "model";
  if (option.type == kNameType) return "name";
  return "text";
}

std::string BashOptions(const CommandSyntax& command) {
  std::string names;
  for (const OptionSyntax& option : command.options) {
    if (!option.names.empty()) names += (names.empty() ? "" : " ") + Join(option.names, " ");
  }
  return names;
}

std::string BashCommand(const CommandSyntax& command) {
  std::string places;
  for (const OptionSyntax& option : command.options) {
    if (option.place.empty()) continue;
    places += (places.empty() ? "'" : " '") + BashKind(option) + "'";
    if (option.many) places += " many";
  }
  return "    " + command.name + ")\n      options='" + BashOptions(command) + "'\n      places=(" + places + ")\n      ;;\n";
}

std::string BashArguments(const CommandSyntax& command) {
  std::string cases;
  for (const OptionSyntax& option : command.options) {
    if (option.type.empty() || option.names.empty()) continue;
    std::string patterns;
    for (const std::string& name : option.names) patterns += (patterns.empty() ? "'" : " | '") + command.name + " " + name + "'";
    cases += "    " + patterns + ") kind='" + BashKind(option) + "' ;;\n";
  }
  return cases;
}

constexpr const char* kBashModels = R"sh(
# Names of models in the Hugging Face hub's cache: ORG/NAME.
__tally_cached() {
  local cache=${HF_HUB_CACHE:-${HF_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/huggingface}/hub} folder
  for folder in "$cache"/models--*--*; do
    [[ -d $folder ]] || continue
    folder=${folder##*/models--}
    printf '%s\n' "${folder/--//}"
  done
}

# Those of the words on standard input that begin like `cur`, in small letters or capitals.
__tally_matching() {
  local word
  while read -r word; do
    if [[ ${word,,} == "${cur,,}"* ]]; then COMPREPLY+=("$word"); fi
  done
}

__tally_files() {  # OPTION... of compgen
  local file
  compopt -o filenames 2>/dev/null
  while IFS= read -r file; do COMPREPLY+=("$file"); done < <(compgen "$@" -- "$cur" | sort -u)
}

# KIND: what may stand here, into COMPREPLY.
__tally_offer() {
  local head
  case $1 in
    'words '*) __tally_matching < <(printf '%s\n' ${1#words }) ;;
    'list '*)
      head=${cur%"${cur##*,}"}
      compopt -o nospace 2>/dev/null
      COMPREPLY=($(compgen -P "$head" -W "${1#list }" -- "${cur##*,}"))
      ;;
    file) __tally_files -f ;;
    folder) __tally_files -d ;;
    model | name)
      __tally_files -d
      __tally_files -f -X '!*.gguf'
      if [[ $1 == name ]]; then __tally_files -f -X '!*.json'; fi
      __tally_matching < <(echo demo; __tally_cached; if [[ $1 == name ]]; then printf '%s\n' $__tally_names; fi)
      ;;
  esac
}
)sh";

constexpr const char* kBashMain = R"sh(
_tally() {
  local cur=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]} options kind word
  local -a places
  local -i i argument place=0
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    if [[ $cur == -* ]]; then command=$__tally_options; else command=$__tally_commands; fi
    __tally_matching < <(printf '%s\n' $command)
    return
  fi
  __tally_command || return
  for ((i = 2; i < COMP_CWORD; ++i)); do
    word=${COMP_WORDS[i]}
    if [[ $word != -?* ]]; then
      if [[ ${places[place + 1]} != many ]]; then place+=1; fi
      continue
    fi
    __tally_argument "$word"
    if [[ -z $kind ]]; then continue; fi
    argument=i+1
    if [[ ${COMP_WORDS[argument]} == '=' ]]; then  # bash cuts --kv=f16 into three words
      if ((argument == COMP_CWORD)); then cur=; else argument+=1; fi
    fi
    if ((argument >= COMP_CWORD)); then
      __tally_offer "$kind"
      return
    fi
    i=argument
  done
  if [[ $cur == -* ]]; then
    __tally_matching < <(printf '%s\n' $options)
  else
    __tally_offer "${places[place]}"
  fi
}

complete -F _tally tally
)sh";

}  // namespace

std::string BashCompletion(const ProgramSyntax& program, const std::vector<std::string>& names) {
  std::string commands, command_cases, argument_cases;
  for (const CommandSyntax& command : program.commands) {
    commands += (commands.empty() ? "" : " ") + command.name;
    command_cases += BashCommand(command);
    argument_cases += BashArguments(command);
  }
  return "# bash completion for tally, written by `tally completion bash`.\n\n__tally_commands='" + commands +
         "'\n__tally_options='" + BashOptions(program.program) + "'\n__tally_names='" + Join(names, " ") + "'\n\n" +
         "# Sets `options`, and `places`: the kind of each argument that is no option's; `many` behind one that may be "
         "repeated.\n"
         "__tally_command() {\n  case $command in\n" +
         command_cases + "    *) return 1 ;;\n  esac\n}\n\n" +
         "# OPTION: sets `kind`, what stands behind it; empty where nothing does.\n"
         "__tally_argument() {\n  kind=\n  case \"$command $1\" in\n" +
         argument_cases + "  esac\n}\n" + kBashModels + kBashMain;
}

}  // namespace tally::app
