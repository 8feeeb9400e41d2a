// SPDX-License-Identifier: Apache-2.0
// tally audit: the command around the accounts.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/app/runner.h"
#include "tests/app/screen.h"
#include "tests/models/spec_tools.h"
#include "tests/models/synthetic_files.h"
#include "tests/support/goldens.h"
#include "tests/support/temp_folder.h"

namespace tally {
namespace {

using Json = nlohmann::json;

TEST(CliAudit, TheBundledModelAgrees) {
  const Ended e = Tally({"audit", "-n", "3", "--full"});
  EXPECT_EQ(e.code, 0) << e.err;
  EXPECT_NE(e.out.find(" rows compared, all agree\n"), std::string::npos) << e.out;
  EXPECT_NE(e.out.find("mean of 3 decode steps"), std::string::npos);
  EXPECT_NE(e.out.find("tokens of each expert, layer by layer"), std::string::npos);
  const Ended narrow = Tally({"audit", "-n", "3", "--full", "--mmu", "--width", "80"});
  ExpectScreen(narrow.out, 80, 400);
  EXPECT_NE(narrow.out.find(" of stored\n"), std::string::npos) << narrow.out;
}

// The accounts on one screen, at any width, and the verdict in its last line.
TEST(CliAudit, OneScreen) {
  const std::vector<std::string> plain = {"audit", "-n", "3"}, all = {"audit", "-n", "3", "--mmu", "--claims"};
  const Json full = Json::parse(Tally({"audit", "-n", "3", "--json"}).out);
  for (const auto& arguments : {plain, all}) {
    const Ended piped = Tally(arguments);
    ASSERT_EQ(piped.code, 0) << piped.err;
    ExpectScreen(piped.out, 80, 28);
    for (const int columns : {80, 200}) {
      const Ended shown = Tally(arguments, {.output_terminal = true, .columns = columns, .environment = {"TERM=dumb"}});
      ExpectScreen(shown.out, static_cast<size_t>(columns), 28);
    }
    EXPECT_NE(piped.out.find("parameters stored"), std::string::npos) << piped.out;
    EXPECT_NE(piped.out.find("1,595,604 of 4,541,364 parameters, 35.13 %, by a decode step"), std::string::npos) << piped.out;
    EXPECT_NE(piped.out.find("4 steps, 3 decode"), std::string::npos) << piped.out;
    const std::vector<std::string> lines = LinesOf(piped.out);
    EXPECT_TRUE(lines.back().ends_with(" rows compared, all agree")) << lines.back();
  }
  uint64_t stored = 0, rows = 0;
  for (const Json& row : full["stored"]) {
    stored += row["account"] == "parameters stored" ? row["files"].get<uint64_t>() : 0;
    rows += row["account"] == "parameters stored" ? 1 : 0;
  }
  EXPECT_EQ(stored, 4'541'364u);
  const std::string text = Tally(plain).out;
  EXPECT_NE(text.find("  parameters stored     " + std::to_string(rows) + "    4,541,364  4,541,364\n"), std::string::npos)
      << text;
  EXPECT_NE(Tally(all).out.find(" touched as the memory-management"), std::string::npos);
}

TEST(CliAudit, Json) {
  const Ended e = Tally({"audit", kGoldens + "gpt2/gpt2-a-f32-release-names", "--tokens", "1,2,3", "-n", "2", "--json"});
  ASSERT_EQ(e.code, 0) << e.err;
  const Json d = Json::parse(e.out);
  EXPECT_EQ(d["differing"], 0);
  EXPECT_EQ(d["steps"].size(), 3u);
  EXPECT_EQ(d["decode_steps"], 2);
  EXPECT_EQ(d["steps"][0]["phase"], "prefill");
  EXPECT_EQ(d["steps"][2]["context"], 5);
  EXPECT_TRUE(d["experts"].empty());
  uint64_t rows = d["stored"].size();
  for (const Json& step : d["steps"]) {
    rows += step["audit"].size();
    for (const Json& row : step["audit"]) EXPECT_TRUE(row["agrees"].get<bool>()) << row;
  }
  EXPECT_EQ(d["compared"], rows);
}

// Steps that were asked for are run or refused; the default number of them gives way to the context.
TEST(CliAudit, TheContextIsKept) {
  const Ended full = Tally({"audit", "--tokens", "1,2,3", "--ctx", "8", "-n", "5", "--json"});
  ASSERT_EQ(full.code, 0) << full.err;
  EXPECT_EQ(Json::parse(full.out)["decode_steps"], 5);
  EXPECT_EQ(Tally({"audit", "--tokens", "1,2,3", "--ctx", "8", "-n", "6"}).code, 2);
  const Ended short_default = Tally({"audit", "--tokens", "1,2,3", "--ctx", "8"});
  EXPECT_EQ(short_default.code, 0) << short_default.err;
  EXPECT_NE(short_default.out.find("; 6 steps, 5 decode"), std::string::npos) << short_default.out;
}

TEST(CliAudit, AHeadThatIsACopyIsReported) {
  const std::string model = std::string(TALLY_SOURCE_DIR) + "/../shared/weights/stories260K-gguf/stories260Ktok512.gguf";
  if (!std::filesystem::exists(model)) GTEST_SKIP() << model << " is not here";
  const Ended e = Tally({"audit", model, "-p", "Once upon a time", "-n", "4", "--full"});
  EXPECT_EQ(e.code, 0) << e.err;
  EXPECT_NE(e.out.find("a copy of the embedding, byte for byte: 292,800 parameters as stored, 260,032 with both as one"),
            std::string::npos)
      << e.out;
}

// A tied head that is stored too is found in every place where totals are shown.
TEST(CliAudit, ATiedHeadThatIsStoredTooIsReported) {
  const TempFolder dir;
  const Inventory llama = synthetic::With(synthetic::HfLlama(), "tie_word_embeddings", true);
  dir.Write("config.json", synthetic::ConfigOf(llama));
  dir.Write("model.safetensors", synthetic::SafetensorsOf(synthetic::HeaderOf(llama, 0, llama.tensors.size())));
  const std::string totals = ": 5,100 parameters as stored, 4,968 with both as one\n",
                    present = "present, not run: 132 parameters, 528 bytes (lm_head.weight)\n";
  const Ended audit = Tally({"audit", dir.path(), "--tokens", "1,2", "-n", "1", "--full"});
  EXPECT_EQ(audit.code, 0) << audit.err;
  EXPECT_NE(audit.out.find("lm_head.weight is a copy of the embedding, byte for byte" + totals), std::string::npos) << audit.out;
  EXPECT_NE(audit.out.find(present), std::string::npos) << audit.out;
  EXPECT_NE(audit.err.find("note: lm_head.weight is a copy of the embedding: 528 bytes stored twice\n"), std::string::npos);
  const Json json = Json::parse(Tally({"audit", dir.path(), "--tokens", "1,2", "-n", "1", "--json"}).out);
  EXPECT_EQ(json["parameters"]["as_stored"], 5100);
  EXPECT_EQ(json["parameters"]["head_as_one"], 4968);
  const std::string inspect = Tally({"inspect", dir.path()}).out;
  EXPECT_NE(inspect.find("lm_head.weight is stored beside the embedding that it is tied to" + totals), std::string::npos)
      << inspect;
  EXPECT_NE(inspect.find(present), std::string::npos) << inspect;
  const Json run = Json::parse(Tally({"run", dir.path(), "--prompt-tokens", "1", "-n", "2", "--json"}).out);
  EXPECT_EQ(run["parameters"]["total"], 4968);
  EXPECT_EQ(run["parameters"]["total_as_stored"], 5100);
  EXPECT_NE(Tally({"count", dir.path()})
                .err.find("lm_head.weight is stored beside the tied embedding: 528 bytes more, 5,100 "
                          "parameters as stored"),
            std::string::npos);
}

// Layers for multi-token prediction are stored and not run.
TEST(CliAudit, WhatIsNotRunIsNamed) {
  for (const auto& [model, part] : {std::pair{"deepseek_v3/deepseek3-a-f32-groups-mtp", "model.layers.2"},
                                    {"glm4_moe/glm45-a-f32-qknorm-groups-mtp/model.gguf", "blk.2"}}) {
    const Json audit = Json::parse(Tally({"audit", kGoldens + model, "--tokens", "1,2", "-n", "1", "--json"}).out);
    const Json inspect = Json::parse(Tally({"inspect", kGoldens + model, "--json"}).out);
    uint64_t tensors = 0, parameters = 0, bytes = 0;
    for (const Json& t : inspect["tensors"]) {
      if (!t["name"].get<std::string>().starts_with(part + std::string("."))) continue;
      ++tensors;
      parameters += t["elements"].get<uint64_t>();
      bytes += t["bytes"].get<uint64_t>();
    }
    EXPECT_GT(tensors, 20u);
    EXPECT_EQ(audit["not_run"], (Json{{"tensors", tensors}, {"parameters", parameters}, {"bytes", bytes}, {"names", part}}));
    EXPECT_EQ(inspect["not_run"], audit["not_run"]);
  }
  const std::string text =
      Tally({"audit", kGoldens + "deepseek_v3/deepseek3-a-f32-groups-mtp", "--tokens", "1,2", "-n", "1", "--full"}).out;
  EXPECT_NE(text.find(" bytes (model.layers.2)\n"), std::string::npos) << text;
  EXPECT_NE(text.find("latent attention is run absorbed: R_kv + D_r = 20 elements cached a position and layer; expanded, as "
                      "published: H (D_n + D_r + D_v) = 57\n"),
            std::string::npos)
      << text;
}

TEST(CliAudit, PagesOfTheWeights) {
  const Ended e = Tally({"audit", "--mmu", "-n", "2", "--full"});
  EXPECT_EQ(e.code, 0) << e.err;
  EXPECT_NE(e.out.find("pages of the packed weights, "), std::string::npos) << e.out;
  EXPECT_NE(e.out.find("2 decode steps"), std::string::npos);
  EXPECT_EQ(e.out.find("pages that are not as charged"), std::string::npos);
  EXPECT_NE(e.out.find(" rows compared, all agree\n"), std::string::npos) << e.out;
  EXPECT_EQ(Tally({"audit", "-n", "0", "--full"}).out.find("pages of the packed weights"), std::string::npos);

  const Ended j =
      Tally({"audit", kGoldens + "llama/llama-b-bf16-llama3rope-headdim-tied", "--tokens", "1,2", "-n", "1", "--mmu", "--json"});
  ASSERT_EQ(j.code, 0) << j.err;
  const Json d = Json::parse(j.out);
  EXPECT_GE(d["page_bytes"], 4096);
  uint64_t rows = d["stored"].size();
  for (const Json& step : d["steps"]) {
    rows += step["audit"].size() + step["pages"].size();
    EXPECT_FALSE(step["pages"].empty());
    for (const Json& row : step["pages"]) {
      EXPECT_TRUE(row["agrees"].get<bool>()) << row;
      EXPECT_TRUE(row["findings"].empty()) << row;
      EXPECT_EQ(row["charged_pages"], row["touched_pages"]) << row;
    }
  }
  EXPECT_EQ(d["compared"], rows);
}

TEST(CliAudit, BarsAndClaims) {
  const TempFolder dir;
  const std::string ledger = dir / "l.jsonl";
  const Ended e = Tally({"audit", "demo", "-n", "2", "--full", "--claims", "--ledger", ledger});
  ASSERT_EQ(e.code, 0) << e.err;
  EXPECT_NE(e.out.find("  X experts "), std::string::npos) << e.out;
  EXPECT_NE(e.out.find("  3,709,440"), std::string::npos) << e.out;
  EXPECT_NE(e.out.find("  decode of 1 at depth "), std::string::npos) << e.out;
  EXPECT_NE(e.out.find("  of stored\n"), std::string::npos) << e.out;  // the heads of the legend
  EXPECT_NE(e.out.find("no published figures of this model are known"), std::string::npos) << e.out;
  EXPECT_GT(std::filesystem::file_size(ledger), 100'000u);

  // GPT-2 as published, with random weights: total 124M.
  const std::string model = dir / "gpt2.gguf";
  ASSERT_EQ(Tally({"synth", "gpt2", model}).code, 0);
  const Ended gpt2 = Tally({"audit", model, "--tokens", "1,2,3", "-n", "1", "--full", "--claims"});
  ASSERT_EQ(gpt2.code, 0) << gpt2.err;
  EXPECT_NE(gpt2.out.find("gpt2: total 124M holds as total"), std::string::npos) << gpt2.out;
  EXPECT_NE(gpt2.out.find("\n  E embedding and head "), std::string::npos) << gpt2.out;  // tied: one matrix, two uses
  const Ended json = Tally({"audit", model, "--tokens", "1,2,3", "-n", "1", "--claims", "--json"});
  ASSERT_EQ(json.code, 0) << json.err;
  const Json claims = Json::parse(json.out)["claims"];
  ASSERT_FALSE(claims.empty());
  EXPECT_EQ(claims[0]["model"], "gpt2");
  EXPECT_EQ(claims[0]["claims"][0]["figure"], "total");
  EXPECT_TRUE(claims[0]["claims"][0]["holds"].get<bool>());
}

TEST(CliAudit, BadUseIsRefused) {
  auto refused = [](std::vector<std::string> arguments, const std::string& part) {
    arguments.insert(arguments.begin(), "audit");
    const Ended e = Tally(arguments);
    EXPECT_EQ(e.code, 2) << part;
    EXPECT_EQ(e.out, "") << part;
    EXPECT_TRUE(IsOneLine(e.err)) << e.err;
    EXPECT_NE(e.err.find(part), std::string::npos) << e.err;
  };
  refused({"-p", "a", "--tokens", "1"}, "give the prompt once");
  refused({"--tokens", "1,x"}, "--prompt-tokens");
  refused({"--tokens", "99999"}, "99999");
  refused({"-n", "-1"}, "-n must be 0 or more");
  refused({"--tokens", "1,2,3", "--ctx", "16", "-n", "100"}, "the context has 16 positions");
  refused({kGoldens + "gpt2/gpt2-a-f32-release-names", "-p", "a"}, "no tokenizer");
  refused({"/nowhere.gguf"}, "/nowhere.gguf");
}

}  // namespace
}  // namespace tally
