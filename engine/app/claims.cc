// SPDX-License-Identifier: Apache-2.0
// tally claims: which published figures hold, and under which convention.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "engine/api/tally.h"
#include "engine/app/commands.h"
#include "engine/app/console.h"
#include "engine/app/json.h"
#include "engine/app/options.h"
#include "engine/app/syntax.h"
#include "engine/base/format.h"
#include "engine/render/words.h"
#include "engine/reports/claims_page.h"

namespace tally::app {
namespace {

struct ClaimsFlags {
  std::vector<std::string> sections;
  std::string format = "table";
  uint64_t width = 0;
  bool json = false;
};

Status RunClaims(const ClaimsFlags& flags) {
  if (flags.json && flags.format != "table" && flags.format != "json") return BadInput("--json is not --format " + flags.format);
  const std::string format = flags.json ? "json" : flags.format;
  TALLY_RETURN_IF_ERROR(CheckOneOf("--format", format, {"table", "md", "csv", "json"}));
  for (const std::string& section : flags.sections) {
    TALLY_RETURN_IF_ERROR(CheckOneOf("SECTION", section, ClaimsSectionNames()));
  }
  const std::vector<ClaimsSection> sections = ClaimsSections(flags.sections);
  if (format == "json") {
    PrintJson(ClaimsPageJson(sections));
  } else if (format == "csv") {
    Print(MarkedCsv(ClaimsPageCsv(sections)));
  } else if (format == "md") {
    Print(ClaimsPage(sections));
  } else {
    Print(ClaimsPageText(sections, OutputWidth(flags.width)));
  }
  return {};
}

}  // namespace

Action AddClaims(Command& app) {
  auto flags = std::make_shared<ClaimsFlags>();
  Command c = app.Add("claims", "Published figures of models, beside what is counted: which hold");
  Choices(
      c.Option("SECTION", flags->sections,
               "parts of docs/claims.md, else all: course texts, published code, hybrids, FLOPs of a model in another's, what a "
               "token costs, the built-in models"),
      ClaimsSectionNames());
  Choices(c.Option("--format", flags->format, "what is printed").Preset(), {"table", "md", "csv", "json"});
  AddWidth(c, flags->width);
  c.Flag("--json", flags->json, "one JSON document on standard output");
  AddExamples(c, {"tally claims code cost", "tally claims --format md > claims.md"});
  return [flags] { return Report(RunClaims(*flags)); };
}

}  // namespace tally::app
