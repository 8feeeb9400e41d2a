// SPDX-License-Identifier: Apache-2.0
// Models without experts, made small, with memory for some of their layers: the bits and the books of one that has all, in one process and
// in several.
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "counters/books/books.h"
#include "engine/recipe/recipe.h"
#include "engine/session/group.h"
#include "engine/session/load_through.h"
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

// Reads that fail: as many as it is told.
class FailingLayers final : public RecordReader {
 public:
  FailingLayers(std::unique_ptr<RecordReader> disk, std::atomic<int>& fails) : disk_(std::move(disk)), fails_(fails) {}
  int pieces(size_t layer) const override { return disk_->pieces(layer); }
  uint64_t bytes(size_t layer) const override { return disk_->bytes(layer); }
  Status Read(size_t layer, int64_t expert, int piece, uint8_t* slot, int thread) const override {
    if (fails_ > 0 && fails_-- > 0) return BadInput("FILE: cannot be read at byte 17");
    return disk_->Read(layer, expert, piece, slot, thread);
  }

 private:
  const std::unique_ptr<RecordReader> disk_;
  std::atomic<int>& fails_;
};

void ExpectUnreadable(Engine& engine, int32_t sequence, const std::string& what) {
  const std::vector<BatchRow> rows = {{.token = 3, .sequence = sequence, .want_logits = true}};
  const auto failed = engine.Step(rows);
  EXPECT_EQ(failed.status().code(), StatusCode::kUnreadable);
  EXPECT_TRUE(failed.status().message().starts_with("layer ")) << failed.status().message();
  EXPECT_NE(failed.status().message().find(what), std::string::npos) << failed.status().message();
}

// A layer that cannot be read, twice, fails the step by name; later steps go on. A file that has changed stays refused.
TEST(StreamedLayersOfAFile, ThatCannotBeRead) {
  const SmallCheckpoint made(SmallConfig("gpt2"));
  const std::string gguf = made.WriteGguf(), packed = made.folder() / "made.tally";
  ASSERT_FALSE(gguf.empty());
  ASSERT_TRUE(PackModel(gguf, packed).ok());
  for (const std::string& path : {gguf, packed}) {
    SCOPED_TRACE(path);
    const AllInMemory one(path);
    std::atomic<int> fails = 0;
    const EngineOptions options = WithBudget(SmallestBudget(path, WithBudget(0)));
    const auto model = LoadModelThrough(path, options, [&](std::unique_ptr<RecordReader> disk) -> std::unique_ptr<RecordReader> {
      return std::make_unique<FailingLayers>(std::move(disk), fails);
    });
    ASSERT_TRUE(model.ok()) << model.status().message();
    const auto engine = NewEngine(*model, options).value();
    Bill bill;
    fails = 1;
    EXPECT_EQ(RunAll(*engine, bill), one.logits);
    int32_t sequence = engine->NewSequence().value();
    for (int i = 0; i < 2; ++i) {
      fails = 1000;
      ExpectUnreadable(*engine, sequence, "FILE: cannot be read at byte 17");
    }
    fails = 0;
    engine->Free(sequence);
    EXPECT_EQ(RunAll(*engine, bill), one.logits);
    sequence = engine->NewSequence().value();

    // Whatever is in memory already, some layer of the second step is not.
    std::filesystem::resize_file(path, std::filesystem::file_size(path) - 100);
    const std::vector<BatchRow> rows = {{.token = 3, .sequence = sequence, .want_logits = true}};
    (void)engine->Step(rows);
    for (int i = 0; i < 2; ++i) ExpectUnreadable(*engine, sequence, path);
  }
}

}  // namespace
}  // namespace tally
