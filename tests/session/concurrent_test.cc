// SPDX-License-Identifier: Apache-2.0
// Several threads of callers in one process: what tally.h promises them. The thread sanitizer watches it too (preset tsan).
#include <gtest/gtest.h>
#include <unistd.h>

#include <barrier>
#include <cstdio>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/api/tally.h"
#include "engine/studies/logits.h"
#include "tests/app/text_model.h"
#include "tests/support/goldens.h"

namespace tally {
namespace {

const std::string kGptOssFile = kGoldens + "gptoss/gptoss-a-top4of8-realyarn/model.gguf";
const std::string kBf16Llama = kGoldens + "llama/llama-b-bf16-llama3rope-headdim-tied/model.gguf";
const std::vector<int32_t> kPrompt = {75, 85, 51, 50, 45, 99, 24, 2, 46};
constexpr int kRounds = 3;

LoadOptions Small(ImplChoice impl = ImplChoice::kAuto) {
  LoadOptions options;
  options.threads = 2;
  options.context = 64;
  options.max_batch = 8;  // the prompt takes two steps
  options.max_logit_rows = 8;
  options.impl = impl;
  return options;
}

std::shared_ptr<const Model> LoadShared(const std::string& path) {
  auto model = LoadModel(path, Small());
  EXPECT_TRUE(model.ok()) << model.status().message();
  return model.ok() ? *model : nullptr;
}

// All that a caller sees of a run.
struct Seen {
  std::vector<int32_t> tokens;
  std::vector<float> logits;  // of the prompt and the tokens
  uint64_t flops = 0, touched = 0;
  bool operator==(const Seen&) const = default;
};

Seen RunWith(Engine& engine) {
  Seen seen;
  GenerateOptions greedy;
  greedy.max_tokens = 12;
  greedy.sampling.temperature = 0;
  greedy.ignore_eos = true;
  engine.ledger().Reset();
  const auto result = Generate(engine, kPrompt, greedy);
  EXPECT_TRUE(result.ok()) << result.status().message();
  if (!result.ok()) return seen;
  seen.tokens = result->tokens;
  seen.flops = engine.ledger().total(Phase::kDecode).executed.TotalFlops();
  seen.touched = engine.ledger().touched().parameters_ever();
  std::vector<int32_t> ids = kPrompt;
  ids.insert(ids.end(), seen.tokens.begin(), seen.tokens.end());
  LogitsCallbacks callbacks;
  callbacks.take = [&](int64_t, Mat<const float> rows) -> Status {
    for (int64_t r = 0; r < rows.rows; ++r) seen.logits.insert(seen.logits.end(), rows.Row(r), rows.Row(r) + rows.cols);
    return {};
  };
  const Status status = RunLogits(engine, ids, callbacks);
  EXPECT_TRUE(status.ok()) << status.message();
  return seen;
}

Seen RunAlone(const std::shared_ptr<const Model>& model, ImplChoice impl = ImplChoice::kAuto) {
  auto engine = NewEngine(model, Small(impl));
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  return engine.ok() ? RunWith(**engine) : Seen{};
}

// Runs both at once: they start together, `kRounds` times.
void Both(const std::function<void()>& first, const std::function<void()>& second) {
  std::barrier start(2);
  const auto rounds = [&](const std::function<void()>& work) {
    for (int i = 0; i < kRounds; ++i) {
      start.arrive_and_wait();
      work();
    }
  };
  std::thread other(rounds, std::cref(second));
  rounds(first);
  other.join();
}

TEST(Concurrent, EachThreadLoadsAndRunsAModelOfItsOwn) {
  const Seen gptoss = RunAlone(LoadShared(kGptOssFile)), llama = RunAlone(LoadShared(kBf16Llama));
  ASSERT_EQ(gptoss.tokens.size(), 12u);
  ASSERT_NE(gptoss.tokens, llama.tokens);
  Both([&] { EXPECT_EQ(RunAlone(LoadShared(kGptOssFile)), gptoss); },
       [&] { EXPECT_EQ(RunAlone(LoadShared(kBf16Llama)), llama); });
}

TEST(Concurrent, EnginesOfOneModelInTwoThreads) {
  for (const std::string& path : {kGptOssFile, kBf16Llama}) {
    const auto model = LoadShared(path);
    ASSERT_NE(model, nullptr);
    const Seen alone = RunAlone(model);
    Both([&] { EXPECT_EQ(RunAlone(model), alone); }, [&] { EXPECT_EQ(RunAlone(model), alone); });
  }
}

// OpenBLAS keeps buffers for the whole process; the implementations of two engines need not be the same.
TEST(Concurrent, ImplementationsSideBySide) {
  const auto model = LoadShared(kBf16Llama);
  ASSERT_NE(model, nullptr);
  const Seen hwy = RunAlone(model), blas = RunAlone(model, ImplChoice::kBlas), ref = RunAlone(model, ImplChoice::kRef);
  Both([&] { EXPECT_EQ(RunAlone(model, ImplChoice::kBlas), blas); }, [&] { EXPECT_EQ(RunAlone(model), hwy); });
  Both([&] { EXPECT_EQ(RunAlone(model, ImplChoice::kBlas), blas); }, [&] { EXPECT_EQ(RunAlone(model, ImplChoice::kRef), ref); });
}

// Engines of one thread do not wait for those of more, whichever finds the fingerprint.
TEST(Concurrent, OneFingerprintForAllEngines) {
  LoadOptions one = Small(), three = Small();
  one.threads = 1;
  three.threads = 3;
  const auto fingerprint = [](const std::shared_ptr<const Model>& model, const LoadOptions& options) {
    const auto engine = NewEngine(model, options);
    EXPECT_TRUE(engine.ok()) << engine.status().message();
    return engine.ok() ? (*engine)->Fingerprint() : 0;
  };
  const uint64_t alone = fingerprint(LoadShared(kGptOssFile), one);
  EXPECT_NE(alone, fingerprint(LoadShared(kBf16Llama), one));
  for (const auto& [first, second] : {std::pair(one, three), {three, three}}) {
    const auto model = LoadShared(kGptOssFile);
    ASSERT_NE(model, nullptr);
    Both([&, options = first] { EXPECT_EQ(fingerprint(model, options), alone); },
         [&, options = second] { EXPECT_EQ(fingerprint(model, options), alone); });
  }
}

TEST(Concurrent, AnEngineMayGoFromThreadToThread) {
  const auto model = LoadShared(kGptOssFile);
  ASSERT_NE(model, nullptr);
  const Seen alone = RunAlone(model);
  Result<std::unique_ptr<Engine>> engine = InternalError("not made yet");
  std::thread([&] { engine = NewEngine(model, Small()); }).join();
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  EXPECT_EQ(RunWith(**engine), alone);
  std::thread([&] { EXPECT_EQ(RunWith(**engine), alone); }).join();
  std::thread([&] { engine->reset(); }).join();
}

TEST(Concurrent, ATokenizerServesSeveralThreads) {
  const std::string path = testing::TempDir() + "/concurrent_" + std::to_string(getpid()) + ".gguf";
  ASSERT_TRUE(TextModel::Write(path).ok());
  const auto model = LoadShared(path);
  std::remove(path.c_str());
  ASSERT_NE(model, nullptr);
  const Tokenizer& tokenizer = *model->tokenizer();
  std::string text;
  for (int i = 0; i < 300; ++i) text += "ab caf\xc3\xa9 " + std::to_string(i) + (i % 7 == 0 ? "\n" : "<|turn|>x");
  const auto ids = tokenizer.Encode(text);
  ASSERT_TRUE(ids.ok()) << ids.status().message();
  const auto serve = [&] {
    for (int i = 0; i < 5; ++i) {
      const auto again = tokenizer.Encode(text);
      ASSERT_TRUE(again.ok());
      EXPECT_EQ(*again, *ids);
      EXPECT_EQ(tokenizer.Decode(*again), text);
      StreamingDecoder stream(tokenizer);
      std::string streamed;
      for (const int32_t id : *again) streamed += stream.Push(id);
      EXPECT_EQ(streamed + stream.Finish(), text);
    }
  };
  Both(serve, serve);
}

}  // namespace
}  // namespace tally
