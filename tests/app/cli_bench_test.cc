// SPDX-License-Identifier: Apache-2.0
// tally bench: the grid, its formats, and what it refuses.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/app/runner.h"
#include "tests/app/screen.h"

namespace tally {
namespace {

using Json = nlohmann::json;

const std::string kGpt2 = std::string(TALLY_SOURCE_DIR) + "/tests/goldens/gpt2/gpt2-a-f32-release-names";

std::vector<std::string> Bench(std::vector<std::string> options) {
  options.insert(options.begin(), "bench");
  options.insert(options.end(), {"-r", "1"});
  return options;
}

Json Measure(const std::vector<std::string>& options) {
  std::vector<std::string> arguments = Bench(options);
  arguments.push_back("--json");
  const Ended e = Tally(arguments);
  EXPECT_EQ(e.code, 0) << e.err;
  EXPECT_EQ(e.err, "") << "progress is for terminals";
  return e.code == 0 ? Json::parse(e.out) : Json();
}

void ExpectUsageError(const std::vector<std::string>& options, const std::string& part) {
  const Ended e = Tally(Bench(options));
  EXPECT_EQ(e.code, 2);
  EXPECT_TRUE(IsOneLine(e.err)) << e.err;
  EXPECT_NE(e.err.find(part), std::string::npos) << e.err;
  EXPECT_EQ(e.out, "");
}

TEST(CliBench, ReportsVerifiedFigures) {
  const Json j = Measure({"demo", "-p", "24", "-n", "4", "--threads", "1"});
  EXPECT_NE(j.at("verified").get<std::string>().find("24 tokens in one piece and one by one: the same logits"),
            std::string::npos);
  EXPECT_GT(j.at("roofs").at("read_bytes_per_second").get<double>(), 0);
  EXPECT_GT(j.at("roofs").at("int8_ops_per_second").get<double>(), 0);
  ASSERT_EQ(j.at("prefill").size(), 1u);
  ASSERT_EQ(j.at("decode").size(), 1u);
  const Json &prefill = j.at("prefill")[0], &decode = j.at("decode")[0];
  EXPECT_EQ(prefill.at("tokens"), 24);
  EXPECT_EQ(decode.at("threads"), 1);
  for (const Json* point : {&prefill, &decode}) {
    EXPECT_GT(point->at("tokens_per_second").get<double>(), 0);
    EXPECT_EQ(point->at("depth"), 0);
    EXPECT_EQ(point->at("kv"), "f16");
    EXPECT_EQ(point->at("rounds"), 1);
  }
  EXPECT_GT(prefill.at("ratio_of_peak").get<double>(), 0);
  EXPECT_GT(decode.at("ratio_of_bandwidth").get<double>(), 0);
  EXPECT_NEAR(decode.at("bytes_per_second").get<double>(),
              decode.at("bytes_per_token").get<double>() * decode.at("tokens_per_second").get<double>(), 1);
  EXPECT_GT(j.at("sampling").at("microseconds_per_token").get<double>(), 0);
  EXPECT_GT(j.at("load").at("stored_bytes_per_second").get<double>(), 0);
  EXPECT_EQ(j.at("load").at("packed_bytes"), j.at("memory_bytes").at("packed_weights"));
  EXPECT_GT(j.at("memory_bytes").at("peak_resident").get<double>(), 0);
}

TEST(CliBench, CanBeLimitedToAnInstructionSet) {
#if defined(__x86_64__)
  const Json j = Measure({"demo", "-p", "8", "-n", "2", "--threads", "1", "--target", "SSE4"});
  EXPECT_EQ(j.at("target"), "SSE4");
  EXPECT_EQ(j.at("roofs").at("f32_instruction"), "mulps+addps xmm");
#endif
  ExpectUsageError({"demo", "--target", "MMX"}, "no instruction set 'MMX' here: ");
}

// A replay follows what it is given, or says that it does not.
TEST(CliBench, ReplayRefusesWhatItWouldIgnore) {
  const auto replay = [](std::vector<std::string> more) {
    more.insert(more.begin(), {"demo", "--draft", "lookup", "--replay", "none.jsonl"});
    return more;
  };
  for (const char* const option : {"--prompt", "--tokens", "--depth", "--batch", "--seed", "--report"}) {
    ExpectUsageError(replay({option, "8"}), std::string(option) + ": not with --draft");
  }
  ExpectUsageError(replay({"--full"}), "--full: not with --draft");
  ExpectUsageError(replay({"--format", "csv"}), "--format must be one of table, json");
  ExpectUsageError(replay({"--threads", "1,2"}), "--threads: one number");
  ExpectUsageError(replay({"--kv", "f16,q8_0"}), "--kv: one type");
  ExpectUsageError(replay({"--target", "MMX"}), "no instruction set 'MMX' here: ");
}

// The model has 64 positions.
TEST(CliBench, BytesOfTheGridAddUp) {
  const Json j = Measure({kGpt2, "-p", "0", "-n", "4", "-d", "0,40", "--batch", "1,8", "-t", "1,2", "--kv", "f16,f32"});
  EXPECT_TRUE(j.at("prefill").empty());
  ASSERT_EQ(j.at("decode").size(), 16u);
  EXPECT_NE(j.at("verified").get<std::string>().find("8 sequences in one step and apart"), std::string::npos);
  EXPECT_NE(j.at("verified").get<std::string>().find("on 1, 2 threads alike"), std::string::npos);
  const auto bytes = [&](int threads, const std::string& kv, int depth, int batch) {
    for (const Json& d : j.at("decode")) {
      if (d.at("threads") == threads && d.at("kv") == kv && d.at("depth") == depth && d.at("batch") == batch) {
        return d.at("bytes_per_token").get<double>();
      }
    }
    ADD_FAILURE() << threads << " " << kv << " " << depth << " " << batch;
    return 0.0;
  };
  const double f16_position = (bytes(1, "f16", 40, 1) - bytes(1, "f16", 0, 1)) / 40;  // of one position in all layers
  EXPECT_GT(f16_position, 0);
  for (const int threads : {1, 2}) {
    for (const int batch : {1, 8}) {
      EXPECT_EQ(bytes(threads, "f16", 40, batch) - bytes(threads, "f16", 0, batch), 40 * f16_position);
      EXPECT_EQ(bytes(threads, "f32", 40, batch) - bytes(threads, "f32", 0, batch), 40 * 2 * f16_position);
    }
    for (const int depth : {0, 40}) {  // weights are read once for all rows
      EXPECT_LT(bytes(threads, "f16", depth, 8), bytes(threads, "f16", depth, 1));
    }
  }
  ASSERT_EQ(j.at("roofs_by_threads").size(), 2u);
  EXPECT_EQ(j.at("roofs").at("threads"), 2);
}

TEST(CliBench, Formats) {
  const std::vector<std::string> grid = {"demo", "-p", "8", "-n", "2", "--batch", "1,2", "--format"};
  const auto in = [&](const std::string& format) {
    std::vector<std::string> arguments = grid;
    arguments.push_back(format);
    const Ended e = Tally(Bench(arguments));
    EXPECT_EQ(e.code, 0) << e.err;
    return e.out;
  };
  const auto lines = [](const std::string& text) {
    std::istringstream stream(text);
    std::vector<std::string> all;
    for (std::string line; std::getline(stream, line);) all.push_back(line);
    return all;
  };
  const std::vector<std::string> csv = lines(in("csv"));
  ASSERT_EQ(csv.size(), 4u);  // a head and three points
  EXPECT_TRUE(csv[0].starts_with("record,threads,kv,depth,")) << csv[0];
  const auto commas = [](const std::string& line) { return std::count(line.begin(), line.end(), ','); };
  for (const std::string& line : csv) EXPECT_EQ(commas(line), commas(csv[0])) << line;
  EXPECT_TRUE(csv[3].starts_with("decode,")) << csv[3];
  const std::vector<std::string> jsonl = lines(in("jsonl"));
  ASSERT_EQ(jsonl.size(), 4u);
  EXPECT_EQ(Json::parse(jsonl[0]).at("record"), "run");
  EXPECT_EQ(Json::parse(jsonl[1]).at("record"), "prefill");
  EXPECT_EQ(Json::parse(jsonl[3]).at("batch"), 2);
  EXPECT_NE(in("md").find("| tokens | depth | batch | threads |"), std::string::npos);
}

// The verdict comes first, on one screen of any terminal; --full has all figures.
TEST(CliBench, OneScreenWithTheVerdictFirst) {
  const std::vector<std::string> bench = Bench({"demo", "-p", "8", "-n", "2"});
  const auto expect = [](const std::string& screen) {
    ExpectScreen(screen, 80, 24);
    EXPECT_TRUE(screen.starts_with("decode  ")) << screen;
    for (const char* part : {" of read bandwidth", "prefill  ", " peak", "bit for bit", "peak RSS", "  spread"}) {
      EXPECT_NE(screen.find(part), std::string::npos) << part << "\n" << screen;
    }
    EXPECT_EQ(screen.find('\x1b'), std::string::npos) << "no colour";
  };
  const Ended piped = Tally(bench);
  EXPECT_EQ(piped.code, 0) << piped.err;
  expect(piped.out);
  const Ended seen = Tally(bench, {.output_terminal = true, .columns = 200});
  expect(seen.out.substr(seen.out.rfind("\r\x1b[K") + 4));  // behind the bar
  std::vector<std::string> full = bench;
  full.push_back("--full");
  const std::string tables = Tally(full).out;
  for (const char* part : {"of bandwidth", "MB/token", "sampling instead", "int8 x 4-bit GOP/s", "rounds"}) {
    EXPECT_NE(tables.find(part), std::string::npos) << part << "\n" << tables;
  }
}

// From the first round on the bar says how long the rest will take; the first runs have told.
TEST(CliBench, ProgressIsForTerminals) {
  const Ended e = Tally(Bench({"demo", "-p", "8", "-n", "2"}), {.terminal = true});
  EXPECT_EQ(e.code, 0);
  EXPECT_NE(e.err.find(" s left  round 1 of 1: prefill 8"), std::string::npos) << e.err;
  EXPECT_EQ(e.err.find(" s left  first run"), std::string::npos) << e.err;
  EXPECT_TRUE(e.err.ends_with("\r\x1b[K")) << "wiped";
}

TEST(CliBench, BadGrids) {
  ExpectUsageError({"demo", "-p", "8,x"}, "-p: 'x' is not a whole number");
  ExpectUsageError({"demo", "-p", "8,8"}, "8 is there twice");
  ExpectUsageError({"demo", "-p", "8,0"}, "'0'");
  ExpectUsageError({"demo", "-p", "0", "-n", "0"}, "nothing to measure");
  ExpectUsageError({"demo", "-n", "-1"}, "-n");
  ExpectUsageError({"demo", "-d", ""}, "-d: ''");
  ExpectUsageError({"demo", "--batch", "0"}, "--batch: '0'");
  ExpectUsageError({"demo", "-t", "1,2000"}, "--threads: '2000'");
  ExpectUsageError({"demo", "--kv", "f16,q3"}, "'q3'");
  ExpectUsageError({"demo", "--format", "xml"}, "table, md, csv, json, jsonl");
  ExpectUsageError({"demo", "--ctx", "16", "-p", "8", "-n", "8", "-d", "9"}, "17 tokens and does not fit the context of 16");
  ExpectUsageError({kGpt2, "-p", "64", "-d", "1"}, "the model has learned 64");
}

}  // namespace
}  // namespace tally
