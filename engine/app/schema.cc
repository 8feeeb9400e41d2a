// SPDX-License-Identifier: Apache-2.0
// tally schema: whether a JSON Schema, a regular expression or a grammar can be held, and what is in it.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/api/tally.h"
#include "engine/app/commands.h"
#include "engine/app/console.h"
#include "engine/app/grammar_options.h"
#include "engine/app/json.h"
#include "engine/app/options.h"
#include "engine/app/syntax.h"
#include "engine/base/format.h"
#include "engine/machine/machine.h"
#include "engine/render/words.h"

namespace tally::app {
namespace {

struct SchemaFlags {
  std::optional<std::string> file;
  GrammarFlags grammar;
  std::vector<std::string> accepts;
  bool keywords = false, json = false;
};

struct Accepted {
  std::string file;
  bool accepted = false;
};

int PrintKeywords(bool as_json) {
  if (as_json) {
    Json keywords = Json::Object();
    for (const SchemaKeyword& keyword : SchemaKeywords()) keywords[std::string(keyword.name)] = std::string(keyword.held);
    Json formats = Json::Array();
    for (const std::string_view format : SchemaFormats()) formats.Add(std::string(format));
    PrintJson({{"keywords", keywords}, {"formats", formats}});
    return 0;
  }
  std::string text = "| Keyword | Held |\n| --- | --- |\n";
  for (const SchemaKeyword& keyword : SchemaKeywords()) {
    text += "| `" + std::string(keyword.name) + "` | " + std::string(keyword.held) + " |\n";
  }
  text += "\nFormats:";
  for (const std::string_view format : SchemaFormats()) text += (text.ends_with(':') ? " `" : ", `") + std::string(format) + "`";
  Print(text + "\n");
  return 0;
}

Result<int> RunSchema(const SchemaFlags& flags) {
  if (flags.keywords) return PrintKeywords(flags.json);
  GrammarFlags given = flags.grammar;
  if (flags.file) {
    if (given.schema || given.regex || given.grammar) return BadInput("give one of FILE, --schema, --regex and --grammar");
    given.schema = flags.file;
  }
  if (!given.schema && !given.regex && !given.grammar) return BadInput("give FILE, a JSON Schema, or --regex or --grammar");
  const double begin = MonotonicSeconds();
  TALLY_ASSIGN_OR_RETURN(const GivenGrammar read, ReadGrammar(given));
  const std::shared_ptr<Grammar>& grammar = read.grammar;
  const double seconds = MonotonicSeconds() - begin;
  std::vector<Accepted> values;
  bool all = true;
  for (const std::string& file : flags.accepts) {
    TALLY_ASSIGN_OR_RETURN(const std::string text, ReadPromptText(file));
    Accepted value{.file = file};
    if (given.schema) {
      const Result<bool> accepted = grammar->AcceptsDocument(text);
      if (!accepted.ok()) return BadInput(Printable(file) + ": " + accepted.status().message());
      value.accepted = *accepted;
    } else {
      value.accepted = grammar->Accepts(text);
    }
    all &= value.accepted;
    values.push_back(value);
  }
  if (flags.json) {
    Json ignored = Json::Array(), accepted = Json::Array();
    for (const std::string& what : grammar->ignored()) ignored.Add(what);
    for (const Accepted& value : values) accepted.Add({{"file", value.file}, {"accepted", value.accepted}});
    PrintJson({{"held", true},
               {"seconds", seconds},
               {"states", static_cast<int64_t>(grammar->states())},
               {"bytes", static_cast<int64_t>(grammar->bytes())},
               {"ignored", ignored},
               {"values", accepted}});
  } else {
    Print("held: " + Counted(static_cast<int64_t>(grammar->states()), "state") + " so far, " + BytesText(grammar->bytes()) +
          "\n");
    for (const Accepted& value : values) Print((value.accepted ? "accepted: " : "not accepted: ") + Printable(value.file) + "\n");
  }
  return all ? 0 : 2;
}

}  // namespace

Action AddSchema(Command& app) {
  auto flags = std::make_shared<SchemaFlags>();
  Command c = app.Add("schema", "Whether a JSON Schema can be held exactly, and what it allows");
  c.Option("FILE", flags->file, "the JSON Schema: a file (-: standard input), or the schema itself").Type("FILE|JSON");
  AddGrammar(c, flags->grammar);
  FileOption(c.Option("--accepts", flags->accepts,
                      "a document, or a text for --regex and --grammar, that is to be in it (may be repeated)"));
  c.Flag("--keywords", flags->keywords, "the keywords and formats of JSON Schema, and what is done with each");
  c.Flag("--json", flags->json, "one JSON document on standard output");
  AddExamples(c, {"tally schema --regex \"[A-Z][a-z]+\"", "tally schema --keywords"});
  return [flags] { return Report(RunSchema(*flags)); };
}

}  // namespace tally::app
