// SPDX-License-Identifier: Apache-2.0
// The page proof on every checkpoint of the repo: the pages of the weights that each step touched, as the memory-management unit saw
// them, are those it was charged with; and a page more or less on either side is found.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "engine/machine/machine.h"
#include "engine/machine/page_watch.h"
#include "engine/recipe/recipe.h"
#include "engine/studies/audit.h"
#include "engine/studies/synth.h"
#include "engine/weights/expert_store.h"
#include "engine/weights/weights.h"
#include "tests/goldens/checkpoints.h"
#include "tests/support/open_engine.h"
#include "tests/support/small_checkpoint.h"
#include "tests/support/small_config.h"
#include "tests/support/smallest_budget.h"
#include "tests/support/targets.h"
#include "tests/support/temp_folder.h"

namespace tally {
namespace {

Opened OpenGuarded(const std::string& path, const EngineOptions& options = SmallOptions()) {
  return Open(path, options, {.guard_slices = true});
}

AuditOptions Request() {
  AuditOptions options;
  options.prompt = {1, 2, 3, 2, 1, 4, 5, 2, 3, 1, 0};  // in two pieces, the first of which needs no head
  options.decode_tokens = 3;
  options.mmu = true;
  return options;
}

std::string Findings(const AuditReport& report) {
  std::string text;
  for (size_t i = 0; i < report.steps.size(); ++i) {
    for (const PageRow& row : report.steps[i].pages) {
      for (const PageFinding& f : row.findings) {
        constexpr const char* kKinds[] = {"touched", "charged", "guard"};
        text += std::to_string(i) + " " + row.tensor + "[" + std::to_string(f.slice) + "] " +
                kKinds[static_cast<size_t>(f.kind)] + " " + std::to_string(f.first_page) + "+" + std::to_string(f.pages) + "\n";
      }
    }
  }
  return text;
}

const WeightView& ViewOf(const Opened& opened, Role role, int32_t layer) {
  return opened.engine->probe().weights()->packed->Get(role, layer);
}

uint8_t ReadByte(const uint8_t* p) { return *static_cast<const volatile uint8_t*>(p); }

void ExpectProof(const std::string& path, const EngineOptions& options = SmallOptions()) {
  const Opened opened = OpenGuarded(path, options);
  ASSERT_NE(opened.engine, nullptr);
  const auto report = Audit(*opened.engine, Request());
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->differing, 0u) << Findings(*report);
  EXPECT_EQ(report->page_bytes, SystemPageBytes());
  ASSERT_EQ(report->steps.size(), 2u + 3u);
  const std::vector<WeightInfo>& infos = opened.engine->ledger().weights();
  for (const AuditReport::Step& step : report->steps) {
    uint64_t bytes = 0;
    size_t unread = 0;
    for (const PageRow& row : step.pages) {
      EXPECT_EQ(row.charged_pages, row.touched_pages) << row.tensor;
      EXPECT_GT(row.charged_bytes, 0u) << row.tensor;
      bytes += row.charged_bytes;
    }
    for (const WeightInfo& w : infos) {
      unread += std::none_of(step.pages.begin(), step.pages.end(), [&](const PageRow& r) { return r.tensor == w.name; }) ? 1 : 0;
    }
    // The first piece of the prompt wants no logits: final norm and head are not read. Every other weight is, in part at least.
    EXPECT_EQ(unread > 0, &step == report->steps.data());
    EXPECT_GT(bytes, 0u);
  }
  // Where no weight is read by two ops, the pages' bytes are what the ops were charged with.
  if (!opened.model->recipe().tied_head) {
    uint64_t bytes = 0;
    for (const PageRow& row : report->steps.back().pages) bytes += row.charged_bytes;
    EXPECT_EQ(bytes, opened.engine->ledger().total(report->steps.back().phase).useful.Bytes(ByteKind::kWeightsPacked));
  }
}

class PagesOf : public testing::TestWithParam<std::string> {};

TEST_P(PagesOf, TouchedAreThoseCharged) {
  for (const ImplChoice impl : {ImplChoice::kAuto, ImplChoice::kRef, ImplChoice::kBlas}) {
    for (const ActivationMode activations : {ActivationMode::kAuto, ActivationMode::kF32}) {
      SCOPED_TRACE(std::to_string(static_cast<int>(impl)) + " " + std::to_string(static_cast<int>(activations)));
      EngineOptions options = SmallOptions();
      options.impl = impl;
      options.activations = activations;
      ExpectProof(GetParam(), options);
    }
  }
}

// Vectors of every length that the machine has: it is their tails that would read too far.
TEST_P(PagesOf, OnEveryTargetToo) {
  ForEachTarget([] { ExpectProof(GetParam()); });
}

TEST_P(PagesOf, GuardsChangeNoBit) {
  const Opened plain = Open(GetParam(), SmallOptions()), guarded = OpenGuarded(GetParam());
  ASSERT_NE(plain.engine, nullptr);
  ASSERT_NE(guarded.engine, nullptr);
  if (SystemPageBytes() == 4096) {
    EXPECT_EQ(plain.model->memory_plan().packed_weights, guarded.model->memory_plan().packed_weights);
  }
  const int32_t a = plain.engine->NewSequence().value(), b = guarded.engine->NewSequence().value();
  for (int32_t token = 0; token < 6; ++token) {
    const auto x = plain.engine->StepAll(std::vector<BatchRow>{{token, a, false}, {token + 1, a, true}});
    const auto y = guarded.engine->StepAll(std::vector<BatchRow>{{token, b, false}, {token + 1, b, true}});
    ASSERT_TRUE(x.ok() && y.ok());
    ASSERT_EQ(x->cols, y->cols);
    EXPECT_EQ(std::memcmp(x->data, y->data, static_cast<size_t>(x->cols) * sizeof(float)), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(All, PagesOf, testing::ValuesIn(CheckpointsOfTheRepo()), CheckpointName);

// A head tied to its embedding is in panels: a row gathered from them touches less than its panel. No golden has that quantised.
TEST(PageProofOf, EmbeddingsInPanels) {
  const TempFolder folder;
  for (const DType type : {DType::kBF16, DType::kQ8_0, DType::kQ4_0}) {
    SCOPED_TRACE(DTypeName(type));
    SynthOptions synth;
    synth.type = type;
    synth.layers = 1;
    synth.vocab = 200;
    const std::string path = folder / "tied.gguf";
    const auto made = Synthesize("gpt2", path, synth);
    ASSERT_TRUE(made.ok()) << made.status().message();
    ExpectProof(path);
  }
}

// From a tap, that is from within the step, a byte is read that nobody charges, or a charge is made for what nobody reads.
TEST(PageProofOf, WhatIsMadeToDifferIsFound) {
  const std::string path = std::string(TALLY_SOURCE_DIR) + "/tests/goldens/gptoss/gptoss-a-top4of8-realyarn";
  const Opened opened = OpenGuarded(path);
  ASSERT_NE(opened.engine, nullptr);
  AuditOptions options = Request();
  options.prompt = {3};
  options.decode_tokens = 0;
  Engine& engine = *opened.engine;
  const WeightView& down = ViewOf(opened, Role::kExpertDown, 1);
  ASSERT_FALSE(down.empty());
  const std::string name = engine.ledger().weights()[down.id].name;
  const uint64_t slice = engine.ledger().weights()[down.id].packed_bytes / static_cast<uint64_t>(down.slices);
  const uint64_t pages = (slice + SystemPageBytes() - 1) / SystemPageBytes();

  std::vector<uint32_t> idle;  // experts that the step does not use
  auto report = Audit(engine, options);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->differing, 0u) << Findings(*report);
  const uint64_t compared = report->compared;
  for (uint32_t e = 0; e < down.slices; ++e) {
    if (engine.ledger().touched().uses(down.id, e) == 0) idle.push_back(e);
  }
  ASSERT_EQ(idle.size(), 4u);
  const std::string idle_slice = name + "[" + std::to_string(idle[1]) + "] ";

  // What `spoil` does once, after the first op of the last layer.
  const auto spoiled = [&](const std::function<void()>& spoil) {
    bool done = false;
    engine.probe().SetTap([&](Site site, std::string_view, Mat<const float>) {
      if (site.layer != 1 || done) return;
      done = true;
      spoil();
    });
    auto result = Audit(engine, options);
    engine.probe().SetTap(nullptr);
    EXPECT_TRUE(done);
    return std::move(result).value();
  };
  AuditReport found = spoiled([&] { ReadByte(down.Slice(idle[1])); });
  EXPECT_EQ(Findings(found), "0 " + idle_slice + "touched 0+1\n");
  EXPECT_EQ(found.differing, 1u);
  EXPECT_EQ(found.compared, compared);

  found = spoiled([&] { ReadByte(down.Slice(idle[1]) + slice); });
  EXPECT_EQ(Findings(found), "0 " + idle_slice + "guard " + std::to_string(pages) + "+1\n");
  EXPECT_EQ(found.differing, 1u);

  const WeightTouch touch{down.id, idle[1], 0, static_cast<uint32_t>(down.rows)};
  found = spoiled([&] { engine.ledger().Touch(touch); });
  EXPECT_EQ(Findings(found), "0 " + idle_slice + "charged 0+" + std::to_string(pages) + "\n");
  EXPECT_GE(found.differing, 1u);  // the sets of parameters differ too

  // Both: then the pages agree, and the parameters do not.
  found = spoiled([&] {
    for (uint64_t at = 0; at < slice; at += 64) ReadByte(down.Slice(idle[1]) + at);
    engine.ledger().Touch(touch);
  });
  EXPECT_EQ(Findings(found), "");
  EXPECT_GT(found.differing, 0u);

  found = spoiled([] {});
  EXPECT_EQ(found.differing, 0u) << Findings(found);
}

// Experts that are read from disk: slots hold several of them, one after the other, within a step, and each touch is of the one that was
// there. What is wrong on either side is found.
TEST(PageProofOf, SlotsThatChangeHands) {
  bool passed = false;
  for (const char* const model : {"gptoss/gptoss-a-top4of8-realyarn", "glm4_moe/glm45-a-f32-qknorm-groups-mtp"}) {
    SCOPED_TRACE(model);
    const std::string path = TALLY_SOURCE_DIR "/tests/goldens/" + std::string(model);
    EngineOptions options = SmallOptions();
    options.weights_budget = SmallestBudget(path, options);
    ASSERT_GT(options.weights_budget, 0u);
    const Opened opened = OpenGuarded(path, options);
    ASSERT_NE(opened.engine, nullptr);
    Engine& engine = *opened.engine;
    EXPECT_LT(opened.model->memory_plan().expert_slots, opened.model->memory_plan().experts);
    EXPECT_LE(opened.model->memory_plan().packed_weights, options.weights_budget);
    const auto report = Audit(engine, Request());
    ASSERT_TRUE(report.ok()) << report.status().message();
    EXPECT_EQ(report->differing, 0u) << Findings(*report);
    EXPECT_GT(engine.ledger().last_step().experts.hits, 0u);
    for (const AuditReport::Experts& e : report->experts) {
      passed = passed || static_cast<int64_t>(e.step_union[0]) > opened.model->memory_plan().expert_slots;
    }

    // The same with a page of an expert, or its guard, read by hand while it is in a slot.
    const PackedWeights& weights = *engine.probe().weights()->packed;
    const ExpertStore& store = *weights.experts();
    const ExpertRecords& layer = store.layers()[0];
    const WeightId down = layer.parts.back().weight;
    const uint64_t slice = weights.infos()[down].packed_bytes / weights.infos()[down].slices;
    for (const bool guard : {false, true}) {
      bool ran = false, done = false;
      engine.probe().SetTap([&](Site site, std::string_view, Mat<const float>) {
        ran = ran || site.layer == layer.layer;
        if (done || !ran || site.layer == layer.layer) return;  // the layer's own experts have run
        for (int64_t e = 0; e < layer.experts && !done; ++e) {
          const uint8_t* const at = store.Table(down)[e];
          const bool charged = !engine.ledger().touched().ranges(down, static_cast<uint32_t>(e)).empty();
          if (at == nullptr || charged != guard) continue;  // a whole page more of one that nobody chose, or behind one that was
          (void)ReadByte(guard ? at + slice : at);
          done = true;
        }
      });
      AuditOptions one = Request();
      one.prompt = {1};
      const auto found = Audit(engine, one);
      engine.probe().SetTap(nullptr);
      ASSERT_TRUE(found.ok()) << found.status().message();
      EXPECT_TRUE(done);
      EXPECT_EQ(found->differing, 1u) << Findings(*found);
      const std::string what = weights.infos()[down].name + "[";
      EXPECT_NE(Findings(*found).find(what), std::string::npos) << Findings(*found);
      EXPECT_NE(Findings(*found).find(guard ? " guard " : " touched "), std::string::npos) << Findings(*found);
    }
  }
  EXPECT_TRUE(passed) << "no step uses more experts than there are slots";
}

// Layers that are read from disk: a slot holds every other one of them in turn, and each touch is of the one that was there.
TEST(PageProofOf, LayersThatTakeTurns) {
  const SmallCheckpoint made(SmallConfig("gpt2"));
  EngineOptions options = SmallOptions();
  options.weights_budget = SmallestBudget(made.directory(), options);
  const std::string packed = made.folder() / "made.tally";
  ASSERT_TRUE(PackModel(made.directory(), packed).ok());
  for (const std::string& path : {made.directory(), packed}) {
    SCOPED_TRACE(path);
    const Opened opened = OpenGuarded(path, options);
    ASSERT_NE(opened.engine, nullptr);
    Engine& engine = *opened.engine;
    EXPECT_EQ(opened.model->memory_plan().streamed_layers, 6);
    const auto report = Audit(engine, Request());
    ASSERT_TRUE(report.ok()) << report.status().message();
    EXPECT_EQ(report->differing, 0u) << Findings(*report);

    // The same with the guard of a layer's matrix, which is in its slot, read by hand.
    const PackedWeights& weights = *engine.probe().weights()->packed;
    const WeightId down = weights.Get(Role::kDown, 3).id;
    bool done = false;
    engine.probe().SetTap([&](Site site, std::string_view, Mat<const float>) {
      if (std::exchange(done, done || site.layer == 3) || site.layer != 3) return;
      (void)ReadByte(weights.layers()->DataOf(down) + weights.infos()[down].packed_bytes);
    });
    AuditOptions one = Request();
    one.prompt = {1};
    const auto found = Audit(engine, one);
    engine.probe().SetTap(nullptr);
    ASSERT_TRUE(found.ok()) << found.status().message();
    EXPECT_TRUE(done);
    EXPECT_EQ(found->differing, 1u);
    EXPECT_NE(Findings(*found).find(weights.infos()[down].name + "[0] guard "), std::string::npos) << Findings(*found);
  }
}

TEST(PageProofOf, WhatItNeeds) {
  const std::string path = CheckpointsOfTheRepo().back();
  AuditOptions options = Request();
  const Opened plain = Open(path, SmallOptions());
  ASSERT_NE(plain.engine, nullptr);
  auto refused = Audit(*plain.engine, options);
  EXPECT_EQ(refused.status().code(), StatusCode::kBadInput);
  EXPECT_NE(refused.status().message().find("guard_slices"), std::string::npos) << refused.status().message();

  const Opened guarded = OpenGuarded(path);
  ASSERT_NE(guarded.engine, nullptr);
  options.mmu = false;  // guards alone ask for nothing
  const auto without = Audit(*guarded.engine, options);
  ASSERT_TRUE(without.ok());
  EXPECT_EQ(without->page_bytes, 0u);
  EXPECT_TRUE(without->steps[0].pages.empty());

  options.mmu = true;
  const auto memory = AnonymousMemory::Allocate(100, false);
  {
    const auto other = PageWatch::New(memory->data(), 100);
    ASSERT_TRUE(other.ok());
    EXPECT_EQ(Audit(*guarded.engine, options).status().code(), StatusCode::kBadInput);
  }
  options.prompt = {1000000};  // an error within leaves the engine fit for use
  EXPECT_EQ(Audit(*guarded.engine, options).status().code(), StatusCode::kBadInput);
  options.prompt = {1, 2};
  EXPECT_EQ(Audit(*guarded.engine, options)->differing, 0u);
}

}  // namespace
}  // namespace tally
