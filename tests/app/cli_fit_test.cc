// SPDX-License-Identifier: Apache-2.0
// tally fit: one screen, other machines, what bench measured, and every way of using it wrongly.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/app/runner.h"
#include "tests/support/temp_folder.h"

namespace tally {
namespace {

using Json = nlohmann::json;

const std::string kLaptop = "ram=16GiB,read=50GB/s,int8=1T,bf16=none,f32=250G";

Ended Fit(std::vector<std::string> arguments, const RunOptions& options = {}) {
  arguments.insert(arguments.begin(), "fit");
  return Tally(arguments, options);
}

Json Document(std::vector<std::string> arguments, const RunOptions& options = {}) {
  arguments.push_back("--json");
  const Ended e = Fit(std::move(arguments), options);
  EXPECT_EQ(e.code, 0) << e.err;
  Json j = Json::parse(e.out, nullptr, false);
  EXPECT_FALSE(j.is_discarded()) << e.out;
  return j;
}

void ExpectOneScreen(const std::string& text, size_t columns) {
  std::istringstream in(text);
  size_t lines = 0;
  for (std::string line; std::getline(in, line); ++lines) {
    EXPECT_LE(line.size(), columns) << line;
    EXPECT_TRUE(line.empty() || line.back() != ' ') << line;
  }
  EXPECT_LE(lines, 24u) << text;
}

bool Has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(CliFit, OneScreenVerdictFirst) {
  const Ended e = Fit({"gpt-oss-20b", "--machine", kLaptop});
  EXPECT_EQ(e.code, 0) << e.err;
  EXPECT_EQ(e.err, "");
  ExpectOneScreen(e.out, 80);
  // 3,708,089,088 bytes of weights, and of KV 2,048 a layer and position: 12 layers of 4,096, 12 of 128, 24 written.
  const double rate = 50e9 / (3'708'089'088 + 2'048.0 * (12 * 4096 + 12 * 128 + 24));
  char text[32];
  std::snprintf(text, sizeof text, "at most %.1f tokens/s", rate);
  EXPECT_TRUE(e.out.starts_with("gpt-oss-20b fits as published (MXFP4 + BF16) with 4,096 tokens of context:")) << e.out;
  EXPECT_TRUE(Has(e.out, "decode    " + std::string(text))) << text << e.out;
  EXPECT_TRUE(Has(e.out, "\nusual     Q8_0 ") && Has(e.out, " tokens/s; Q4_K_M ")) << e.out;
  for (const char* part : {"context 4,096, KV f16, 1 sequence, prefill 512", "8 threads assumed; 16.00 GiB of memory",
                           "reads 50.00 GB/s", "bf16 runs as f32", "longest"}) {
    EXPECT_TRUE(Has(e.out, part)) << part << "\n" << e.out;
  }
}

// One model with the longest lines and names at the narrowest terminal; names where prose no longer grows.
TEST(CliFit, OneScreenAtEachWidth) {
  const std::vector<std::string> names = {"gpt2", "llama-3.1-8b", "gpt-oss-20b", "gpt-oss-120b"};
  const std::vector<std::pair<int, std::vector<std::string>>> asked = {
      {80, {"llama-3.1-8b", "--type", "Q4_K_M", "--ctx", "32768", "--batch", "4"}},
      {80, {"gpt-oss-120b"}},
      {80, names},
      {120, names}};
  for (auto [columns, arguments] : asked) {
    SCOPED_TRACE(arguments[0] + " at " + std::to_string(columns));
    arguments.insert(arguments.end(), {"--machine", kLaptop});
    const Ended e = Fit(arguments, {.output_terminal = true, .columns = columns});
    EXPECT_EQ(e.code, 0) << e.out;
    std::string text;
    std::ranges::copy_if(e.out, std::back_inserter(text), [](char c) { return c != '\r'; });
    ExpectOneScreen(text, static_cast<size_t>(columns));
  }
}

// Experts on disk: what is said before a download.
TEST(CliFit, BiggerThanMemory) {
  const std::vector<std::string> asked = {"gpt-oss-120b", "--type", "MXFP4", "--machine", kLaptop, "--disk", "5GB/s"};
  const std::string text = Fit(asked).out;
  for (const char* part : {"; from disk", "on disk   36 layers of 128 experts of 13.22 MB, 4 a token", "at 5.00 GB/s; uniform ",
                           "after a start", "all resident, +"}) {
    EXPECT_TRUE(Has(text, part)) << part << "\n" << text;
  }
  const Json j = Document(asked);
  EXPECT_EQ(j["machine"]["disk"], Json({{"bytes_per_second", 5'000'000'000}, {"source", "given"}}));
  const Json& s = j["models"][0]["types"][0]["streaming"];
  EXPECT_EQ(s["bytes_of_a_record"], 13'221'888);
  ASSERT_EQ(s["decode"].size(), 3u);
  for (const Json& curve : s["decode"]) {
    EXPECT_NEAR(curve["disk_bytes"].get<double>(), curve["misses"].get<double>() * 13'221'888, 1);
    EXPECT_LT(curve["expected_tokens_per_second"], curve["bound_tokens_per_second"]);
  }
  EXPECT_EQ(s["more_memory"].back()["resident_share"], 1.0);
  EXPECT_TRUE(Has(Fit({"gpt-oss-120b", "--machine", kLaptop}).out, "(assumed: --disk)"));
  EXPECT_TRUE(Has(Fit({"gpt-oss-120b", "--machine", "ram=3GiB"}).out, "on disk   needs at least "));
  const Ended wrong = Fit({"gpt-oss-120b", "--machine", kLaptop, "--disk", "fast"});
  EXPECT_EQ(wrong.code, 2);
  EXPECT_EQ(wrong.err, "tally: --disk: 'fast' is no rate of a disk such as 3GB/s\n");
}

TEST(CliFit, ATypeThatFits) {
  const std::string small = "ram=8GiB,read=50GB/s,int8=1T,bf16=1T,f32=1T";
  const Json j = Document({"llama-3.1-8b", "--machine", small});
  ASSERT_EQ(j["models"].size(), 1u);
  const Json& m = j["models"][0];
  EXPECT_NE(m["chosen_type"], "BF16");
  double weights = 1e30;
  bool chosen = false;
  std::vector<std::string> types;
  for (const Json& row : m["types"]) {
    types.push_back(row["type"]);
    EXPECT_LE(row["memory_bytes"]["packed_weights"].get<double>(), weights) << "from large to small";
    weights = row["memory_bytes"]["packed_weights"];
    EXPECT_EQ(row["fits"], row["memory_bytes"]["total"].get<uint64_t>() <= uint64_t{8} << 30);
    if (row["type"] == m["chosen_type"]) chosen = row["fits"];
    EXPECT_EQ(row["fits"].get<bool>(), chosen) << "the largest that fits comes first";
  }
  EXPECT_TRUE(chosen);
  EXPECT_EQ(types, (std::vector<std::string>{"BF16", "Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q3_K_M"}));
  const Ended e = Fit({"llama-3.1-8b", "--machine", small});
  EXPECT_TRUE(e.out.starts_with("llama-3.1-8b fits at " + m["chosen_type"].get<std::string>() + ", not as published (BF16),"))
      << e.out;
  EXPECT_TRUE(Has(Fit({"gpt-oss-120b", "--machine", kLaptop}).out, "gpt-oss-120b does not fit, not even at "));
  // Rows of 2,880 are no whole blocks of 256, and yet smaller in Q5_K_M than in Q8_0.
  EXPECT_TRUE(
      Fit({"gpt-oss-20b", "--machine", "ram=11.2GiB,read=50GB/s,int8=1T"}).out.starts_with("gpt-oss-20b fits at Q5_K_M,"));
  const Json one =
      Document({"llama-3.1-8b", "--type", "q4_k_m", "--ctx", "8192", "--batch", "2", "--kv", "q8_0", "--machine", kLaptop});
  ASSERT_EQ(one["models"][0]["types"].size(), 1u);
  const Json& row = one["models"][0]["types"][0];
  EXPECT_EQ(row["type"], "Q4_K_M");
  EXPECT_EQ(row["context"], 8192);
  EXPECT_EQ(one["batch"], 2);
  EXPECT_EQ(one["kv"], "q8_0");
  EXPECT_GT(row["prefill"]["part_of_peaks"], 8. / 12);  // between Q6_K and Q4_K, with attention beside
  EXPECT_LT(row["prefill"]["part_of_peaks"], 1.0);
  EXPECT_TRUE(Has(Fit({"llama-3.1-8b", "--type", "Q8_0", "--machine", "ram=16GiB,read=50GB/s,int8=1T,f32=1000T"}).out,
                  "80 % of the peaks"));
}

TEST(CliFit, ATableOfSeveral) {
  const Ended e = Fit({"gpt2", "llama-3.1-8b", "gpt-oss-120b", "--machine", kLaptop});
  EXPECT_EQ(e.code, 0) << e.err;
  EXPECT_TRUE(e.out.starts_with("2 of 3 models fit\n")) << e.out;
  EXPECT_TRUE(Has(e.out, "gpt-oss-120b")) << e.out;
  EXPECT_TRUE(Has(e.out, "the largest that fits")) << e.out;
  const Json j = Document({"gpt2", "gpt-oss-120b", "--machine", kLaptop});
  ASSERT_EQ(j["models"].size(), 2u);
  EXPECT_EQ(j["models"][1]["types"].back()["fits"], false);
  const Ended all = Fit({"--all", "--type", "Q4_0", "--machine", kLaptop});  // of one type: a quarter of the time
  EXPECT_EQ(all.code, 0) << all.err;
  ExpectOneScreen(all.out, 80);
  EXPECT_TRUE(Has(all.out, "; the largest of them:\n")) << all.out;
  EXPECT_TRUE(Has(all.out, "smaller ones fit too; ")) << all.out;
  EXPECT_FALSE(Has(all.out, "gpt-oss-120b")) << "it does not fit";
  const Ended experts = Fit({"--all", "--full", "--type", "mxfp4", "--machine", kLaptop});
  EXPECT_EQ(experts.code, 0) << experts.err;
  EXPECT_TRUE(Has(experts.out, "\ngpt2: ")) << "a row with its reason: " << experts.out;
  EXPECT_TRUE(Has(experts.out, "gpt-oss-20b ")) << experts.out;
  const Ended full = Fit({"--all", "--full", "--type", "Q8_0", "--machine", kLaptop});
  EXPECT_TRUE(Has(full.out, "gpt-oss-120b")) << full.out;
  EXPECT_GT(std::count(full.out.begin(), full.out.end(), '\n'), 40);
  std::istringstream in(full.out);
  for (std::string line; std::getline(in, line);) EXPECT_LE(line.size(), 80u) << line;
}

TEST(CliFit, WhatIsNotGivenIsSaid) {
  const Ended e = Fit({"llama-3.2-1b", "--type", "Q8_0", "--machine", "read=50GB/s"});
  EXPECT_EQ(e.code, 0) << e.err;
  EXPECT_TRUE(Has(e.out, "memory not given")) << e.out;
  EXPECT_TRUE(Has(e.out, "no bound: the machine's f32 and int8 are not given")) << e.out;
  const Json j = Document({"llama-3.2-1b", "--type", "Q8_0", "--machine", "read=50GB/s"});
  const Json& row = j["models"][0]["types"][0];
  EXPECT_TRUE(row["fits"].is_null());
  EXPECT_NEAR(row["decode"]["tokens_per_second"].get<double>(), 50e9 / row["decode"]["bytes"].get<double>(), 1e-6);
  EXPECT_TRUE(Has(e.out, "by memory alone")) << e.out;
  EXPECT_TRUE(row["prefill"]["tokens_per_second"].is_null());
  EXPECT_EQ(row["decode"]["missing"], "f32 and int8");
  const std::string table = Fit({"llama-3.2-1b", "gpt-oss-20b", "--machine", "read=50GB/s"}).out;
  EXPECT_TRUE(Has(table, "the machine's f32, bf16 and int8 not given")) << "of all models, once: " << table;
  EXPECT_EQ(table.find("the machine's"), table.rfind("the machine's")) << table;
}

// Of this machine: measured once, and beside it what bench measured of the same file with the same settings.
TEST(CliFit, ThisMachineAndWhatBenchMeasured) {
  const TempFolder folder;
  const RunOptions options{.environment = {"XDG_CACHE_HOME=" + folder.path()}};
  const Json before = Document({"demo", "-t", "1"}, options);
  EXPECT_EQ(before["machine"]["measured"], true);
  EXPECT_GT(before["machine"]["read_bytes_per_second"].get<double>(), 1e8);
  EXPECT_GT(before["machine"]["available_bytes"].get<double>(), 0);
  const auto given = [](const Json& j) {
    for (const Json& row : j["models"][0]["types"]) {
      if (row["as_given"] == true) return row;
    }
    return Json();
  };
  EXPECT_FALSE(given(before).contains("measured"));
  const Ended bench = Tally({"bench", "demo", "-p", "32", "-n", "8", "-r", "1", "-t", "1"}, options);
  ASSERT_EQ(bench.code, 0) << bench.err;
  const Json after = given(Document({"demo", "-t", "1"}, options));
  ASSERT_TRUE(after.contains("measured")) << after;
  EXPECT_EQ(after["measured"]["decode"]["tokens"], 8);
  EXPECT_EQ(after["measured"]["prefill"]["tokens"], 32);
  EXPECT_GT(after["measured"]["prefill"]["bound_tokens_per_second"].get<double>(), 0);
  EXPECT_FALSE(given(Document({"demo", "-t", "1", "--kv", "f32"}, options)).contains("measured")) << "another KV type";
  const Ended text = Fit({"demo", "-t", "1"}, options);
  EXPECT_TRUE(Has(text.out, "measured  decode of 8 at depth 0 ")) << text.out;
  ExpectOneScreen(text.out, 80);
  for (const auto& entry : std::filesystem::directory_iterator(folder / "tally")) {  // damaged: as if there were none
    if (entry.path().filename().string().starts_with("bench-"))
      std::ofstream(entry.path(), std::ios::trunc) << "{\"tally_bench\":1,";
  }
  EXPECT_FALSE(given(Document({"demo", "-t", "1"}, options)).contains("measured"));
}

TEST(CliFit, RefusesInOneLine) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> wrong = {
      {{"gtp-oss-20b", "--machine", kLaptop}, "gtp-oss-20b"},
      {{"no/such/file.gguf", "--machine", kLaptop}, "no/such/file.gguf"},
      {{"gpt2", "--machine", "ram=lots"}, "ram=lots"},
      {{"gpt2", "--machine", "speed=3"}, "'speed'"},
      {{"gpt2", "--machine", kLaptop, "-t", "2"}, "threads=N"},
      {{"gpt2", "--machine", kLaptop, "--kv", "q4"}, "--kv must be one of"},
      {{"gpt2", "--machine", kLaptop, "--batch", "0"}, "--batch"},
      {{"gpt2", "--machine", kLaptop, "--ctx", "-1"}, "--ctx"},
      {{"gpt2", "--machine", kLaptop, "--ctx", "4096"}, "has learned 1024"},
      {{"gpt2", "--machine", kLaptop, "--type", "q9"}, "--type"},
      {{"gpt2", "--machine", kLaptop, "--type", "mxfp4"}, "gpt2: "},
      {{"--all", "--machine", kLaptop, "--type", "q9"}, "--type"},
      {{"gpt2", "--all", "--machine", kLaptop}, "--all"},
      {{"gpt2", "-t", "99999"}, "--threads"}};
  for (const auto& [arguments, part] : wrong) {
    const Ended e = Fit(arguments);
    EXPECT_EQ(e.code, 2) << part << e.out;
    EXPECT_TRUE(IsOneLine(e.err)) << e.err;
    EXPECT_TRUE(Has(e.err, part)) << part << ": " << e.err;
    EXPECT_EQ(e.out, "");
  }
}

}  // namespace
}  // namespace tally
