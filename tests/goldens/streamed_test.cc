// SPDX-License-Identifier: Apache-2.0
// Every model with experts of the catalogue, made small, with memory for some experts: the bits and the books of one that has all, in one
// process and in several.
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "counters/ledger/process_books.h"
#include "engine/recipe/recipe.h"
#include "engine/session/group.h"
#include "tests/support/open_engine.h"
#include "tests/support/run_all.h"
#include "tests/support/small_checkpoint.h"
#include "tests/support/small_config.h"
#include "tests/support/streamed.h"
#include "tests/support/thread_group.h"

namespace tally {
namespace {

ExpertUses AllUses(const Ledger& ledger) {
  ExpertUses sum;
  for (int p = 0; p < kPhases; ++p) {
    for (const ExpertUses& uses : ledger.expert_uses(static_cast<Phase>(p))) sum += uses;
  }
  return sum;
}

class Streamed : public testing::TestWithParam<std::string> {
 protected:
  // What the model gave with all weights in memory.
  struct InMemory {
    const Ledger* ledger = nullptr;
    std::vector<float> logits = {};
    Bill bill = {};
    uint64_t fingerprint = 0;
  };

  // `twice`: a second engine decides alike, as decisions do not depend on time; with the audit and the fingerprint, which read all.
  static void ExpectSame(const std::string& path, uint64_t budget, const InMemory& wanted, bool twice) {
    SCOPED_TRACE(path + ", budget " + std::to_string(budget));
    const EngineOptions options = WithBudget(budget);
    ExpertUses uses;
    for (int again = 0; again < (twice ? 2 : 1); ++again) {
      const Opened streamed = Open(path, options);
      ASSERT_NE(streamed.engine, nullptr);
      EXPECT_TRUE(streamed.model->memory_plan().streams());
      EXPECT_LE(streamed.model->memory_plan().packed_weights, budget);
      Bill bill;
      EXPECT_EQ(RunAll(*streamed.engine, bill), wanted.logits);
      const Ledger& ledger = streamed.engine->ledger();
      if (again == 1) {
        EXPECT_EQ(AllUses(ledger), uses);
        EXPECT_EQ(streamed.engine->Fingerprint(), wanted.fingerprint);
        ExpectAudit(*streamed.engine);
        continue;
      }
      EXPECT_EQ(FiguresOf(ledger), FiguresOf(*wanted.ledger));
      EXPECT_TRUE(WithoutDisk(bill.total().useful) == wanted.bill.total().useful);
      EXPECT_EQ(bill.parameters_touched(), wanted.bill.parameters_touched());
      EXPECT_EQ(bill.total().useful.Bytes(ByteKind::kWeightsDisk), DiskBytes(ledger));
      uses = AllUses(ledger);
      EXPECT_GT(uses.hits, 0u);
      EXPECT_GT(uses.misses, 0u);
      EXPECT_LE(uses.first_uses, uses.misses);
      EXPECT_EQ(uses.disk_bytes, DiskBytes(ledger));
    }
  }

  static void ExpectSameInGroup(const std::string& path, uint64_t budget, Split split, const std::vector<float>& wanted) {
    EngineOptions options = WithBudget(budget);
    options.threads = 1;  // processes in one would wait for one another's team
    SCOPED_TRACE("divided " + std::string(kSplitNames[static_cast<size_t>(split)]));
    ThreadGroup group(2);
    std::thread follower([&] {
      const auto model = LoadModel(path, options, {.group = group.member(1), .split = split});
      ASSERT_TRUE(model.ok()) << model.status().message();
      const Status followed = FollowGroup(*model, options);
      EXPECT_TRUE(followed.ok()) << followed.message();
    });
    {
      const Opened first = Open(path, options, {.group = group.member(0), .split = split});
      ASSERT_NE(first.engine, nullptr);
      Bill bill;
      EXPECT_EQ(RunAll(*first.engine, bill), wanted);
      ExpectAudit(*first.engine);
    }
    follower.join();
  }
};

// What is divided differs between kinds of models.
bool OfItsKind(const std::string& name) {
  static const std::set<std::string> kinds = OneOfEachKind();
  return kinds.contains(name);
}

// Of each model: its directory with half of the slots, its GGUF file with the fewest, and what is packed of the GGUF file, or of the
// directory where there is none, with the fewest, twice; in two processes one model of each kind. A directory's slices are packed as those
// of the GGUF file, or as directories of its family are, whatever the slots.
TEST_P(Streamed, HasTheBitsAndTheBooksOfAllInMemory) {
  const SmallCheckpoint made(SmallConfig(GetParam()));
  const auto spec = ReadModelSpec(ReadCheckpoint(made.directory()).value());
  if (!AnyLayer(spec->recipe, &LayerRecipe::sparse)) return;
  const std::string gguf = made.WriteGguf();
  for (const std::string& path : {made.directory(), gguf}) {
    if (path.empty()) continue;
    SCOPED_TRACE(path);
    const Opened one = Open(path, WithBudget(EngineOptions::kAllWeights));
    ASSERT_NE(one.engine, nullptr);
    InMemory wanted;
    wanted.logits = RunAll(*one.engine, wanted.bill);
    wanted.ledger = &one.engine->ledger();
    wanted.fingerprint = one.engine->Fingerprint();
    const uint64_t all = one.model->memory_plan().packed_weights;
    const Result<MemoryPlan> plan = PlanModel(path, WithBudget(all - 1));
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    const int64_t k = ExpertsOf(spec->recipe).top_k;
    const uint64_t slot = (plan->all_weights - plan->dense_weights) / static_cast<uint64_t>(plan->experts);
    if (k + 2 >= plan->experts) continue;
    const uint64_t least = plan->dense_weights + static_cast<uint64_t>(k + 2) * slot;
    const bool last = path == gguf || gguf.empty();
    if (path != gguf) ExpectSame(path, (least + all) / 2, wanted, /*twice=*/false);
    if (!last) continue;
    EXPECT_FALSE(LoadModel(path, WithBudget(least - 1)).ok());
    ExpectSame(path, least, wanted, /*twice=*/false);
    const std::string packed = made.folder() / "made.tally";
    ASSERT_TRUE(PackModel(path, packed).ok());
    ExpectSame(packed, least, wanted, /*twice=*/true);
    if (path != gguf || !OfItsKind(GetParam())) continue;
    ExpectSameInGroup(path, least, Split::kAll, wanted.logits);
    if (k + 2 < plan->experts / 2) ExpectSameInGroup(path, least, Split::kExperts, wanted.logits);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Streamed, testing::ValuesIn(SmallModels()), SmallModelName);

}  // namespace
}  // namespace tally
