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
  command.Flag("--no-jump", flags.no_jump, "draw also the tokens that the schema or grammar decides");
}

Result<std::string> ReadSchema(const std::string& given) {
  const size_t first = given.find_first_not_of(" \t\r\n");
  if (first != std::string::npos && given[first] == '{') return given;
  return ReadPromptText(given);
}

Result<std::shared_ptr<Grammar>> ReadGrammar(const GrammarFlags& flags) {
  const auto named = [](const std::string& option, Result<std::shared_ptr<Grammar>> grammar) -> Result<std::shared_ptr<Grammar>> {
    if (!grammar.ok()) return Status(grammar.status().code(), option + ": " + Printable(grammar.status().message()));
    return grammar;
  };
  if (flags.spaced && !flags.schema) return BadInput("--spaced needs --schema");
  std::shared_ptr<Grammar> grammar;
  if (flags.schema) {
    TALLY_ASSIGN_OR_RETURN(const std::string schema, ReadSchema(*flags.schema));
    const SchemaOptions options = {.space = flags.spaced ? JsonSpace::kOne : JsonSpace::kNone};
    TALLY_ASSIGN_OR_RETURN(grammar, named("--schema", Grammar::FromSchema(schema, options)));
  } else if (flags.regex) {
    TALLY_ASSIGN_OR_RETURN(grammar, named("--regex", Grammar::FromRegex(*flags.regex)));
  } else if (flags.grammar) {
    TALLY_ASSIGN_OR_RETURN(const std::string text, ReadPromptText(*flags.grammar));
    TALLY_ASSIGN_OR_RETURN(grammar, named("--grammar", Grammar::FromGbnf(text)));
  }
  if (grammar != nullptr) {
    for (const std::string& what : grammar->ignored()) Note("note: --schema: " + Printable(what) + " says nothing here\n");
  }
  return grammar;
}

}  // namespace tally::app
