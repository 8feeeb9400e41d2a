// SPDX-License-Identifier: Apache-2.0
// Every model of the catalogue, made small, over several processes, which are engines of this one: the bits of one engine, and its books.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <map>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "counters/ledger/process_books.h"
#include "engine/recipe/recipe.h"
#include "engine/session/group.h"
#include "engine/studies/audit.h"
#include "tests/support/gguf_without.h"
#include "tests/support/open_engine.h"
#include "tests/support/run_all.h"
#include "tests/support/small_checkpoint.h"
#include "tests/support/small_config.h"
#include "tests/support/thread_group.h"

namespace tally {
namespace {

// What is to be equal over all ranks: useful work but for activations, which every process reads for itself.
std::vector<uint64_t> Figures(const Cost& cost) {
  std::vector<uint64_t> figures;
  for (int c = 0; c < kWorkClasses; ++c) {
    const WorkClass work = static_cast<WorkClass>(c);
    for (int a = 0; a < kAriths; ++a) figures.push_back(cost.Flops(work, static_cast<Arith>(a)));
    figures.push_back(cost.Special(work));
  }
  for (const ByteKind kind :
       {ByteKind::kWeightsStored, ByteKind::kKvRead, ByteKind::kKvWritten, ByteKind::kStateRead, ByteKind::kStateWritten}) {
    figures.push_back(cost.Bytes(kind));
  }
  return figures;
}

class ShardsOfOne : public testing::Test {
 protected:
  struct Division {
    int ranks;
    Split split = Split::kAll;
  };

  static void ExpectOneModel(const std::string& path, const std::vector<Division>& divisions) {
    const Opened one = Open(path, OneThread());
    ASSERT_NE(one.engine, nullptr);
    Bill bill;
    const std::vector<float> logits = RunAll(*one.engine, bill);
    for (const Division& division : divisions) ExpectSame(path, division, one.engine->ledger(), logits, bill);
  }

  static void ExpectSame(const std::string& path, Division division, const Ledger& one, const std::vector<float>& wanted,
                         const Bill& wanted_bill) {
    const auto [ranks, split] = division;
    SCOPED_TRACE(path + " on " + std::to_string(ranks) + ", divided " + std::string(kSplitNames[static_cast<size_t>(split)]));
    Bill bill;
    ThreadGroup group(ranks);
    std::vector<std::thread> followers;
    for (int r = 1; r < ranks; ++r) {
      followers.emplace_back([&, r, split = split] {
        const auto model = LoadModel(path, OneThread(), {.group = group.member(r), .split = split});
        ASSERT_TRUE(model.ok()) << model.status().message();
        const Status followed = FollowGroup(*model, OneThread());
        EXPECT_TRUE(followed.ok()) << followed.message();
      });
    }
    {
      const Opened first = Open(path, OneThread(), {.group = group.member(0), .split = split});
      ASSERT_NE(first.engine, nullptr);
      first.engine->probe().SetRecorder([](const OpRecord&) {});
      EXPECT_TRUE(first.engine->probe().RecordRanks().ok());
      EXPECT_EQ(RunAll(*first.engine, bill), wanted);
      const auto books = first.engine->Books();
      ASSERT_TRUE(books.ok()) << books.status().message();
      ExpectRecords(*first.engine, *books);
      ExpectSums(*books, one);
      EXPECT_EQ(bill.parameters_touched(), wanted_bill.parameters_touched());
      Cost all;
      for (const ProcessBooks& b : *books) all += b.Useful();
      EXPECT_TRUE(bill.total().useful == all);
      ExpectAudit(*first.engine, static_cast<size_t>(ranks));
    }
    for (std::thread& follower : followers) follower.join();
  }

  static void ExpectRecords(Engine& engine, const std::vector<ProcessBooks>& books) {
    const auto others = engine.probe().RankRecords();
    ASSERT_TRUE(others.ok()) << others.status().message();
    ASSERT_EQ(others->size() + 1, books.size());
    for (size_t r = 1; r < books.size(); ++r) {
      const RankOps& rank = (*others)[r - 1];
      EXPECT_EQ(rank.process, books[r].process);
      EXPECT_EQ(rank.left_out, 0u);
      uint64_t flops = 0, sent = 0, booked_flops = 0, booked = 0;
      for (const RankOp& op : rank.ops) flops += op.flops, sent += op.sent;
      for (const SiteAccount& a : books[r].accounts) {
        booked += a.account.useful.Bytes(ByteKind::kSent);
        booked_flops += a.account.useful.TotalFlops();
      }
      EXPECT_EQ(sent, booked) << rank.process;
      EXPECT_EQ(flops, booked_flops) << rank.process;
    }
    EXPECT_TRUE(engine.probe().RankRecords().value().empty());
  }

  static void ExpectSums(const std::vector<ProcessBooks>& books, const Ledger& one) {
    using Key = std::tuple<Phase, int32_t, Component>;
    std::map<Key, std::vector<uint64_t>> sums, wanted;
    const auto add = [](std::map<Key, std::vector<uint64_t>>& to, const SiteAccount& a) {
      const std::vector<uint64_t> figures = Figures(WithoutCopies(a.account));
      std::vector<uint64_t>& sum = to[{a.phase, a.site.layer, a.site.component}];
      sum.resize(figures.size());
      for (size_t i = 0; i < figures.size(); ++i) sum[i] += figures[i];
    };
    uint64_t elements = 0, sent = 0, received = 0;
    for (const ProcessBooks& b : books) {
      for (const SiteAccount& a : b.accounts) {
        add(sums, a);
        sent += a.account.useful.Bytes(ByteKind::kSent);
        received += a.account.useful.Bytes(ByteKind::kReceived);
      }
      elements += b.parameters - b.copied_parameters;
    }
    const ProcessBooks alone = BooksOf(one, "");
    for (const SiteAccount& a : alone.accounts) add(wanted, a);
    for (const auto& [key, figures] : wanted) {
      EXPECT_EQ(sums[key], figures) << kPhaseNames[static_cast<size_t>(std::get<0>(key))] << " " << std::get<1>(key) << " "
                                    << ComponentName(std::get<2>(key));
    }
    EXPECT_EQ(sums.size(), wanted.size());
    EXPECT_EQ(elements, alone.parameters);
    EXPECT_EQ(sent, received);
  }

  // Closed form, files and what the ranks did, without copies; and the closed form of what each of them sent and received.
  static void ExpectAudit(Engine& engine, size_t ranks) {
    AuditOptions options;
    options.prompt = {3, 22, 60, 5, 3};
    options.decode_tokens = 2;
    const auto report = Audit(engine, options);
    ASSERT_TRUE(report.ok()) << report.status().message();
    EXPECT_EQ(report->ranks.size(), ranks);
    uint64_t sent = 0;
    const auto check = [&](const std::vector<books::AuditRow>& rows) {
      for (const books::AuditRow& r : rows) {
        if (r.account == books::AuditAccount::kSent) sent += r.closed;
        if (r.agrees()) continue;
        ADD_FAILURE() << books::AccountName(r.account) << " of layer " << r.layer << " " << ComponentName(r.component) << " "
                      << r.tensor << ", rank " << r.rank << ": closed form " << r.closed << " = " << r.form << ", files "
                      << r.inventory.value_or(0) << ", run " << r.ledger.value_or(0);
      }
    };
    check(report->stored);
    for (const AuditReport::Step& step : report->steps) check(step.audit);
    EXPECT_GT(sent, 0u);
  }
};

class Shards : public ShardsOfOne, public testing::WithParamInterface<std::string> {};

TEST_P(Shards, HaveTheBitsAndTheBooksOfOne) {
  const SmallCheckpoint made(SmallConfig(GetParam()));
  const bool sparse = AnyLayer(ReadModelSpec(ReadCheckpoint(made.directory()).value())->recipe, &LayerRecipe::sparse);
  // Evenly and not, and among more processes than there are heads; a model like another in half of the ways.
  static const std::set<std::string> kinds = OneOfEachKind();
  static const std::vector<std::string> models = SmallModels();
  const bool all = kinds.contains(GetParam()), few = (std::ranges::find(models, GetParam()) - models.begin()) % 2 == 0;
  std::vector<Division> of_directory, of_gguf;
  if (all || few) of_directory.push_back({2}), of_gguf.push_back({7});
  if (all || !few) of_directory.push_back({3}), of_gguf.push_back({4});
  if (sparse && (all || few)) of_directory.push_back({3, Split::kExperts});
  if (sparse && (all || !few)) of_gguf.push_back({2, Split::kExperts});
  ExpectOneModel(made.directory(), of_directory);
  const std::string gguf = made.WriteGguf();
  if (gguf.empty()) return;
  ExpectOneModel(gguf, of_gguf);
  // Tensors that llama.cpp does without: gates of experts, shared experts.
  const bool kimi = GetParam() == "Kimi-Linear-48B-A3B", ernie = GetParam() == "ERNIE-4.5-21B-A3B";
  if (!kimi && !ernie) return;
  const std::string part = made.folder() / "part.gguf";
  WriteGgufWithout(gguf, kimi ? "_shexp" : "ffn_gate_exps", part);
  ExpectOneModel(part, {{2}, {3}, {3, Split::kExperts}});
}

// Norms with a vector for each head, which no model of the catalogue has.
TEST_F(ShardsOfOne, NormsOfEachHead) {
  ExpectOneModel(std::string(TALLY_SOURCE_DIR) + "/tests/goldens/cohere/cohere-a-f32-qknorm-gqa", {{2}, {3}, {4}});
}

INSTANTIATE_TEST_SUITE_P(All, Shards, testing::ValuesIn(SmallModels()), SmallModelName);

}  // namespace
}  // namespace tally
