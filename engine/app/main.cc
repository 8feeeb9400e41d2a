// SPDX-License-Identifier: Apache-2.0
// tally: the command line. One file per subcommand; this one parses, runs the chosen one, and turns errors into exit codes:
// 0 done, 1 internal error, 2 bad input or usage, 3 accounts disagree, 130 interrupted (143: by SIGTERM).
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <exception>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "engine/app/commands.h"
#include "engine/app/console.h"
#include "engine/app/usage.h"

namespace tally::app {
namespace {

// "tally help", "tally help run" and "tally version" as the options that they stand for.
std::vector<std::string> Arguments(int argc, char** argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.empty()) return arguments;
  if (arguments[0] == "version") arguments[0] = "--version";
  if (arguments[0] != "help") return arguments;
  if (arguments.size() == 1) return {"--help"};
  return {arguments[1], "--help"};
}

int Main(int argc, char** argv) {
  CLI::App app("Tally: a transformer runtime for CPUs that keeps a ledger of what every kernel did.", "tally");
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string("tally ") + kTallyVersion);
  std::vector<std::pair<std::string, Action>> commands;
  std::string names;
  using Add = Action (*)(CLI::App&);
  const std::pair<const char*, Add> kAll[] = {{"run", AddRun},
                                              {"logits", AddLogits},
                                              {"tokenize", AddTokenize},
                                              {"inspect", AddInspect},
                                              {"synth", AddSynth},
                                              {"bench", AddBench},
                                              {"perplexity", AddPerplexity},
                                              {"quantize", AddQuantize},
                                              {"count", AddCount},
                                              {"audit", AddAudit},
                                              {"pull", AddPull},
                                              {"fit", AddFit},
                                              {"report", AddReport}};
  for (const auto& [name, add] : kAll) {
    commands.emplace_back(name, add(app));
    names += (names.empty() ? "" : ", ") + std::string(name);
  }
  std::vector<std::string> arguments = Arguments(argc, argv);
  if (arguments.empty()) return Report(BadInput("a command is needed: " + names + " (see tally --help)"));
  const std::string first = arguments.front();
  const CLI::App* command = nullptr;
  for (const CLI::App* c : std::as_const(app).get_subcommands({})) {
    if (c->get_name() == first) command = c;
  }
  if (command == nullptr && first != "-h" && first != "--help" && first != "--version") return Report(UnknownCommand(app, first));
  if (command != nullptr) {
    const Status foreign = CheckForeignOptions(*command, {arguments.begin() + 1, arguments.end()});
    if (!foreign.ok()) return Report(foreign);
  }
  try {
    std::reverse(arguments.begin(), arguments.end());  // as CLI11 wants them
    app.parse(arguments);
  } catch (const CLI::CallForHelp&) {
    Print(app.help());
    return Report(FlushOutput());
  } catch (const CLI::CallForVersion&) {
    Print(app.version() + "\n");
    return Report(FlushOutput());
  } catch (const CLI::ParseError& e) {
    return Report(ParseFailure(app, command, e));
  }
  for (const auto& [name, action] : commands) {
    if (!app.got_subcommand(name)) continue;
    const int code = action();
    const Status written = FlushOutput();
    if (code != 0 || !written.ok()) return code != 0 ? code : Report(written);
    return NotedAll() ? 0 : 2;
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
  } catch (const std::bad_alloc&) {  // the engine reports its own; this is for strings and lists
    return tally::app::Report(tally::BadInput("not enough memory"));
  } catch (const std::exception& e) {
    return tally::app::Report(tally::InternalError(std::string("unexpected: ") + e.what()));
  }
}
