// SPDX-License-Identifier: Apache-2.0
// tally report, and --report of other commands.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/app/runner.h"
#include "tests/support/temp_folder.h"

namespace tally {
namespace {

using Json = nlohmann::json;

const std::string kSparse = std::string(TALLY_SOURCE_DIR) + "/tests/goldens/gptoss/gptoss-a-top4of8-realyarn";

void ExpectPage(const std::string& path, const std::string& part) {
  const std::string page = ReadAll(path);
  EXPECT_TRUE(page.starts_with("<!doctype html>")) << path;
  EXPECT_LT(page.find("tally report"), 1024u) << path;
  EXPECT_NE(page.find(part), std::string::npos) << part;
  EXPECT_LT(page.size(), 2'000'000u);
}

TEST(CliReport, AModelIsRunForItsPage) {
  const TempFolder dir;
  const Ended e = Tally({"report", "demo", "-n", "6", "-o", dir / "r.html", "--svg", dir / "pictures"});
  ASSERT_EQ(e.code, 0) << e.err;
  EXPECT_TRUE(e.out.starts_with(dir / "r.html: ")) << e.out;
  EXPECT_NE(e.out.find("demo, 7 steps; "), std::string::npos) << e.out;
  EXPECT_NE(e.out.find("rows compared, all agree\n"), std::string::npos) << e.out;
  ExpectPage(dir / "r.html", "S-MBU");
  size_t pictures = 0;
  for (const auto& entry : std::filesystem::directory_iterator(dir / "pictures")) {
    ++pictures;
    EXPECT_EQ(entry.path().extension(), ".svg");
    EXPECT_NE(ReadAll(entry.path().string()).find("<svg"), std::string::npos);
  }
  EXPECT_GE(pictures, 5u);
}

TEST(CliReport, RunAuditAndBenchWriteOne) {
  const TempFolder dir;
  const std::string run = dir / "run.html", audit = dir / "audit.html", bench = dir / "bench.html", ledger = dir / "l.jsonl";
  Ended e = Tally({"run", kSparse, "--prompt-tokens", "1,2,3", "-n", "4", "--ledger", ledger, "--report", run});
  ASSERT_EQ(e.code, 0) << e.err;
  ExpectPage(run, "S-MFU");
  // A page of the ledger holds the same figures: only the source and the size of a page differ.
  e = Tally({"report", ledger, "-o", dir / "again.html", "--json"});
  ASSERT_EQ(e.code, 0) << e.err;
  const Json again = Json::parse(e.out);
  EXPECT_EQ(again["runs"][0]["model"], kSparse);
  EXPECT_EQ(again["runs"][0]["steps"], 4);
  EXPECT_TRUE(again["runs"][0]["absent"].empty()) << again;
  EXPECT_TRUE(again["runs"][0]["metrics"][0]["value"].is_number());
  e = Tally({"report", ledger, ledger, "-o", dir / "two.html"});
  ASSERT_EQ(e.code, 0) << e.err;
  ExpectPage(dir / "two.html", "l.jsonl");
  e = Tally({"audit", kSparse, "-n", "2", "--report", audit});
  ASSERT_EQ(e.code, 0) << e.err;
  ExpectPage(audit, "rows");
  e = Tally({"bench", kSparse, "-p", "8", "-n", "4", "-r", "1", "--report", bench});
  ASSERT_EQ(e.code, 0) << e.err;
  ExpectPage(bench, "S-MBU");
}

TEST(CliReport, BadInputIsOneLine) {
  const TempFolder dir;
  const std::string page = dir / "r.html", text = dir.Write("text.html", "not ours"), bad = dir.Write("bad.jsonl", "{}\n");
  const auto refused = [&](const std::vector<std::string>& arguments, const std::string& part) {
    const Ended e = Tally(arguments);
    EXPECT_EQ(e.code, 2) << part;
    EXPECT_TRUE(IsOneLine(e.err)) << e.err;
    EXPECT_NE(e.err.find(part), std::string::npos) << e.err;
    EXPECT_FALSE(std::filesystem::exists(page));
  };
  refused({"report", dir / "none.gguf", "-o", page}, "none.gguf");
  refused({"report", bad, "-o", page}, "bad.jsonl, line 1: not a line of --ledger");
  refused({"report", bad, "-p", "KING:", "-o", page}, "is the ledger of a run");
  refused({"report", bad, text, "-o", page}, "text.html is none");
  refused({"report", kSparse, bad, "-o", page}, "is none");
  refused({"report", kSparse, "-o", dir / "no/r.html"}, "No such file or directory");
  refused({"report", kSparse, "-o", dir.path()}, "Is a directory");
  refused({"report", kSparse, "-o", text}, "is there and is no report");
  refused({"report", bad, "-o", bad}, "it would be overwritten");
  refused({"run", kSparse, "--prompt-tokens", "1", "--report", text}, "is there and is no report");
  refused({"run", kSparse, "--prompt-tokens", "1", "--report", page, "--ledger", page}, "was given twice");
  refused({"bench", kSparse, "-p", "4", "-n", "0", "--report", text}, "is there and is no report");
  EXPECT_EQ(ReadAll(text), "not ours");
}

}  // namespace
}  // namespace tally
