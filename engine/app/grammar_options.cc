// SPDX-License-Identifier: Apache-2.0
#include "engine/app/grammar_options.h"

#include "engine/app/console.h"
#include "engine/app/options.h"
#include "engine/app/syntax.h"
#include "engine/base/format.h"

namespace tally::app {

void AddGrammar(Command& command, GrammarFlags& flags) {
  const CommandOption schema =
      command.Option("--schema", flags.schema, "the answer is JSON that this JSON Schema allows: a file, or the schema itself")
          .Type("FILE|JSON")
          .OneEach();
  const CommandOption regex =
      command.Option("--regex", flags.regex, "the answer matches this regular expression, as a whole").Type("PATTERN").OneEach();
  FileOption(command.Option("--grammar", flags.grammar, "the answer follows this grammar, as llama.cpp writes them (GBNF)"))
      .Excludes(schema)
      .Excludes(regex);
  CommandOption(regex).Excludes(schema);
  command.Flag("--spaced", flags.spaced, "with --schema: a space after each comma and colon");
}

void AddJump(Command& command, GrammarFlags& flags) {
  command.Flag("--no-jump", flags.no_jump, "draw also the tokens that the schema or grammar decides");
}

namespace {

// A file's name, or the schema itself, which begins with {.
Result<std::string> ReadSchema(const std::string& given) {
  const size_t first = given.find_first_not_of(" \t\r\n");
  if (first != std::string::npos && given[first] == '{') return given;
  return ReadPromptText(given);
}

}  // namespace

Result<GivenGrammar> ReadGrammar(const GrammarFlags& flags) {
  if (flags.spaced && !flags.schema) return BadInput("--spaced needs a JSON Schema");
  GivenGrammar given;
  std::string option;
  Result<std::shared_ptr<Grammar>> grammar = std::shared_ptr<Grammar>();
  if (flags.schema) {
    option = "--schema";
    TALLY_ASSIGN_OR_RETURN(given.text, ReadSchema(*flags.schema));
    grammar = Grammar::FromSchema(given.text, {.space = flags.spaced ? JsonSpace::kOne : JsonSpace::kNone});
  } else if (flags.regex) {
    option = "--regex";
    given.text = *flags.regex;
    grammar = Grammar::FromRegex(given.text);
  } else if (flags.grammar) {
    option = "--grammar";
    TALLY_ASSIGN_OR_RETURN(given.text, ReadPromptText(*flags.grammar));
    grammar = Grammar::FromGbnf(given.text);
  }
  if (!grammar.ok()) return Status(grammar.status().code(), option + ": " + Printable(grammar.status().message()));
  given.grammar = *grammar;
  if (given.grammar != nullptr) {
    for (const std::string& what : given.grammar->ignored()) Note("note: --schema: " + Printable(what) + " says nothing here\n");
  }
  return given;
}

}  // namespace tally::app
