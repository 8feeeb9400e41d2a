// SPDX-License-Identifier: Apache-2.0
#include "engine/serve/batch.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "tests/serve/text_served.h"
#include "tests/session/fake_engine.h"

namespace tally {
namespace {

std::string Line(const std::string& id, const std::string& body, const std::string& url = "/v1/completions") {
  return R"({"custom_id": ")" + id + R"(", "method": "POST", "url": ")" + url + R"(", "body": )" + body + "}\n";
}

std::vector<OrderedJson> Answers(const std::string& path) {
  std::vector<OrderedJson> answers;
  std::istringstream in(ReadAll(path));
  for (std::string line; std::getline(in, line);) answers.push_back(OrderedJson::parse(line));
  return answers;
}

// Without what differs from run to run.
std::vector<OrderedJson> Comparable(const std::string& path) {
  std::vector<OrderedJson> answers = Answers(path);
  for (OrderedJson& answer : answers) {
    answer.erase("id");
    answer.erase("tally");
    OrderedJson& response = answer["response"];
    response.erase("request_id");
    for (const char* key : {"id", "created"}) response["body"].erase(key);
    if (response["body"].contains("usage")) {
      for (const char* key : {"tally", "prompt_tokens_details"})
        response["body"]["usage"].erase(key);  // depend on who ran before
    }
  }
  return answers;
}

class Batch : public testing::Test {
 protected:
  Result<BatchReport> Run(const std::string& requests, const BatchOptions& options = {}, bool anew = false) {
    const Result<BatchPlan> plan = PlanBatch(requests, out_, anew, {});
    if (!plan.ok()) return plan.status();
    plan_ = *plan;
    return RunBatch(served_.model, *plan, options);
  }
  std::string Write(const std::string& name, const std::string& text) { return served_.folder().Write(name, text); }
  // Requests of several lengths with seeds of their own.
  std::string Many(int n) {
    std::string text;
    for (int i = 0; i < n; ++i) {
      text += Line("r" + std::to_string(i), R"({"prompt": ")" + std::string(1 + static_cast<size_t>(i * 7 % 40), 'a') +
                                                R"(", "temperature": 60, "max_tokens": )" + std::to_string(1 + i * 5 % 23) +
                                                R"(, "seed": )" + std::to_string(i) + "}");
    }
    return Write("many.jsonl", text);
  }

  TextServed served_;
  std::string out_ = served_.folder() / "answers.jsonl";
  BatchPlan plan_;
};

TEST_F(Batch, AnswersAreInTheOrderOfTheRequests) {
  const std::string requests = Write(
      "in.jsonl", Line("long", R"({"prompt": "a", "max_tokens": 40})") + "\n" + Line("short", R"({"prompt": "x"})") + " \t\r\n" +
                      Line("chat", R"({"messages": [{"role": "user", "content": "Hi"}]})", "/v1/chat/completions") +
                      Line("bad", R"({"prompt": "x", "suffix": "b"})") + "{\n" + R"({"url": "/v1/completions", "body": {}})" +
                      "\n" + Line("embed", R"({"input": "x"})", "/v1/embeddings"));
  const Result<BatchReport> report = Run(requests);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->answered, 3u);
  EXPECT_EQ(report->refused, 4u);
  EXPECT_EQ(report->left, 0u);
  EXPECT_EQ(plan_.total, 7u);
  const std::vector<OrderedJson> a = Answers(out_);
  ASSERT_EQ(a.size(), 7u);
  for (const OrderedJson& answer : a) {
    EXPECT_TRUE(answer["id"].get<std::string>().starts_with("batch_req_")) << answer;
    EXPECT_TRUE(answer["error"].is_null());
    EXPECT_TRUE(answer["response"]["request_id"].is_string());
  }
  EXPECT_EQ(a[0]["custom_id"], "long");
  EXPECT_EQ(a[0]["response"]["status_code"], 200);
  EXPECT_EQ(a[0]["response"]["body"]["choices"][0]["text"], "bcde\u00e9fghijklmnopqrstuvwxyz");
  EXPECT_EQ(a[1]["response"]["body"]["choices"][0]["text"], "yz");
  EXPECT_EQ(a[2]["response"]["body"]["choices"][0]["message"]["content"], "xyz");
  const auto error = [&](size_t i) { return a[i]["response"]["body"]["error"]; };
  for (size_t i = 3; i < 7; ++i) EXPECT_EQ(a[i]["response"]["status_code"], 400);
  EXPECT_EQ(error(3)["param"], "suffix");
  EXPECT_TRUE(a[4]["custom_id"].is_null());
  EXPECT_NE(error(4)["message"].get<std::string>().find("line 7: not valid JSON"), std::string::npos) << error(4);
  EXPECT_TRUE(a[5]["custom_id"].is_null());
  EXPECT_EQ(error(5)["param"], "custom_id");
  EXPECT_EQ(a[6]["custom_id"], "embed");
  EXPECT_EQ(error(6)["param"], "url");
  EXPECT_EQ(report->usage.completion_tokens, 27 + 2 + 3);
}

// Answers of two models, or under two settings, or to a request that has changed, never share a file.
TEST_F(Batch, AFileIsContinuedByTheSameAlone) {
  const std::string a = Line("a", R"({"prompt": "x"})"), b = Line("b", R"({"prompt": "y"})"), in = Write("in.jsonl", a);
  ASSERT_TRUE(Run(in).ok());
  const std::string before = ReadAll(out_);
  const auto refusal = [&] {
    const Result<BatchReport> report = Run(in);
    EXPECT_EQ(ReadAll(out_), before);
    return report.ok() ? "" : report.status().message();
  };
  const auto has = [](const std::string& text, const std::string& part) { return text.find(part) != text.npos; };
  Write("in.jsonl", Line("a", R"({"prompt": "z"})") + b);
  EXPECT_TRUE(has(refusal(), "answers.jsonl:1: the request 'a', ")) << refusal();
  Write("in.jsonl", a + b);
  served_.model.sampling.temperature = 0.5;
  EXPECT_TRUE(has(refusal(), "other settings (temperature=0 there, temperature=0.5 now)")) << refusal();
  served_.model.sampling.temperature = 0;
  const std::string mark = R"("model":")" + OriginOf(served_.model, false).model;
  std::string other = before;
  other.replace(other.find(mark), mark.size(), R"("model":"0123456789abcdef)");
  Write("answers.jsonl", other);
  EXPECT_TRUE(has(Run(in).status().message(), "of another model (0123456789abcdef there, ")) << Run(in).status().message();
  // A file of an older version has the name alone.
  Write("answers.jsonl", before.substr(0, before.find(R"(,"tally":{"request")")) + "}\n");
  served_.model.name = "renamed";
  EXPECT_TRUE(has(Run(in).status().message(), "of another model (text there, renamed now)")) << Run(in).status().message();
  Write("answers.jsonl", before);  // the same weights by another name
  const Result<BatchReport> report = Run(in);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(plan_.kept, 1u);
  EXPECT_EQ(report->answered, 1u);
  EXPECT_TRUE(ReadAll(out_).starts_with(before));
  Write("in.jsonl", b);
  EXPECT_TRUE(Run(in, {}, /*anew=*/true).ok());
}

// With drafts by a layer for multi-token prediction, which are right, and are not: the same answers, in fewer passes.
TEST_F(Batch, AnswersAreTheSameWithDrafts) {
  std::string text;
  for (int i = 0; i < 12; ++i) {  // of these some end at once, with a stop string, at their length or in the text's end
    text += Line("r" + std::to_string(i), R"({"prompt": ")" + std::string(1 + static_cast<size_t>(i % 3), 'a') +
                                              R"(", "temperature": )" + std::to_string(i % 2 == 0 ? 0 : 25) +
                                              R"(, "frequency_penalty": 0, "max_tokens": )" + std::to_string(1 + i * 7 % 30) +
                                              R"(, "stop": ")" + (i % 4 == 0 ? "mn" : "??") + R"(", "seed": )" +
                                              std::to_string(i) + "}");
  }
  const std::string requests = Write("in.jsonl", text);
  ASSERT_TRUE(Run(requests).ok());
  const std::vector<OrderedJson> plain = Comparable(out_);
  const TextServed drafting(4, 3);
  const std::string drafted = drafting.folder() / "drafted.jsonl";
  const Result<BatchPlan> plan = PlanBatch(requests, drafted, false, {});
  ASSERT_TRUE(plan.ok());
  const Result<BatchReport> report = RunBatch(drafting.model, *plan, {});
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(Comparable(drafted), plain);
  EXPECT_GT(report->usage.accepted_tokens, 20);
  EXPECT_GT(report->usage.drafted_tokens, report->usage.accepted_tokens) << "at a temperature some are wrong";
}

TEST_F(Batch, StreamsAreRefused) {
  const std::string requests =
      Write("in.jsonl", Line("a", R"({"prompt": "x", "stream": true})") + Line("b", R"({"prompt": "x", "stream": false})"));
  ASSERT_TRUE(Run(requests).ok());
  EXPECT_EQ(Answers(out_)[0]["response"]["body"]["error"]["param"], "stream");
  EXPECT_EQ(Answers(out_)[1]["response"]["status_code"], 200);
}

// Wherever a batch was cut, going on gives the answers of one that was not.
TEST_F(Batch, GoesOnAfterACut) {
  const std::string requests = Many(25);
  ASSERT_TRUE(Run(requests).ok());
  const std::string whole = ReadAll(out_);
  const std::vector<OrderedJson> expected = Comparable(out_);
  ASSERT_EQ(expected.size(), 25u);
  for (const size_t cut : {size_t{0}, size_t{1}, whole.find('\n'), whole.find('\n') + 1, whole.size() / 2, whole.size() - 1}) {
    SCOPED_TRACE(cut);
    Write("answers.jsonl", whole.substr(0, cut));
    const Result<BatchReport> report = Run(requests);
    ASSERT_TRUE(report.ok()) << report.status().message();
    const std::string kept = whole.substr(0, cut).substr(0, plan_.kept_bytes);
    EXPECT_EQ(plan_.kept, static_cast<uint64_t>(std::count(kept.begin(), kept.end(), '\n')));
    EXPECT_EQ(plan_.kept_bytes + plan_.torn_bytes, cut);
    EXPECT_EQ(report->answered, plan_.left());
    EXPECT_TRUE(ReadAll(out_).starts_with(kept));
    EXPECT_EQ(Comparable(out_), expected);
  }
  EXPECT_EQ(PlanBatch(requests, out_, false, {})->left(), 0u);
  EXPECT_EQ(PlanBatch(requests, out_, true, {})->left(), 25u);
}

// A power cut may leave a last line of anything.
TEST_F(Batch, ALastLineThatIsNoneIsDropped) {
  const std::string requests = Many(3);
  ASSERT_TRUE(Run(requests).ok());
  const std::vector<OrderedJson> expected = Comparable(out_);
  const std::string whole = ReadAll(out_);
  Write("answers.jsonl", whole.substr(0, whole.find('\n') + 1) + std::string(40, '\0') + "\n");
  ASSERT_TRUE(Run(requests).ok());
  EXPECT_EQ(plan_.kept, 1u);
  EXPECT_EQ(plan_.torn_bytes, 41u);
  EXPECT_EQ(Comparable(out_), expected);
}

TEST_F(Batch, AnInterruptionLeavesWholeLines) {
  const std::string requests = Many(25);
  ASSERT_TRUE(Run(requests).ok());
  const std::vector<OrderedJson> expected = Comparable(out_);
  int steps = 0;
  const Result<BatchReport> cut = Run(requests, {.interrupted = [&] { return ++steps > 20; }}, /*anew=*/true);
  ASSERT_TRUE(cut.ok()) << cut.status().message();
  EXPECT_GT(cut->left, 0u);
  EXPECT_EQ(cut->answered + cut->left, 25u);
  EXPECT_EQ(Answers(out_).size(), cut->answered);
  const Result<BatchReport> rest = Run(requests);
  ASSERT_TRUE(rest.ok()) << rest.status().message();
  EXPECT_EQ(plan_.kept, cut->answered);
  EXPECT_EQ(Comparable(out_), expected);
}

// What runs at once changes no answer.
TEST(BatchOfMany, AloneAndInCompany) {
  std::vector<OrderedJson> expected;
  for (const int32_t sequences : {1, 3, 16}) {
    const TextServed served(sequences);
    std::string text;
    for (int i = 0; i < 12; ++i) {
      text += Line(std::to_string(i),
                   R"({"prompt": "abc", "temperature": 60, "n": 2, "max_tokens": 15, "seed": )" + std::to_string(i) + "}");
    }
    const std::string requests = served.folder().Write("in.jsonl", text), out = served.folder() / "out.jsonl";
    const Result<BatchPlan> plan = PlanBatch(requests, out, false, {});
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    ASSERT_TRUE(RunBatch(served.model, *plan, {}).ok());
    if (expected.empty()) expected = Comparable(out);
    EXPECT_EQ(Comparable(out), expected) << sequences;
  }
}

TEST_F(Batch, Progress) {
  std::vector<BatchProgress> seen;
  const std::string requests = Many(5);
  const Result<BatchReport> report = Run(requests, {.progress = [&](const BatchProgress& p) { seen.push_back(p); }});
  ASSERT_TRUE(report.ok());
  ASSERT_FALSE(seen.empty());
  EXPECT_EQ(seen.front().done, 0u);
  for (size_t i = 1; i < seen.size(); ++i) {
    EXPECT_GE(seen[i].done, seen[i - 1].done);
    EXPECT_GE(seen[i].generated_tokens, seen[i - 1].generated_tokens);
    EXPECT_EQ(seen[i].total, 5u);
  }
  EXPECT_LE(seen.back().generated_tokens, static_cast<uint64_t>(report->usage.completion_tokens));
}

TEST_F(Batch, FilesThatAreRefused) {
  const auto refused = [&](const std::string& requests, const std::vector<std::string>& parts) {
    const Result<BatchPlan> plan = PlanBatch(requests, out_, false, {});
    ASSERT_FALSE(plan.ok());
    EXPECT_EQ(plan.status().code(), StatusCode::kBadInput);
    for (const std::string& part : parts) {
      EXPECT_NE(plan.status().message().find(part), std::string::npos) << plan.status().message();
    }
  };
  const std::string body = R"({"prompt": "x"})";
  refused(Write("in.jsonl", Line("a", body) + "{\n" + Line("b", body) + Line("a", body)), {"in.jsonl:4", "'a'", "line 1"});
  refused(served_.folder() / "none.jsonl", {"none.jsonl"});
  refused(served_.folder().path(), {"no regular file"});
  refused("/dev/null", {"no regular file"});
  const std::string requests = Write("in.jsonl", Line("a", body) + "{\n");
  const auto answer = [](const std::string& id) {
    return R"({"id": "i", "custom_id": )" + id +
           R"(, "response": {}, "error": null})"
           "\n";
  };
  Write("answers.jsonl", answer("\"b\""));
  refused(requests, {"answers.jsonl:1", "'b'", "expected 'a'", "--force"});
  Write("answers.jsonl", answer("\"a\"") + answer("\"b\""));
  refused(requests, {"answers.jsonl:2", "'b'", "expected none"});
  Write("answers.jsonl", answer("\"a\"") + answer("null") + answer("null"));
  refused(requests, {"answers.jsonl:3", "more than there are requests"});
  Write("answers.jsonl", "My letters\nto her\n");
  refused(requests, {"answers.jsonl:1", "no answer"});
  Write("answers.jsonl", "One line, which is no answer.\n");
  refused(requests, {"answers.jsonl:1", "no answer"});
  Write("answers.jsonl", R"({"a": 1})"
                         "\n"
                         R"({"a": 2})"
                         "\n");
  refused(requests, {"answers.jsonl:1"});
  Write("answers.jsonl", answer("\"a\"") + answer("null"));
  EXPECT_EQ(PlanBatch(requests, out_, false, {})->left(), 0u);
  EXPECT_EQ(PlanBatch(requests, out_, false, [] { return true; }).status().code(), StatusCode::kInterrupted);
}

// A request that fails while it runs has an error, and the others go on; a step that fails as a whole ends the batch.
TEST(BatchOfFailures, OneFailsAlone) {
  const TempFolder folder;
  FakeEngine engine(100);
  engine.spoiled_token = 8;
  ServedModel model;
  model.engine = &engine;
  model.sampling.temperature = 0;
  const std::string out = folder / "out.jsonl",
                    requests = folder.Write("in.jsonl", Line("a", R"({"prompt": [5], "max_tokens": 9})") +
                                                            Line("b", R"({"prompt": [50], "max_tokens": 9})") +
                                                            Line("c", R"({"prompt": [50], "max_tokens": 30})"));
  Result<BatchPlan> plan = PlanBatch(requests, out, false, {});
  ASSERT_TRUE(plan.ok());
  const Result<BatchReport> report = RunBatch(model, *plan, {});
  ASSERT_TRUE(report.ok()) << report.status().message();
  std::vector<OrderedJson> answers = Answers(out);
  ASSERT_EQ(answers.size(), 3u);
  EXPECT_EQ(answers[0]["response"]["status_code"], 500);
  EXPECT_EQ(answers[0]["response"]["body"]["error"]["message"], "spoiled");
  EXPECT_EQ(answers[1]["response"]["body"]["choices"][0]["token_ids"].size(), 9u);
  engine.spoiled_token = -1;
  engine.fail_at = static_cast<int>(engine.steps.size()) + 20;
  plan = PlanBatch(requests, out, true, {});
  EXPECT_EQ(RunBatch(model, *plan, {}).status().code(), StatusCode::kInternal);
  answers = Answers(out);
  ASSERT_EQ(answers.size(), 2u) << "those that were there before";
  EXPECT_EQ(PlanBatch(requests, out, false, {})->left(), 1u);
}

TEST_F(Batch, OneWriterAtATime) {
  const std::string requests = Many(3);
  Result<BatchPlan> plan = PlanBatch(requests, out_, false, {});
  ASSERT_TRUE(plan.ok());
  Write("answers.jsonl", "{}\n");  // since it was looked at
  EXPECT_EQ(RunBatch(served_.model, *plan, {}).status().code(), StatusCode::kBadInput);
  EXPECT_EQ(ReadAll(out_), "{}\n");
  // While it runs.
  std::filesystem::remove(out_);
  bool tried = false;
  BatchOptions options;
  options.progress = [&](const BatchProgress&) {
    if (tried) return;
    tried = true;
    const Status second = RunBatch(served_.model, *plan, {}).status();
    EXPECT_NE(second.message().find("another program"), std::string::npos) << second.message();
  };
  ASSERT_TRUE(RunBatch(served_.model, *plan, options).ok());
  EXPECT_TRUE(tried);
  EXPECT_EQ(Answers(out_).size(), 3u);
}

TEST_F(Batch, LinesThatAreTooLong) {
  const std::string requests = Write(
      "in.jsonl", Line("a", R"({"prompt": ")" + std::string(kLongestBatchLine, 'a') + R"("})") + Line("b", R"({"prompt": "x"})"));
  ASSERT_TRUE(Run(requests).ok());
  const std::vector<OrderedJson> answers = Answers(out_);
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_NE(answers[0]["response"]["body"]["error"]["message"].get<std::string>().find("longer than 16"), std::string::npos);
  EXPECT_EQ(answers[1]["response"]["status_code"], 200);
}

}  // namespace
}  // namespace tally
