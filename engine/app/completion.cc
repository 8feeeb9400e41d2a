// SPDX-License-Identifier: Apache-2.0
// tally completion and tally man: what shells and man(1) read, written from the command line itself.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "engine/api/tally.h"
#include "engine/app/commands.h"
#include "engine/app/console.h"
#include "engine/app/output_files.h"
#include "engine/app/syntax.h"
#include "engine/app/usage.h"
#include "engine/base/format.h"
#include "engine/machine/kept_file.h"

namespace tally::app {
namespace {

// With `tally help COMMAND`, which is no command of its own.
ProgramSyntax CompletedSyntax(const Command& app) {
  ProgramSyntax program = ProgramSyntaxOf(app);
  OptionSyntax command{.place = "COMMAND", .type = "COMMAND"};
  for (const CommandSyntax& c : program.commands) command.choices.push_back(c.name);
  program.commands.push_back({.name = "help", .description = "The same as COMMAND --help", .options = {command}});
  return program;
}

Status RunCompletion(const Command& app, const std::string& shell) {
  using Writer = std::string (*)(const ProgramSyntax&, const std::vector<std::string>&);
  const std::pair<const char*, Writer> writers[] = {{"bash", BashCompletion}, {"zsh", ZshCompletion}, {"fish", FishCompletion}};
  const std::vector<std::string_view> known = KnownModels();
  for (const auto& [name, write] : writers) {
    if (shell != name) continue;
    Print(write(CompletedSyntax(app), {known.begin(), known.end()}));
    return {};
  }
  return BadInput("SHELL must be one of bash, zsh, fish, not " + Quote(shell));
}

struct ManFlags {
  std::string command, folder;
  bool force = false;
};

Status WritePages(const ProgramSyntax& program, const std::string& version, const ManFlags& flags) {
  std::vector<const CommandSyntax*> pages = {&program.program};
  for (const CommandSyntax& command : program.commands) pages.push_back(&command);
  const auto name = [&](const CommandSyntax* page) { return ManPageName(program, *page) + ".1"; };
  for (const CommandSyntax* page : pages) {
    TALLY_RETURN_IF_ERROR(CheckMayReplace(flags.folder + "/" + name(page), flags.force));
  }
  std::error_code failed;
  std::filesystem::create_directories(flags.folder, failed);
  if (failed) return BadInput(flags.folder + ": cannot be made: " + failed.message());
  for (const CommandSyntax* page : pages) {
    if (!WriteKeptFile(flags.folder, name(page), ManPage(program, *page, version))) {
      return BadInput(flags.folder + "/" + name(page) + ": cannot be written");
    }
  }
  return {};
}

Status RunMan(const Command& app, const ManFlags& flags) {
  const ProgramSyntax program = ProgramSyntaxOf(app);
  if (!flags.folder.empty() && !flags.command.empty()) return BadInput("-o DIR takes all pages: leave COMMAND out");
  if (!flags.folder.empty()) return WritePages(program, app.version(), flags);
  const auto named = [&](const CommandSyntax& c) { return c.name == flags.command; };
  const auto found = std::find_if(program.commands.begin(), program.commands.end(), named);
  if (found == program.commands.end() && !flags.command.empty()) return UnknownCommand(app, flags.command);
  Print(ManPage(program, flags.command.empty() ? program.program : *found, app.version()));
  return {};
}

}  // namespace

Action AddCompletion(Command& app) {
  auto shell = std::make_shared<std::string>();
  Command c = app.Add("completion", "Print the script that completes tally's options in a shell");
  Choices(c.Option("SHELL", *shell, "shell that reads it").Required(), {"bash", "zsh", "fish"});
  AddExamples(c, {"source <(tally completion bash)", "tally completion fish > ~/.config/fish/completions/tally.fish"});
  return [&app, shell] { return Report(RunCompletion(app, *shell)); };
}

// The last of all commands: it knows those that were added before.
Action AddMan(Command& app) {
  auto flags = std::make_shared<ManFlags>();
  Command c = app.Add("man", "Print a manual page, in roff");
  std::vector<std::string_view> names;
  std::vector<std::string> commands;
  for (const Command& command : app.commands()) commands.push_back(command.name());
  names.assign(commands.begin(), commands.end());
  Choices(c.Option("COMMAND", flags->command, "command whose page it is (else: tally's own)"), names);
  c.Option("-o,--out", flags->folder, "write all pages into this folder instead: tally.1, tally-run.1 ...").Type(kFolderType);
  AddForce(c, flags->force);
  AddExamples(c, {"tally man run | man -l -", "tally man -o ~/.local/share/man/man1"});
  return [&app, flags] { return Report(RunMan(app, *flags)); };
}

}  // namespace tally::app
