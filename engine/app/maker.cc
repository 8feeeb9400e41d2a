// SPDX-License-Identifier: Apache-2.0
// What made a document: the version and commit of the program, and the day.
#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <string>
#include <string_view>
#include <utility>

#include "engine/app/build_info.h"
#include "engine/app/commands.h"
#include "engine/app/console.h"
#include "engine/app/json.h"
#include "engine/app/numbers.h"

namespace tally::app {
namespace {

// UTC: "2026-11-25". The day of SOURCE_DATE_EPOCH if that is set (https://reproducible-builds.org/specs/source-date-epoch), so that a
// document can be made again to the byte.
std::string Day() {
  int64_t seconds = std::time(nullptr);
  const char* const given = std::getenv("SOURCE_DATE_EPOCH");  // NOLINT(concurrency-mt-unsafe): nothing here sets variables
  if (given != nullptr) ParseNumber(std::string_view(given), seconds);
  const auto time = static_cast<std::time_t>(seconds);
  std::tm utc{};
  char text[32] = "";
  if (::gmtime_r(&time, &utc) == nullptr || std::strftime(text, sizeof text, "%Y-%m-%d", &utc) == 0) return "";
  return text;
}

std::string WithColumns(std::string_view lines, const std::string& first, const std::string& others) {
  std::string text;
  for (const std::string* more = &first; !lines.empty(); more = &others) {
    const size_t end = std::min(lines.find('\n'), lines.size());
    text += std::string(lines.substr(0, end)) + *more + "\n";
    lines.remove_prefix(std::min(lines.size(), end + 1));
  }
  return text;
}

std::string Cells() { return std::string(",") + kTallyVersion + "," + Day(); }

}  // namespace

Json Maker() { return {{"version", kTallyVersion}, {"commit", Commit()}, {"date", Day()}}; }

void PrintJson(Json document) {
  document["tally"] = Maker();
  Print(JsonText(document) + "\n");
}

std::string MarkedCsv(std::string_view csv) { return WithColumns(csv, ",tally_version,date", Cells()); }

std::string MarkedCsvLines(std::string_view lines) {
  static const std::string cells = Cells();  // of millions of lines
  return WithColumns(lines, cells, cells);
}

}  // namespace tally::app
