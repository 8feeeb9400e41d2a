// SPDX-License-Identifier: Apache-2.0
// Which experts a run reads from disk, decided twice: by the engine's store and by the replay.
#include "engine/studies/expert_replay.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "engine/studies/report.h"
#include "engine/weights/expert_store.h"
#include "tests/support/json_schema.h"
#include "tests/support/open_engine.h"
#include "tests/support/smallest_budget.h"
#include "tests/support/temp_folder.h"

namespace tally {
namespace {

const std::string kReplayed = std::string(TALLY_SOURCE_DIR) + "/tests/goldens/gptoss/gptoss-a-top4of8-realyarn";

class NoReads final : public RecordReader {
 public:
  int pieces(size_t) const override { return 1; }
  uint64_t bytes(size_t) const override { return 100; }
  Status Read(size_t, int64_t, int, uint8_t*, int) const override { return {}; }
};

// Steps of few and of many experts, so that in some more are wanted than there are slots.
TEST(ExpertReplay, DecidesAsTheStoreDoes) {
  std::mt19937 random(11);
  const int64_t experts = 16;
  for (const int64_t slots : {1, 2, 3, 6, 11, 15, 16}) {
    SCOPED_TRACE(slots);
    const ExpertRecords layer{.layer = 4, .parts = {{0, 0}}, .experts = experts, .bytes = 4096};
    auto store = ExpertStore::Create({layer}, {slots}, false, std::make_unique<NoReads>()).value();
    std::vector<ExpertStep> steps;
    for (uint64_t step = 0; step < 300; ++step) {
      const int rows = step % 5 == 0 ? 1 + static_cast<int>(random() % 40) : 1;
      std::vector<int32_t> last(static_cast<size_t>(experts), -1);
      for (int r = 0; r < rows; ++r) {
        for (int k = 0; k < 2; ++k) last[random() % static_cast<size_t>(experts)] = r;
      }
      std::vector<ExpertUse> uses;
      ExpertStep made{.step = step, .layer = 4, .slots = slots, .record_bytes = 100};
      for (int32_t e = 0; e < experts; ++e) {
        if (last[static_cast<size_t>(e)] < 0) continue;
        uses.push_back({e, last[static_cast<size_t>(e)]});
        made.experts.push_back(e);
        made.last_rows.push_back(last[static_cast<size_t>(e)]);
      }
      ExpertStore::Visit visit = store->Begin(0, uses);
      made.missed.assign(visit.misses().begin(), visit.misses().end());
      std::ranges::sort(made.missed);
      made.first_uses = visit.first_uses();
      made.disk_bytes = 100 * made.missed.size();
      visit.FreeHits();
      for (size_t i = 0; i < visit.misses().size(); ++i) {
        ASSERT_TRUE(visit.Wait(i).ok());
        visit.Free(i);
      }
      steps.push_back(std::move(made));
    }
    const ExpertReplay replay = ReplayExperts(steps);
    EXPECT_TRUE(replay.agrees()) << replay.first;
    EXPECT_EQ(replay.compared, 300u);
    ASSERT_EQ(replay.layers.size(), 1u);
    EXPECT_EQ(replay.layers[0].recorded, replay.layers[0].replayed);
    EXPECT_EQ(replay.layers[0].recorded.first_uses, 16u);

    // One expert less, or one byte.
    const auto at = std::ranges::find_if(steps, [](const ExpertStep& s) { return s.step > 100 && !s.missed.empty(); });
    if (at == steps.end()) continue;  // all have a slot
    std::vector<ExpertStep> spoiled = steps;
    spoiled[at->step].disk_bytes += 1;
    EXPECT_EQ(ReplayExperts(spoiled).differing, 1u);
    spoiled = steps;
    spoiled[at->step].missed.pop_back();
    EXPECT_EQ(ReplayExperts(spoiled).differing, 1u);
    EXPECT_TRUE(ReplayExperts(spoiled).first.starts_with("step " + std::to_string(at->step) + ", layer 4: read "));
  }
}

struct ReplayedRun {
  std::string lines;
  std::vector<ExpertStep> steps;
  std::vector<int32_t> tokens;
  std::vector<ExpertUses> prefill, decode;  // the ledger's
  Cost cost;
};

ReplayedRun RecordRun(uint64_t budget, const std::string& file) {
  EngineOptions options = SmallOptions();
  options.weights_budget = budget;
  const Opened opened = Open(kReplayed, options);
  ReplayedRun r;
  if (opened.engine == nullptr) return r;
  Engine& engine = *opened.engine;
  const RunInfo info = DescribeRun(engine, "run", "small", "0");
  engine.probe().SetRecorder([&](const OpRecord& record) {
    r.lines += LedgerLine(record, engine.ledger().weights(), r.lines.empty() ? &info : nullptr) + "\n";
  });
  const std::vector<int32_t> prompt = {1, 2, 3, 2, 1, 4, 5, 2, 3, 1, 0};  // in two pieces
  const auto result = Generate(engine, prompt, {.max_tokens = 12, .sampling = {.temperature = 0}, .ignore_eos = true});
  EXPECT_TRUE(result.ok()) << result.status().message();
  engine.probe().SetRecorder(nullptr);
  r.tokens = result->tokens;
  const auto uses = [&](Phase p) {
    return std::vector(engine.ledger().expert_uses(p).begin(), engine.ledger().expert_uses(p).end());
  };
  r.prefill = uses(Phase::kPrefill);
  r.decode = uses(Phase::kDecode);
  for (const Phase p : {Phase::kPrefill, Phase::kDecode}) r.cost += engine.ledger().total(p).useful;
  std::ofstream(file) << r.lines;
  const auto read = ReadLedger(file);
  EXPECT_TRUE(read.ok()) << read.status().message();
  if (read.ok()) r.steps.assign(read->expert_steps().begin(), read->expert_steps().end());
  return r;
}

// Two runs agree to the integer, with the replay, and with the ledger; the tokens are those of a run with everything in memory.
TEST(ExpertReplay, OfALedgerFile) {
  const TempFolder folder;
  const std::string file = folder / "run.jsonl";
  const ReplayedRun whole = RecordRun(EngineOptions::kAllWeights, file);
  EXPECT_TRUE(whole.steps.empty());
  EXPECT_EQ(whole.cost.Bytes(ByteKind::kWeightsDisk), 0u);
  const uint64_t least = SmallestBudget(kReplayed, SmallOptions());
  ASSERT_GT(least, 0u);
  for (const uint64_t budget : {least, least + least / 20}) {
    const ReplayedRun first = RecordRun(budget, file), second = RecordRun(budget, file);
    EXPECT_EQ(first.tokens, whole.tokens);
    ASSERT_FALSE(first.steps.empty());
    EXPECT_EQ(first.steps, second.steps);
    const JsonSchema schema(nlohmann::json::parse(ReadAll(TALLY_SOURCE_DIR "/docs/ledger.schema.json")));
    std::istringstream lines(first.lines);
    for (std::string line; std::getline(lines, line);) {
      const auto json = nlohmann::json::parse(line);
      if (json.at("op") != "fetch") continue;
      EXPECT_EQ(schema.Check(json), "") << line;
    }
    const ExpertReplay replay = ReplayExperts(first.steps);
    EXPECT_TRUE(replay.agrees()) << replay.first;
    ASSERT_EQ(replay.layers.size(), first.prefill.size());
    uint64_t bytes = 0, misses = 0;
    for (size_t l = 0; l < replay.layers.size(); ++l) {
      ExpertUses sum = first.prefill[l];
      sum += first.decode[l];
      EXPECT_EQ(replay.layers[l].replayed, sum);
      bytes += sum.disk_bytes;
      misses += sum.misses;
    }
    EXPECT_GT(misses, 0u);
    EXPECT_EQ(first.cost.Bytes(ByteKind::kWeightsDisk), bytes);
  }
}

TEST(ExpertReplay, RefusesListsThatNoRunWrites) {
  const Cost none;
  const auto read = [&](std::vector<int64_t> experts, std::vector<int64_t> last, std::vector<int64_t> missed, int64_t slots) {
    OpDescription d;
    d.Set("slots", slots);
    d.Set("experts", std::move(experts));
    d.Set("last_rows", std::move(last));
    d.Set("missed", std::move(missed));
    d.Set("first_uses", int64_t{0});
    d.Set("record_bytes", int64_t{100});
    return ReadExpertStep({.step = 3, .site = {.layer = 7}, .op = "fetch", .description = d, .useful = none, .executed = none});
  };
  EXPECT_TRUE(read({1, 4}, {0, 0}, {4}, 2).ok());
  EXPECT_FALSE(read({1, 4}, {0}, {4}, 2).ok());
  EXPECT_FALSE(read({4, 1}, {0, 0}, {4}, 2).ok());
  EXPECT_FALSE(read({1, 1}, {0, 0}, {}, 2).ok());
  EXPECT_FALSE(read({-1, 4}, {0, 0}, {4}, 2).ok());
  EXPECT_FALSE(read({1, 4}, {0, 0}, {5}, 2).ok());
  const auto refused = read({1, 4}, {0, 0}, {4}, 0);
  EXPECT_EQ(refused.status().code(), StatusCode::kBadInput);
  EXPECT_TRUE(refused.status().message().starts_with("step 3, layer 7: ")) << refused.status().message();
}

}  // namespace
}  // namespace tally
