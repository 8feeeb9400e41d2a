// SPDX-License-Identifier: Apache-2.0
// tally serve: it says where it answers, answers as the other commands do, and ends when it is told to.
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/app/runner.h"
#include "tests/serve/client.h"
#include "tests/support/temp_folder.h"

namespace tally {
namespace {

using Json = nlohmann::json;

class CliServe : public testing::Test {
 protected:
  // Runs the command, and `use` with the document that it prints once it answers; then ends it with `signal`.
  Ended Serve(std::vector<std::string> options, const std::function<void(const Json&, pid_t)>& use, int signal = SIGINT) {
    std::vector<std::string> arguments = {"serve", "demo", "--port", "0", "--json"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    const std::string out = folder_ / "out.json";
    return Tally(arguments, {.stdout_file = out, .on_start = [&](pid_t pid) {
                               Json said = Json::value_t::discarded;
                               while (said.is_discarded() && !HasEnded(pid)) {
                                 usleep(1000);
                                 said = Json::parse(ReadAll(out), nullptr, false);
                               }
                               if (!said.is_discarded()) use(said, pid);
                               kill(pid, signal);
                             }});
  }

  TempFolder folder_;
  std::unique_ptr<TestClient> kept_;  // a client that stays until the command has ended
};

TEST_F(CliServe, SaysWhatRunSays) {
  const Ended e = Serve({"--parallel", "2", "--alias", "bard"}, [&](const Json& said, pid_t) {
    EXPECT_EQ(said.at("model"), "bard");
    EXPECT_EQ(said.at("parallel"), 2);
    const auto port = said.at("port").get<uint16_t>();
    EXPECT_EQ(said.at("url"), "http://127.0.0.1:" + std::to_string(port));
    const Json body = {{"prompt", "ROMEO:"}, {"seed", 7}, {"max_tokens", 30}};
    const Json answer = Json::parse(Post(port, "/v1/completions", body.dump()).body);
    const Json run = Json::parse(Text({"run", "-p", "ROMEO:", "-s", "7", "-n", "30", "--json"}));
    EXPECT_EQ(answer.at("choices").at(0).at("text"), run.at("text"));
    EXPECT_EQ(answer.at("model"), "bard");
    EXPECT_EQ(Get(port, "/metrics").status, 404) << "it was not asked for";
    // Its port is its own.
    ExpectAdvice({"serve", "demo", "--port", std::to_string(port)}, {"127.0.0.1:" + std::to_string(port), "in use"});
  });
  EXPECT_EQ(e.code, 0) << e.err;
  EXPECT_NE(e.err.find("serving bard at http://127.0.0.1:"), std::string::npos) << e.err;
  EXPECT_NE(e.err.find(" 127.0.0.1 POST /v1/completions 200 "), std::string::npos) << e.err;
  EXPECT_NE(e.err.find(" model=bard prompt="), std::string::npos) << e.err;
}

TEST_F(CliServe, EndsAnswersThatTakeTooLong) {
  const auto stall = [&](const Json& said, pid_t) {
    kept_ = std::make_unique<TestClient>(said.at("port").get<uint16_t>());
    ASSERT_TRUE(kept_->Ask("POST", "/v1/completions", R"({"prompt": "a", "n": 128, "ignore_eos": true, "stream": true})"));
    EXPECT_TRUE(kept_->ReadUntil("data: "));
  };
  const Ended e = Serve({"--grace", "0"}, stall, SIGTERM);
  EXPECT_EQ(e.code, 143) << e.err;
  EXPECT_NE(e.err.find("could not be finished"), std::string::npos) << e.err;
  EXPECT_TRUE(kept_->ReadUntil("shutting_down"));
  // However long it would wait, the second signal ends it.
  const Ended twice = Serve(
      {"--grace", "1000"},
      [&](const Json& said, pid_t pid) {
        stall(said, pid);
        kill(pid, SIGTERM);
        usleep(200'000);
        EXPECT_FALSE(HasEnded(pid));
      },
      SIGTERM);
  EXPECT_TRUE(twice.by_signal) << twice.code << twice.err;
}

// Each asks for the same end: what runs is finished, and the cache is written.
TEST_F(CliServe, SignalsThatEndIt) {
  for (const auto& [signal, code] : {std::pair(SIGINT, 130), std::pair(SIGTERM, 143), std::pair(SIGHUP, 129)}) {
    const std::string cache = folder_ / std::to_string(signal);
    const Ended e = Serve(
        {"--cache-dir", cache},
        [&](const Json& said, pid_t) {
          const Json body = {{"prompt", std::string(400, 'a')}, {"max_tokens", 4}, {"ignore_eos", true}};
          EXPECT_EQ(Post(said.at("port").get<uint16_t>(), "/v1/completions", body.dump()).status, 200);
        },
        signal);
    EXPECT_EQ(e.code, 0) << signal << e.err;
    EXPECT_FALSE(e.by_signal);
    int files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(cache)) files += entry.file_size() > 1000 ? 1 : 0;
    EXPECT_GE(files, 1) << signal;
    const auto stall = [&](const Json& said, pid_t) {
      kept_ = std::make_unique<TestClient>(said.at("port").get<uint16_t>());
      ASSERT_TRUE(kept_->Ask("POST", "/v1/completions", R"({"prompt": "a", "n": 128, "ignore_eos": true, "stream": true})"));
      EXPECT_TRUE(kept_->ReadUntil("data: "));
    };
    if (signal == SIGTERM) continue;  // it has a test of its own
    EXPECT_EQ(Serve({"--grace", "0"}, stall, signal).code, code);
  }
}

TEST_F(CliServe, WhatIsRefused) {
  ExpectAdvice({"serve", "demo", "--port", "65536"}, {"--port", "65536"});
  ExpectAdvice({"serve", "demo", "--host", "no such host"}, {"cannot listen on no such host:8080"});
  ExpectAdvice({"serve", "demo", "--host", "0.0.0.0", "--port", "0"}, {"--api-key-file", "--insecure"});
  ExpectAdvice({"serve", "demo", "--parallel", "0"}, {"--parallel", "1 to 1024"});
  ExpectAdvice({"serve", "demo", "--api-key-file", folder_ / "none"}, {"none", "cannot be read"});
  folder_.Write("keys", "short\n");
  ExpectAdvice({"serve", "demo", "--api-key-file", folder_ / "keys"}, {"keys:1", "16 to 512"});
}

}  // namespace
}  // namespace tally
