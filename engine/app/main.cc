// SPDX-License-Identifier: Apache-2.0
// tally: the command line. One file per subcommand; this one parses, runs the chosen one, and turns errors into exit codes:
// 0 done, 1 internal error, 2 bad input or usage, 3 accounts disagree, 130 interrupted (143: by SIGTERM; 129: by SIGHUP).
#include <cxxabi.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <typeinfo>
#include <utility>
#include <vector>

#include "engine/app/build_info.h"
#include "engine/app/commands.h"
#include "engine/app/console.h"
#include "engine/app/foreign_options.h"
#include "engine/app/ranks.h"
#include "engine/app/syntax.h"
#include "engine/app/usage.h"
#include "engine/base/format.h"
#include "engine/machine/instruction_set.h"
#include "engine/machine/machine.h"

namespace tally::app {
namespace {

// The headers of CLI11 make objects before main, which need memory, and where there is none, not even an exception may find room. Then
// the program ends as it does where main finds none. Set before those objects are made; other reasons to terminate stay as they are.
std::terminate_handler g_terminate = nullptr;

[[noreturn]] void Terminate() {
  const std::type_info* const thrown = abi::__cxa_current_exception_type();
  if (thrown != nullptr ? *thrown == typeid(std::bad_alloc) : std::malloc(size_t{1} << 16) == nullptr) {
    constexpr std::string_view kLine = "tally: not enough memory\n";
    _exit(::write(STDERR_FILENO, kLine.data(), kLine.size()) >= 0 ? 2 : 1);
  }
  g_terminate();
  std::abort();
}

[[gnu::constructor(101)]] void SetTerminate() { g_terminate = std::set_terminate(Terminate); }

// Columns of help: the terminal's, but lines that are long are hard to read.
size_t HelpWidth() { return static_cast<size_t>(std::clamp(TerminalWidth(Stream::kOutput, 80), 40, 100)); }

// "tally help", "tally help run", "tally version" and "tally ls" as what they stand for.
std::vector<std::string> Arguments(int argc, char** argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.empty()) return arguments;
  if (arguments[0] == "version") arguments[0] = "--version";
  if (arguments[0] == "ls") arguments[0] = "list";
  if (arguments[0] != "help") return arguments;
  if (arguments.size() == 1) return {"--help"};
  if (arguments[1] == "ls") arguments[1] = "list";
  return {arguments[1], "--help"};
}

int Main(int argc, char** argv) {
  Command app("tally", "Run transformer language models on CPUs, and say exactly what that cost");
  app.HelpFlag("-h,--help", "show this help; options of others: tally help options");
  app.VersionFlag("--version", std::string("tally ") + kTallyVersion, "show the version, the commit, and what is built in");
  std::vector<std::pair<std::string, Action>> commands;
  using Add = Action (*)(Command&);
  const std::pair<const char*, Add> kAll[] = {{"run", AddRun},
                                              {"chat", AddChat},
                                              {"batch", AddBatch},
                                              {"serve", AddServe},
                                              {"count", AddCount},
                                              {"fit", AddFit},
                                              {"audit", AddAudit},
                                              {"claims", AddClaims},
                                              {"bench", AddBench},
                                              {"report", AddReport},
                                              {"pull", AddPull},
                                              {"list", AddList},
                                              {"rm", AddRemove},
                                              {"inspect", AddInspect},
                                              {"perplexity", AddPerplexity},
                                              {"quantize", AddQuantize},
                                              {"pack", AddPack},
                                              {"logits", AddLogits},
                                              {"tokenize", AddTokenize},
                                              {"schema", AddSchema},
                                              {"synth", AddSynth},
                                              {"completion", AddCompletion},
                                              {"man", AddMan}};
  for (const auto& [name, add] : kAll) commands.emplace_back(name, add(app));
  // Not earlier: CLI11 hands it on to the commands that are added after.
  app.Footer("Exit codes: 0 done, 1 internal error, 2 bad input or usage, 3 accounts disagree.");
  std::vector<std::string> arguments = Arguments(argc, argv);
  CommandLine() = "tally";
  for (const std::string& argument : arguments) {
    const bool plain = !argument.empty() && argument.find_first_of(" \t\n\"'$`\\*?&|;<>()#") == argument.npos;
    CommandLine() += " " + (plain ? argument : Quote(argument));
  }
  if (arguments.empty()) {  // as git does: it helps, and a script that has lost its command does not go on
    Print(HelpText(app, "", HelpWidth()));
    const Status written = FlushOutput();
    return written.ok() ? 2 : Report(written);
  }
  if (arguments == std::vector<std::string>{"options", "--help"}) {
    Print(ForeignOptionsText(HelpWidth()));
    return Report(FlushOutput());
  }
  const std::string first = arguments.front();
  std::optional<Command> command;
  for (const Command& c : app.commands()) {
    if (c.name() == first) command = c;
  }
  if (!command && first != "-h" && first != "--help" && first != "--version") return Report(UnknownCommand(app, first));
  if (command) {
    Result<std::vector<std::string>> ours = TranslateOptions(app, *command, std::span(arguments).subspan(1),
                                                             [](const std::string& line) { Note("note: " + line + "\n"); });
    if (!ours.ok()) return Report(ours.status());
    arguments.resize(1);
    arguments.insert(arguments.end(), ours->begin(), ours->end());
  }
  const ParseOutcome parsed = app.Parse(arguments);
  if (parsed.kind == ParseOutcome::Kind::kHelp || parsed.kind == ParseOutcome::Kind::kVersion) {
    const bool help = parsed.kind == ParseOutcome::Kind::kHelp;
    Print(!help            ? app.version() + "\n" + BuildInfo()
          : parsed.command ? HelpText(*parsed.command, app.name(), HelpWidth())
                           : HelpText(app, "", HelpWidth()));
    return Report(FlushOutput());
  }
  if (parsed.kind != ParseOutcome::Kind::kParsed) return Report(ParseFailure(app, command, parsed));
  for (const auto& [name, action] : commands) {
    if (!app.Given(name)) continue;
    if (const Status runs = CheckInstructionSet(); !runs.ok()) return Report(runs);
    if (const Status started = StartRanks(name); !started.ok()) return EndRanks(Report(started));
    if (IsFollower()) return EndRanks(Report(FollowRanks()));
    const int code = action();
    const Status written = FlushOutput();
    if (code != 0 || !written.ok()) return EndRanks(code != 0 ? code : Report(written));
    return EndRanks(NotedAll() ? 0 : 2);
  }
  return Report(InternalError("no command ran"));
}

}  // namespace
}  // namespace tally::app

int main(int argc, char** argv) {
  tally::app::PrepareStandardStreams();
  // Read where OpenBLAS is loaded: else it starts threads that are never used, and hangs where the system refuses it one.
  setenv("OPENBLAS_NUM_THREADS", "1", 1);  // NOLINT(concurrency-mt-unsafe): there is one thread yet
  try {
    return tally::app::Main(argc, argv);
  } catch (const std::bad_alloc&) {  // the engine reports its own; this is for strings and lists, and makes none itself
    std::fputs("tally: not enough memory\n", stderr);
    return 2;
  } catch (const std::exception& e) {
    return tally::app::Report(tally::InternalError(std::string("unexpected: ") + e.what()));
  }
}
