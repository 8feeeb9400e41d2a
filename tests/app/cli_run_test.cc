// SPDX-License-Identifier: Apache-2.0
// tally run and logits on golden checkpoints.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "loaders/loaders.h"
#include "tests/app/runner.h"
#include "tests/app/screen.h"
#include "tests/app/text_model.h"
#include "tests/goldens/golden_case.h"
#include "tests/support/goldens.h"
#include "tests/support/temp_folder.h"

namespace tally {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Ids = std::vector<int32_t>;

std::string Join(const Ids& ids) {
  std::string out;
  for (const int32_t id : ids) out += (out.empty() ? "" : ",") + std::to_string(id);
  return out;
}

std::string TempPath(const std::string& name) {
  return (fs::path(testing::TempDir()) / ("cli_run_" + std::to_string(getpid()) + name)).string();
}

// Without a prompt, a model whose tokenizer begins a text with a token of its own begins one.
TEST(CliRun, TheBundledModelIsTheDefault) {
  const std::vector<std::vector<std::string>> ways = {{"run"}, {"run", "demo"}, {"run", "-p", ""}};
  std::string text;
  for (std::vector<std::string> arguments : ways) {
    arguments.insert(arguments.end(), {"-n", "40", "--json"});
    const Ended e = Tally(arguments);
    ASSERT_EQ(e.code, 0) << e.err;
    const Json j = Json::parse(e.out);
    EXPECT_EQ(j.at("model"), "demo");
    EXPECT_EQ(j.at("prompt_tokens"), 1);
    EXPECT_EQ(j.at("generated_tokens"), 40);
    const Json& parameters = j.at("parameters");
    EXPECT_LT(parameters.at("active").at("all").get<uint64_t>(), parameters.at("total").get<uint64_t>() / 2);
    if (text.empty()) text = j.at("text").get<std::string>();
    EXPECT_EQ(j.at("text"), text);
  }
  EXPECT_NE(text, "");
}

// The text is the same with drafts; what they came to is said.
TEST(CliRun, Drafts) {
  const TempFolder folder;
  const std::string model = folder / "text.gguf";
  ASSERT_TRUE(TextModel::Write(model).ok());
  const auto run = [&](const std::vector<std::string>& more) {  // "z" follows, not "a"; then the alphabet, again and again
    std::vector<std::string> arguments = {"run", model, "-p", "xya x", "-n", "120", "--temp", "0", "--ignore-eos"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Tally(arguments);
  };
  const Json plain = Json::parse(run({"--json"}).out), drafted = Json::parse(run({"--json", "--draft", "lookup"}).out);
  EXPECT_EQ(drafted.at("tokens"), plain.at("tokens"));
  EXPECT_EQ(plain.at("decode_steps"), plain.at("decode_tokens"));
  EXPECT_EQ(drafted.at("decode_tokens"), plain.at("decode_tokens"));
  EXPECT_FALSE(plain.contains("drafts"));
  const Json& drafts = drafted.at("drafts");
  EXPECT_GT(drafts.at("accepted"), 30);
  EXPECT_GT(drafts.at("drafted"), drafts.at("accepted"));
  EXPECT_EQ(drafted.at("decode_steps"), drafts.at("passes"));
  EXPECT_EQ(drafts.at("passes").get<int64_t>() + drafts.at("accepted").get<int64_t>(), drafted.at("decode_tokens"));
  const std::string line = "drafted " + std::to_string(drafts.at("drafted").get<int64_t>()) + ", accepted ";
  EXPECT_NE(run({"--draft", "lookup:4"}).err.find(line), std::string::npos);
  EXPECT_NE(run({"--draft", "lookup", "-v"}).err.find("in vain"), std::string::npos);
  for (const char* const wrong : {"lookup:0", "lookup:8", "lookup:", "lookup4", "layers"}) {
    const Ended e = run({"--draft", wrong});
    EXPECT_EQ(e.code, 2) << wrong;
    EXPECT_NE(e.err.find("--draft"), std::string::npos) << e.err;
  }
  const std::string said = "O, it is my love! O, that she knew she were!";
  const std::string recorded = folder.Write("recorded.jsonl", Json{{"prompt", said + "\nO, it"}, {"answer", said}}.dump() + "\n");
  const Ended bench = Tally({"bench", "demo", "--draft", "lookup", "--replay", recorded, "-r", "1", "--json"});
  ASSERT_EQ(bench.code, 0) << bench.err;
  EXPECT_GT(Json::parse(bench.out).at("all").at("accepted"), 0);
  EXPECT_EQ(Tally({"bench", "demo", "--draft", "lookup"}).code, 2);
}

// Drafts by a layer of the checkpoint, which is read only then.
TEST(CliRun, DraftsByLayers) {
  const std::string golden = kGoldens + "glm4_moe/glm45-a-f32-qknorm-groups-mtp/model.gguf";
  const auto run = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"run", golden, "--prompt-tokens", "3,1,4,1,5,9,2,6", "-n", "60", "--ignore-eos"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Tally(arguments);
  };
  const Json plain = Json::parse(run({"--json"}).out), drafted = Json::parse(run({"--json", "--draft", "layers:3"}).out);
  EXPECT_EQ(drafted.at("tokens"), plain.at("tokens"));
  EXPECT_GT(drafted.at("drafts").at("drafted"), 0);
  EXPECT_GT(drafted.at("drafts").at("predicting_flops"), 0);
  EXPECT_NE(run({"--draft", "layers", "-v"}).err.find("predicting"), std::string::npos);
}

// The same in batch and chat, by a model whose layer guesses right.
TEST(CliRun, DraftsByLayersInBatchAndChat) {
  const TempFolder folder;
  const std::string model = folder / "text.gguf";
  ASSERT_TRUE(TextModel::WritePredicting(model).ok());
  const std::string requests = folder.Write(
      "in.jsonl",
      R"({"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": "a", "max_tokens": 20, "temperature": 0}})"
      "\n");
  const std::string chat_template = folder.Write("t.jinja", "{% for m in messages %}{{ m.content }}{% endfor %}");
  std::vector<std::string> said[2];
  for (const bool drafts : {false, true}) {
    const std::string draft = drafts ? "layers:3" : "none", out = folder / (draft.substr(0, 4) + ".jsonl");
    const Ended batch = Tally({"batch", model, requests, "-o", out, "--draft", draft, "--json"});
    ASSERT_EQ(batch.code, 0) << batch.err;
    const Json answer = Json::parse(ReadAll(out));
    said[drafts].push_back(answer.at("response").at("body").at("choices").dump());
    const Json& bill = answer.at("response").at("body").at("usage").at("tally");
    const int64_t accepted = drafts ? bill.at("drafts").at("accepted").get<int64_t>() : 0;
    EXPECT_EQ(bill.at("decode_steps").get<int64_t>() + accepted, bill.at("decode_tokens"));
    const Ended chat =
        Tally({"chat", model, "-p", "a", "--chat-template", chat_template, "--temp", "0", "--draft", draft, "--json"});
    ASSERT_EQ(chat.code, 0) << chat.err;
    const Json turn = Json::parse(chat.out);
    said[drafts].push_back(turn.at("answer").get<std::string>());
    EXPECT_EQ(turn.contains("drafts"), drafts);
    if (drafts) {
      EXPECT_GT(turn.at("drafts").at("accepted"), 5);  // the head is most of this model: guesses pause
      EXPECT_LT(turn.at("drafts").at("passes"), 25);
    }
  }
  EXPECT_EQ(said[0], said[1]);
  EXPECT_GT(said[0][1].size(), 20u);
}

class GoldenRun : public testing::TestWithParam<std::string> {};

TEST_P(GoldenRun, GreedyTokensAsJson) {
  const GoldenCase golden(GetParam());
  for (const std::string& checkpoint : golden.Checkpoints()) {
    for (const GoldenPrompt& p : golden.prompts) {
      const Ended e = Tally({"run", checkpoint, "--prompt-tokens", Join(p.prompt), "-n", std::to_string(p.greedy.size()),
                             "--temp", "0", "--ignore-eos", "--activations", "f32", "--threads", "2", "--json"});
      ASSERT_EQ(e.code, 0) << e.err;
      EXPECT_EQ(e.err, "");
      const Json j = Json::parse(e.out);  // exactly one document
      EXPECT_EQ(j.at("tokens").get<Ids>(), p.greedy) << checkpoint;
      EXPECT_EQ(j.at("model"), checkpoint);
      EXPECT_EQ(j.at("text"), "");
      EXPECT_EQ(j.at("prompt_tokens"), p.prompt.size());
      EXPECT_EQ(j.at("generated_tokens"), p.greedy.size());
      EXPECT_EQ(j.at("finish"), "length");
      for (const char* key :
           {"prompt_tokens_per_second", "generated_tokens_per_second", "flops_per_token", "weight_bytes_per_token"}) {
        EXPECT_GT(j.at(key).get<double>(), 0) << key;
      }
      const Json& parameters = j.at("parameters");
      const auto total = parameters.at("total").get<uint64_t>(), all = parameters.at("active").at("all").get<uint64_t>();
      EXPECT_GT(total, 0u);
      EXPECT_LE(all, total);
      EXPECT_LE(parameters.at("active").at("head").get<uint64_t>(), all);
      EXPECT_LE(parameters.at("active").at("none").get<uint64_t>(), parameters.at("active").at("head").get<uint64_t>());
      EXPECT_GT(parameters.at("touched").get<double>(), 0);
      EXPECT_LE(parameters.at("touched").get<double>(), static_cast<double>(total));
    }
  }
}

TEST_P(GoldenRun, LogitsAsNpy) {
  GoldenCase golden(GetParam());
  const std::string path = TempPath("logits_" + fs::path(GetParam()).filename().string() + ".npy");
  const GoldenPrompt& p = golden.prompts[0];
  const Ended e = Tally({"logits", golden.directory, "--tokens", Join(p.ids), "--activations", "f32", "-o", path});
  ASSERT_EQ(e.code, 0) << e.err;
  EXPECT_EQ(e.out, "");
  const Mat<const float> expected = golden.F32("p0.logits");
  std::ifstream in(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  fs::remove(path);
  const size_t n = static_cast<size_t>(expected.rows * expected.cols);
  ASSERT_EQ(bytes.size(), 128 + 4 * n);
  std::vector<float> got(n);
  std::memcpy(got.data(), bytes.data() + 128, 4 * n);
  float worst = 0;
  for (int64_t r = 0; r < expected.rows; ++r) {
    for (int64_t c = 0; c < expected.cols; ++c) {
      worst = std::max(worst, std::fabs(got[static_cast<size_t>(r * expected.cols + c)] - expected.Row(r)[c]));
    }
  }
  EXPECT_LE(worst, golden.atol);
}

INSTANTIATE_TEST_SUITE_P(Cases, GoldenRun,
                         testing::Values("gpt2/gpt2-a-f32-release-names", "llama/llama-b-bf16-llama3rope-headdim-tied",
                                         "gptoss/gptoss-a-top4of8-realyarn"),
                         [](const auto& param) {
                           std::string name = param.param.substr(param.param.find('/') + 1);
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

const GoldenCase& Gpt2() {
  static const GoldenCase golden("gpt2/gpt2-a-f32-release-names");
  return golden;
}

TEST(CliRun, TokenIdsStreamAndTheBooksGoToStandardError) {
  const GoldenPrompt& p = Gpt2().prompts[0];
  const Ended e = Tally({"run", Gpt2().directory, "--prompt-tokens", Join(p.prompt), "-n", "5", "--temp", "0", "--ignore-eos",
                         "--activations", "f32"});
  ASSERT_EQ(e.code, 0) << e.err;
  std::string expected;
  for (int i = 0; i < 5; ++i) expected += (i > 0 ? " " : "") + std::to_string(p.greedy[static_cast<size_t>(i)]);
  EXPECT_EQ(e.out, expected + "\n");
  for (const char* part : {"tokens/s", "active(all)", "ended: length"}) {
    EXPECT_NE(e.err.find(part), std::string::npos) << part << "\n" << e.err;
  }
  EXPECT_EQ(e.err.find('\x1b'), std::string::npos);  // no colour and no bar: not a terminal
  EXPECT_EQ(e.err.find('\r'), std::string::npos);
}

// Four lines after a blank one, whatever the width. -q gives the text alone, -v all figures.
TEST(CliRun, TheBooksAreFourLines) {
  std::vector<std::string> run = {"run", "-p", "ROMEO:", "-n", "8", "-s", "3"};
  const Ended piped = Tally(run);
  ASSERT_EQ(piped.code, 0) << piped.err;
  ExpectScreen(piped.err, 80, 5);
  const std::vector<std::string> lines = LinesOf(piped.err);
  ASSERT_EQ(lines.size(), 5u) << piped.err;
  EXPECT_EQ(lines[0], "");
  const char* const parts[4][3] = {{"prompt ", " 3 tokens ", "load "},
                                   {"decode ", " 7 tokens ", " GB/s"},
                                   {"a token ", " MFLOP, ", "active(all) 1,759,284 of 4,541,364"},
                                   {"memory ", "peak RSS ", "ended: length"}};
  for (size_t i = 0; i < 4; ++i) {
    for (const char* part : parts[i]) EXPECT_NE(lines[i + 1].find(part), std::string::npos) << part << "\n" << piped.err;
  }
  for (const int columns : {80, 200}) {
    const Ended seen = Tally(run, {.terminal = true, .columns = columns});
    const size_t books = seen.err.rfind("prompt  ");
    ASSERT_NE(books, std::string::npos) << seen.err;
    ExpectScreen(seen.err.substr(books), 80, 4);
    EXPECT_EQ(seen.err.find('\x1b', books), std::string::npos) << "no colour";
  }

  run.push_back("-q");
  const Ended quiet = Tally(run);
  EXPECT_EQ(quiet.code, 0);
  EXPECT_EQ(quiet.out, piped.out);
  EXPECT_EQ(quiet.err, "");
  run.back() = "-v";
  const Ended all = Tally(run);
  EXPECT_EQ(all.out, piped.out);
  for (const char* part : {"gpt-oss, 6 layers", "touched per decode step", "active(head)", "active(none)", "linear",
                           "weights packed", "load ", "first token ", "planned ", "ended: length\nseed: 3\n"}) {
    EXPECT_NE(all.err.find(part), std::string::npos) << part << "\n" << all.err;
  }
  run.push_back("-q");
  ExpectAdvice(run, {"--quiet", "--verbose"});
}

// The decode is compared with the bandwidth that fit has measured, or bench; where neither has, nothing is measured for it.
TEST(CliRun, TheBandwidthIsWhatFitOrBenchMeasured) {
  const auto run = [](const std::string& cache) {
    const RunOptions options{.environment = {"XDG_CACHE_HOME=" + cache}};
    const Ended text = Tally({"run", "-p", "A", "-n", "8", "-t", "1"}, options);
    const Json j = Json::parse(Tally({"run", "-p", "A", "-n", "8", "-t", "1", "--json"}, options).out);
    EXPECT_GT(j.at("load_seconds").get<double>(), 0);
    EXPECT_GE(j.at("first_token_seconds").get<double>(), j.at("prompt_seconds").get<double>());
    EXPECT_EQ(text.err.find("read bandwidth") == text.err.npos, j.at("ratio_of_bandwidth").is_null()) << text.err;
    return j;
  };
  const auto keep = [](const std::vector<std::string>& command, const std::string& cache) {
    const Ended e = Tally(command, {.environment = {"XDG_CACHE_HOME=" + cache}});
    EXPECT_EQ(e.code, 0) << e.err;
    return e.out;
  };
  const std::string none = TempPath("none"), fit = TempPath("fit"), bench = TempPath("bench");
  EXPECT_TRUE(run(none).at("read_bytes_per_second").is_null());
  EXPECT_FALSE(fs::exists(none));
  const Json machine = Json::parse(keep({"fit", "-t", "1", "--json"}, fit)).at("machine");
  const Json of_fit = run(fit);
  EXPECT_EQ(of_fit.at("read_bytes_per_second"), machine.at("read_bytes_per_second"));
  EXPECT_DOUBLE_EQ(of_fit.at("ratio_of_bandwidth").get<double>() * machine.at("read_bytes_per_second").get<double>(),
                   of_fit.at("decode_gigabytes_per_second").get<double>() * 1e9);
  const Json roofs = Json::parse(keep({"bench", "-p", "0", "-n", "4", "-r", "1", "-t", "1", "--json"}, bench)).at("roofs");
  EXPECT_GE(run(bench).at("read_bytes_per_second"), roofs.at("read_bytes_per_second"));  // the best moment, a median of them
  for (const std::string& cache : {fit, bench}) fs::remove_all(cache);
}

// A step that fails ends the command with its error; the text generated until then has been printed. A NaN in the embedding of a
// token that comes later is met when that token is fed back.
TEST(CliRun, AStepThatFailsKeepsTheText) {
  const GoldenCase golden("llama/llama-a-f32-gqa-untied");
  const GoldenPrompt& p = golden.prompts[0];
  std::set<int32_t> met(p.prompt.begin(), p.prompt.end());
  size_t good = 0;
  while (good < p.greedy.size() && (good < 2 || met.contains(p.greedy[good]))) met.insert(p.greedy[good++]);
  ASSERT_LT(good, p.greedy.size());

  const std::string model = golden.directory + "/model.gguf", path = TempPath("nan.gguf");
  const auto inventory = ReadGguf(model);
  ASSERT_TRUE(inventory.ok()) << inventory.status().message();
  const StoredTensor* embedding = inventory->Find("token_embd.weight");
  ASSERT_NE(embedding, nullptr);
  ASSERT_EQ(embedding->dtype, DType::kF32);
  fs::copy_file(model, path, fs::copy_options::overwrite_existing);
  const float nan = std::nanf("");
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(embedding->offset + 4 * static_cast<uint64_t>(p.greedy[good]) * embedding->shape[1]));
  file.write(reinterpret_cast<const char*>(&nan), sizeof nan);
  file.close();

  std::vector<std::string> arguments = {"run",    path, "--prompt-tokens", Join(p.prompt),  "-n", "20",
                                        "--temp", "0",  "--ignore-eos",    "--activations", "f32"};
  const Ended e = Tally(arguments);
  EXPECT_EQ(e.code, 2);
  std::string expected;
  for (size_t i = 0; i <= good; ++i) expected += (i > 0 ? " " : "") + std::to_string(p.greedy[i]);
  EXPECT_EQ(e.out, expected + "\n");
  const std::string error = "tally: logits are not finite: NaN or infinity first appears at embedding (embed)\n";
  EXPECT_TRUE(e.err.ends_with(error)) << e.err;
  EXPECT_NE(e.err.find("ended: error"), std::string::npos) << e.err;

  arguments.push_back("--json");
  const Ended document = Tally(arguments);
  EXPECT_EQ(document.code, 2);
  EXPECT_EQ(document.err, error);
  const Json j = Json::parse(document.out);
  EXPECT_EQ(j.at("finish"), "error");
  EXPECT_EQ(j.at("tokens").get<Ids>(), Ids(p.greedy.begin(), p.greedy.begin() + static_cast<std::ptrdiff_t>(good) + 1));
  fs::remove(path);
}

// At a terminal a bar shows how far the weights are read, and is wiped when they are; the text stays what it was.
TEST(CliRun, LoadingShowsABarAtATerminal) {
  const std::vector<std::string> arguments = {"run", Gpt2().directory, "--prompt-tokens", "1,2,3", "-n", "4", "--temp", "0"};
  const Ended plain = Tally(arguments), seen = Tally(arguments, {.terminal = true});
  EXPECT_EQ(seen.code, 0) << seen.err;
  EXPECT_EQ(seen.out, plain.out);
  const size_t bar = seen.err.find("loading"), full = seen.err.find("100%"), wiped = seen.err.rfind("\x1b[");
  EXPECT_NE(bar, std::string::npos) << seen.err;
  EXPECT_NE(full, std::string::npos) << seen.err;
  EXPECT_TRUE(wiped != std::string::npos && wiped > full) << seen.err;
}

// What changes arithmetic or memory is said in the document; greedy tokens of such small models need not change with it.
TEST(CliRun, ActivationsCacheAndPenaltyAreTaken) {
  const std::string model = std::string(TALLY_SOURCE_DIR) + "/tests/goldens/gptoss/gptoss-a-top4of8-realyarn";
  const auto run = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments = {"run",    model, "--prompt-tokens", "1,2,3,4", "-n", "12",
                                          "--temp", "0",   "--ignore-eos",    "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Ended e = Tally(arguments);
    EXPECT_EQ(e.code, 0) << e.err;
    const auto json = nlohmann::json::parse(e.out, nullptr, false);
    EXPECT_EQ(json.value("generated_tokens", 0), 12) << e.out;
    return json;
  };
  for (const char* activations : {"f32", "bf16", "int8"}) run({"--activations", activations});
  const auto f32 = run({"--kv", "f32"}), f16 = run({"--kv", "f16"});
  EXPECT_EQ(f32.at("kv_bytes_written_per_token").get<double>(), 2 * f16.at("kv_bytes_written_per_token").get<double>());
  // A penalty shows where a token comes twice; with f32 activations SSE4 and AVX-512 make the same tokens.
  const auto plain = run({"--activations", "f32"}).at("tokens").get<std::vector<int>>();
  EXPECT_LT(std::set<int>(plain.begin(), plain.end()).size(), plain.size());
  EXPECT_NE(run({"--activations", "f32", "--repeat-penalty", "5"}).at("tokens").get<std::vector<int>>(), plain);
}

TEST(CliRun, TheSeedDecidesAndThreadsDoNot) {
  auto run = [&](const char* seed, const char* threads) {
    const Ended e = Tally({"run", Gpt2().directory, "--prompt-tokens", "1,2,3", "-n", "16", "--temp", "1.5", "--top-k", "0",
                           "--seed", seed, "--threads", threads, "--ignore-eos"});
    EXPECT_EQ(e.code, 0) << e.err;
    return e.out;
  };
  EXPECT_EQ(run("7", "1"), run("7", "2"));
  EXPECT_NE(run("7", "1"), run("8", "1"));
}

TEST(CliRun, ASeedThatIsDrawnIsReported) {
  const std::vector<std::string> base = {"run",    Gpt2().directory, "--prompt-tokens", "1,2,3", "-n",    "16",
                                         "--temp", "+1.5",           "--top-k",         "-1",    "--seed"};
  auto run = [&](const std::string& seed, bool json) {
    std::vector<std::string> arguments = base;
    arguments.push_back(seed);
    if (json) arguments.push_back("--json");
    const Ended e = Tally(arguments);
    EXPECT_EQ(e.code, 0) << e.err;
    return e;
  };
  std::set<uint64_t> seeds;
  for (int i = 0; i < 3; ++i) {
    const Json drawn = Json::parse(run("-1", true).out);
    const uint64_t seed = drawn.at("seed").get<uint64_t>();
    seeds.insert(seed);
    EXPECT_EQ(Json::parse(run(std::to_string(seed), true).out).at("tokens"), drawn.at("tokens"));
  }
  EXPECT_GT(seeds.size(), 1u);
  const Ended text = run("-1", false);
  const size_t at = text.err.find(", seed ");
  ASSERT_NE(at, std::string::npos) << text.err;
  const std::string seed = text.err.substr(at + 7, text.err.find('\n', at + 7) - at - 7);
  const Ended named = run(seed, false);
  EXPECT_EQ(named.out, text.out);
  EXPECT_EQ(named.err.find("seed"), std::string::npos) << "who names it knows it: " << named.err;
  EXPECT_EQ(Tally(base, {}).code, 2);  // --seed without its number
}

TEST(CliRun, TokenIdsInBrackets) {
  const auto out = [](const std::vector<std::string>& arguments) {
    const Ended e = Tally(arguments);
    EXPECT_EQ(e.code, 0) << e.err;
    return e.out;
  };
  const std::string model = Gpt2().directory, file = TempPath("ids.json");
  const std::string expected = out({"run", model, "--prompt-tokens", "1,2,3", "-n", "4", "--temp", "0"});
  EXPECT_EQ(out({"run", model, "--prompt-tokens", "[1, 2, 3]", "-n", "4", "--temp", "0"}), expected);
  std::ofstream(file) << "[\n  1,\n  2,\n  3\n]\n";
  EXPECT_EQ(out({"logits", model, "--tokens-file", file}), out({"logits", model, "--tokens", "1,2,3"}));
  EXPECT_EQ(out({"logits", model, "--tokens", "[1,2,3]"}), out({"logits", model, "--tokens", "1,2,3"}));
  fs::remove(file);
  for (const char* bad : {"[1,2", "1,2]", "[[1,2]]", "[]", "[", "]["}) {
    const Ended e = Tally({"run", model, "--prompt-tokens", bad});
    EXPECT_EQ(e.code, 2) << bad;
    EXPECT_TRUE(IsOneLine(e.err)) << e.err;
  }
}

TEST(CliRun, ExplainNamesKernels) {
  const Ended e = Tally({"run", Gpt2().directory, "--prompt-tokens", "1", "-n", "1", "--explain", "--impl", "ref"});
  ASSERT_EQ(e.code, 0) << e.err;
  EXPECT_NE(e.err.find(": ref"), std::string::npos) << e.err;
}

TEST(CliRun, ATokenizersTextStreams) {
  const fs::path model = fs::path(TALLY_SOURCE_DIR) / ".." / "shared/weights/stories260K-gguf/stories260Ktok512.gguf";
  if (!fs::exists(model)) GTEST_SKIP() << model << " is not here";
  const std::vector<std::string> base = {"run", model.string(), "-p", "Once upon a time", "-n", "60", "--temp", "0"};
  const Ended plain = Tally(base);
  ASSERT_EQ(plain.code, 0) << plain.err;
  EXPECT_NE(plain.out.find("there was"), std::string::npos) << plain.out;
  std::vector<std::string> json = base;
  json.push_back("--json");
  const Json j = Json::parse(Tally(json).out);
  EXPECT_EQ(j.at("text").get<std::string>() + "\n", plain.out);
  std::vector<std::string> stopped = base;
  for (const char* a : {"--stop", "zzz", "--stop", "there was"}) stopped.push_back(a);
  EXPECT_EQ(Tally(stopped).out, plain.out.substr(0, plain.out.find("there was")) + "\n");
  const std::string prompt = TempPath("prompt.txt");
  std::ofstream(prompt) << "Once upon a time";
  EXPECT_EQ(Tally({"run", model.string(), "-f", prompt, "-n", "60", "--temp", "0"}).out, plain.out);
  EXPECT_EQ(Tally({"run", model.string(), "-f", "-", "-n", "60", "--temp", "0"}, {.stdin_file = prompt}).out, plain.out);
  fs::remove(prompt);
}

TEST(CliLogits, TopFiveAndDump) {
  const std::string directory = TempPath("dump");
  fs::remove_all(directory);
  const GoldenPrompt& p = Gpt2().prompts[1];
  const Ended e =
      Tally({"logits", Gpt2().directory, "--tokens", Join(p.prompt), "--activations", "f32", "--dump", directory, "--json"});
  ASSERT_EQ(e.code, 0) << e.err;
  const Json j = Json::parse(e.out);
  ASSERT_EQ(j.at("positions").size(), p.prompt.size());
  EXPECT_EQ(j.at("positions").back().at("top").size(), 5u);
  EXPECT_EQ(j.at("positions").back().at("top")[0].at("id"), p.greedy[0]);
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory)) names.insert(entry.path().filename().string());
  EXPECT_EQ(names.size(), j.at("dump").at("files").get<size_t>());
  const auto has = [&](const std::string& prefix) {
    const auto it = names.lower_bound(prefix);
    return it != names.end() && it->starts_with(prefix);
  };
  for (const char* prefix : {"embedding.", "blk.0.attn_norm.", "blk.0.attention.", "blk.1.ffn_down.", "output_norm.", "head."}) {
    EXPECT_TRUE(has(prefix)) << prefix;
  }
  fs::remove_all(directory);
  const Ended text = Tally({"logits", Gpt2().directory, "--tokens", Join(p.prompt)});
  EXPECT_EQ(static_cast<size_t>(std::count(text.out.begin(), text.out.end(), '\n')), p.prompt.size());
}

}  // namespace
}  // namespace tally
