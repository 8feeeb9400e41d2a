// SPDX-License-Identifier: Apache-2.0
// tally batch: files of requests, whole and cut.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/app/runner.h"
#include "tests/app/text_model.h"
#include "tests/support/temp_folder.h"

namespace tally {
namespace {

using Json = nlohmann::json;

std::string Line(const std::string& id, const std::string& url, const Json& body) {
  return Json{{"custom_id", id}, {"method", "POST"}, {"url", url}, {"body", body}}.dump() + "\n";
}
std::string Completion(const std::string& id, const Json& body) { return Line(id, "/v1/completions", body); }

class CliBatch : public testing::Test {
 protected:
  std::vector<Json> Answers() const {
    std::vector<Json> answers;
    std::istringstream in(ReadAll(out_));
    for (std::string line; std::getline(in, line);) answers.push_back(Json::parse(line));
    return answers;
  }
  std::string Write(const std::string& text) const { return folder_.Write("requests.jsonl", text); }

  TempFolder folder_;
  std::string out_ = folder_ / "answers.jsonl";
};

// Answers are those of run and chat, and a batch that was cut goes on where it was.
TEST_F(CliBatch, SaysWhatRunAndChatSay) {
  const Json chat = {
      {"messages", {{{"role", "system"}, {"content", "Verona."}}, {{"role", "user"}, {"content", "Good morrow."}}}},
      {"seed", 5},
      {"max_tokens", 30}};
  const std::string requests = Write(Completion("run", {{"prompt", "ROMEO:"}, {"seed", 7}, {"max_tokens", 30}}) +
                                     Line("chat", "/v1/chat/completions", chat) + "{\"custom_id\": \n" +
                                     Completion("greedy", {{"prompt", "ROMEO:"}, {"temperature", 0}, {"max_tokens", 5}}));
  const Ended first = Tally({"batch", "demo", requests, "-o", out_, "--parallel", "3"});
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_EQ(first.out, "");
  EXPECT_NE(first.err.find("4 requests: 3 answers, 1 error\n"), std::string::npos) << first.err;
  const std::vector<Json> answers = Answers();
  ASSERT_EQ(answers.size(), 4u);
  const auto body = [&](size_t i) { return answers[i].at("response").at("body"); };
  const Json run = Json::parse(Text({"run", "-p", "ROMEO:", "-s", "7", "-n", "30", "--json"})),
             said = Json::parse(Text({"chat", "--system", "Verona.", "-p", "Good morrow.", "-s", "5", "-n", "30", "--json"}));
  EXPECT_EQ(answers[0].at("custom_id"), "run");
  EXPECT_EQ(body(0).at("choices").at(0).at("text"), run.at("text"));
  EXPECT_EQ(body(0).at("usage").at("completion_tokens"), run.at("generated_tokens"));
  EXPECT_EQ(body(0).at("usage").at("prompt_tokens"), run.at("prompt_tokens"));
  EXPECT_EQ(body(0).at("model"), "demo");
  EXPECT_EQ(body(1).at("choices").at(0).at("message").at("content"), said.at("answer"));
  EXPECT_EQ(body(1).at("usage").at("prompt_tokens"), said.at("prompt_tokens"));
  EXPECT_TRUE(answers[2].at("custom_id").is_null());
  EXPECT_EQ(answers[2].at("response").at("status_code"), 400);
  EXPECT_EQ(body(3).at("usage").at("completion_tokens"), 5);

  const std::string whole = ReadAll(out_);
  std::filesystem::resize_file(out_, whole.find('\n') + 40);
  const Ended again = Tally({"batch", "demo", requests, "-o", out_, "--json"});
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_NE(again.err.find("1 answer of 4 there already; an answer that was cut short is dropped (39 bytes)"), std::string::npos)
      << again.err;
  const Json summary = Json::parse(again.out);
  EXPECT_EQ(summary.at("kept"), 1);
  EXPECT_EQ(summary.at("answers"), 2);
  EXPECT_EQ(summary.at("errors"), 1);
  EXPECT_EQ(summary.at("left"), 0);
  EXPECT_TRUE(ReadAll(out_).starts_with(whole.substr(0, whole.find('\n') + 1)));
  ASSERT_EQ(Answers().size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    const Json response = Answers()[i].at("response").at("body");
    EXPECT_EQ(response.value("choices", Json()), body(i).value("choices", Json())) << i;
  }
  // All of it is there: nothing to do, and no model to load.
  const std::string complete = ReadAll(out_);
  const Ended none = Tally({"batch", "demo", requests, "-o", out_, "-c", "2000000000"});
  EXPECT_EQ(none.code, 0) << none.err;
  EXPECT_NE(none.err.find("4 answered before"), std::string::npos) << none.err;
  EXPECT_EQ(ReadAll(out_), complete);
}

TEST_F(CliBatch, AModelWithoutATemplate) {
  const std::string model = folder_ / "text.gguf";
  ASSERT_TRUE(TextModel::Write(model).ok());
  const Json chat = {{"messages", {{{"role", "user"}, {"content", "Hi"}}}}, {"max_tokens", 3}};
  const std::string requests = Write(Line("a", "/v1/chat/completions", chat) + Completion("b", {{"prompt", "x"}}));
  ASSERT_EQ(Tally({"batch", model, requests, "-o", out_}).code, 0);
  ASSERT_EQ(Answers().size(), 2u);
  const std::string message = Answers()[0].at("response").at("body").at("error").at("message");
  EXPECT_NE(message.find("no chat template"), std::string::npos) << message;
  EXPECT_EQ(Answers()[1].at("response").at("body").at("choices").at(0).at("text"), "yz");
  // One that was asked for is tried first; --force begins anew.
  ExpectAdvice({"batch", model, requests, "-o", out_, "--force", "--chat-template", "chatlm"}, {"'chatlm'", "no such file"});
  const Ended given = Tally({"batch", model, requests, "-o", out_, "--force", "--chat-template", "chatml"});
  ASSERT_EQ(given.code, 0) << given.err;
  EXPECT_EQ(Answers()[0].at("response").at("status_code"), 200);
}

TEST_F(CliBatch, WhatIsRefused) {
  const std::string requests = Write(Completion("a", {{"prompt", "x"}}) + Completion("a", {{"prompt", "x"}}));
  ExpectAdvice({"batch", "demo", requests, "-o", out_}, {"requests.jsonl:2", "custom_id", "'a'"});
  ExpectAdvice({"batch", "demo", folder_ / "none.jsonl", "-o", out_}, {"none.jsonl"});
  ExpectAdvice({"batch", "demo", requests}, {"--out"});
  ExpectAdvice({"batch", "demo", requests, "-o", requests}, {"given for something else too"});
  ExpectAdvice({"batch", "demo", requests, "-o", out_, "--parallel", "0"}, {"--parallel", "1 to 1024"});
  ExpectAdvice({"batch", "demo", requests, "-o", out_, "--kv-bytes", "2 stone"}, {"--kv-bytes", "'2 stone'", "2GiB"});
  EXPECT_FALSE(std::filesystem::exists(out_));
  folder_.Write("answers.jsonl", "a\nb\n");
  ExpectAdvice({"batch", "demo", Write(Completion("a", {{"prompt", "x"}})), "-o", out_},
               {"answers.jsonl:1", "--force replaces it"});
  EXPECT_EQ(ReadAll(out_), "a\nb\n");
}

TEST_F(CliBatch, CtrlCLeavesWholeLines) {
  std::string text;
  for (int i = 0; i < 2000; ++i) {
    text += Completion(std::to_string(i), {{"prompt", "ROMEO:"}, {"ignore_eos", true}, {"max_tokens", 60}, {"seed", i}});
  }
  const std::string requests = Write(text);
  const Ended cut = Tally({"batch", "demo", requests, "-o", out_}, {.on_start = [&](pid_t pid) {
                            const auto lines = [&] {
                              const std::string written = ReadAll(out_);
                              return std::count(written.begin(), written.end(), '\n');
                            };
                            while (!HasEnded(pid) && lines() < 3) usleep(1000);
                            kill(pid, SIGINT);
                          }});
  EXPECT_EQ(cut.code, 130) << cut.err;
  EXPECT_NE(cut.err.find("left: the same command goes on"), std::string::npos) << cut.err;
  const std::string left = ReadAll(out_);
  EXPECT_TRUE(left.ends_with("\n"));
  const std::vector<Json> answers = Answers();
  ASSERT_GE(answers.size(), 3u);
  ASSERT_LT(answers.size(), 2000u);
  for (size_t i = 0; i < answers.size(); ++i) EXPECT_EQ(answers[i].at("custom_id"), std::to_string(i));
}

// A cache of one context and a bit: requests wait for room or give it back, and say the same.
TEST_F(CliBatch, WithinABudgetOfMemory) {
  std::string text;
  for (int i = 0; i < 6; ++i) {
    text += Completion(std::to_string(i), {{"prompt", "ROMEO:"}, {"ignore_eos", true}, {"max_tokens", 150}, {"seed", i}});
  }
  const std::string requests = Write(text);
  const auto texts = [&](const std::vector<std::string>& options) {
    std::vector<std::string> arguments = {"batch", "demo", requests, "-o", out_, "--force", "--json", "-c", "256"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    const Json summary = Json::parse(Text(arguments));
    std::vector<std::string> said = {};
    for (const Json& answer : Answers()) said.push_back(answer.at("response").at("body").at("choices").at(0).at("text"));
    return std::pair(said, summary.at("memory_bytes").at("kv").get<uint64_t>());
  };
  const auto [roomy, all] = texts({});
  EXPECT_EQ(roomy.size(), 6u);
  const auto [tight, few] = texts({"--kv-bytes", std::to_string(all * 2 / 8)});
  EXPECT_LE(few, all * 2 / 8);
  EXPECT_EQ(tight, roomy);
}

}  // namespace
}  // namespace tally
