// SPDX-License-Identifier: Apache-2.0
// tally audit's accounts on every checkpoint of the repo: they agree; and what is made to differ is found.
#include "engine/studies/audit.h"

#include <gtest/gtest.h>

#include "counters/books/weight_table.h"
#include "loaders/loaders.h"
#include "models/family.h"
#include "tests/app/text_model.h"
#include "tests/goldens/checkpoints.h"
#include "tests/goldens/puppet.h"
#include "tests/support/charges.h"
#include "tests/support/goldens.h"
#include "tests/support/open_engine.h"
#include "tests/support/temp_folder.h"

namespace tally {
namespace {

std::string Differences(const AuditReport& report) {
  std::string text;
  auto add = [&](std::span<const books::AuditRow> rows) {
    for (const books::AuditRow& r : rows) {
      if (r.agrees()) continue;
      text += std::string(AccountName(r.account)) + " layer " + std::to_string(r.layer) + " " +
              std::string(ComponentName(r.component)) + ": " + r.form + " = " + std::to_string(r.closed) + ", files " +
              std::to_string(r.inventory.value_or(0)) + ", run " + std::to_string(r.ledger.value_or(0)) + "\n";
    }
  };
  add(report.stored);
  for (const AuditReport::Step& step : report.steps) add(step.audit);
  return text;
}

class AuditOf : public testing::TestWithParam<std::string> {};

TEST_P(AuditOf, AllAccountsAgree) {
  for (const KvType kv : {KvType::kF16, KvType::kF32, KvType::kQ8_0}) {
    AuditOptions options;
    EngineOptions load = SmallOptions();
    load.kv = kv;
    options.prompt = {1, 2, 3, 2, 1, 4, 5, 2, 3, 1, 0};  // in two pieces, some tokens twice
    options.decode_tokens = 5;
    const Opened opened = Open(GetParam(), load);
    ASSERT_NE(opened.engine, nullptr);
    const auto report = Audit(*opened.engine, options);
    ASSERT_TRUE(report.ok()) << report.status().message();
    EXPECT_EQ(report->differing, 0u) << Differences(*report);
    EXPECT_EQ(report->steps.size(), 2u + 5u);
    EXPECT_GT(report->compared, 100u);
    const Recipe& recipe = opened.model->recipe();
    EXPECT_EQ(report->experts.empty(), recipe.all.experts.n_experts == 0);
    for (const AuditReport::Experts& e : report->experts) {
      uint64_t tokens = 0;
      for (const uint64_t n : e.tokens) tokens += n;
      EXPECT_EQ(tokens, 16u * static_cast<uint64_t>(recipe.all.experts.top_k));
      EXPECT_EQ(e.step_union.back(), static_cast<uint64_t>(recipe.all.experts.top_k));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, AuditOf, testing::ValuesIn(CheckpointsOfTheRepo()), CheckpointName);

// Drafted rows, accepted and not, and the passes of the layer that guesses them.
struct DraftCase {
  const char* model = "";  // a golden checkpoint, "text", or "puppet/" and a golden checkpoint
  bool layers = false, accepts = false, rejects = false;
};
class AuditOfDrafts : public testing::TestWithParam<DraftCase> {};

TEST_P(AuditOfDrafts, AllAccountsAgree) {
  const DraftCase& c = GetParam();
  constexpr std::string_view kPuppet = "puppet/";
  const std::string name = c.model;
  const TempFolder folder;
  std::string path = kGoldens + name;
  if (name == "text") {
    ASSERT_TRUE(TextModel::WritePredicting(path = folder / "text.gguf").ok());
  } else if (name.starts_with(kPuppet)) {
    WritePuppet(kGoldens + name.substr(kPuppet.size()), path = folder / "model");
  }
  EngineOptions load = SmallOptions();
  load.context = 64;
  load.draft_rows = 3;
  load.prediction = c.layers;
  const Opened opened = Open(path, load, {.guard_slices = true});
  ASSERT_NE(opened.engine, nullptr);
  AuditOptions options;
  options.prompt = {1, 2, 2, 5, 1, 4, 5, 2, 3, 1, 2};                                              // in two pieces
  if (name == "text") options.prompt = {'a', 'b', 'c', 'd', 'e', 0xc3, 0xa9, 'f', 'x', 'y', 'a'};  // goes on as it began
  options.decode_tokens = 8;
  options.draft = 3;
  options.mmu = true;
  const auto report = Audit(*opened.engine, options);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->differing, 0u) << Differences(*report);
  uint64_t passes = 0, drafted = 0, accepted = 0, in_vain = 0, of_layer = 0;
  const Recipe& recipe = opened.model->recipe();
  for (const AuditReport::Step& step : report->steps) {
    passes += step.of_text() ? 0 : 1;
    drafted += step.drafted;
    accepted += step.accepted;
    for (const books::AuditRow& r : step.audit) {
      in_vain += r.account == books::AuditAccount::kFlopsInVain ? *r.ledger : 0;
      of_layer += !step.of_text() && r.layer == recipe.n_layers && r.account == books::AuditAccount::kFlops ? *r.ledger : 0;
      EXPECT_TRUE(!step.of_text() || r.layer < recipe.n_layers);
    }
  }
  EXPECT_GT(drafted, 2u);
  EXPECT_EQ(passes > 0, c.layers);
  EXPECT_EQ(of_layer > 0, c.layers);
  EXPECT_EQ(in_vain > 0, accepted < drafted);
  EXPECT_EQ(accepted > 4, c.accepts) << accepted << " of " << drafted;
  EXPECT_EQ(accepted < drafted, c.rejects) << accepted << " of " << drafted;
}

// Goldens that are no puppets are of F32: their texts are the reference's, by margins far above what instructions round.
INSTANTIATE_TEST_SUITE_P(
    All, AuditOfDrafts,
    testing::Values(DraftCase{.model = "glm4_moe/glm45-a-f32-qknorm-groups-mtp", .layers = true, .rejects = true},
                    DraftCase{.model = "glm4_moe/glm45-a-f32-qknorm-groups-mtp/model.gguf", .layers = true, .rejects = true},
                    DraftCase{.model = "deepseek_v3/deepseek3-a-f32-groups-mtp", .layers = true, .rejects = true},
                    DraftCase{.model = "text", .layers = true, .accepts = true},
                    DraftCase{.model = "text", .accepts = true, .rejects = true},
                    DraftCase{.model = "puppet/gptoss/gptoss-a-top4of8-realyarn", .accepts = true, .rejects = true},
                    DraftCase{.model = "puppet/lfm2/lfm2-a-f32-tied", .accepts = true, .rejects = true}));

// One step, and its audit with one thing wrong on either side.
TEST(Audit, FindsWhatDiffers) {
  const std::string path = CheckpointsOfTheRepo().back();  // demo
  const EngineOptions load = SmallOptions();
  const Opened opened = Open(path, load);
  ASSERT_NE(opened.engine, nullptr);
  const Inventory inventory = ReadCheckpoint(path).value();
  const ModelSpec spec = ReadModelSpec(inventory).value();
  const std::vector<WeightInfo> table = books::WeightTable(inventory, spec);
  const std::vector<DType> types = books::WeightTypes(inventory, spec);
  ASSERT_EQ(types.size(), table.size());
  const int32_t sequence = opened.engine->NewSequence().value();
  const std::vector<BatchRow> rows = {{3, sequence, false}, {4, sequence, false}, {3, sequence, true}};
  ASSERT_TRUE(opened.engine->StepAll(rows).ok());
  const Ledger& ledger = opened.engine->ledger();
  const books::StepFacts facts{
      .work = {.sequences = 1, .rows = 3, .context = 3, .logit_rows = 1}, .distinct_tokens = 2, .distinct_positions = 3};
  auto differing = [&](const Recipe& r, std::span<const WeightInfo> t, const books::StepFacts& f) {
    std::string found;
    for (const books::AuditRow& row : books::AuditStep(r, t, types, ledger, f)) {
      const std::string name(AccountName(row.account));
      if (!row.agrees() && found.find(name) == std::string::npos) found += name + ";";
    }
    return found;
  };
  EXPECT_EQ(differing(spec.recipe, table, facts), "");

  Recipe recipe = spec.recipe;
  ChangeLayers(recipe, [](LayerRecipe& l) { l.attention.sinks = false; });
  EXPECT_EQ(differing(recipe, table, facts), "FLOPs;special;weight bytes;touched, all;");
  recipe = spec.recipe;
  recipe.layers[0].attention.window = 2;
  EXPECT_EQ(differing(recipe, table, facts), "FLOPs;special;KV bytes read;");
  recipe = spec.recipe;
  recipe.tied_head = true;
  EXPECT_NE(differing(recipe, table, facts), "");

  books::StepFacts wrong = facts;
  wrong.distinct_tokens = 3;
  EXPECT_EQ(differing(spec.recipe, table, wrong), "parameters touched;weight bytes;touched, all;");
  wrong = facts;
  wrong.kv.element_bytes = 4;
  EXPECT_EQ(differing(spec.recipe, table, wrong), "KV bytes read;KV bytes written;");
  wrong = facts;
  wrong.work.context = 4;
  EXPECT_EQ(differing(spec.recipe, table, wrong), "FLOPs;special;KV bytes read;");

  std::vector<WeightInfo> files = table;
  files[3].stored_bytes *= 2;
  EXPECT_EQ(differing(spec.recipe, files, facts), "weight bytes;");
  std::string stored;
  for (const books::AuditRow& row : books::AuditStored(spec.stacks(), files, types))
    stored += row.agrees() ? "" : AccountName(row.account);
  EXPECT_EQ(stored, "weight bytes");
  files = table;
  files.pop_back();
  stored.clear();
  for (const books::AuditRow& row : books::AuditStored(spec.stacks(), files, types))
    stored += row.agrees() ? "" : AccountName(row.account);
  EXPECT_EQ(stored, "parameters stored");
}

// One FLOP, special operation or byte more or less, in any class at any site, and just that row is found.
TEST(Audit, EveryOffByOneIsFound) {
  for (const std::string& path : {CheckpointsOfTheRepo().front(), CheckpointsOfTheRepo().back()}) {
    const Opened opened = Open(path, SmallOptions());
    ASSERT_NE(opened.engine, nullptr);
    const Inventory inventory = ReadCheckpoint(path).value();
    const ModelSpec spec = ReadModelSpec(inventory).value();
    const std::vector<WeightInfo> table = books::WeightTable(inventory, spec);
    const std::vector<DType> types = books::WeightTypes(inventory, spec);
    const int32_t sequence = opened.engine->NewSequence().value();
    const std::vector<BatchRow> rows = {{1, sequence, false}, {2, sequence, true}};
    ASSERT_TRUE(opened.engine->StepAll(rows).ok());
    Ledger& ledger = opened.engine->ledger();
    const books::StepFacts facts{
        .work = {.sequences = 1, .rows = 2, .context = 2, .logit_rows = 1}, .distinct_tokens = 2, .distinct_positions = 2};
    const auto audit = [&] { return books::AuditStep(spec.recipe, table, types, ledger, facts); };
    const std::vector<books::AuditRow> before = audit();
    int tried = 0;
    for (size_t i = 0; i < before.size(); ++i) {
      const books::AuditRow& row = before[i];
      ASSERT_TRUE(row.agrees());
      for (const uint64_t change : {uint64_t{1}, ~uint64_t{0}}) {  // one more; one less, as unsigned numbers wrap
        Cost cost, undo;
        using enum books::AuditAccount;
        static const std::map<books::AuditAccount, ByteKind> kBytesOf = {{kWeightBytes, ByteKind::kWeightsStored},
                                                                         {kKvRead, ByteKind::kKvRead},
                                                                         {kKvWritten, ByteKind::kKvWritten},
                                                                         {kStateRead, ByteKind::kStateRead},
                                                                         {kStateWritten, ByteKind::kStateWritten}};
        if (row.account == kFlops) {
          cost.AddFlops(row.work_class, change);
          undo.AddFlops(row.work_class, -change);
        } else if (row.account == kSpecial) {
          cost.AddSpecial(row.work_class, change);
          undo.AddSpecial(row.work_class, -change);
        } else if (const auto kind = kBytesOf.find(row.account); kind != kBytesOf.end()) {
          cost.AddBytes(kind->second, change);
          undo.AddBytes(kind->second, -change);
        } else {
          continue;
        }
        ChargeOnce(ledger, {row.layer, row.component}, cost, {});
        const std::vector<books::AuditRow> after = audit();
        ASSERT_EQ(after.size(), before.size());
        for (size_t j = 0; j < after.size(); ++j) {
          EXPECT_EQ(after[j].agrees(), j != i)
              << AccountName(row.account) << " " << ComponentName(row.component) << " found " << AccountName(after[j].account)
              << " " << ComponentName(after[j].component) << " of layer " << after[j].layer;
        }
        ChargeOnce(ledger, {row.layer, row.component}, undo, {});
        ++tried;
      }
    }
    EXPECT_GT(tried, 100);
  }
}

TEST(Audit, BadRequests) {
  AuditOptions options;
  const Opened opened = Open(CheckpointsOfTheRepo().back(), SmallOptions());
  ASSERT_NE(opened.engine, nullptr);
  EXPECT_EQ(Audit(*opened.engine, options).status().code(), StatusCode::kBadInput);  // no tokens
  options.prompt = {100000};
  EXPECT_EQ(Audit(*opened.engine, options).status().code(), StatusCode::kBadInput);
  options.prompt.assign(33, 1);  // the context has 32
  EXPECT_EQ(Audit(*opened.engine, options).status().code(), StatusCode::kBadInput);
  options.prompt = {1};
  options.decode_tokens = 32;  // 33 positions
  const Status refused = Audit(*opened.engine, options).status();
  EXPECT_EQ(refused.code(), StatusCode::kBadInput);
  EXPECT_NE(refused.message().find("the context has 32 positions"), std::string::npos) << refused.message();
  EXPECT_NE(refused.message().find("a prompt of 1 and 32 decode steps"), std::string::npos) << refused.message();
  options.decode_tokens = 31;  // the context is full
  const auto report = Audit(*opened.engine, options);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->steps.size(), 32u);
}

}  // namespace
}  // namespace tally
