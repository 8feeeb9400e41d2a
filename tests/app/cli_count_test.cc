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
#include "tests/support/temp_folder.h"

namespace tally {
namespace {

using Json = nlohmann::json;

const std::string kGoldens = std::string(TALLY_SOURCE_DIR) + "/tests/goldens/";

// The document, or of one model its own part.
Json Count(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "count");
  arguments.push_back("--json");
  const Ended e = Tally(arguments);
  EXPECT_EQ(e.code, 0) << e.err;
  Json document = Json::parse(e.out, nullptr, false);
  EXPECT_FALSE(document.is_discarded()) << e.out;
  Json models = document.value("models", Json::array());
  EXPECT_EQ(document.size(), 1u) << "one shape";
  return models.size() == 1 ? models[0] : document;
}

std::string Text(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "count");
  const Ended e = Tally(arguments);
  EXPECT_EQ(e.code, 0) << e.err;
  return e.out;
}

std::vector<std::string> LinesOf(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
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
  EXPECT_EQ(d["parameters"]["components"]["router"], 24 * 92'192);
  EXPECT_EQ(d["bytes"]["weights"], 13'761'264'768);
  EXPECT_EQ(d["bytes"]["stored_as"], "MXFP4 + BF16");
  EXPECT_EQ(d["bytes"]["weights_per_token"], 3'708'089'088);
  EXPECT_EQ(d["bytes"]["kv_per_token"], 49'152);
  EXPECT_EQ(d["flops"]["decode"]["total"]["matmul_causal"], 7'214'284'800 + 1'635'778'560);
  uint64_t sum = 0;
  for (const Json& t : d["parameters"]["tensors"]) sum += t["parameters"].get<uint64_t>();
  EXPECT_EQ(sum, 20'914'757'184u);
  const std::string text = Text({"gpt-oss-20b"});
  EXPECT_TRUE(HasLine(text, {"blk.*.attn_q", "11,796,480", "24", "283,115,520", "1.35 %", "H D E"})) << text;
  EXPECT_TRUE(HasLine(text, {"active(head)", "3,608,307,264"}));
  EXPECT_TRUE(HasLine(text, {"13,761,264,768", "13.76", "12.82"}));
}

// The scaling table of course text 004, in one command.
TEST(CliCount, MiniGptScalingTable) {
  const std::vector<std::string> variants = {"mini-gpt", "mini-gpt:d_model=128,n_layers=4,d_ff=512",
                                             "mini-gpt:d_model=256,n_layers=6,d_ff=1024"};
  EXPECT_TRUE(HasLine(Text(variants), {"parameters", "103,680", "799,488", "4,749,312"})) << Text(variants);
  EXPECT_TRUE(HasLine(Text(variants), {"feed-forward", "63.83 %", "65.90 %", "66.40 %"})) << Text(variants);
  EXPECT_EQ(Count({"mini-gpt", "--set", "tied=false"})["parameters"]["total"], 103'680 + 4'096);
  EXPECT_EQ(Count({"mini-gpt", "--set", "qkv_bias"})["parameters"]["total"], 103'680 + 384);
  EXPECT_EQ(Count({"mini-gpt", "--set", "d_model=128,n_layers=4", "--set", "d_ff=512"})["parameters"]["total"], 799'488);
}

// Course text 001: GPT-2's four sizes; its SwiGLU of GPT-2 XL's shape; 16,384 positions.
TEST(CliCount, Gpt2Table) {
  const std::string text = Text({"gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl"});
  EXPECT_TRUE(HasLine(text, {"prefill FLOPs, matmul, full square", "291,648,307,200", "826,951,073,792", "1,774,570,700,800",
                             "3,506,703,564,800"}))
      << text;
  EXPECT_TRUE(HasLine(text, {"feed-forward", "39.76 %", "49.86 %", "54.46 %", "57.41 %"}));
  EXPECT_TRUE(HasLine(text, {"attention projections", "19.88 %", "24.93 %", "27.23 %", "28.71 %"}));
  EXPECT_TRUE(HasLine(text, {"attention", "13.25 %", "12.46 %", "10.89 %", "9.19 %"}));
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
  const std::string text = Text({"deepseek-v3"});
  EXPECT_TRUE(HasLine(text, {"KV elements a position and layer", "576", "40,960", "R_kv + D_r"})) << text;
  EXPECT_TRUE(HasLine(Text({"deepseek-v3", "gpt2"}), {"KV bytes a token, expanded", "4,997,120"}));
  EXPECT_EQ(Count({"gpt2"}).count("expanded"), 0u);
  EXPECT_EQ(Text({"gpt2"}).find("expanded"), std::string::npos);
}

// What the reference says of each published figure (shared/reference/published_claims.md).
TEST(CliCount, PublishedClaims) {
  const std::string text =
      Text({"gpt-oss-20b", "Mixtral-8x7B", "DeepSeek-V2-Lite", "GLM-4.5", "GLM-4.5-Air", "Kimi-K2", "--claims"});
  EXPECT_TRUE(HasLine(text, {"gpt-oss-20b", "active", "3.61B", "active(head)", "3,608,307,264", "rounded"})) << text;
  EXPECT_TRUE(HasLine(text, {"gpt-oss-20b", "active", "3.61B", "active(all)", "4,187,440,704", "no"}));
  EXPECT_TRUE(HasLine(text, {"Mixtral-8x7B", "12.9B", "active(all)", "12,879,925,248", "rounded"}));
  EXPECT_TRUE(HasLine(text, {"Mixtral-8x7B", "12.9B", "active(head)", "12,748,853,248", "no"}));
  EXPECT_TRUE(HasLine(text, {"DeepSeek-V2-Lite", "2.4B", "active(head)", "2,451,435,008", "truncated"}));
  EXPECT_TRUE(
      HasLine(text, {"GLM-4.5", "355B", "total without embedding and head with multi-token prediction", "355,2", "rounded"}));
  EXPECT_TRUE(
      HasLine(text, {"GLM-4.5-Air", "106B", "total without embedding and head with multi-token prediction", "107,9", "no"}));
  EXPECT_TRUE(HasLine(text, {"Kimi-K2", "1.04T", "total", "1,026,408,232,448", "no"}));
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
  const std::string md = Text({"gpt2", "--format", "md"}), csv = Text({"gpt2", "--format", "csv"});
  EXPECT_TRUE(HasLine(md, {"| total | 124,439,808 |"})) << md;
  EXPECT_TRUE(HasLine(csv, {"gpt2,parameters,total,parameters,124439808"})) << csv;
  EXPECT_EQ(Json::parse(Text({"gpt2", "--format", "json"})).at("models").at(0), Count({"gpt2"}));
  EXPECT_EQ(Count({"gpt2", "gpt2-xl"})["models"].size(), 2u);
  EXPECT_TRUE(HasLine(Text({"gpt2", "--layers"}), {"blk.11.attn_qkv", "1,769,472"}));
  const std::string plot = Text({"gpt-oss-20b", "--plot"});
  EXPECT_TRUE(HasLine(plot, {"total", "EEAAXXXXXXX"})) << plot;
  EXPECT_TRUE(HasLine(plot, {"total", "active(all)", "of total"})) << plot;  // heads of the legend
  EXPECT_EQ(plot.find('\x1b'), std::string::npos);                           // no terminal, no colour
}

// One header, then numbers: what one model says is said again beside others.
TEST(CliCount, CsvIsTidy) {
  const std::vector<std::string> one = LinesOf(Text({"gpt2", "--format", "csv"})),
                                 other = LinesOf(Text({"gpt-oss-20b:n_layers=2", "--format", "csv"}));
  const std::vector<std::string> both = LinesOf(Text({"gpt2", "gpt-oss-20b:n_layers=2", "--format", "csv"}));
  ASSERT_GT(one.size(), 50u);
  EXPECT_EQ(one[0], "model,table,row,figure,value");
  std::vector<std::string> joined = one;
  joined.insert(joined.end(), other.begin() + 1, other.end());
  EXPECT_EQ(both, joined);
  std::vector<std::string> claims = LinesOf(Text({"gpt-oss-20b", "gpt2", "--claims", "--format", "csv"}));
  EXPECT_TRUE(HasLine(Text({"gpt-oss-20b", "--claims", "--format", "csv"}), {"active 3.61B,active(head) holds,1"}));
  for (const std::vector<std::string>& lines : {both, LinesOf(Text({"DeepSeek-V3", "--layers", "--format", "csv"})), claims}) {
    for (size_t i = 1; i < lines.size(); ++i) {
      int commas = 0;
      bool quoted = false;
      for (const char c : lines[i]) {
        quoted ^= c == '"';
        commas += c == ',' && !quoted;
      }
      EXPECT_EQ(commas, 4) << lines[i];
      const std::string value = lines[i].substr(lines[i].rfind(',') + 1);
      EXPECT_TRUE(!value.empty() && value.find_first_not_of("0123456789.e+-") == value.npos) << lines[i];
    }
  }
  EXPECT_TRUE(std::any_of(claims.begin(), claims.end(), [](const std::string& l) { return l.starts_with("gpt-oss-20b,"); }));
}

// "total" is the total: what is not run has lines of its own.
TEST(CliCount, PartsThatAreNotRun) {
  const std::string text = Text({"gemma-3-27b"});
  EXPECT_TRUE(HasLine(text, {"total (run)", "27,009,346,304"})) << text;
  EXPECT_TRUE(HasLine(text, {"not run: vision_tower", "416,866,032"}));
  EXPECT_TRUE(HasLine(text, {"total (all)", "27,432,406,640"}));
  EXPECT_FALSE(HasLine(text, {"  total  "}));
  const Json d = Count({"gemma-3-27b"});
  EXPECT_EQ(d["parameters"]["total"], 27'432'406'640);
  EXPECT_EQ(d["parameters"]["total_run"], 27'009'346'304);
  EXPECT_EQ(d["parameters"]["not_run"][0]["bytes"], 2 * 416'866'032);
  EXPECT_EQ(d["bytes"]["weights_run_or_not"], 2 * 27'432'406'640);
  EXPECT_TRUE(HasLine(Text({"gemma-3-27b", "gpt2"}), {"parameters (run or not)", "27,432,406,640", "124,439,808"}));
  EXPECT_TRUE(HasLine(Text({"gemma-3-27b", "--plot"}), {"total (run)", "active(all)", "of total (run)"}));
  // A size that is not known is no 0.
  EXPECT_TRUE(Count({"gemma-3-27b:d_ff=64"})["parameters"]["total"].is_null());
  const Ended changed = Tally({"count", "gemma-3-27b:d_ff=64"});
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
  refused({"gpt2", "--type", "Q9"}, "'Q9' is not one of " + WeightTypeNames(", "));
  refused({"gpt2", "--type", "MXFP4"}, "MXFP4 is a type of experts");
  refused({"gpt2", "--format", "xml"}, "xml");
  refused({"gpt2", "--set", "d_modell=4"}, "d_modell");
  refused({"gpt2", "--set", "d_model=0"}, "d_model");
  refused({"gpt2", "--set", "d_model=many"}, "many");
  refused({"gpt2", "--set", "n_layers=99999999999"}, "n_layers");
  refused({"gpt-oss-20b:top_k=33"}, "top_k");
  refused({"gpt2", "--batch", "0"}, "--batch");
  refused({"gpt2", "--prompt", "-1"}, "-1");
  refused({"gpt2", "--prompt", "1099511627776"}, "do not fit 64 bits");
  refused({"gpt2", "--plot", "--json"}, "--plot");
  refused({"gpt2", "--format", "csv", "--json"}, "--json is not --format csv");
  refused({"gpt2", "--type", ""}, "--type");
  refused({"gpt2:k_bias=false"}, "one matrix");
  refused({"gpt2", "--prompt", "1", "--ctx", "18446744073709551615"}, "64 bits");
  refused({folder.Write("config.json", "{\"architectures\": [\"FlyForCausalLM\"]}")}, "'FlyForCausalLM'");
  refused({folder.Write("config.json", "{")}, "config.json");
  refused({folder.Write("bad.gguf", "GGUF")}, "bad.gguf");
}

}  // namespace
}  // namespace tally
