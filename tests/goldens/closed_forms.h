// SPDX-License-Identifier: Apache-2.0
// The closed forms of counters/books against what the engine's kernels were charged with, site by site and class by class: no figure of
// either side is known to the other.
#pragma once

#include <gtest/gtest.h>

#include <map>

#include "counters/books/closed_form.h"
#include "engine/recipe/recipe.h"
#include "tests/support/open_engine.h"

namespace tally::closed_forms {

using books::WorkForm;
using books::Workload;

struct Tallied {
  uint64_t flops = 0, special = 0;
  bool operator==(const Tallied&) const = default;
};
using Sites = std::map<std::string, Tallied>;

inline std::string Key(int32_t layer, Component component, int work_class) {
  return std::to_string(layer) + " " + std::string(ComponentName(component)) + " " +
         std::string(kWorkClassNames[static_cast<size_t>(work_class)]);
}

inline Sites Charged(const Ledger& ledger, Phase phase, int32_t n_layers) {
  Sites sites;
  for (int32_t layer = -1; layer < n_layers; ++layer) {
    for (int c = 0; c < kComponents; ++c) {
      const Cost& useful = ledger.at(phase, {layer, static_cast<Component>(c)}).useful;
      for (int w = 0; w < kWorkClasses; ++w) {
        const Tallied t{useful.Flops(static_cast<WorkClass>(w)), useful.Special(static_cast<WorkClass>(w))};
        if (t.flops != 0 || t.special != 0) sites[Key(layer, static_cast<Component>(c), w)] = t;
      }
    }
  }
  return sites;
}

inline Sites Closed(const Recipe& recipe, const Workload& work) {
  Sites sites;
  for (const WorkForm& f : books::WorkForms(recipe, work)) {
    Tallied& t = sites[Key(f.layer, f.component, static_cast<int>(f.work_class))];
    t.flops += f.flops.value();
    t.special += f.special.value();
  }
  return sites;
}

inline void ExpectSame(const Sites& charged, const Sites& closed) {
  for (const auto& [site, t] : charged) {
    const auto found = closed.find(site);
    if (found == closed.end()) {
      ADD_FAILURE() << site << ": charged " << t.flops << ", no closed form";
      continue;
    }
    EXPECT_EQ(t.flops, found->second.flops) << site;
    EXPECT_EQ(t.special, found->second.special) << site << " (special)";
  }
  for (const auto& [site, t] : closed) EXPECT_TRUE(charged.count(site) == 1) << site << ": never charged";
}

// One step of `rows` more positions of each of `sequences`.
inline void Step(Engine& engine, std::span<const int32_t> sequences, uint64_t rows, bool all_logits, bool generated) {
  const int32_t vocab = engine.model().recipe().vocab;
  std::vector<BatchRow> batch;
  for (const int32_t sequence : sequences) {
    for (uint64_t i = 0; i < rows; ++i) {
      const int32_t token = static_cast<int32_t>(7 * i + 1 + static_cast<uint64_t>(sequence)) % vocab;
      batch.push_back({token, sequence, all_logits || i + 1 == rows, generated});
    }
  }
  const auto logits = engine.StepAll(batch);
  ASSERT_TRUE(logits.ok()) << logits.status().message();
}

// Of the engine that ExpectEveryChargeHasItsFormula wants.
inline EngineOptions Options() {
  EngineOptions options = SmallOptions();
  options.sequences = 2;
  options.max_batch = 18;
  options.max_logit_rows = 18;
  return options;
}

// Prefill, prefill with all logits, decode, and a mixed batch of unequal sequences. The engine has no sequences, before and after.
inline void ExpectEveryChargeHasItsFormula(Engine& engine) {
  const Recipe& recipe = engine.model().recipe();
  std::vector<int32_t> sequences;
  for (int i = 0; i < 2; ++i) sequences.push_back(engine.NewSequence().value());

  auto check = [&](Phase phase, const Workload& work) {
    SCOPED_TRACE(std::to_string(work.rows) + " rows up to " + std::to_string(work.context));
    engine.ledger().Reset();
    Step(engine, sequences, work.rows, work.logit_rows == work.rows, phase == Phase::kDecode);
    ExpectSame(Charged(engine.ledger(), phase, recipe.n_layers), Closed(recipe, work));
  };
  check(Phase::kPrefill, {.sequences = 2, .rows = 9, .context = 9, .logit_rows = 1});
  check(Phase::kPrefill, {.sequences = 2, .rows = 5, .context = 14, .logit_rows = 5});
  check(Phase::kDecode, {.sequences = 2, .rows = 1, .context = 15, .logit_rows = 1});

  // A mixed batch of unequal sequences: a prompt's piece of one, a generated token of the other. Each row's work is booked by its own
  // phase; the weights are read once, for both.
  engine.ledger().Reset();
  std::vector<BatchRow> batch(4, {.token = 1, .sequence = sequences[0]});
  batch.insert(batch.begin() + 2, {.token = 2, .sequence = sequences[1], .want_logits = true, .generated = true});
  batch.back().want_logits = true;
  const auto logits = engine.StepAll(batch);
  ASSERT_TRUE(logits.ok()) << logits.status().message();
  const Ledger& ledger = engine.ledger();
  ExpectSame(Charged(ledger, Phase::kPrefill, recipe.n_layers),
             Closed(recipe, {.sequences = 1, .rows = 4, .context = 19, .logit_rows = 1}));
  ExpectSame(Charged(ledger, Phase::kDecode, recipe.n_layers),
             Closed(recipe, {.sequences = 1, .rows = 1, .context = 16, .logit_rows = 1}));
  ExpectSame(Charged(ledger, Phase::kMixed, recipe.n_layers), {});
  for (const Phase p : {Phase::kPrefill, Phase::kDecode}) {
    EXPECT_EQ(ledger.total(p).useful.Bytes(ByteKind::kWeightsStored), 0u);
  }
  EXPECT_GT(ledger.total(Phase::kMixed).useful.Bytes(ByteKind::kWeightsStored), 0u);
  for (const int32_t sequence : sequences) engine.Free(sequence);
}

inline void ExpectEveryChargeHasItsFormula(const std::string& path) {
  const Opened opened = Open(path, Options());
  ASSERT_NE(opened.engine, nullptr);
  ExpectEveryChargeHasItsFormula(*opened.engine);
}

}  // namespace tally::closed_forms
