// SPDX-License-Identifier: Apache-2.0
// tally pull, and names of the Hugging Face hub in other commands, with a hub of the test's own.
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "loaders/loaders.h"
#include "models/catalog/catalog.h"
#include "tests/app/runner.h"
#include "tests/hub/hub_server.h"
#include "tests/support/temp_folder.h"

namespace tally {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

const std::string kModel = std::string(TALLY_SOURCE_DIR) + "/tests/goldens/gpt2/gpt2-a-f32-release-names";

std::string ReadAll(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Standard input that is a terminal at which somebody types.
class Keyboard {
 public:
  explicit Keyboard(const std::string& typed) {
    master_ = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    char name[64] = "";
    if (grantpt(master_) != 0 || unlockpt(master_) != 0 || ptsname_r(master_, name, sizeof name) != 0) std::abort();
    slave_ = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);  // what is typed before somebody reads must not be lost
    path_ = name;
    if (write(master_, typed.data(), typed.size()) < 0) std::abort();
  }
  Keyboard(const Keyboard&) = delete;
  Keyboard& operator=(const Keyboard&) = delete;
  ~Keyboard() {
    close(slave_);
    close(master_);
  }
  const std::string& path() const { return path_; }

 private:
  int master_ = -1, slave_ = -1;
  std::string path_;
};

class CliPull : public testing::Test {
 protected:
  CliPull() {
    home_ = fs::path(testing::TempDir()) / ("cli_pull_" + std::to_string(getpid())) /
            testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(home_);
    for (const char* variable :
         {"HF_TOKEN", "HF_TOKEN_PATH", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE",
          "HF_HUB_DISABLE_IMPLICIT_TOKEN", "http_proxy", "HUGGING_FACE_HUB_TOKEN", "ALL_PROXY", "all_proxy"}) {
      unsetenv(variable);
    }
    setenv("HF_HOME", home_.c_str(), 1);
    setenv("HF_ENDPOINT", server_.url().c_str(), 1);
    setenv("TERM", "xterm", 1);
    server_.files["config.json"] = {ReadAll(kModel + "/config.json"), false};
    server_.files["model.safetensors"] = {ReadAll(kModel + "/model.safetensors"), true};
    server_.files["gguf/x-Q4_K_M.gguf"] = {ReadAll(std::string(TALLY_SOURCE_DIR) + "/models/demo/demo.gguf"), true};
    server_.storage_elsewhere = true;
  }
  ~CliPull() override { fs::remove_all(home_); }
  void SetUp() override {
    if (!TALLY_PULL) GTEST_SKIP() << "built without libcurl";
  }
  size_t requests() { return server_.hub().asked().size(); }
  void ExpectRefused(const std::vector<std::string>& arguments, const std::string& part) {
    const Ended e = Tally(arguments);
    EXPECT_EQ(e.code, 2) << part;
    EXPECT_EQ(e.out, "");
    EXPECT_TRUE(IsOneLine(e.err)) << e.err;
    EXPECT_NE(e.err.find(part), std::string::npos) << e.err;
  }
  fs::path Snapshot() const { return home_ / "hub/models--org--name/snapshots" / hub::HubServer::kCommit; }

  hub::HubServer server_;
  fs::path home_;
};

TEST_F(CliPull, AModelThatThenRuns) {
  const Ended dry = Tally({"pull", "org/name", "--dry-run"});
  EXPECT_EQ(dry.code, 0) << dry.err;
  EXPECT_NE(dry.out.find("model.safetensors"), std::string::npos) << dry.out;
  EXPECT_FALSE(fs::exists(home_));
  const Ended e = Tally({"pull", "org/name"});
  ASSERT_EQ(e.code, 0) << e.err;
  EXPECT_EQ(e.out, Snapshot().string() + "\n");
  EXPECT_NE(e.err.find("digests checked"), std::string::npos) << e.err;
  const size_t before = requests();
  setenv("HF_HUB_OFFLINE", "1", 1);
  const Ended run = Tally({"run", "org/name", "--prompt-tokens", "1,2,3", "-n", "3", "--temp", "0", "--json"});
  ASSERT_EQ(run.code, 0) << run.err;
  const Ended direct = Tally({"run", kModel, "--prompt-tokens", "1,2,3", "-n", "3", "--temp", "0", "--json"});
  EXPECT_EQ(Json::parse(run.out).at("tokens"), Json::parse(direct.out).at("tokens"));
  EXPECT_EQ(Tally({"inspect", "org/name"}).code, 0);
  EXPECT_EQ(requests(), before);
  ExpectRefused({"pull", "org/name"}, "HF_HUB_OFFLINE is set");
  ExpectRefused({"run", "org/other", "--prompt-tokens", "1"}, "not while HF_HUB_OFFLINE is set");
  unsetenv("HF_HUB_OFFLINE");
  const Ended json = Tally({"pull", "org/name:Q4_K_M", "--json"});
  ASSERT_EQ(json.code, 0) << json.err;
  const Json document = Json::parse(json.out);
  EXPECT_EQ(document.at("path"), (Snapshot() / "gguf/x-Q4_K_M.gguf").string());
  EXPECT_EQ(document.at("files").at(0).at("sha256"), hub::Sha256Of(server_.files.at("gguf/x-Q4_K_M.gguf").bytes));
}

TEST_F(CliPull, WithYesInOtherCommands) {
  ExpectRefused({"run", "org/name", "--prompt-tokens", "1"}, "`tally pull org/name` fetches it, and so does --yes");
  ExpectRefused({"count", "org/name"}, "--yes");
  ExpectRefused({"audit", "org/name:Q4_K_M"}, "`tally pull org/name:Q4_K_M`");
  // The other arguments are looked at first.
  ExpectRefused({"run", "org/name", "--prompt-tokens", "1,x", "--yes"}, "--prompt-tokens");
  ExpectRefused({"run", "org/name", "-f", "/no/such/prompt", "--yes"}, "/no/such/prompt");
  EXPECT_EQ(requests(), 0u);  // a mistyped path goes nowhere
  const Ended run = Tally({"run", "org/name", "--prompt-tokens", "1,2", "-n", "2", "--yes"});
  EXPECT_EQ(run.code, 0) << run.err;
  const Ended audit = Tally({"audit", "org/name:Q4_K_M", "--tokens", "1,2,3", "-n", "2", "-y"});
  EXPECT_EQ(audit.code, 0) << audit.err;
  ExpectRefused({"run", "org/missing", "--prompt-tokens", "1", "--yes"}, "knows no such repository");
}

TEST_F(CliPull, NoWeightsOfAModelThatCannotRun) {
  const auto refuse = [&](const std::string& config, const std::string& why) {
    server_.files["config.json"] = {config, false};
    ExpectRefused({"run", "org/name", "--prompt-tokens", "1", "--yes"}, why);
    EXPECT_EQ(server_.hub().Count("model.safetensors"), 0u) << config;
    EXPECT_FALSE(fs::exists(Snapshot() / "model.safetensors"));
    fs::remove_all(home_);
  };
  size_t counted = 0;
  for (const std::string_view name : CountedNames()) {
    if (RunsFromCatalog(name)) continue;
    refuse(PublishedConfig(name), "org/name: this model is counted and not run: it has ");
    ++counted;
  }
  EXPECT_GT(counted, 5u);
  refuse(R"({"architectures": ["FlyForCausalLM"]})", "'FlyForCausalLM' is not supported");
  for (const std::string method : {"gptq", "awq"}) {
    nlohmann::ordered_json config = nlohmann::ordered_json::parse(PublishedConfig("Llama-3.1-8B"));
    config["quantization_config"] = {{"quant_method", method}, {"bits", 4}};
    refuse(config.dump(), "its weights are quantised by a method that cannot be read: " + method);
  }
  // A GGUF file of such an architecture: its header says it.
  const TempFolder folder;
  GgufWriter writer;
  writer.Set("general.architecture", std::string("deepseek4"));
  writer.AddTensor("token_embd.weight", DType::kF32, {2, 32});
  ASSERT_TRUE(writer.Write(folder / "x.gguf", [](size_t, uint64_t, std::span<uint8_t>) {}).ok());
  server_.files["gguf/x-Q4_K_M.gguf"] = {ReadAll(folder / "x.gguf"), true};
  ExpectRefused({"run", "org/name:Q4_K_M", "--prompt-tokens", "1", "--yes"}, "'deepseek4' is not supported: it is counted");
  EXPECT_FALSE(fs::exists(Snapshot() / "gguf/x-Q4_K_M.gguf"));
}

TEST_F(CliPull, CountTakesNoWeights) {
  const auto counted = [](const std::string& model) {
    const Ended e = Tally({"count", model, "--json", "--yes"});
    EXPECT_EQ(e.code, 0) << e.err;
    return e.code == 0 ? Json::parse(e.out) : Json();
  };
  const auto same = [&](Json a, Json b) {
    for (Json* j : {&a, &b}) {
      if (j->contains("models")) *j = (*j)["models"][0];
      j->erase("model");
      j->erase("name");
    }
    return a.dump() == b.dump();
  };
  EXPECT_TRUE(same(counted("org/name"), counted(kModel + "/config.json")));
  EXPECT_EQ(server_.hub().Count("model.safetensors"), 0u);
  EXPECT_TRUE(same(counted("org/name:Q4_K_M"), counted("demo")));
  uint64_t bytes = 0;
  for (const hub::Asked& a : server_.storage().asked()) bytes += a.Header("range") == "bytes=0-1048575" ? 1 << 20 : 1u << 30;
  EXPECT_EQ(bytes, 1u << 20);
  EXPECT_FALSE(fs::exists(Snapshot() / "gguf"));
  EXPECT_EQ(Tally({"count", "org/name:n_layers=1"}).code, 0);  // settings, of the configuration that is here now
}

TEST_F(CliPull, AsksAtATerminal) {
  const auto answered = [&](const std::string& typed) {
    const Keyboard keyboard(typed);
    return Tally({"run", "org/name", "--prompt-tokens", "1,2", "-n", "2"}, {.stdin_file = keyboard.path(), .terminal = true});
  };
  const Ended at_once = answered("n\n");
  EXPECT_EQ(at_once.code, 2);
  EXPECT_NE(at_once.err.find("there is no such file either; look for it at 127.0.0.1:"), std::string::npos) << at_once.err;
  EXPECT_EQ(requests(), 0u);
  EXPECT_FALSE(fs::exists(home_));
  const Ended no = answered("y\nn\n");
  EXPECT_EQ(no.code, 2);
  EXPECT_NE(no.err.find("org/name: fetch 2 files"), std::string::npos) << no.err;
  EXPECT_NE(no.err.find("[Y/n]"), std::string::npos) << no.err;
  EXPECT_NE(no.err.find("not fetched"), std::string::npos) << no.err;
  EXPECT_FALSE(fs::exists(Snapshot()));
  server_.meddle = [](const hub::Asked& asked, size_t, hub::Answer&) {
    if (asked.path.ends_with("model.safetensors")) usleep(20'000);
  };
  const Ended yes = answered("\n\n");
  EXPECT_EQ(yes.code, 0) << yes.err;
  EXPECT_NE(yes.err.find("fetching ["), std::string::npos) << yes.err;
  EXPECT_NE(yes.err.find("/s"), std::string::npos) << yes.err;
  EXPECT_EQ(answered("").code, 0);  // it is here now: no question
}

TEST_F(CliPull, AFolderOfThatNameIsNotAskedFor) {
  const fs::path folder = "cli_pull_modles";  // in the working directory
  fs::create_directories(folder);
  const Keyboard keyboard("y\ny\n");
  const Ended e =
      Tally({"run", folder.string() + "/x", "--prompt-tokens", "1"}, {.stdin_file = keyboard.path(), .terminal = true});
  fs::remove(folder);
  EXPECT_EQ(e.code, 2);
  EXPECT_NE(e.err.find("there is no such file either; `tally pull"), std::string::npos) << e.err;
  EXPECT_EQ(requests(), 0u);
}

TEST_F(CliPull, CtrlCEndsAQuestion) {
  for (const bool second : {false, true}) {
    const Keyboard keyboard(second ? "y\n" : "");
    std::thread killer;
    RunOptions options{.stdin_file = keyboard.path(), .terminal = true};
    options.on_start = [&](pid_t pid) {
      killer = std::thread([&, pid] {
        while (second && !HasEnded(pid) && requests() == 0) usleep(1000);
        usleep(500'000);  // the question is there
        if (!HasEnded(pid)) kill(pid, SIGINT);
        for (int i = 0; i < 1000 && !HasEnded(pid); ++i) usleep(10'000);
        if (!HasEnded(pid)) kill(pid, SIGKILL);
      });
    };
    const Ended e = Tally({"run", "org/name", "--prompt-tokens", "1"}, options);
    killer.join();
    EXPECT_EQ(e.code, 130) << e.err;
  }
}

TEST_F(CliPull, WhatElseWasPulledDoesNotMatter) {
  ASSERT_EQ(Tally({"pull", "org/name:Q4_K_M"}).code, 0);
  ExpectRefused({"run", "org/name", "--prompt-tokens", "1"}, "there is gguf/x-Q4_K_M.gguf");
  ExpectRefused({"run", "org/name", "--prompt-tokens", "1"}, "`tally pull org/name` fetches it");
  // A token file that is none is in the way of the network only.
  std::ofstream(home_ / "token") << "two words";
  EXPECT_EQ(Tally({"run", "org/name:Q4_K_M", "--prompt-tokens", "1", "-n", "1"}).code, 0);
  ExpectRefused({"pull", "org/name"}, "a token is one word");
}

TEST_F(CliPull, RefusalsAreOneLine) {
  ExpectRefused({"pull"}, "NAME");
  ExpectRefused({"pull", "gpt2"}, "expected ORG/NAME");
  ExpectRefused({"pull", "../name"}, "is no name of the Hugging Face hub");
  ExpectRefused({"pull", "org/name:../config.json"}, "leads out of its folder");
  ExpectRefused({"pull", "org/name:/etc/passwd"}, "it is absolute");
  ExpectRefused({"pull", "org/name:Q5_0"}, "x-Q4_K_M.gguf");
  ExpectRefused({"pull", "org/nothing"}, "knows no such repository");
  setenv("HF_TOKEN", "hf_secret", 1);
  server_.required_token = "hf_another";
  const Ended e = Tally({"pull", "org/name"});
  EXPECT_EQ(e.code, 2);
  EXPECT_TRUE(IsOneLine(e.err)) << e.err;
  EXPECT_EQ(e.err.find("hf_secret"), std::string::npos);
  unsetenv("HF_TOKEN");
  setenv("HF_ENDPOINT", "nonsense", 1);
  ExpectRefused({"pull", "org/name"}, "HF_ENDPOINT");
  setenv("HF_ENDPOINT", server_.url().c_str(), 1);
  setenv("HF_HOME", "/dev/null/x", 1);
  server_.required_token = "";
  ExpectRefused({"pull", "org/name"}, "/dev/null/x");
}

TEST_F(CliPull, InterruptedItStaysAndGoesOn) {
  std::string bytes(8'000'000, 'x');
  server_.files["model.safetensors"] = {bytes, true};
  server_.storage_elsewhere = false;
  server_.meddle = [](const hub::Asked& asked, size_t n, hub::Answer& answer) {
    if (!asked.path.ends_with("model.safetensors") || n > 0) return;
    answer.cut_after = 5'000'000;
    answer.silent = true;
  };
  const fs::path incomplete = home_ / "hub/models--org--name/blobs" / (hub::Sha256Of(bytes) + ".incomplete");
  std::thread killer;
  RunOptions options;
  options.on_start = [&](pid_t pid) {
    killer = std::thread([&, pid] {
      std::error_code ignored;
      while (!HasEnded(pid) && (!fs::exists(incomplete, ignored) || fs::file_size(incomplete, ignored) < 4'900'000)) usleep(1000);
      if (!HasEnded(pid)) kill(pid, SIGINT);
    });
  };
  const Ended e = Tally({"pull", "org/name"}, options);
  killer.join();
  EXPECT_EQ(e.code, 130) << e.err;
  EXPECT_NE(e.err.find("goes on from there"), std::string::npos) << e.err;
  ASSERT_TRUE(fs::exists(incomplete));
  const uintmax_t kept = fs::file_size(incomplete);  // the signal may come before the last of the 5,000,000
  EXPECT_GE(kept, 4'900'000u);
  const Ended again = Tally({"pull", "org/name"});
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(server_.hub().asked().back().Header("range"), "bytes=" + std::to_string(kept) + "-");
}

#if !TALLY_PULL
TEST(CliPullAbsent, SaysSo) {
  const Ended e = Tally({"pull", "org/name"});
  EXPECT_EQ(e.code, 2);
  EXPECT_NE(e.err.find("built without libcurl"), std::string::npos) << e.err;
}
#endif

}  // namespace
}  // namespace tally
