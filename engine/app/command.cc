// SPDX-License-Identifier: Apache-2.0
#include "engine/app/command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string_view>

namespace tally::app {
namespace {

// Of "TEXT:{a,b}", which CLI11 makes of a type name and what its validators say of themselves.
std::vector<std::string> ChoicesOf(const std::string& full_type) {
  const size_t begin = full_type.find(":{");
  if (begin == std::string::npos) return {};
  const size_t end = full_type.find('}', begin);
  std::string_view rest = std::string_view(full_type).substr(begin + 2, end - begin - 2);
  std::vector<std::string> choices;
  while (!rest.empty()) {
    const size_t length = std::min(rest.find(','), rest.size());
    if (length > 0) choices.emplace_back(rest.substr(0, length));
    rest.remove_prefix(std::min(rest.size(), length + 1));
  }
  return choices;
}

OptionSyntax SyntaxOfOption(const CLI::Option& option) {
  OptionSyntax syntax;
  for (const std::string& name : option.get_snames()) syntax.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) syntax.names.push_back("--" + name);
  if (option.get_positional()) syntax.place = option.get_name(true, false);
  const std::string type = option.get_type_name();
  if (option.get_items_expected_max() > 0) syntax.type = type.substr(0, type.find(':'));
  syntax.choices = ChoicesOf(type);
  syntax.description = option.get_description();
  syntax.preset = option.get_default_str();
  syntax.required = option.get_required();
  syntax.many = option.get_expected_max() == CLI::detail::expected_max_vector_size;
  return syntax;
}

}  // namespace

CommandOption CommandOption::Type(const std::string& name) { return CommandOption(option_->type_name(name)); }
CommandOption CommandOption::Preset() { return CommandOption(option_->capture_default_str()); }
CommandOption CommandOption::Preset(const std::string& text) { return CommandOption(option_->default_str(text)); }
CommandOption CommandOption::Describe(const std::string& description) { return CommandOption(option_->description(description)); }
CommandOption CommandOption::Choices(const std::vector<std::string_view>& choices) {
  std::string text;
  for (const std::string_view choice : choices) text += (text.empty() ? "{" : ",") + std::string(choice);
  return CommandOption(option_->check(CLI::Validator([](std::string&) { return std::string(); }, text + "}")));
}
CommandOption CommandOption::Required() { return CommandOption(option_->required()); }
CommandOption CommandOption::OneEach() { return CommandOption(option_->allow_extra_args(false)); }
CommandOption CommandOption::Commas() { return CommandOption(option_->delimiter(',')); }
CommandOption CommandOption::Within(int least, int greatest) {
  return CommandOption(option_->check(CLI::Range(least, greatest)));
}
CommandOption CommandOption::Check(const std::function<std::string(const std::string&)>& wrong) {
  return CommandOption(option_->check(CLI::Validator([wrong](std::string& text) { return wrong(text); }, "")));
}
CommandOption CommandOption::Excludes(CommandOption other) { return CommandOption(option_->excludes(other.option_)); }
size_t CommandOption::count() const { return option_->count(); }

Command::Command(const std::string& name, const std::string& description) : app_(std::make_shared<CLI::App>(description, name)) {
  app_->require_subcommand(1);
}

Command Command::Add(const std::string& name, const std::string& description) {
  return Command(app_->get_subcommand_ptr(app_->add_subcommand(name, description)));
}
CommandOption Command::Option(const std::string& names, std::string& value, const std::string& description) {
  return CommandOption(app_->add_option(names, value, description));
}
CommandOption Command::Option(const std::string& names, std::optional<std::string>& value, const std::string& description) {
  return CommandOption(app_->add_option(names, value, description));
}
CommandOption Command::Option(const std::string& names, std::vector<std::string>& value, const std::string& description) {
  return CommandOption(app_->add_option(names, value, description));
}
CommandOption Command::Option(const std::string& names, int& value, const std::string& description) {
  return CommandOption(app_->add_option(names, value, description));
}
CommandOption Command::Option(const std::string& names, int64_t& value, const std::string& description) {
  return CommandOption(app_->add_option(names, value, description));
}
CommandOption Command::Option(const std::string& names, const std::string& shown,
                              const std::function<std::string(const std::string&)>& read, const std::string& description) {
  return CommandOption(app_->add_option_function<std::string>(
      names,
      [shown, read](const std::string& text) {
        const std::string wrong = read(text);
        if (!wrong.empty()) throw CLI::ValidationError(shown, wrong);
      },
      description));
}
CommandOption Command::Flag(const std::string& names, bool& value, const std::string& description) {
  return CommandOption(app_->add_flag(names, value, description));
}
CommandOption Command::Get(const std::string& name) { return CommandOption(app_->get_option(name)); }
void Command::HelpFlag(const std::string& names, const std::string& description) { app_->set_help_flag(names, description); }
void Command::VersionFlag(const std::string& name, const std::string& version, const std::string& description) {
  app_->set_version_flag(name, version, description);
}
void Command::Footer(const std::string& text) { app_->footer(text); }

std::string Command::name() const { return app_->get_name(); }
std::string Command::description() const { return app_->get_description(); }
std::string Command::footer() const { return app_->get_footer(); }
std::string Command::version() const { return app_->version(); }
std::vector<Command> Command::commands() const {
  std::vector<Command> commands;
  for (CLI::App* command : app_->get_subcommands({})) commands.push_back(Command(app_->get_subcommand_ptr(command)));
  return commands;
}
std::vector<OptionSyntax> Command::options() const {
  std::vector<OptionSyntax> options;
  for (const CLI::Option* option : std::as_const(*app_).get_options()) options.push_back(SyntaxOfOption(*option));
  return options;
}
bool Command::Has(const std::string& option) const { return std::as_const(*app_).get_option_no_throw(option) != nullptr; }
bool Command::TakesValue(const std::string& option) const {
  const CLI::Option* const found = option.starts_with("-") ? std::as_const(*app_).get_option_no_throw(option) : nullptr;
  return found != nullptr && found->get_items_expected_min() > 0;
}
size_t Command::Count(const std::string& option) const { return app_->count(option); }
bool Command::Given(const std::string& command) const { return app_->got_subcommand(command); }

ParseOutcome Command::Parse(std::vector<std::string> arguments) {
  using Kind = ParseOutcome::Kind;
  ParseOutcome outcome;
  try {
    std::reverse(arguments.begin(), arguments.end());  // as CLI11 wants them
    app_->parse(arguments);
  } catch (const CLI::CallForHelp&) {
    outcome.kind = Kind::kHelp;
  } catch (const CLI::CallForVersion&) {
    outcome.kind = Kind::kVersion;
  } catch (const CLI::ExtrasError& error) {
    outcome.kind = Kind::kTooMany;
    outcome.text = error.what();
  } catch (const CLI::ArgumentMismatch& error) {  // "--tokens: 1 required INT missing"
    outcome.text = error.what();
    outcome.kind = outcome.text.ends_with(" missing") ? Kind::kNoValue : Kind::kFailed;
    if (outcome.kind == Kind::kNoValue) outcome.text.resize(std::min(outcome.text.find(':'), outcome.text.size()));
  } catch (const CLI::ParseError& error) {
    outcome.kind = Kind::kFailed;
    outcome.text = error.what();
  }
  const std::vector<CLI::App*> given = app_->get_subcommands();
  if (!given.empty()) outcome.command = Command(app_->get_subcommand_ptr(given.back()));
  if (outcome.kind == Kind::kTooMany && outcome.command) outcome.extras = outcome.command->app_->remaining();
  return outcome;
}

}  // namespace tally::app
