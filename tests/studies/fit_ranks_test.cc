// SPDX-License-Identifier: Apache-2.0
// What several machines send each other and hold, against numbers by hand.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "counters/books/communication.h"
#include "engine/recipe/shard.h"
#include "engine/studies/fit.h"

namespace tally {
namespace {

CountedModel CountOf(const std::string& name) {
  Result<CountedModel> counted = CountModel({.model = name, .settings = {}, .options = {}});
  EXPECT_TRUE(counted.ok()) << counted.status().message();
  return counted.ok() ? std::move(counted).value() : CountedModel{};
}

// Llama-3.2-1B: E = 2048 = H D, F = 8192, V = 128256, 16 layers; a token of which rank 0 has the embedding.
TEST(FitRanks, BytesByHand) {
  const CountedModel model = CountOf("Llama-3.2-1B");
  const Recipe& recipe = model.count.recipe;
  std::vector<books::RankRows> rows(2);
  rows[0].embedded = 1;
  const auto sum = [&](int32_t rank) {
    return books::SumOf(books::CommunicationForms(recipe, {.rank = rank, .ranks = 2}, {.context = 9}, rows));
  };
  const books::Communication first = sum(0), second = sum(1);
  constexpr uint64_t kLayer = 4 * (1024 + 1024 + 4096 + 1024);
  EXPECT_EQ(first.sent, 4 * 2048 + 16 * kLayer);
  EXPECT_EQ(first.received, 16 * kLayer + 4 * 64128);
  EXPECT_EQ(second.sent, first.received);
  EXPECT_EQ(second.received, first.sent);
  EXPECT_EQ(first.messages_sent, 1u + 16 * 4);
  EXPECT_EQ(first.gathers, 16u * 4 + 1);
  const CommunicationLoad load = LoadOf(recipe, {.rank = 0, .ranks = 2}, {.context = 9}, rows);
  EXPECT_EQ(load.waits, 2u + 1 + 16 * 4 + 1);
  EXPECT_EQ(load.bytes, 1032 + 4 * 2048 + 16 * kLayer + 4 * 64128);
  EXPECT_DOUBLE_EQ(load.Seconds({.bandwidth = 1e9, .latency = 1e-4}), 68e-4 + static_cast<double>(load.bytes) / 1e9);
}

TEST(FitRanks, OfTwoOwnersOneHasMore) {
  EXPECT_DOUBLE_EQ(BusiestOwner(8, 2, 1), 2);
  EXPECT_NEAR(BusiestOwner(8, 2, 2), 1 + 2 * 6. / 28, 1e-12);  // of 28 pairs 12 are of one owner
  EXPECT_DOUBLE_EQ(BusiestOwner(4, 4, 4), 1);
}

TEST(FitRanks, MemoryIsDivided) {
  const CountedModel model = CountOf("gpt-oss-20b");
  const FitMachine machine{
      .threads = 4, .total = uint64_t{8} << 30, .available = uint64_t{8} << 30, .read = 1e11, .peaks = {1e12, 1e12, 1e12, 1e12}};
  const auto fit = [&](int32_t ranks) { return FitRanks(model, {.context = 4096}, machine, {}, ranks, FitSplit::kRows); };
  const Result<RanksFit> one = fit(1), two = fit(2), four = fit(4);
  ASSERT_TRUE(one.ok() && two.ok() && four.ok());
  EXPECT_FALSE(one->fits);
  EXPECT_TRUE(two->fits);
  const Result<Fit> alone = FitModel(model, {.context = 4096}, machine);
  ASSERT_TRUE(alone.ok());
  EXPECT_EQ(one->ranks[0].memory.total(), alone->memory.total());
  EXPECT_NEAR(one->ranks[0].bytes / alone->decode.bytes, 1, .01);
  uint64_t weights = 0;
  for (const FitRank& r : four->ranks) weights += r.memory.packed_weights;
  EXPECT_NEAR(static_cast<double>(weights) / static_cast<double>(one->ranks[0].memory.packed_weights), 1, .01);
  EXPECT_GT(four->tokens_per_second, two->tokens_per_second);
  EXPECT_FALSE(FitRanks(model, {}, machine, {}, 0, FitSplit::kRows).ok());
}

// Llama-3.2-1B, whose matrices are BF16: without a bf16 dot product their inputs are gathered as f32, with one as bf16. The machine is the
// one that is described, not this one.
TEST(FitRanks, GathersAsTheMachineMultiplies) {
  const CountedModel model = CountOf("Llama-3.2-1B");
  FitMachine machine{.threads = 4, .read = 1e11, .peaks = {1e12, 1e12, 1e12, 1e12}};
  const auto fit = [&] { return FitRanks(model, {.context = 4096}, machine, {}, 2, FitSplit::kRows); };
  machine.bf16_dots = false;
  const Result<RanksFit> f32 = fit();
  machine.bf16_dots = true;
  const Result<RanksFit> bf16 = fit();
  ASSERT_TRUE(f32.ok() && bf16.ok());
  // A layer gathers the heads' outputs, the block's, the feed-forward's inner values and outputs.
  EXPECT_EQ(f32->load.bytes, 1032 + 4 * 2048 + 16 * 4 * (1024 + 1024 + 4096 + 1024) + 4 * 64128);
  EXPECT_EQ(f32->load.bytes - bf16->load.bytes, 16 * 2 * (1024 + 4096));
}

}  // namespace
}  // namespace tally
