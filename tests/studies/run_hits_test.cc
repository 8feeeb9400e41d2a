// SPDX-License-Identifier: Apache-2.0
// The hit rates that a run leaves are those that `fit` finds.
#include "engine/studies/run_hits.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "engine/recipe/recipe.h"
#include "engine/studies/count.h"
#include "engine/studies/kept_bench.h"
#include "tests/support/open_engine.h"
#include "tests/support/small_checkpoint.h"
#include "tests/support/small_config.h"

namespace tally {
namespace {

class RunHitsTest : public testing::Test {
 protected:
  void SetUp() override { ::setenv("XDG_CACHE_HOME", folder_.path().c_str(), 1); }
  void TearDown() override { ::unsetenv("XDG_CACHE_HOME"); }
  TempFolder folder_;
};

TEST_F(RunHitsTest, AreFoundByTheModelsCount) {
  const SmallCheckpoint made(SmallConfig("Granite-3.0-1B-A400M"));
  EngineOptions options = SmallOptions();
  options.context = 64;
  options.sequences = 4;
  options.max_logit_rows = 8;
  const auto whole = PlanModel(made.directory(), options);
  ASSERT_TRUE(whole.ok()) << whole.status().message();
  options.weights_budget = whole->packed_weights - 1;
  const auto part = PlanModel(made.directory(), options);
  options.weights_budget = (part->dense_weights + part->all_weights) / 2;
  const Opened opened = Open(made.directory(), options);
  ASSERT_NE(opened.engine, nullptr);
  Engine& engine = *opened.engine;
  const auto decode = [&](int steps, int rows) {
    std::vector<int32_t> sequences;
    for (int r = 0; r < rows; ++r) sequences.push_back(engine.NewSequence().value());
    for (int s = 0; s < steps; ++s) {
      std::vector<BatchRow> batch;
      for (int r = 0; r < rows; ++r) batch.push_back({(s * 37 + r * 11) % 101, sequences[static_cast<size_t>(r)], true, true});
      ASSERT_TRUE(engine.Step(batch).ok());
    }
    for (const int32_t s : sequences) engine.Free(s);
  };
  const auto counted = CountModel({.model = made.directory(), .settings = {}, .options = {}});
  ASSERT_TRUE(counted.ok()) << counted.status().message();
  const std::string id = RoutingId(counted->count.recipe);

  decode(63, 1);
  KeepRunHits(engine);
  EXPECT_TRUE(FindHitRates(id).empty()) << "too few";
  RunHits hits;  // of two turns
  hits.Add(engine);
  engine.ledger().Reset();
  decode(20, 1);
  hits.Add(engine);
  hits.Keep();
  std::vector<KeptHits> kept = FindHitRates(id);
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_EQ(kept[0].slots, opened.model->memory_plan().expert_slots);
  EXPECT_EQ(kept[0].tokens, 83u);
  EXPECT_EQ(kept[0].rows, 1);
  ASSERT_EQ(kept[0].hit_rates.size(), static_cast<size_t>(kLayers));
  for (const double h : kept[0].hit_rates) EXPECT_TRUE(h > 0 && h < 1) << h;
  engine.ledger().Reset();
  decode(64, 3);
  KeepRunHits(engine);
  kept = FindHitRates(id);
  ASSERT_EQ(kept.size(), 2u);
  EXPECT_EQ(kept[1].rows, 4);
  EXPECT_EQ(kept[1].tokens, 64u);
}

TEST_F(RunHitsTest, AreKeptByManyAtOnce) {
  constexpr int kWriters = 8, kRuns = 5;
  std::vector<std::thread> writers;
  for (int w = 0; w < kWriters; ++w) {
    writers.emplace_back([&] {
      for (int i = 0; i < kRuns; ++i) KeepHitRates("model", {.slots = 8, .hit_rates = {.25, .75}, .tokens = 100});
    });
  }
  for (std::thread& w : writers) w.join();
  const std::vector<KeptHits> kept = FindHitRates("model");
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_EQ(kept[0].tokens, static_cast<uint64_t>(100 * kWriters * kRuns));
  EXPECT_DOUBLE_EQ(kept[0].hit_rates[1], .75);
  size_t files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder_ / "tally")) ++files;
  EXPECT_EQ(files, 1u) << "neither drafts nor locks are left";
}

TEST_F(RunHitsTest, NothingIsSaidWhereNothingCanBeKept) {
  const std::string file = folder_.Write("file", "");
  for (const char* place : {file.c_str(), "/proc/no/such/place"}) {
    ::setenv("XDG_CACHE_HOME", place, 1);
    KeepHitRates("model", {.slots = 8, .hit_rates = {.5}, .tokens = 100});
    EXPECT_TRUE(FindHitRates("model").empty());
  }
}

}  // namespace
}  // namespace tally
