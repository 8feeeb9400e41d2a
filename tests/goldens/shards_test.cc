// SPDX-License-Identifier: Apache-2.0
// Every model of the catalogue, made small, over several processes, which are engines of this one: the bits of one engine, and its books.
#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "engine/studies/synth.h"
#include "tests/support/open_engine.h"
#include "tests/support/small_config.h"
#include "tests/support/temp_folder.h"
#include "tests/support/thread_group.h"

namespace tally {
namespace {

EngineOptions OneThread() {
  EngineOptions options = SmallOptions();
  options.threads = 1;
  options.max_batch = 16;
  options.sequences = 2;
  options.max_logit_rows = 16;
  return options;
}

// Two sequences: a prompt in two pieces beside decoding, then both decode. The logits of all rows.
std::vector<float> RunAll(Engine& engine) {
  const int32_t vocab = engine.model().recipe().vocab;
  std::vector<float> logits;
  const int32_t a = engine.NewSequence().value(), b = engine.NewSequence().value();
  int32_t at = 3;
  const auto step = [&](std::initializer_list<std::array<int32_t, 3>> parts) {  // sequence, rows, generated
    std::vector<BatchRow> rows;
    for (const auto& [sequence, n, generated] : parts) {
      for (int32_t i = 0; i < n; ++i) rows.push_back({at = (at * 5 + 7) % vocab, sequence, true, generated != 0});
    }
    const auto out = engine.Step(rows);
    ASSERT_TRUE(out.ok()) << out.status().message();
    ASSERT_TRUE(out->failed.empty()) << out->failed[0].status.message();
    for (size_t i = 0; i < rows.size() && out->logits.data != nullptr; ++i) {
      logits.insert(logits.end(), out->Logits(i).begin(), out->Logits(i).end());
    }
  };
  step({{a, 9, 0}});
  step({{a, 1, 1}, {b, 11, 0}});
  step({{b, 1, 1}});
  step({{a, 1, 1}, {b, 1, 1}});
  step({{a, 6, 0}});
  return logits;
}

// What is to be equal over all ranks: useful work but for activations, which every process reads for itself.
std::vector<uint64_t> Figures(const Cost& cost, const Cost& copied) {
  std::vector<uint64_t> figures;
  for (int c = 0; c < kWorkClasses; ++c) {
    const WorkClass work = static_cast<WorkClass>(c);
    for (int a = 0; a < kAriths; ++a) {
      figures.push_back(cost.Flops(work, static_cast<Arith>(a)) - copied.Flops(work, static_cast<Arith>(a)));
    }
    figures.push_back(cost.Special(work) - copied.Special(work));
  }
  for (const ByteKind kind : {ByteKind::kWeightsStored, ByteKind::kKvRead, ByteKind::kKvWritten, ByteKind::kStateRead,
                              ByteKind::kStateWritten}) {
    figures.push_back(cost.Bytes(kind) - copied.Bytes(kind));
  }
  return figures;
}

std::vector<Site> SitesOf(const Recipe& r) {
  std::vector<Site> sites;
  for (int32_t layer = -1; layer < r.n_layers; ++layer) {
    for (int c = 0; c < kComponents; ++c) sites.push_back({layer, static_cast<Component>(c)});
  }
  return sites;
}

class Shards : public testing::TestWithParam<std::string> {
 protected:
  std::string Make(const std::string& out, DType type) {
    std::ofstream(folder_ / "config.json") << SmallConfig(GetParam());
    SynthOptions options;
    options.type = type;
    const auto made = Synthesize(folder_ / "config.json", folder_ / out, options);
    return made.ok() ? folder_ / out : std::string();
  }

  void ExpectOneModel(const std::string& path, int ranks) {
    SCOPED_TRACE(path + " on " + std::to_string(ranks));
    const Opened one = Open(path, OneThread());
    ASSERT_NE(one.engine, nullptr);
    const std::vector<float> wanted = RunAll(*one.engine);
    ThreadGroup group(ranks);
    std::vector<Opened> parts(static_cast<size_t>(ranks));
    std::vector<std::vector<float>> given(parts.size());
    for (size_t r = 0; r < parts.size(); ++r) {
      parts[r] = Open(path, OneThread(), {.group = group.member(static_cast<int>(r))});
      ASSERT_NE(parts[r].engine, nullptr);
    }
    std::vector<std::thread> threads;
    for (size_t r = 0; r < parts.size(); ++r) {
      threads.emplace_back([&, r] { given[r] = RunAll(*parts[r].engine); });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(given[0], wanted);
    for (const Phase phase : {Phase::kPrefill, Phase::kDecode, Phase::kMixed}) {
      for (const Site site : SitesOf(one.model->recipe())) {
        std::vector<uint64_t> sum;
        for (const Opened& part : parts) {
          const Account account = part.engine->ledger().at(phase, site);
          const std::vector<uint64_t> figures = Figures(account.useful, account.copied);
          sum.resize(figures.size());
          for (size_t i = 0; i < figures.size(); ++i) sum[i] += figures[i];
        }
        EXPECT_EQ(sum, Figures(one.engine->ledger().at(phase, site).useful, {}))
            << kPhaseNames[static_cast<size_t>(phase)] << " " << site.layer << " " << ComponentName(site.component);
      }
    }
    uint64_t elements = 0, all = 0;
    for (const WeightInfo& w : one.engine->ledger().weights()) all += w.parameters();
    for (size_t r = 0; r < parts.size(); ++r) {
      Cost total;
      for (const Phase phase : {Phase::kPrefill, Phase::kDecode, Phase::kMixed}) {
        total += parts[r].engine->ledger().total(phase).useful;
      }
      EXPECT_EQ(total.Bytes(ByteKind::kSent), group.sent(static_cast<int>(r)));
      EXPECT_EQ(total.Bytes(ByteKind::kReceived), group.received(static_cast<int>(r)));
      for (const WeightInfo& w : parts[r].engine->ledger().weights()) elements += w.parameters() - w.copied;
    }
    EXPECT_EQ(elements, all);
  }

  const TempFolder folder_;
};

TEST_P(Shards, HaveTheBitsAndTheBooksOfOne) {
  const std::string directory = Make("made", DType::kF32), gguf = Make("made.gguf", DType::kQ8_0);
  for (const int ranks : {2, 3}) ExpectOneModel(directory, ranks);
  if (gguf.empty()) return;
  for (const int ranks : {4, 7}) ExpectOneModel(gguf, ranks);
}

INSTANTIATE_TEST_SUITE_P(All, Shards, testing::ValuesIn(SmallModels()), SmallModelName);

}  // namespace
}  // namespace tally
