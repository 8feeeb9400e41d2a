// SPDX-License-Identifier: Apache-2.0
// Perplexity: against sums made from the logits of whole windows, and of files that are compared.
#include "engine/studies/perplexity.h"
#include "engine/recipe/recipe.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "engine/session/model.h"
#include "engine/studies/logits.h"
#include "tests/support/temp_folder.h"

namespace tally {
namespace {

const std::string kModel = std::string(TALLY_SOURCE_DIR) + "/tests/goldens/gpt2/gpt2-a-f32-release-names";

class PerplexityTest : public testing::Test {
 protected:
  void SetUp() override {
    EngineOptions load;
    load.threads = 2;
    load.context = 32;
    load.max_batch = 12;  // windows take several steps
    load.max_logit_rows = 5;
    auto model = LoadModel(kModel, load);
    ASSERT_TRUE(model.ok()) << model.status().message();
    model_ = std::move(*model);
    auto engine = NewEngine(model_, load);
    ASSERT_TRUE(engine.ok()) << engine.status().message();
    engine_ = std::move(*engine);
    vocab_ = engine_->model().recipe().vocab;
    for (int32_t i = 0; i < 75; ++i) tokens_.push_back((i * i * 31 + 7 * i) % static_cast<int32_t>(vocab_));
  }

  // -ln p of the last token of `ids`, in double from its window's logits.
  double Nll(const std::vector<int32_t>& ids) {
    double nll = 0;
    LogitsCallbacks callbacks;
    callbacks.take = [&](int64_t first, Mat<const float> logits) -> Status {
      for (int64_t r = 0; r < logits.rows; ++r) {
        if (first + r + 2 != static_cast<int64_t>(ids.size())) continue;
        double sum = 0;
        for (int64_t i = 0; i < vocab_; ++i) sum += std::exp(static_cast<double>(logits.Row(r)[i]));
        nll = std::log(sum) - static_cast<double>(logits.Row(r)[ids.back()]);
      }
      return {};
    };
    EXPECT_TRUE(RunLogits(*engine_, ids, callbacks).ok());
    return nll;
  }

  std::shared_ptr<const Model> model_;
  std::unique_ptr<Engine> engine_;
  int64_t vocab_ = 0;
  std::vector<int32_t> tokens_;
};

// Token i is scored with all of the first window that reaches it: windows of 20 begin at 0, 8, 16, ..
TEST_F(PerplexityTest, IsTheMeanOverWindows) {
  for (const int32_t bos : {-1, 3}) {
    const int64_t capacity = bos >= 0 ? 19 : 20;
    double sum = 0, squares = 0;
    int64_t n = 0;
    for (int64_t i = bos >= 0 ? 0 : 1; i < 75; ++i) {
      int64_t begin = 0;
      while (begin + capacity <= i) begin += 8;
      std::vector<int32_t> ids;
      if (bos >= 0) ids.push_back(bos);
      ids.insert(ids.end(), tokens_.begin() + begin, tokens_.begin() + i + 1);
      const double nll = Nll(ids);
      sum += nll, squares += nll * nll, ++n;
    }
    const double mean = sum / static_cast<double>(n), count = static_cast<double>(n);
    const auto report = Perplexity(*engine_, tokens_, {.window = 20, .stride = 8, .bos = bos});
    ASSERT_TRUE(report.ok()) << report.status().message();
    EXPECT_EQ(report->scored, n);
    EXPECT_EQ(report->windows, 8);
    EXPECT_NEAR(report->mean_nll, mean, 1e-5);
    EXPECT_NEAR(report->perplexity, std::exp(mean), 1e-4 * std::exp(mean));
    const double error = std::exp(mean) * std::sqrt((squares / count - mean * mean) / (count - 1));
    EXPECT_NEAR(report->perplexity_error, error, 1e-3 * error);
  }
}

TEST_F(PerplexityTest, StopsAfterSomeWindowsAndWhereAsked) {
  const auto two = Perplexity(*engine_, tokens_, {.window = 20, .stride = 20, .windows = 2});
  ASSERT_TRUE(two.ok());
  EXPECT_EQ(two->windows, 2);
  EXPECT_EQ(two->scored, 2 * 19);  // a window's first token has nothing before it
  int steps = 0;
  PerplexityOptions options{.window = 20, .stride = 10};
  options.interrupted = [&] { return ++steps > 3; };
  const auto report = Perplexity(*engine_, tokens_, options);
  ASSERT_TRUE(report.ok());
  EXPECT_TRUE(report->interrupted);
  EXPECT_GT(report->scored, 0);
  EXPECT_LT(report->scored, 74);
}

TEST_F(PerplexityTest, ComparesWithSavedLogits) {
  const TempFolder folder;
  const std::string file = folder / "saved.npy";
  PerplexityOptions options{.window = 20, .stride = 8, .save = file};
  ASSERT_TRUE(Perplexity(*engine_, tokens_, options).ok());
  options.save.clear();
  options.against = file;
  const auto same = Perplexity(*engine_, tokens_, options);
  ASSERT_TRUE(same.ok()) << same.status().message();
  ASSERT_TRUE(same->divergence.has_value());
  EXPECT_EQ(same->divergence->same_top, 1);
  EXPECT_LT(same->divergence->most, 1e-6);
  EXPECT_EQ(same->divergence->log_ratio, 0);
  EXPECT_EQ(same->divergence->saved_perplexity, same->perplexity);

  // A row of logits changed by a known amount: its divergence, by hand.
  std::fstream bytes(file, std::ios::binary | std::ios::in | std::ios::out);
  std::vector<float> row(static_cast<size_t>(vocab_ + 3));
  const auto at = static_cast<std::streamoff>(128 + 4 * row.size() * sizeof(float));
  bytes.seekg(at);
  bytes.read(reinterpret_cast<char*>(row.data()), static_cast<std::streamsize>(row.size() * sizeof(float)));
  ASSERT_TRUE(bytes.good());
  std::vector<float> changed = row;
  changed[3 + 17] += 4;
  double z0 = 0, z1 = 0, kl = 0;
  for (size_t i = 3; i < row.size(); ++i)
    z0 += std::exp(static_cast<double>(row[i])), z1 += std::exp(static_cast<double>(changed[i]));
  for (size_t i = 3; i < row.size(); ++i) {
    const double p = std::exp(static_cast<double>(changed[i])) / z1;
    kl += p * (static_cast<double>(changed[i]) - static_cast<double>(row[i]) - std::log(z1) + std::log(z0));
  }
  bytes.seekp(at);
  bytes.write(reinterpret_cast<const char*>(changed.data()), static_cast<std::streamsize>(row.size() * sizeof(float)));
  bytes.close();
  const auto other = Perplexity(*engine_, tokens_, options);
  ASSERT_TRUE(other.ok());
  EXPECT_NEAR(other->divergence->most, kl, 1e-5 * (1 + kl));
  EXPECT_NEAR(other->divergence->mean, kl / 74, 1e-6);

  const auto refused = [&](const PerplexityOptions& o, const std::string& part, std::vector<int32_t> tokens) {
    const auto r = Perplexity(*engine_, tokens, o);
    ASSERT_FALSE(r.ok());
    EXPECT_EQ(r.status().code(), StatusCode::kBadInput);
    EXPECT_NE(r.status().message().find(part), std::string::npos) << r.status().message();
  };
  std::vector<int32_t> others = tokens_;
  others[40] = (others[40] + 1) % static_cast<int32_t>(vocab_);
  refused(options, "another token at token 39", others);
  others = tokens_;
  others.push_back(1);
  refused(options, "fewer than are scored", others);
  PerplexityOptions stride = options;
  stride.stride = 9;
  refused(stride, "another stride", tokens_);
  std::ofstream(folder / "short.npy") << "\x93NUMPY";
  stride.against = folder / "short.npy";
  refused(stride, "short.npy: is no .npy file", tokens_);
}

TEST_F(PerplexityTest, Refusals) {
  const auto refused = [&](const PerplexityOptions& options, const std::string& part, std::vector<int32_t> tokens) {
    const auto r = Perplexity(*engine_, tokens, options);
    ASSERT_FALSE(r.ok());
    EXPECT_NE(r.status().message().find(part), std::string::npos) << r.status().message();
  };
  refused({.window = 20, .stride = 8}, "at least 2 tokens", {1});
  refused({.window = 33, .stride = 8}, "a window of 33", tokens_);
  refused({.window = 20, .stride = 0}, "a stride of 0", tokens_);
  refused({.window = 20, .stride = 20, .bos = 1}, "a stride of 20", tokens_);
  refused({.window = 20, .stride = 8, .windows = -1}, "-1 windows", tokens_);
  refused({.window = 20, .stride = 8}, "100000000", {1, 2, 100000000});
}

}  // namespace
}  // namespace tally
