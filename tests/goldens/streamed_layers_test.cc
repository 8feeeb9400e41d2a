// SPDX-License-Identifier: Apache-2.0
// Models without experts, made small, with memory for some of their layers: the bits and the books of one that has all, in one process and
// in several.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "counters/books/books.h"
#include "engine/recipe/recipe.h"
#include "engine/session/group.h"
#include "tests/support/small_checkpoint.h"
#include "tests/support/small_config.h"
#include "tests/support/smallest_budget.h"
#include "tests/support/streamed.h"
#include "tests/support/temp_folder.h"
#include "tests/support/thread_group.h"

namespace tally {
namespace {

uint64_t StepsOf(const Ledger& ledger) {
  uint64_t steps = 0;
  for (int p = 0; p < kPhases; ++p) steps += ledger.steps(static_cast<Phase>(p));
  return steps;
}

// Of each block, and of each way to store it, one.
std::vector<std::string> DenseModels() {
  std::vector<std::string> names;
  for (const std::string& name : OneOfEachKind()) {
    const ModelSpec spec = ReadFamily(ReadConfigText(SmallConfig(name).dump(), name).value()).value();
    if (!AnyLayer(spec.recipe, &LayerRecipe::sparse) && spec.recipe.n_layers > 2) names.push_back(name);
  }
  return names;
}

struct AllInMemory {
  explicit AllInMemory(const std::string& path) : opened(Open(path, WithBudget(EngineOptions::kAllWeights))) {
    if (opened.engine != nullptr) logits = RunAll(*opened.engine, bill);
  }
  const Opened opened;
  Bill bill;
  std::vector<float> logits;
};

void ExpectSame(const std::string& path, uint64_t budget, const AllInMemory& one) {
  SCOPED_TRACE(path + " in " + std::to_string(budget));
  const Opened streamed = Open(path, WithBudget(budget));
  ASSERT_NE(streamed.engine, nullptr);
  const MemoryPlan& plan = streamed.model->memory_plan();
  EXPECT_TRUE(plan.streams());
  EXPECT_LE(plan.packed_weights, budget);
  EXPECT_GE(plan.streamed_layers, 3);
  Bill bill;
  EXPECT_EQ(RunAll(*streamed.engine, bill), one.logits);
  const Ledger &ledger = streamed.engine->ledger(), &whole = one.opened.engine->ledger();
  EXPECT_EQ(FiguresOf(ledger), FiguresOf(whole));
  EXPECT_TRUE(WithoutDisk(bill.total().useful) == one.bill.total().useful);
  EXPECT_EQ(bill.parameters_touched(), one.bill.parameters_touched());
  EXPECT_EQ(bill.total().useful.Bytes(ByteKind::kWeightsDisk), DiskBytes(ledger));
  // Every step reads the same layers; out of a packed file as they are in memory.
  const uint64_t steps = StepsOf(ledger);
  EXPECT_GT(DiskBytes(ledger), 0u);
  EXPECT_EQ(DiskBytes(ledger) % steps, 0u);
  if (path.ends_with(".tally")) {
    EXPECT_EQ(DiskBytes(ledger), steps * plan.streamed_bytes);
  }
  EXPECT_EQ(books::LayerBytesFromDisk(ledger, Phase::kDecode).size(), static_cast<size_t>(plan.streamed_layers));
  EXPECT_EQ(streamed.engine->Fingerprint(), one.opened.engine->Fingerprint());
  ExpectAudit(*streamed.engine);
}

// Each process reads its part of the layers.
void ExpectSameInGroup(const std::string& path, uint64_t budget, const std::vector<float>& wanted) {
  EngineOptions options = WithBudget(budget);
  options.threads = 1;  // processes in one would wait for one another's team
  ThreadGroup group(2);
  std::thread follower([&] {
    const auto model = LoadModel(path, options, {.group = group.member(1), .split = Split::kAll});
    ASSERT_TRUE(model.ok()) << model.status().message();
    EXPECT_TRUE((*model)->memory_plan().streams());
    const Status followed = FollowGroup(*model, options);
    EXPECT_TRUE(followed.ok()) << followed.message();
  });
  {
    const Opened first = Open(path, options, {.group = group.member(0), .split = Split::kAll});
    ASSERT_NE(first.engine, nullptr);
    EXPECT_TRUE(first.model->memory_plan().streams());
    Bill bill;
    EXPECT_EQ(RunAll(*first.engine, bill), wanted);
    ExpectAudit(*first.engine);
  }
  follower.join();
}

class StreamedLayers : public testing::TestWithParam<std::string> {};

TEST_P(StreamedLayers, HaveTheBitsAndTheBooksOfAllInMemory) {
  const SmallCheckpoint made(SmallConfig(GetParam()));
  const std::string gguf = made.WriteGguf();
  for (const std::string& path : {made.directory(), gguf}) {
    if (path.empty()) continue;
    const AllInMemory one(path);
    ASSERT_NE(one.opened.engine, nullptr);
    const uint64_t all = one.opened.model->memory_plan().packed_weights, least = SmallestBudget(path, WithBudget(0));
    ASSERT_GT(least, 0u);
    const auto refused = LoadModel(path, WithBudget(least - 1));
    EXPECT_EQ(refused.status().code(), StatusCode::kNoRoom);
    EXPECT_NE(refused.status().message().find("and the least is "), std::string::npos) << refused.status().message();
    ExpectSame(path, least, one);
    ExpectSame(path, path == gguf ? all - 1 : (least + all) / 2, one);
    if (path != gguf && !gguf.empty()) continue;
    const std::string packed = made.folder() / "made.tally";
    ASSERT_TRUE(PackModel(path, packed).ok());
    ExpectSame(packed, least, one);
    if (!gguf.empty()) ExpectSameInGroup(path, least, one.logits);
  }
}

INSTANTIATE_TEST_SUITE_P(All, StreamedLayers, testing::ValuesIn(DenseModels()), SmallModelName);

// A layer that cannot be read fails the step by name; later steps go on.
TEST(StreamedLayersOfAFile, ThatCannotBeRead) {
  const SmallCheckpoint made(SmallConfig("gpt2"));
  const std::string path = made.WriteGguf(), copy = made.folder() / "copy";
  ASSERT_FALSE(path.empty());
  std::filesystem::copy_file(path, copy);
  const AllInMemory one(path);
  const Opened opened = Open(path, WithBudget(SmallestBudget(path, WithBudget(0))));
  ASSERT_NE(opened.engine, nullptr);
  Bill bill;
  EXPECT_EQ(RunAll(*opened.engine, bill), one.logits);
  std::filesystem::resize_file(path, 100);
  const int32_t sequence = opened.engine->NewSequence().value();
  const std::vector<BatchRow> rows = {{.token = 3, .sequence = sequence, .want_logits = true}};
  for (int i = 0; i < 2; ++i) {
    const auto failed = opened.engine->Step(rows);
    EXPECT_EQ(failed.status().code(), StatusCode::kUnreadable);
    EXPECT_NE(failed.status().message().find("layer "), std::string::npos) << failed.status().message();
    EXPECT_NE(failed.status().message().find(path), std::string::npos) << failed.status().message();
  }
  std::ofstream(path, std::ios::binary | std::ios::in | std::ios::out) << std::ifstream(copy, std::ios::binary).rdbuf();
  EXPECT_TRUE(opened.engine->Step(rows).ok());
  opened.engine->Free(sequence);
  EXPECT_EQ(RunAll(*opened.engine, bill), one.logits);
}

}  // namespace
}  // namespace tally
