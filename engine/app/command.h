// SPDX-License-Identifier: Apache-2.0
// Commands and their options. CLI11 parses; its headers are large, so that command.cc alone includes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace tally::app {

// What help, manual pages and completions say of an option.
struct OptionSyntax {
  std::vector<std::string> names = {};  // "-m", "--model"; none: an argument alone
  std::string place = {};               // "MODEL": also an argument without a name; empty: it is not
  std::string type = {};                // "FILE"; empty: takes nothing
  std::string description = {};
  std::string preset = {};                // the default, as text; empty: none is shown
  std::vector<std::string> choices = {};  // none: anything of its type
  bool required = false;
  bool many = false;  // may be given several times
};

// An option of a command. Copies are the same option, which its command owns.
class CommandOption {
 public:
  explicit CommandOption(CLI::Option* option) : option_(option) {}

  CommandOption Type(const std::string& name);    // what it takes: "FILE"
  CommandOption Preset();                         // shows what the variable holds now as the default
  CommandOption Preset(const std::string& text);  // shows the text
  CommandOption Describe(const std::string& description);
  CommandOption Choices(const std::vector<std::string_view>& choices);  // shows them; whoever reads the option checks them
  CommandOption Required();
  CommandOption OneEach();  // one value each time that it is given; without it those that follow are taken too
  CommandOption Commas();   // a value is several with commas between them
  CommandOption Within(int least, int greatest);
  CommandOption Check(const std::function<std::string(const std::string&)>& wrong);  // wrong(value): what is wrong, or empty
  CommandOption Excludes(CommandOption other);
  size_t count() const;  // how many times it was given

 private:
  CLI::Option* option_;
};

struct ParseOutcome;

// A program or one of its commands. Copies are the same command. Names of options are as in "-m,--model"; MODEL,-m,--model is also an
// argument without a name. Variables that options fill live as long as the program.
class Command {
 public:
  Command(const std::string& name, const std::string& description);  // a program: one command must be given

  Command Add(const std::string& name, const std::string& description);
  CommandOption Option(const std::string& names, std::string& value, const std::string& description);
  CommandOption Option(const std::string& names, std::optional<std::string>& value, const std::string& description);
  CommandOption Option(const std::string& names, std::vector<std::string>& value, const std::string& description);
  CommandOption Option(const std::string& names, int& value, const std::string& description);
  CommandOption Option(const std::string& names, int64_t& value, const std::string& description);
  // read(text) takes the value, and gives what is wrong with it, or nothing. `shown`: the option's name in messages.
  CommandOption Option(const std::string& names, const std::string& shown,
                       const std::function<std::string(const std::string&)>& read, const std::string& description);
  CommandOption Flag(const std::string& names, bool& value, const std::string& description);
  CommandOption Get(const std::string& name);  // an option that there is
  void HelpFlag(const std::string& names, const std::string& description);
  void VersionFlag(const std::string& name, const std::string& version, const std::string& description);
  void Footer(const std::string& text);

  std::string name() const;
  std::string description() const;
  std::string footer() const;
  std::string version() const;
  std::vector<Command> commands() const;
  std::vector<OptionSyntax> options() const;  // in the order of their definition
  bool Has(const std::string& option) const;
  bool TakesValue(const std::string& option) const;
  size_t Count(const std::string& option) const;  // how many times it was given
  bool Given(const std::string& command) const;   // it is the one that was parsed

  ParseOutcome Parse(std::vector<std::string> arguments);

 private:
  explicit Command(std::shared_ptr<CLI::App> app) : app_(std::move(app)) {}

  std::shared_ptr<CLI::App> app_;
};

struct ParseOutcome {
  enum class Kind { kParsed, kHelp, kVersion, kNoValue, kTooMany, kFailed };
  Kind kind = Kind::kParsed;
  std::string text;                 // kNoValue: the option; kFailed, kTooMany: CLI11's message
  std::vector<std::string> extras;  // kTooMany: arguments of the command that nothing takes
  std::optional<Command> command;   // the one that was given, if any
};

}  // namespace tally::app
