// SPDX-License-Identifier: Apache-2.0
// Every model with experts of the catalogue, made small, with memory for some experts: the bits and the books of one that has all, in one
// process and in several.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "counters/ledger/process_books.h"
#include "engine/recipe/recipe.h"
#include "engine/session/group.h"
#include "engine/studies/audit.h"
#include "tests/support/open_engine.h"
#include "tests/support/run_all.h"
#include "tests/support/small_checkpoint.h"
#include "tests/support/small_config.h"
#include "tests/support/thread_group.h"

namespace tally {
namespace {

EngineOptions WithBudget(uint64_t bytes) {
  EngineOptions options = OneThread();
  options.threads = 2;
  options.weights_budget = bytes;
  return options;
}

Cost WithoutDisk(const Cost& cost) {
  Cost disk, rest;
  disk.AddBytes(ByteKind::kWeightsDisk, 1);
  size_t of_disk = 0;
  disk.ForEachEntry([&](size_t entry, uint64_t) { of_disk = entry; });
  cost.ForEachEntry([&](size_t entry, uint64_t n) { rest.AddEntry(entry, entry == of_disk ? 0 : n); });
  return rest;
}

// Useful and executed work by phase and site, but for what comes from disk.
using SiteFigures = std::map<std::tuple<Phase, int32_t, Component>, std::pair<std::string, std::string>>;
std::string TextOf(const Cost& cost) {
  std::string text;
  cost.ForEachEntry([&](size_t entry, uint64_t n) { text += std::to_string(entry) + ": " + std::to_string(n) + " "; });
  return text;
}
SiteFigures FiguresOf(const Ledger& ledger) {
  SiteFigures figures;
  for (int p = 0; p < kPhases; ++p) {
    for (const auto& [site, account] : ledger.sites(static_cast<Phase>(p))) {
      const std::string useful = TextOf(WithoutDisk(account.useful));
      figures[{static_cast<Phase>(p), site.layer, site.component}] = {useful, TextOf(WithoutDisk(account.executed))};
    }
  }
  return figures;
}

ExpertUses AllUses(const Ledger& ledger) {
  ExpertUses sum;
  for (int p = 0; p < kPhases; ++p) {
    for (const ExpertUses& uses : ledger.expert_uses(static_cast<Phase>(p))) sum += uses;
  }
  return sum;
}

uint64_t DiskBytes(const Ledger& ledger) {
  uint64_t bytes = 0;
  for (int p = 0; p < kPhases; ++p) bytes += ledger.total(static_cast<Phase>(p)).useful.Bytes(ByteKind::kWeightsDisk);
  return bytes;
}

class Streamed : public testing::TestWithParam<std::string> {
 protected:
  static void ExpectAudit(Engine& engine) {
    AuditOptions options;
    options.prompt = {3, 22, 60, 5, 3};
    options.decode_tokens = 2;
    const auto report = Audit(engine, options);
    ASSERT_TRUE(report.ok()) << report.status().message();
    EXPECT_EQ(report->differing, 0u);
  }

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
