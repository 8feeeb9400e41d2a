// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "engine/reports/claims_page.h"
#include "engine/studies/settled_claims.h"

namespace tally {
namespace {

TEST(Claims, ThePageIsWhatIsCounted) {
  std::ifstream file(std::string(TALLY_SOURCE_DIR) + "/docs/claims.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  EXPECT_EQ(page, ClaimsPage(ClaimsSections())) << "build/release/engine/tally claims --format md > docs/claims.md";
}

TEST(Claims, SectionsInEveryForm) {
  const std::vector<ClaimsSection> sections = ClaimsSections({"flops", "code"});
  ASSERT_EQ(sections.size(), 2u);
  EXPECT_EQ(sections[0].name, "code");  // in the order of the page
  const Value document = ClaimsPageJson(sections);
  EXPECT_EQ(document["sections"][0]["rows"][1]["k"].Number(), 8);
  EXPECT_EQ(document["sections"][1]["rows"][0]["printed"].Text(), "27 %");
  const std::string csv = ClaimsPageCsv(sections);
  EXPECT_NE(csv.find("\ncode,Qwen3-30B-A3B,parameters charged to a token,1132462080,2717908992,,,k: 8; term too low by: 2.4"),
            std::string::npos)
      << csv;
  const std::string text = ClaimsPageText(ClaimsSections({"texts"}), 80);
  EXPECT_EQ(text.find("**"), std::string::npos);
  EXPECT_NE(text.find("wrong"), std::string::npos);
}

// Every line of the CSV has the cells that its head has: those outside of quotes are divided by commas.
TEST(Claims, CsvIsOneTable) {
  const std::string csv = ClaimsPageCsv(ClaimsSections());
  std::vector<size_t> cells = {1};
  std::set<std::string> sections;
  bool quoted = false;
  size_t begin = 0;
  for (size_t i = 0; i < csv.size(); ++i) {
    if (csv[i] == '"') quoted = !quoted;
    if (csv[i] == ',' && !quoted) ++cells.back();
    if (csv[i] != '\n') continue;
    ASSERT_FALSE(quoted) << csv.substr(begin, i - begin);  // lines are marked one by one
    EXPECT_EQ(cells.back(), 9u) << csv.substr(begin, i - begin);
    sections.insert(csv.substr(begin, csv.find(',', begin) - begin));
    cells.push_back(1);
    begin = i + 1;
  }
  EXPECT_EQ(begin, csv.size());
  EXPECT_GT(cells.size(), 200u);
  EXPECT_EQ(sections, (std::set<std::string>{"section", "texts", "code", "hybrids", "flops", "cost", "models"}));
}

// What the reference's own recomputation says (shared/reference/published_claims.md): these are wrong, all others right.
TEST(Claims, TheWrongOnes) {
  std::set<std::string> wrong;
  for (const CourseClaim& c : CourseClaims()) {
    if (!c.right()) {
      wrong.insert(c.text + " " + c.claim);
      EXPECT_FALSE(c.why.empty()) << c.claim << " is wrong, and nothing says why";
    }
  }
  std::set<std::string> expected = {"000 gpt-oss-20b: total without unembedding",
                                    "003 GPT-2: feed-forward of a layer",
                                    "003 GPT-2 medium: total",
                                    "004 ... without feed-forward biases and norms",
                                    "004 ... more with biases on Q, K and V",
                                    "004 ... share of the feed-forward in a block",
                                    "004 GPT-2 small: the same formula"};
  for (const char* model : {"gpt2", "gpt2-medium", "gpt2-large"}) {
    for (const char* figure :
         {"parameters", "memory in F32", "FLOPs at 1,024", "share of attention", "share of the feed-forward"}) {
      expected.insert("002 " + std::string(model) + ": " + figure);
    }
  }
  EXPECT_EQ(wrong, expected);
}

// Text 001 costs two feed-forward matrices wherever it gives FLOPs; text 004's formula has no positions and no biases of attention.
TEST(Claims, WhatIsCountedIsWhatTheTextSays) {
  std::map<std::string, std::string> ours;
  for (const CourseClaim& c : CourseClaims()) {
    ours[c.text + " " + c.claim] = c.ours;
    if (c.text == "001" && c.claim.find("FLOPs") != std::string::npos) {
      EXPECT_TRUE(c.right()) << c.claim;
    }
  }
  EXPECT_EQ(ours["000 gpt-oss-20b: a norm"], "2,880");
  EXPECT_EQ(ours["001 ... norms of a layer"], "3,200");
  EXPECT_EQ(ours["001 ... the last norm"], "1,600");
  EXPECT_EQ(ours["001 ... head"], "80,411,200");
  EXPECT_EQ(ours["001 GPT-2 XL's shape: FLOPs of a layer at 1,024"], "69,625,446,400");
  EXPECT_EQ(ours["004 GPT-2 small: the same formula"], "123,616,512");
}

// The figures that were derived by hand from configurations (Megatron-LM's too), and the one that llmfit prints.
TEST(Claims, DisputedFiguresOfHybrids) {
  std::map<std::string, std::pair<uint64_t, uint64_t>> figures;
  for (const HybridClaim& c : HybridClaims()) figures[c.model + ", " + c.claim.substr(0, 8)] = {c.claimed, c.counted};
  using Pair = std::pair<uint64_t, uint64_t>;
  EXPECT_EQ(figures["Qwen3-Coder-Next, active p"], (Pair{5'462'052'994, 3'252'599'552}));
  EXPECT_EQ(figures["Nemotron-3-Nano, 3.2B act"].second, 3'227'754'816u);
  EXPECT_EQ(figures["Nemotron-3-Nano, 3.6B act"].second, 3'580'076'352u);
  EXPECT_EQ(figures["Nemotron-3-Nano, A3B (its"].second, 2'875'433'280u);
  EXPECT_EQ(figures["Qwen3.6-35B-A3B, bytes of"], (Pair{81'920, 20'480}));
  EXPECT_EQ(figures["Nemotron-3-Nano, FLOPs a "], (Pair{2'255'339'520, 1'780'531'200}));
  EXPECT_EQ(figures["Qwen3.6-35B-A3B, FLOPs a "].first, 125'829'120u);
  EXPECT_EQ(figures["Gemma-4-12B, 128 KB o"].second, 16'384u);
}

// Figures that were derived apart from Tally, by scripts from the configurations.
TEST(Claims, DisputedFiguresOfModelsThatAreCounted) {
  std::map<std::string, std::pair<uint64_t, uint64_t>> figures;
  for (const HybridClaim& c : CountedClaims()) figures[c.model + ", " + c.claim.substr(0, 6)] = {c.claimed, c.counted};
  for (const char* exact : {"DeepSeek-V4-Flash, 158,06", "Qwen3.8-Flash-Next, 180.0B", "MiniMax-M3, 427,04"}) {
    ASSERT_TRUE(figures.contains(exact)) << exact;
    EXPECT_EQ(figures[exact].first, figures[exact].second) << exact;
  }
  EXPECT_EQ(figures["GLM-5.3-Flash, 320B ("].second, 320'759'404'382u);
  EXPECT_EQ(figures["GLM-5.3-Flash, 312B ("].second, 313'326'811'966u);
  EXPECT_EQ(figures["GLM-5.3-Flash, A17B ("].second, 16'742'333'246u);
  EXPECT_EQ(figures["DeepSeek-V4-Flash, 284B ("].second, 284'332'240'471u);
  EXPECT_EQ(figures["DeepSeek-V4-Flash, A13B ("].second, 13'270'101'591u);
  EXPECT_EQ(figures["Qwen3.8-Flash-Next, 125B ("].second, 125'743'653'760u);
  EXPECT_EQ(figures["Kimi-K3, A50B ("].second, 103'015'209'728u);
  EXPECT_EQ(figures["Kimi-K3, 2.8T-A"].second, 104'189'614'848u);
}

TEST(Claims, SharesAreRoundedToTheNearest) {
  EXPECT_EQ(PercentOf(11'475, 100'000, 1), "11.5 %");
  EXPECT_EQ(PercentOf(11'475, 100'000, 2), "11.48 %");
  EXPECT_EQ(PercentOf(11'449'999, 100'000'000, 1), "11.4 %");
  EXPECT_EQ(PercentOf(5, 10'000, 1), "0.1 %");
  EXPECT_EQ(PercentOf(0, 3, 2), "0.00 %");
  EXPECT_EQ(PercentOf(2, 3, 0), "67 %");
  EXPECT_EQ(PercentOf(999'999, 1'000'000, 2), "100.00 %");
  EXPECT_EQ(PercentOf(UINT64_MAX / 2, UINT64_MAX, 1), "50.0 %");
}

// The maker's shares of V3.2's FLOPs, by the published equations: 304.2 G and 141.0 G of 1,165.9 G. Either the counts are whole and give
// them, or they say what they lack and give nothing.
TEST(Claims, FlopsRelativeToAnotherModel) {
  const std::vector<FlopsShareClaim> claims = FlopsShareClaims();
  ASSERT_EQ(claims.size(), 2u);
  const char* const shares[] = {"26.1 %", "12.1 %"};
  for (size_t i = 0; i < 2; ++i) {
    if (claims[i].lacks.empty()) {
      EXPECT_EQ(PercentOf(claims[i].flops, claims[i].flops_of, 1), shares[i]);
    } else {
      EXPECT_EQ(claims[i].flops + claims[i].flops_of, 0u);
      const Table table = ClaimsSections({"flops"}).front().table;
      EXPECT_EQ(table.rows[i][5].text, "not counted: " + claims[i].lacks);
    }
  }
}

// The rules give what was printed: llmfit's list, torchtitan's table (pytorch/torchtitan pull request 4300).
TEST(Claims, WhatATokenCosts) {
  std::map<std::string, std::pair<uint64_t, uint64_t>> figures;
  for (const HybridClaim& c : WorkClaims()) figures[c.model + ", " + c.claim] = {c.claimed, c.counted};
  using Pair = std::pair<uint64_t, uint64_t>;
  EXPECT_EQ(figures["Olmo-3-7B, 528,384 parameters (llmfit hf_models.json)"], (Pair{528'384, 7'298'011'136}));
  EXPECT_EQ(figures["DeepSeek-R1, 29.6B, a repository of GGUF files (llmfit #622)"].second, 671'026'419'200u);
  EXPECT_EQ(figures["Ling-3.0-flash, 5.1B active (its card)"].second, 5'103'302'112u);
  EXPECT_EQ(figures["Ling-3.0-flash, 5.5B active (vLLM recipes #743)"].second, 5'505'693'152u);
  const std::string before = ", FLOPs of a training token at 4,096, windows ignored (torchtitan before #4300)",
                    since = ", the same with windows, each a full square (torchtitan since #4300)";
  EXPECT_EQ(figures["gpt-oss-20b" + before].first, 26'481'681'792u);
  EXPECT_EQ(figures["gpt-oss-20b" + since].first, 24'141'260'160u);
  EXPECT_EQ(figures["gpt-oss-120b" + before].first, 38'044'854'144u);
  EXPECT_EQ(figures["gpt-oss-120b" + since].first, 34'534'221'696u);
  const Pair flash = figures["DeepSeek-V4-Flash, 290,942,278,866 with multi-token prediction (torchtitan #4441)"];
  EXPECT_EQ(flash.second - flash.first, 41u * 256);
}

}  // namespace
}  // namespace tally
