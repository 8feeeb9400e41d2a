// SPDX-License-Identifier: Apache-2.0
// tally count: the figures that are published, and every way of using it wrongly.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "engine/base/dtype.h"
#include "tests/app/runner.h"
#include "tests/app/screen.h"
#include "tests/support/goldens.h"
#include "tests/support/temp_folder.h"

namespace tally {
namespace {

using Json = nlohmann::json;

// The document, or of one model its own part.
Json Count(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "count");
  arguments.push_back("--json");
  const Ended e = Tally(arguments);
  EXPECT_EQ(e.code, 0) << e.err;
  Json document = Json::parse(e.out, nullptr, false);
  EXPECT_FALSE(document.is_discarded()) << e.out;
  Json models = document.value("models", Json::array());
  EXPECT_EQ(document.size(), 2u) << "one shape, and what made it";
  return models.size() == 1 ? models[0] : document;
}

std::string CountText(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "count");
  const Ended e = Tally(arguments);
  EXPECT_EQ(e.code, 0) << e.err;
  return e.out;
}

// Whether some line holds all of the parts in this order.
bool HasLine(const std::string& text, const std::vector<std::string>& parts) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    size_t at = 0;
    bool all = true;
    for (const std::string& part : parts) {
      const size_t found = line.find(part, at);
      all = all && found != std::string::npos;
      if (!all) break;
      at = found + part.size();
    }
    if (all) return true;
  }
  return false;
}

TEST(CliCount, GptOss20b) {
  const Json d = Count({"GPT-OSS-20B", "--ctx", "8192"});
  EXPECT_EQ(d["parameters"]["total"], 20'914'757'184);
  EXPECT_EQ(d["parameters"]["active"]["all"], 4'187'440'704);
  EXPECT_EQ(d["parameters"]["active"]["head"], 3'608'307'264);
  EXPECT_EQ(d["parameters"]["active"]["none"], 3'029'173'824);
  EXPECT_EQ(d["parameters"]["touched"], 3'608'310'144);
  EXPECT_EQ(d["parameters"]["layers"][0], 823'186'976);  // course text 000
  EXPECT_EQ(d["parameters"]["parts"]["router"]["parameters"], 24 * 92'192);
  EXPECT_EQ(d["bytes"]["weights"], 13'761'264'768);
  EXPECT_EQ(d["bytes"]["stored_as"], "MXFP4 + BF16");
  EXPECT_EQ(d["bytes"]["weights_per_token"], 3'708'089'088);
  EXPECT_EQ(d["bytes"]["kv_per_token"], 49'152);
  EXPECT_EQ(d["flops"]["decode"]["total"]["matmul_causal"], 7'214'284'800 + 1'635'778'560);
  uint64_t sum = 0;
  for (const Json& t : d["parameters"]["tensors"]) sum += t["parameters"].get<uint64_t>();
  EXPECT_EQ(sum, 20'914'757'184u);
  const std::string text = CountText({"gpt-oss-20b", "--full"});
  EXPECT_TRUE(HasLine(text, {"blk.*.attn_q", "11,796,480", "24", "283,115,520", "1.35 %", "H D E"})) << text;
  EXPECT_TRUE(HasLine(text, {"active(head)", "3,608,307,264"}));
  EXPECT_TRUE(HasLine(text, {"13,761,264,768", "13.76", "12.82"}));
}

// The scaling table of course text 004, in one command.
TEST(CliCount, MiniGptScalingTable) {
  const std::vector<std::string> variants = {"mini-gpt", "mini-gpt:d_model=128,n_layers=4,d_ff=512",
                                             "mini-gpt:d_model=256,n_layers=6,d_ff=1024"};
  EXPECT_TRUE(HasLine(CountText(variants), {"total", "103,680", "799,488", "4,749,312"})) << CountText(variants);
  std::vector<std::string> full = variants;
  full.emplace_back("--full");
  EXPECT_TRUE(HasLine(CountText(full), {"feed-forward", "63.83 %", "65.90 %", "66.40 %"})) << CountText(full);
  EXPECT_EQ(Count({"mini-gpt", "--set", "tied=false"})["parameters"]["total"], 103'680 + 4'096);
  EXPECT_EQ(Count({"mini-gpt", "--set", "qkv_bias"})["parameters"]["total"], 103'680 + 384);
  EXPECT_EQ(Count({"mini-gpt", "--set", "d_model=128,n_layers=4", "--set", "d_ff=512"})["parameters"]["total"], 799'488);
}

// Course text 001: GPT-2's four sizes; its SwiGLU of GPT-2 XL's shape; 16,384 positions.
TEST(CliCount, Gpt2Table) {
  const std::string text = CountText({"gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl", "--full"});
  EXPECT_TRUE(HasLine(text, {"full square", "291,648,307,200", "826,951,073,792", "1,774,570,700,800", "3,506,703,564,800"}))
      << text;
  EXPECT_TRUE(HasLine(text, {"feed-forward", "39.76 %", "49.86 %", "54.46 %", "57.41 %"}));
  EXPECT_TRUE(HasLine(text, {"attention proj.", "19.88 %", "24.93 %", "27.23 %", "28.71 %"}));
  EXPECT_TRUE(HasLine(text, {"QK^T and PV", "13.25 %", "12.46 %", "10.89 %", "9.19 %"}));
  EXPECT_TRUE(HasLine(text, {"head", "27.10 %", "12.75 %", "7.42 %", "4.70 %"}));
  const std::string swiglu =
      "gpt2-xl:gated,norm=rms,qkv_bias=false,o_bias=false,ffn_bias=false,tied=false,learned_positions=false";
  const Json d = Count({swiglu, "--type", "f32"});
  EXPECT_EQ(d["parameters"]["total"], 2'127'057'600);
  EXPECT_EQ(d["bytes"]["weights"], 8'508'230'400);
  EXPECT_EQ(d["flops"]["prefill"]["total"]["matmul_full_square"], 4'513'336'524'800);  // with all three matrices of a SwiGLU
  const Json far = Count({"gpt2-xl", "--prompt", "16384"});
  EXPECT_EQ(far["flops"]["prefill"]["total"]["matmul_full_square"], 133'416'668'364'800);
  const Ended warned = Tally({"count", "gpt2-xl", "--prompt", "16384", "--format", "csv"});
  EXPECT_EQ(warned.code, 0);
  EXPECT_NE(warned.err.find("a prompt of 16,384 is longer than the 1,024 positions"), std::string::npos) << warned.err;
}

TEST(CliCount, FilesAndTheirConfigs) {
  const std::string directory = kGoldens + "gptoss/gptoss-a-top4of8-realyarn";
  const Json whole = Count({directory}), config = Count({directory + "/config.json"}), demo = Count({}),
             inspect = Json::parse(Tally({"inspect", directory, "--json"}).out);
  EXPECT_EQ(whole["parameters"], config["parameters"]);
  EXPECT_EQ(whole["flops"], config["flops"]);
  EXPECT_EQ(whole["bytes"]["weights"], inspect["totals"]["bytes"]);  // as stored
  EXPECT_EQ(demo["parameters"]["total"], 4'541'364);
  EXPECT_EQ(demo["parameters"]["active"]["all"], 1'759'284);
  EXPECT_EQ(Count({kGoldens + "llama/llama-a-f32-gqa-untied/model.gguf"})["family"], "llama");
}

TEST(CliCount, FamiliesThatAreOnlyCounted) {
  EXPECT_EQ(Count({"deepseek-v3"})["parameters"]["total"], 671'026'419'200);
  EXPECT_EQ(Count({"DeepSeek-V3"})["parameters"]["multi_token_prediction"], 11'610'068'224);
  EXPECT_EQ(Count({"qwen3-30b-a3b"})["parameters"]["active"]["all"], 3'353'032'704);
  EXPECT_EQ(Count({"gpt-oss-120b"})["parameters"]["active"]["head"], 5'132'849'472);
}

// Latent attention as published beside as run. Projections cost the same; each visible position costs less expanded, and is cached
// with H (D_n + D_r + D_v) elements instead of R_kv + D_r.
TEST(CliCount, LatentAttentionInTwoReadings) {
  const Json d = Count({"deepseek-v3", "--prompt", "1024"}), e = d["expanded"];
  EXPECT_EQ(d["bytes"]["kv_per_token"], 61 * (512 + 64) * 2);
  EXPECT_EQ(e["kv_per_token"], 61 * 128 * (128 + 64 + 128) * 2);
  EXPECT_EQ(e["kv_at_context"], 1024ll * 61 * 128 * (128 + 64 + 128) * 2);
  const int64_t each = 2 * 128 * 61 * ((2 * 512 + 64) - (128 + 64 + 128));  // a visible position
  EXPECT_EQ(d["flops"]["decode"]["total"]["matmul_causal"].get<int64_t>() - e["decode"]["matmul_causal"].get<int64_t>(),
            1024 * each);
  EXPECT_EQ(d["flops"]["prefill"]["total"]["matmul_causal"].get<int64_t>() - e["prefill"]["matmul_causal"].get<int64_t>(),
            1024 * 1025 / 2 * each);
  const std::string text = CountText({"deepseek-v3", "--full"});
  EXPECT_TRUE(HasLine(text, {"KV elements a position and layer", "576", "40,960", "R_kv + D_r"})) << text;
  EXPECT_TRUE(HasLine(CountText({"deepseek-v3", "gpt2", "--full"}), {"KV bytes a token", "70,272", "4,997,120"}));
  EXPECT_EQ(Count({"gpt2"}).count("expanded"), 0u);
  EXPECT_EQ(CountText({"gpt2", "--full"}).find("expanded"), std::string::npos);
  EXPECT_TRUE(HasLine(CountText({"deepseek-v3"}), {"KV, f16", "70,272 bytes a token"}));
}

// What the reference says of each published figure (shared/reference/published_claims.md).
TEST(CliCount, PublishedClaims) {
  const std::string text =
      CountText({"gpt-oss-20b", "Mixtral-8x7B", "DeepSeek-V2-Lite", "GLM-4.5", "GLM-4.5-Air", "Kimi-K2", "--claims"});
  EXPECT_TRUE(HasLine(text, {"gpt-oss-20b: published figures (arXiv 2508.10925, Table 1)"})) << text;
  EXPECT_TRUE(HasLine(text, {"active", "3.61B", "active(head)", "3,608,307,264", "rounded"})) << text;
  EXPECT_TRUE(HasLine(text, {"active", "3.61B", "active(all)", "4,187,440,704", "no"}));
  EXPECT_TRUE(HasLine(text, {"12.9B", "active(all)", "12,879,925,248", "rounded"}));
  EXPECT_TRUE(HasLine(text, {"12.9B", "active(head)", "12,748,853,248", "no"}));
  EXPECT_TRUE(HasLine(text, {"2.4B", "active(head)", "2,451,435,008", "truncated"}));
  EXPECT_TRUE(HasLine(text, {"355B", "total without embedding and head with multi-token prediction", "355,2", "rounded"}));
  EXPECT_TRUE(HasLine(text, {"106B", "total without embedding and head with multi-token prediction", "107,9", "no"}));
  EXPECT_TRUE(HasLine(text, {"1.04T", "total", "1,026,408,232,448", "no"}));
  EXPECT_TRUE(
      HasLine(CountText({"gpt-oss-20b", "--claims", "--format", "md"}), {"| gpt-oss-20b | active | 3.61B | active(head) |"}));
  const Json d = Count({"gpt-oss-20b"});
  EXPECT_EQ(d["published"]["claims"][1]["holds"], true);
  EXPECT_EQ(Count({"gpt-oss-20b:top_k=8"}).count("published"), 0u);  // another model
  const Ended none = Tally({"count", "demo", "--claims"});
  EXPECT_EQ(none.code, 0);
  EXPECT_NE(none.err.find("no published figures are known"), std::string::npos) << none.err;
  EXPECT_EQ(none.out, Tally({"count", "demo"}).out);
  EXPECT_EQ(Json::parse(Tally({"count", "demo", "--claims", "--json"}).out).at("models").at(0), Count({"demo"}));
}

TEST(CliCount, Formats) {
  const std::string md = CountText({"gpt2", "--format", "md"}), csv = CountText({"gpt2", "--format", "csv"});
  EXPECT_TRUE(HasLine(md, {"| total | 124,439,808 |"})) << md;
  EXPECT_TRUE(HasLine(csv, {"gpt2,1024,1024,1,f16,parameters,total,parameters,124439808"})) << csv;
  EXPECT_EQ(Json::parse(CountText({"gpt2", "--format", "json"})).at("models").at(0), Count({"gpt2"}));
  EXPECT_EQ(Count({"gpt2", "gpt2-xl"})["models"].size(), 2u);
  EXPECT_TRUE(HasLine(CountText({"gpt2", "--layers"}), {"blk.11.attn_qkv", "1,769,472"}));
  const std::string plot = CountText({"gpt-oss-20b", "--plot"});
  EXPECT_TRUE(HasLine(plot, {"total", "EEAAXXXXXXX"})) << plot;
  EXPECT_TRUE(HasLine(plot, {"total", "active(all)", "of total"})) << plot;  // heads of the legend
  EXPECT_EQ(plot.find('\x1b'), std::string::npos);                           // no terminal, no colour
}

// One header, then numbers: what one model says is said again beside others.
TEST(CliCount, CsvIsTidy) {
  const std::vector<std::string> one = LinesOf(CountText({"gpt2", "--format", "csv"})),
                                 other = LinesOf(CountText({"gpt-oss-20b:n_layers=2", "--format", "csv"}));
  const std::vector<std::string> both = LinesOf(CountText({"gpt2", "gpt-oss-20b:n_layers=2", "--format", "csv"}));
  ASSERT_GT(one.size(), 50u);
  EXPECT_EQ(one[0], "model,context,prompt,batch,kv,table,row,figure,value,tally_version,date");
  std::vector<std::string> joined = one;
  joined.insert(joined.end(), other.begin() + 1, other.end());
  EXPECT_EQ(both, joined);
  std::vector<std::string> claims = LinesOf(CountText({"gpt-oss-20b", "gpt2", "--claims", "--format", "csv"}));
  EXPECT_TRUE(HasLine(CountText({"gpt-oss-20b", "--claims", "--format", "csv"}), {"active 3.61B,active(head) holds,1"}));
  const std::string all = CountText({"gpt2", "--claims", "--training", "--full", "--format", "csv"});
  EXPECT_TRUE(HasLine(all, {"gpt2,1024,1024,1,f16,published figures,"}) && HasLine(all, {",1,f16,training,"}) &&
              HasLine(all, {",1,f16,tensors,"}));
  const std::string tables = CountText({"gpt2", "--claims", "--full"});
  EXPECT_TRUE(HasLine(tables, {"published figures"}) && HasLine(tables, {"closed form"})) << tables;
  for (const std::vector<std::string>& lines :
       {both, LinesOf(CountText({"DeepSeek-V3", "--layers", "--format", "csv"})), claims}) {
    for (size_t i = 1; i < lines.size(); ++i) {
      int commas = 0;
      bool quoted = false;
      for (const char c : lines[i]) {
        quoted ^= c == '"';
        commas += c == ',' && !quoted;
      }
      EXPECT_EQ(commas, 10) << lines[i];
      const std::string line = lines[i].substr(0, lines[i].rfind(',', lines[i].rfind(',') - 1));  // without version and date
      const std::string value = line.substr(line.rfind(',') + 1);
      EXPECT_TRUE(!value.empty() && value.find_first_not_of("0123456789.e+-") == value.npos) << lines[i];
    }
  }
  EXPECT_TRUE(std::any_of(claims.begin(), claims.end(), [](const std::string& l) { return l.starts_with("gpt-oss-20b,"); }));
}

// "total" is the total: what is not run has lines of its own.
TEST(CliCount, PartsThatAreNotRun) {
  const std::string text = CountText({"gemma-3-27b", "--full"});
  EXPECT_TRUE(HasLine(text, {"total (run)", "27,009,346,304"})) << text;
  EXPECT_TRUE(HasLine(text, {"not run: vision_tower", "416,866,032"}));
  EXPECT_TRUE(HasLine(text, {"total (all)", "27,432,406,640"}));
  EXPECT_FALSE(HasLine(text, {"  total  "}));
  const Json d = Count({"gemma-3-27b"});
  EXPECT_EQ(d["parameters"]["total"], 27'432'406'640);
  EXPECT_EQ(d["parameters"]["total_run"], 27'009'346'304);
  EXPECT_EQ(d["parameters"]["not_run"][0]["bytes"], 2 * 416'866'032);
  EXPECT_EQ(d["bytes"]["weights_run_or_not"], 2 * 27'432'406'640);
  EXPECT_TRUE(HasLine(CountText({"gemma-3-27b", "gpt2", "--full"}), {"total (all)", "27,432,406,640", "124,439,808"}));
  EXPECT_TRUE(HasLine(CountText({"gemma-3-27b", "--plot"}), {"total (run)", "active(all)", "of total (run)"}));
  const std::string screen = CountText({"gemma-3-27b"});
  EXPECT_TRUE(HasLine(screen, {"gemma-3-27b: 27,432,406,640 parameters, 27,009,346,304 of them run"})) << screen;
  EXPECT_TRUE(HasLine(screen, {"not run", "vision_tower 416,866,032, multi_modal_projector 6,194,304"})) << screen;
  EXPECT_TRUE(HasLine(CountText({"gemma-3-27b", "gpt2"}), {"total (all)", "27,432,406,640", "124,439,808"}));
  // A size that is not known is no 0.
  const Json unknown = Count({"gemma-3-27b:d_ff=64"})["parameters"];
  EXPECT_EQ(unknown["total"], unknown["total_run"]);
  EXPECT_EQ(unknown["total_lacks"], Json::array({"vision_tower", "multi_modal_projector"}));
  const Ended changed = Tally({"count", "gemma-3-27b:d_ff=64", "--full"});
  EXPECT_TRUE(HasLine(changed.out, {"not run: vision_tower", "not counted"})) << changed.out;
  EXPECT_FALSE(HasLine(changed.out, {"total (all)"}));
  EXPECT_NE(changed.err.find("the parameters of its vision_tower are not counted"), std::string::npos) << changed.err;
}

// A checkpoint that is not what it should be is refused as everywhere; a folder does not hide a built-in name; a colon may be a path's.
TEST(CliCount, WhatIsCounted) {
  const TempFolder folder;
  const std::string golden = kGoldens + "llama/llama-a-f32-gqa-untied";
  const std::string config = ReadAll(golden + "/config.json");
  const size_t at = config.find("\"hidden_size\": 64");
  ASSERT_NE(at, std::string::npos);
  folder.Write("config.json", std::string(config).replace(at, 17, "\"hidden_size\": 128"));
  EXPECT_EQ(Count({folder.path()})["parameters"]["layers"].size(),
            Count({golden})["parameters"]["layers"].size());  // no tensors: the config
  std::filesystem::copy_file(golden + "/model.safetensors", folder / "model.safetensors");
  const Ended other = Tally({"count", folder.path()});
  EXPECT_EQ(other.code, 2) << other.out;
  EXPECT_NE(other.err.find("expected [131, 128]"), std::string::npos) << other.err;
  std::filesystem::create_directory(folder / "a:b");
  std::filesystem::copy_file(golden + "/model.gguf", folder / "a:b.gguf");
  EXPECT_EQ(Count({folder / "a:b.gguf"})["family"], "llama");
  const Ended fp8 = Tally({"count", "DeepSeek-V3", "--format", "csv"});
  EXPECT_NE(fp8.err.find("quantised (fp8): bytes are counted as if they were stored in BF16"), std::string::npos) << fp8.err;
  EXPECT_EQ(Tally({"count", "DeepSeek-V3", "--type", "q8_0", "--format", "csv"}).err, "");
}

// Terminals of these widths, and a pipe whose reader has COLUMNS.
std::vector<std::pair<size_t, RunOptions>> Widths() {
  std::vector<std::pair<size_t, RunOptions>> all;
  for (const int columns : {80, 200}) {
    all.emplace_back(static_cast<size_t>(columns), RunOptions{.output_terminal = true, .columns = columns});
  }
  all.emplace_back(80, RunOptions{.output_terminal = true, .environment = {"NO_COLOR=1"}});
  all.emplace_back(80, RunOptions{.environment = {"COLUMNS=80"}});
  return all;
}

// The answers of one model on one screen, at any width; piped, as at 80 columns.
TEST(CliCount, OneScreen) {
  struct Screen {
    const char* model;
    size_t lines;
    std::vector<std::vector<std::string>> figures;
  };
  const std::vector<Screen> screens = {
      {"gpt2",
       25,
       {{"gpt2: 124,439,808 parameters, 12 layers"},
        {"published", "total 124M holds as total"},
        {"active(all)", "124,439,808", "100.00 %"},
        {"active(head)", "123,653,376", "99.37 %"},
        {"active(none)", "85,056,000"},
        {"touched", "123,654,144"},
        {"attention proj.", "28,348,416", "2,362,368"},  // course text 000
        {"total", "124,439,808", "7,087,872"},
        {"F32 498 MB (474.70 MiB)", "BF16 249 MB", "Q8_0 135 MB"},
        {"KV, f16", "36,864 bytes a token, 37.75 MB (36.00 MiB) at 1,024 positions"},
        {"prefill of 1,024", "266,783,545", "284,812,800", "523 kB"},
        {"decode at 1,024", "285,934,105", "284,812,800", "532 MB"},
        {"291,648,307,200 full square"}}},
      {"gpt-oss-20b",
       26,
       {{"gpt-oss-20b: 20,914,757,184 parameters, 24 layers, 32 experts, 4 a token"},
        {"total 20.91B holds as total; active 3.61B holds as active(head)"},
        {"active(head)", "3,608,307,264", "17.25 %"},
        {"experts", "19,116,933,120", "91.40 %", "796,538,880", "2,389,616,640"},
        {"norms", "141,120", "<0.01 %"},
        {"total", "20,914,757,184", "823,186,976", "4,187,440,704"},
        {"MXFP4 + BF16 13.76 GB (12.82 GiB)", "BF16 41.83 GB"},
        {"decode at 1,024", "7,448,869,297", "7,440,777,216", "3.74 GB"}}},
      {"gpt-oss-120b", 26, {{"active(head)", "5,132,849,472"}, {"65.25 GB (60.77 GiB)"}}},
      {"demo", 25, {{"demo: 4,541,364 parameters"}, {"3.74 MB (3.57 MiB)"}, {"touched", "1,595,604", "35.13 %"}}},
      {"mini-gpt", 25, {{"total", "103,680", "49,728"}}},
      {"deepseek-v3",
       33,
       {{"each of 3", "each of 58"},
        {"total", "671,026,419,200", "583,483,392", "11,507,286,272"},
        {"MTP layers", "11,610,068,224"}}},
      {"qwen3-30b-a3b", 28, {{"active 3.3B holds as active(all)"}}}};
  for (const Screen& s : screens) {
    SCOPED_TRACE(s.model);
    const Ended piped = Tally({"count", s.model});
    ExpectScreen(piped.out, 80, s.lines);
    for (const auto& figures : s.figures) EXPECT_TRUE(HasLine(piped.out, figures)) << figures[0] << "\n" << piped.out;
    EXPECT_EQ(piped.out.find(" 0.00 "), std::string::npos) << piped.out;
    for (const auto& [width, options] : Widths()) {
      Ended shown = Tally({"count", s.model}, options);
      EXPECT_EQ(shown.code, 0);
      if (options.output_terminal && !piped.err.empty())
        shown.out.erase(0, shown.out.find("\n" + std::string(s.model) + ":") + 1);  // the note is there, too
      ExpectScreen(shown.out, width, s.lines);
      EXPECT_EQ(shown.out.find('\x1b'), std::string::npos);
      for (const auto& figures : s.figures) {
        EXPECT_TRUE(width != 80 || HasLine(shown.out, figures)) << figures[0] << "\n" << shown.out;
      }
    }
  }
}

// A published figure that no convention gives; one that only other conventions do.
TEST(CliCount, TheScreenSaysWhatDoesNotHold) {
  EXPECT_NE(CountText({"kimi-k2", "--width", "400"}).find("total 1.04T holds under no convention: not as total, total without"),
            std::string::npos)
      << CountText({"kimi-k2", "--width", "400"});
  const std::string glm = CountText({"glm-4.5", "--width", "100"});
  EXPECT_NE(glm.find("total 355B holds as total without embedding and head with multi-token prediction, not as"),
            std::string::npos)
      << glm;
}

TEST(CliCount, ModelsSideBySide) {
  const std::vector<std::string> sizes = {"gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl"};
  const std::string piped = CountText(sizes);
  EXPECT_TRUE(HasLine(piped, {"total", "124,439,808", "354,823,168", "774,030,080", "1,557,611,200"})) << piped;
  EXPECT_TRUE(HasLine(piped, {"gpt2: total 124M holds as total"})) << piped;
  EXPECT_TRUE(HasLine(piped, {"full square", "292 GFLOP", "827 GFLOP", "1.77 TFLOP", "3.51 TFLOP"})) << piped;
  EXPECT_TRUE(HasLine(piped, {"  head", "27.10 %", "12.75 %", "7.42 %", "4.70 %"})) << piped;
  EXPECT_TRUE(HasLine(piped, {"prefill of 1,024", "266,783,545"})) << piped;
  std::vector<std::string> four = sizes;
  four.insert(four.begin(), "count");
  for (const auto& [width, options] : Widths()) {
    const Ended shown = Tally(four, options);
    ExpectScreen(shown.out, width, 60);
    EXPECT_TRUE(HasLine(shown.out, {"gpt2-xl"}));
    EXPECT_TRUE(HasLine(shown.out, {"1,557,611,200"}));
  }
  const std::string mixed = CountText({"gpt2", "gpt-oss-20b", "--width", "80"});
  ExpectScreen(mixed, 80, 40);
  EXPECT_TRUE(HasLine(mixed, {"gpt-oss-20b: total 20.91B holds as total; active 3.61B holds as active(head)"})) << mixed;
  EXPECT_TRUE(HasLine(mixed, {"experts", "19,116,933,120"})) << mixed;
  EXPECT_TRUE(HasLine(CountText({"gpt2", "mini-gpt"}), {"P", "1,024", "64"}));  // not the same for all: a row
}

// More models than a line has room for are rows of one table.
TEST(CliCount, TenModelsAreOneTable) {
  std::vector<std::string> ten = {"gpt2",          "gpt2-xl", "gpt-oss-20b", "gpt-oss-120b", "Qwen3-8B",
                                  "Qwen3-30B-A3B", "Phi-4",   "Gemma-3-27B", "DeepSeek-V3",  "Kimi-K2"};
  ten.insert(ten.end(), {"--width", "80"});
  const std::string text = CountText(ten);
  ExpectScreen(text, 80, 60);
  EXPECT_TRUE(HasLine(text, {"gpt-oss-20b", "20.91B", "3.61B", "13.76 GB", "49.15 kB"})) << text;
  EXPECT_TRUE(HasLine(text, {"Kimi-K2", "1.03T"})) << text;
}

// Lengths as lists, as columns of a table and of CSV.
TEST(CliCount, SweepsOverLengths) {
  const std::string csv = CountText({"gpt2", "--ctx", "1,1k", "-p", "512", "--format", "csv"});
  EXPECT_TRUE(HasLine(csv, {"gpt2,1,512,1,f16,memory,KV at the context,bytes,36864"})) << csv;
  EXPECT_TRUE(HasLine(csv, {"gpt2,1024,512,1,f16,memory,KV at the context,bytes,37748736"})) << csv;
  const std::string text = CountText({"gpt-oss-20b", "--ctx", "1k,8k,32k"});
  EXPECT_TRUE(HasLine(text, {"gpt-oss-20b", "S 1,024", "S 8,192", "S 32,768"})) << text;
  EXPECT_TRUE(HasLine(text, {"S: positions that the decode token sees"})) << text;
  EXPECT_FALSE(HasLine(text, {"  S  "})) << text;  // the columns' names say it
  EXPECT_EQ(Count({"gpt2", "--ctx", "1k,2"})["models"][1]["options"]["context"], 2);
  EXPECT_EQ(Tally({"count", "gpt2", "--ctx", "1k,1024"}).code, 2);
  EXPECT_EQ(Tally({"count", "gpt2", "--ctx", "8q"}).code, 2);
}

// Without network and cache, a name of the hub is the built-in model of that name; a note says so. Near names are hinted.
TEST(CliCount, NamesOfTheHub) {
  const TempFolder folder;
  const RunOptions here{.environment = {"HF_HOME=" + folder.path()}};
  const Ended built_in = Tally({"count", "openai/gpt-oss-20b"}, here);
  EXPECT_EQ(built_in.code, 0);
  EXPECT_NE(built_in.err.find("counting the built-in gpt-oss-20b"), std::string::npos) << built_in.err;
  EXPECT_TRUE(HasLine(built_in.out, {"openai/gpt-oss-20b: 20,914,757,184 parameters"})) << built_in.out;
  ExpectAdvice({"count", "Qwen/Qwen3-0.6B-Base"}, {"tally pull Qwen/Qwen3-0.6B-Base", "built in: Qwen3-0.6B"}, here);
  const Ended far = Tally({"count", "acme/zzzzzzzzzzzzzz"}, here);
  EXPECT_EQ(far.code, 2);
  EXPECT_EQ(far.err.find("built in"), std::string::npos) << far.err;
}

TEST(CliCount, ClaimsOfTheUser) {
  const std::string text = CountText({"Qwen3-30B-A3B", "--claims", "active=3.3b,total=31B"});
  EXPECT_TRUE(HasLine(text, {"active", "3.3B", "active(all)", "3,353,032,704", "truncated"})) << text;
  EXPECT_TRUE(HasLine(text, {"total", "31B", "total", "30,532,122,624", "rounded"})) << text;
  EXPECT_TRUE(HasLine(CountText({"demo", "--claims", "active=1.9M"}), {"active(all)", "1,759,284", "no: 7.41 % less"}));
  EXPECT_TRUE(HasLine(CountText({"Qwen3-30B-A3B", "--claims", "active=2B"}), {"active(none)", "2,730,702,848", "no: 36.5"}));
  EXPECT_EQ(Tally({"count", "demo", "--claims", "active=many"}).code, 2);
}

// One A100 of 312 TFLOP/s of which 40 % are reached: 6 n tokens / rate, in days.
TEST(CliCount, TrainingBudget) {
  const Json b = Count({"gpt2-xl", "--train-tokens", "300B", "--peak", "312T", "--mfu", ".4"})["training"]["budget"];
  EXPECT_NEAR(b["days"]["6 n"].get<double>(), 300e9 * 6 * 1'475'561'600.0 / (312e12 * .4) / 86400, 1e-6);
  EXPECT_TRUE(HasLine(CountText({"gpt2-xl", "--train-tokens", "300B", "--peak", "312TFLOP/s", "--mfu", "40%"}),
                      {"6 n", "2.656e+21", "246"}));
  EXPECT_EQ(Tally({"count", "gpt2-xl", "--train-tokens", "300B"}).code, 2);
  EXPECT_EQ(Tally({"count", "gpt2-xl", "--train-tokens", "300B", "--peak", "312T", "--mfu", "40"}).code, 2);
}

TEST(CliCount, PicturesWithoutWeights) {
  const TempFolder folder;
  const std::string page = folder / "page.html", pictures = folder / "pictures";
  EXPECT_EQ(Tally({"count", "gpt-oss-20b", "--report", page, "--svg", pictures}).code, 0);
  const std::string html = ReadAll(page);
  EXPECT_NE(html.find("3,608,307,264"), std::string::npos);
  EXPECT_NE(html.find("nothing ran"), std::string::npos);
  for (const char* name : {"parameters", "flops", "weights-and-kv"}) {
    EXPECT_NE(ReadAll(pictures + "/" + name + ".svg").find("<svg"), std::string::npos) << name;
  }
  EXPECT_EQ(Tally({"count", "gpt2", "--ctx", "1,2", "--report", page}).code, 2);
  EXPECT_EQ(Tally({"count", "gpt2", "mini-gpt:n_layers=3", "--report", page, "--svg", folder / "two"}).code, 0);
  EXPECT_NE(ReadAll(page).find("mini-gpt:n_layers=3"), std::string::npos);
  for (const char* name : {"gpt2-flops", "mini-gpt-n_layers-3-parameters"}) {
    EXPECT_NE(ReadAll(folder / "two" + "/" + name + ".svg").find("<svg"), std::string::npos) << name;
  }
}

TEST(CliCount, CachesBatchesAndLayers) {
  const std::string text = CountText({"gpt2", "--batch", "1,8", "--kv", "q8_0"});
  EXPECT_TRUE(HasLine(text, {"gpt2", "B 1", "B 8"})) << text;
  EXPECT_TRUE(HasLine(text, {"KV a token, q8_0", "19.58 kB", "19.58 kB"})) << text;
  EXPECT_EQ(Count({"gpt2", "--kv", "q8_0"})["options"]["kv"], "q8_0");
  EXPECT_EQ(Count({"gpt2", "--kv", "q8_0"})["bytes"]["kv_element"], 1.0625);
  const std::string layers = CountText({"gpt-oss-20b", "--by-layer"});
  EXPECT_TRUE(HasLine(layers, {"0", "attention, window 128", "4 of 32 experts", "823,186,976", "126,215,456", "2,048"}))
      << layers;
  EXPECT_TRUE(HasLine(layers, {"all", "20,914,757,184"})) << layers;
  EXPECT_TRUE(
      HasLine(CountText({"gpt2", "--by-layer", "--format", "csv"}), {"gpt2,1024,1024,1,f16,layers,layer 11,parameters,7087872"}));
  EXPECT_EQ(Tally({"count", "gpt2", "--batch", "0"}).code, 2);
  EXPECT_TRUE(
      HasLine(CountText({"gpt2", "--kv", "q8_0", "--format", "csv"}), {"gpt2,1024,1024,1,q8_0,memory,KV a token,bytes,19584"}));
  EXPECT_EQ(Tally({"count", "gpt2", "--kv", "q4_0"}).code, 2);
}

TEST(CliCount, Latex) {
  const std::string text = CountText({"gpt2", "gpt-oss-20b", "mini-gpt:d_ff=512", "--format", "latex"});
  EXPECT_TRUE(HasLine(
      text, {"\\caption{", "active(head): only the head", "everything", "(matmul, causal); P, positions", "; B = 1, sequences."}))
      << text;
  EXPECT_TRUE(HasLine(text, {"mini-gpt:d\\_ff=512 & 64 & 64 & 170k & "})) << text;
  EXPECT_TRUE(HasLine(text, {"gpt-oss-20b & 1,024 & 1,024 & 20.91B & 4.19B & 3.61B & 3.03B & 13.76 GB"})) << text;
  EXPECT_FALSE(HasLine(text, {"total (run)"})) << text;
  // What is stored and what is run, and the caption names what is between them.
  const std::string part = CountText({"Qwen3.5-27B", "gpt2", "--ctx", "1k", "--format", "latex"});
  EXPECT_TRUE(
      HasLine(part, {"without what nothing runs here, which is Qwen3.5-27B's visual", "multi-token prediction are left out.}"}))
      << part;
  EXPECT_TRUE(HasLine(part, {"model & total & total (run) & active(all)"})) << part;
  EXPECT_TRUE(HasLine(part, {"Qwen3.5-27B & 27.36B & 26.90B & 26.90B"})) << part;
  EXPECT_TRUE(HasLine(part, {"gpt2 & 124M & 124M & "})) << part;
}

TEST(CliCount, ListOfNames) {
  const Json all = Json::parse(Tally({"count", "--list", "--json"}).out)["models"];
  EXPECT_GE(all.size(), 190u);
  const Json one = Json::parse(Tally({"count", "--list", "LLAMA3.3:70b", "--json"}).out)["models"];
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(one[0]["name"], "Llama-3.3-70B");
  EXPECT_EQ(one[0]["aliases"][0], "Llama-3.3-70B-Instruct");
  EXPECT_EQ(one[0]["parameters"]["total_run"], 70'553'706'496);
  EXPECT_TRUE(HasLine(CountText({"--list", "kimi"}), {"Kimi-K3", "(counted)", "2.78T", "2.8T-A104B"}));
  EXPECT_TRUE(HasLine(CountText({"--list", "kimi"}), {"name", "total (run)", "active(head)"}));
  EXPECT_EQ(Tally({"count", "--list", "zzz"}).code, 2);
  const Ended named = Tally({"count", "deepseek-r1:671b"});
  EXPECT_NE(named.err.find("deepseek-r1:671b is the built-in DeepSeek-R1"), std::string::npos) << named.err;
  EXPECT_EQ(Tally({"count", "deepseek-r1:671b", "--ctx", "1k,2k,4k"}).err, named.err);  // once
}

TEST(CliCount, TypesArePresetsToo) {
  EXPECT_EQ(Count({"Qwen3-8B", "--type", "q4_k_m"})["bytes"]["weights"], Count({"Qwen3-8B"})["bytes"]["presets"]["Q4_K_M"]);
  EXPECT_EQ(Count({"gpt-oss-20b", "--type", "Q8_0"})["bytes"]["weights"], Count({"gpt-oss-20b"})["bytes"]["presets"]["Q8_0"]);
  const Json c = Count({"gpt-oss-20b"});
  EXPECT_EQ(c["configuration"]["n_experts"], 32);
  EXPECT_EQ(c["parameters"]["parts"]["attention projections"]["parameters"], 637'203'456);
}

// All figures, in lines of the terminal; whole lines where a program reads them.
TEST(CliCount, FullTablesAreWrapped) {
  for (const std::vector<std::string>& models :
       {std::vector<std::string>{"gpt2"}, {"deepseek-v3"}, {"gpt-oss-20b", "gpt2", "gpt2-xl", "demo"}}) {
    std::vector<std::string> arguments = models;
    arguments.insert(arguments.begin(), "count");
    for (const char* option : {"--full", "--type", "bf16"}) arguments.emplace_back(option);
    for (const auto& [width, options] : Widths()) {
      const Ended shown = Tally(arguments, options);
      EXPECT_EQ(shown.code, 0);
      ExpectScreen(shown.out, width, 1000);
    }
  }
  const std::string whole = CountText({"gpt2", "--full"}), at_80 = CountText({"gpt2", "--full", "--width", "80"});
  EXPECT_TRUE(HasLine(whole, {"attention projections", "57,982,058,496", "19.88 %", "57,982,058,496", "21.29 %", "21.22 %"}));
  EXPECT_TRUE(HasLine(at_80, {"attention projections", "57,982,058,496", "19.88 %"})) << at_80;
  EXPECT_FALSE(HasLine(at_80, {"57,982,058,496", "19.88 %", "57,982,058,496", "21.29 %"})) << at_80;  // a group of its own
  EXPECT_TRUE(HasLine(at_80, {"all, head at every position", "273,186,350,080", "100.00 %", "122,833,920"})) << at_80;
  EXPECT_TRUE(HasLine(whole, {"preset Q4_K_M", "MB", "MiB"})) << whole;
  EXPECT_EQ(whole.find(" 0.00 "), std::string::npos) << whole;
  for (const char* option : {"--layers", "--claims", "--plot", "--training"}) {
    for (const auto& [width, options] : Widths()) ExpectScreen(Tally({"count", "gpt-oss-20b", option}, options).out, width, 2000);
  }
}

// Course text 001: the parameters and the forward pass of its GPT-2 XL with a SwiGLU; then 4 N bytes of gradients, 8 N of moments, and
// a backward pass of twice the forward one.
TEST(CliCount, Training) {
  const std::string swiglu =
      "gpt2-xl:gated,norm=rms,qkv_bias=false,o_bias=false,ffn_bias=false,tied=false,learned_positions=false";
  const Json t = Count({swiglu, "--training"})["training"];
  EXPECT_EQ(t["bytes"]["f32"]["weights"], 8'508'230'400);
  EXPECT_EQ(t["bytes"]["f32"]["gradients"], 8'508'230'400);
  EXPECT_EQ(t["bytes"]["f32"]["moments"], 2 * 8'508'230'400);
  EXPECT_EQ(t["bytes"]["f32"]["total"], 4 * 8'508'230'400);
  EXPECT_EQ(t["bytes"]["mixed"]["weights"], 8'508'230'400 / 2);
  EXPECT_EQ(t["bytes"]["mixed"]["total"], 4 * 8'508'230'400);
  EXPECT_EQ(t["flops"]["update"], 12 * 2'127'057'600ll);
  const Json xl = Count({"gpt2-xl", "--training", "--batch", "2"})["training"];
  EXPECT_EQ(xl["flops"]["forward"]["matmul_full_square"], 2 * 3'506'703'564'800);  // the text's two-matrix figure
  EXPECT_EQ(xl["flops"]["backward"]["matmul_full_square"], 4 * 3'506'703'564'800);
  EXPECT_EQ(xl["flops"]["kaplan_per_token"], 6 * 1'475'561'600ll);
  EXPECT_EQ(xl["flops"]["palm_per_token"], 6 * 1'557'611'200ll + 12ll * 48 * 1600 * 1024);
  const Json latent = Count({"deepseek-v3", "--training"});  // trained as published: latent attention expanded
  EXPECT_EQ(latent["training"]["flops"]["forward"]["matmul_full_square"], latent["expanded"]["prefill"]["matmul_full_square"]);
  EXPECT_NE(latent["training"]["flops"]["forward"]["matmul_full_square"],
            latent["flops"]["prefill"]["total"]["matmul_full_square"]);
  const std::string text = CountText({"gpt2-xl", "--training"});
  EXPECT_TRUE(HasLine(text, {"both", "10,520,110,694,400"})) << text;
  EXPECT_TRUE(HasLine(text, {"together, 16 N", "24,921,779,200", "24.92 GB"})) << text;
  EXPECT_TRUE(HasLine(CountText({"gpt2-xl", "--training", "--format", "csv"}),
                      {"gpt2-xl,1024,1024,1,f16,training,together,\"bytes, F32\",24921779200"}));
  EXPECT_TRUE(HasLine(CountText({"gpt2-xl", "--training", "--format", "md"}), {"| both | 10,520,110,694,400 |"}));
  EXPECT_EQ(Count({"gpt2-xl"}).count("training"), 0u);
  EXPECT_EQ(Tally({"count", "gpt2", "--training", "--prompt", "400000000", "--batch", "9"}).code, 2);
}

// Experts that are published in MXFP4 stay so in presets, whatever --type counts.
TEST(CliCount, PresetsStartFromWhatIsPublished) {
  for (const char* model : {"gpt-oss-20b", "llama-3.1-8b"}) {
    const auto presets = [&](std::vector<std::string> arguments) {
      arguments.insert(arguments.begin(), {model, "--full"});
      std::vector<std::string> rows = LinesOf(CountText(arguments));
      std::erase_if(rows, [](const std::string& row) { return row.find("preset ") == std::string::npos; });
      for (std::string& row : rows) std::erase(row, ' ');
      return rows;
    };
    const std::vector<std::string> published = presets({});
    EXPECT_EQ(published.size(), 5u);
    EXPECT_EQ(presets({"--type", "q8_0"}), published);
  }
}

// With several sequences, figures of all of them say so.
TEST(CliCount, ColumnsSayTheBatch) {
  for (const char* full : {"--full", "--format=table"}) {
    EXPECT_TRUE(HasLine(CountText({"gpt2", "mini-gpt", "--batch", "7", full}), {"B, sequences", "7", "7"}));
    EXPECT_FALSE(HasLine(CountText({"gpt2", "mini-gpt", full}), {"sequences"}));
  }
}

// 20 GB less 4,426,493,952 bytes outside of records are 32 slots of 13,221,888 bytes in each of 36 layers, and one more in 25. Of 4,608
// experts 1,177 are resident.
TEST(CliCount, ResidentInLessThanAll) {
  const std::string text = CountText({"gpt-oss-120b", "--resident", "20GB", "--disk", "3GB/s"});
  EXPECT_TRUE(HasLine(text, {"all experts, bytes", "60,926,459,904", "L_x X R"})) << text;
  EXPECT_TRUE(HasLine(text, {"slots of a layer n", "32", "floor((M - N) / (L_x R))"})) << text;
  EXPECT_TRUE(HasLine(text, {"resident, bytes", "19,988,656,128", "N + (L_x n + e) R"})) << text;
  EXPECT_TRUE(HasLine(text, {"misses m", "107.2", "42.1", "10.2", "L_x k (1 - h)"})) << text;
  EXPECT_TRUE(HasLine(text, {"tokens/s, at most", "2.12", "d / (m R)"})) << text;
  const Json j = Count({"gpt-oss-120b", "--resident", "20GB"});
  EXPECT_EQ(j["resident"]["slots"], 32);
  EXPECT_EQ(j["resident"]["decode"][0]["disk_bytes"], 1'417'634'304u) << "144 (1 - 1,177 / 4,608) records";
  EXPECT_TRUE(j["resident"]["decode"][0]["bound_tokens_per_second"].is_null()) << "the disk's rate is not given";
  EXPECT_TRUE(
      HasLine(CountText({"gpt-oss-120b", "--resident", "20GB", "--format", "csv"}), {",resident,slots of a layer,slots,32,"}));
}

TEST(CliCount, BadUseIsRefused) {
  const TempFolder folder;
  auto refused = [](std::vector<std::string> arguments, const std::string& part) {
    arguments.insert(arguments.begin(), "count");
    const Ended e = Tally(arguments);
    EXPECT_EQ(e.code, 2) << part;
    EXPECT_EQ(e.out, "") << part;
    EXPECT_TRUE(IsOneLine(e.err)) << e.err;
    EXPECT_NE(e.err.find(part), std::string::npos) << e.err;
  };
  refused({"gpt-5"}, "'gpt-5'");
  refused({"./none.gguf"}, "./none.gguf: no such file");
  refused({"none.json"}, "none.json: no such file");
  refused({"gpt2", "--type", "Q9"}, "'Q9' is not one of F32, F16, BF16, Q8_0");
  refused({"gpt2", "--type", "MXFP4"}, "MXFP4 is a type of experts");
  refused({"gpt2", "--format", "xml"}, "xml");
  refused({"gpt2", "--set", "d_modell=4"}, "d_modell");
  refused({"gpt2", "--set", "d_model=0"}, "d_model");
  refused({"gpt2", "--set", "d_model=many"}, "many");
  refused({"gpt2", "--set", "n_layers=99999999999"}, "n_layers");
  refused({"gpt-oss-20b:top_k=33"}, "top_k");
  refused({"gpt2", "--batch", "0"}, "--batch");
  refused({"gpt2", "--prompt", "-1"}, "-1");
  refused({"gpt-oss-120b", "--resident", "4GB"}, "gpt-oss-120b needs at least 6.79 GiB for weights");
  refused({"gpt-oss-120b", "--resident", "some"}, "--resident: 'some' is not a size such as 20GB");
  refused({"gpt-oss-120b", "--resident", "20GB", "--disk", "3"}, "--disk: '3' is no rate");
  refused({"gpt-oss-120b", "--disk", "3GB/s"}, "--disk goes with --resident");
  refused({"gpt2", "--prompt", "1099511627776"}, "do not fit 64 bits");
  refused({"gpt2", "--plot", "--json"}, "--plot");
  refused({"gpt2", "--format", "csv", "--json"}, "--json is not --format csv");
  refused({"gpt2", "--type", ""}, "--type");
  refused({"gpt2:k_bias=false"}, "one matrix");
  refused({"gpt2", "--prompt", "1", "--ctx", "9223372036854775807"}, "64 bits");
  refused({folder.Write("config.json", "{\"architectures\": [\"FlyForCausalLM\"]}")}, "'FlyForCausalLM'");
  refused({folder.Write("config.json", "{")}, "config.json");
  refused({folder.Write("bad.gguf", "GGUF")}, "bad.gguf");
}

}  // namespace
}  // namespace tally
