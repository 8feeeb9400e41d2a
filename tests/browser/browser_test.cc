// SPDX-License-Identifier: Apache-2.0
// Reports in Chromium (check.mjs): nothing is fetched, no error, no violation that axe-core finds, labels that cover nothing, sorting and
// filtering. Screenshots stay in the build folder.
#include "tests/support/npm.h"

#include "engine/page/page.h"
#include "tests/page/sample_run.h"

namespace tally {
namespace {

constexpr const char* kSources = TALLY_SOURCE_DIR "/tests/browser";
constexpr const char* kInstalled = TALLY_BROWSER_DIR;
constexpr const char* kScreenshots = TALLY_SCREENSHOTS;

// Debian's name, and others'.
std::string Chromium() {
  for (const char* name : {"chromium", "chromium-browser", "google-chrome"}) {
    if (HasProgram(name)) return name;
  }
  return "";
}

// Why reports cannot be opened here; empty where they can.
std::string Missing() {
  if (Chromium().empty()) return "no chromium here (scripts/install_deps.sh --ci installs it)";
  return InstallNpm(kSources, kInstalled, {"check.mjs"});
}

// What check.mjs says of these pages.
std::string Check(const std::vector<std::pair<std::string, std::string>>& pages) {
  std::filesystem::create_directories(kScreenshots);
  const TempFolder folder;
  std::string command = "cd '" + std::string(kInstalled) + "' && node check.mjs \"$(command -v " + Chromium() + ")\" '" + kScreenshots + "'";
  for (const auto& [name, text] : pages) command += " '" + folder.Write(name + ".html", text) + "'";
  const int code = Shell(command + " >'" + folder / "said" + "' 2>&1");
  const std::string said = ReadAll(folder / "said");
  EXPECT_EQ(code, 0) << said;
  return said;
}

TEST(Browser, ReportsAreReadable) {
  if (const std::string missing = Missing(); !missing.empty()) GTEST_SKIP() << missing;
  const std::vector<ReportData> runs = {page::SampleMoe(), page::SampleDense()};
  const std::string said = Check({{"moe", RenderPage({runs.data(), 1})},
                                  {"dense", RenderPage({runs.data() + 1, 1})},
                                  {"compared", RenderPage(runs)}});
  for (const char* name : {"moe", "dense", "compared"}) EXPECT_NE(said.find(std::string(name) + ": opens in"), std::string::npos) << said;
}

// The check itself sees what it is there for.
TEST(Browser, TheCheckFindsWhatIsWrong) {
  if (const std::string missing = Missing(); !missing.empty()) GTEST_SKIP() << missing;
  std::string page = RenderPage({});
  page.replace(page.find("<main>"), 6,
               "<main><figure id=\"bad\"><svg class=\"picture\" width=\"3000\" height=\"20\"><title>t</title><text x=\"0\" y=\"12\">one</text>"
               "<text x=\"4\" y=\"12\" style=\"fill:#999\">two</text></svg><table><thead></thead><tbody></tbody></table></figure>"
               "<p style=\"width:3000px\">wide</p><img src=\"https://localhost:1/x.png\">");
  const TempFolder folder;
  std::filesystem::create_directories(kScreenshots);
  const std::string file = folder.Write("bad.html", page);
  const int code = Shell("cd '" + std::string(kInstalled) + "' && node check.mjs \"$(command -v " + Chromium() + ")\" '" + folder.path() + "' '" + file +
                         "' >'" + folder / "said" + "' 2>&1");
  const std::string said = ReadAll(folder / "said");
  EXPECT_EQ(code, 1) << said;
  for (const char* finding : {"'one' and 'two' cover each other", "'two' has a contrast of", "px wide", "axe: image-alt", "console: ", "no table to sort"}) {
    EXPECT_NE(said.find(finding), std::string::npos) << finding << "\n" << said;
  }
}

}  // namespace
}  // namespace tally
