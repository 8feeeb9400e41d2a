// SPDX-License-Identifier: Apache-2.0
#include "engine/app/usage.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <system_error>

#include "engine/app/options.h"
#include "engine/base/edit_distance.h"
#include "engine/base/format.h"
#include "engine/render/words.h"

namespace tally::app {
namespace {

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

// "rnu" and "run": two neighbours have changed places.
bool IsSwap(std::string_view a, std::string_view b) {
  const size_t at = static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
  return a.size() == b.size() && at + 1 < a.size() && a[at] == b[at + 1] && a[at + 1] == b[at] &&
         a.substr(at + 2) == b.substr(at + 2);
}

struct Advice {
  std::vector<std::string_view> names;
  const char* advice;
};

// What other programs call a command of this one.
const std::vector<Advice>& ForeignCommands() {
  static const std::vector<Advice> commands = {{{"generate", "complete", "cli", "main", "chat"}, "run"},
                                               {{"show", "info", "dump"}, "inspect"},
                                               {{"ppl", "eval"}, "perplexity"},
                                               {{"convert"}, "quantize"},
                                               {{"encode", "decode"}, "tokenize"},
                                               {{"params", "flops", "profile", "estimate"}, "count"},
                                               {{"verify", "check"}, "audit"},
                                               {{"download", "get", "fetch"}, "pull"},
                                               {{"models", "tags", "ps"}, "list"},
                                               {{"remove", "delete"}, "rm"}};
  return commands;
}

const char* AdviceFor(const std::vector<Advice>& all, const std::string& name) {
  for (const Advice& a : all) {
    if (std::find(a.names.begin(), a.names.end(), name) != a.names.end()) return a.advice;
  }
  return nullptr;
}

std::vector<std::string> CommandNames(const Command& app) {
  std::vector<std::string> names;
  for (const Command& c : app.commands()) names.push_back(c.name());
  return names;
}

std::vector<std::string> OptionNames(const Command& command) {
  std::vector<std::string> names;
  for (const OptionSyntax& option : command.options()) {
    for (const std::string& name : option.names) {
      if (name.starts_with("--")) names.push_back(name);
    }
  }
  return names;
}

// "--top_k" is "--top-k".
std::string Dashed(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

std::string NoSuchOption(const Command& app, const Command& command, const std::string& given) {
  const std::string name = given.substr(0, given.find('='));
  const std::string text = "there is no option " + Quote(name);
  if (const std::optional<std::string> near = Nearest(Dashed(name), OptionNames(command)))
    return text + ": did you mean " + *near + "?";
  const auto is = [&](std::initializer_list<std::string_view> names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  for (const char* place : {"OUT", "TEXT"}) {
    const bool meant = *place == 'O' ? is({"-o", "--out", "--output", "--outfile"}) : is({"-p", "--prompt"});
    if (meant && command.Has(place)) return text + ": it is the argument " + place;
  }
  std::string others;
  for (const Command& other : app.commands()) {
    if (other.Has(name)) others += (others.empty() ? "" : ", ") + other.name();
  }
  return others.empty() ? text : text + ": it is one of tally " + others;
}

}  // namespace

std::optional<std::string> Nearest(std::string_view given, const std::vector<std::string>& candidates) {
  const std::string wanted = Lower(given);
  const size_t letters = wanted.size() - std::min(wanted.find_first_not_of('-'), wanted.size());
  std::optional<std::string> nearest;
  size_t least = std::min<size_t>(2, (letters + 1) / 3) + 1;  // beyond is another word
  for (const std::string& candidate : candidates) {
    const std::string lower = Lower(candidate);
    size_t distance = IsSwap(wanted, lower) ? 1 : EditDistance(wanted, lower);
    if (letters >= 3 && (lower.starts_with(wanted) || wanted.starts_with(lower))) distance = std::min<size_t>(distance, 1);
    if (distance < least) {
      least = distance;
      nearest = candidate;
    }
  }
  return nearest;
}

Status UnknownCommand(const Command& app, const std::string& first) {
  const std::vector<std::string> names = CommandNames(app);
  const std::string all = Join(names, ", ");
  if (first.starts_with("-")) {
    const auto has = [&](const Command& c) { return c.Has(first); };
    const std::vector<Command> commands = app.commands();
    const bool known = std::any_of(commands.begin(), commands.end(), has);
    return BadInput(Quote(first) + " is not an option of tally itself" +
                    (known ? ": a command comes first, as in tally run " + Printable(first) + " ..." : "") + ": " + all +
                    " (see tally --help)");
  }
  std::string text = "there is no command " + Quote(first) + ": ";
  std::error_code ignored;
  if (const char* here = AdviceFor(ForeignCommands(), Lower(first))) {
    text += "it is tally " + std::string(here) + " here";
  } else if (const std::optional<std::string> near = Nearest(first, names)) {
    text += "did you mean " + *near + "?";
  } else if (first == "demo" || std::filesystem::exists(first, ignored)) {
    text += "to generate with that model, tally run " + Printable(first);
  } else if (!KnownModel(first).empty()) {
    text += "for what that model costs, tally count " + Printable(first);
  } else {
    text += all;
  }
  return BadInput(text + " (see tally --help)");
}

Status ParseFailure(const Command& app, const std::optional<Command>& command, const ParseOutcome& outcome) {
  if (!command) return BadInput(outcome.text + " (see tally --help)");
  const std::string hint = " (see tally " + command->name() + " --help)";
  if (outcome.kind == ParseOutcome::Kind::kNoValue) return BadInput(outcome.text + " takes a value" + hint);
  if (outcome.kind != ParseOutcome::Kind::kTooMany) return BadInput(outcome.text + hint);
  const std::vector<std::string>& extras = outcome.extras;
  const auto is_option = [](const std::string& s) { return s.size() > 1 && s.starts_with("-"); };
  const auto option = std::find_if(extras.begin(), extras.end(), is_option);
  if (option != extras.end()) return BadInput(NoSuchOption(app, *command, *option) + hint);
  const bool prompt = command->Has("--prompt") && command->name() != "bench";
  const std::string extra = extras.empty() ? "" : extras.front();
  return BadInput(Quote(extra) + " is one argument too many" +
                  (CheckCountedType(extra).ok() ? ": a type is --type " + extra
                   : prompt                     ? ": a prompt is -p TEXT"
                                                : "") +
                  hint);
}

}  // namespace tally::app
