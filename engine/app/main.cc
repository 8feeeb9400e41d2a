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

namespace tally::app {
namespace {

constexpr const char* kUsageHint = " (see tally --help)";

int Main(int argc, char** argv) {
  CLI::App app("Tally: a transformer runtime for CPUs that keeps a ledger of what every kernel did.", "tally");
  app.require_subcommand(1);
  app.set_version_flag("--version", "tally 0.2.0");
  std::vector<std::pair<std::string, Action>> commands;
  std::string names;
  using Add = Action (*)(CLI::App&);
  const std::pair<const char*, Add> kAll[] = {
      {"run", AddRun},     {"logits", AddLogits},         {"tokenize", AddTokenize}, {"inspect", AddInspect}, {"synth", AddSynth},
      {"bench", AddBench}, {"perplexity", AddPerplexity}, {"quantize", AddQuantize}, {"count", AddCount},     {"audit", AddAudit},
      {"pull", AddPull}};
  for (const auto& [name, add] : kAll) {
    commands.emplace_back(name, add(app));
    names += (names.empty() ? "" : ", ") + std::string(name);
  }
  if (argc < 2) return Report(BadInput("a command is needed: " + names + kUsageHint));
  const std::string first = argv[1];
  const auto is_command = [&](const auto& c) { return c.first == first; };
  if (!first.starts_with("-") && std::none_of(commands.begin(), commands.end(), is_command)) {
    return Report(BadInput("there is no command '" + first + "': " + names + kUsageHint));
  }
  if (first.starts_with("-") && first != "-h" && first != "--help" && first != "--version") {
    return Report(BadInput("'" + first + "' is not an option of tally itself: " + names + kUsageHint));
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    Print(app.help());
    return Report(FlushOutput());
  } catch (const CLI::CallForVersion&) {
    Print(app.version() + "\n");
    return Report(FlushOutput());
  } catch (const CLI::ParseError& e) {
    std::string hint = kUsageHint;
    for (const auto& [name, action] : commands) {
      if (app.got_subcommand(name)) hint = " (see tally " + name + " --help)";
    }
    return Report(BadInput(e.what() + hint));
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
