// SPDX-License-Identifier: Apache-2.0
// Rows that are more than tokens: given embeddings, positions, spans that see both ways, hidden states; how they are found again, on ranks
// too, and what they are charged.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/recipe/recipe.h"
#include "engine/studies/synth.h"
#include "tests/session/made_prediction.h"
#include "tests/support/open_engine.h"
#include "tests/support/small_config.h"
#include "tests/support/temp_folder.h"
#include "tests/support/thread_group.h"

namespace tally {
namespace {

using Tokens = std::vector<int32_t>;
using Floats = std::vector<float>;

constexpr int32_t kVocab = 101;

Tokens Text(int64_t n, int32_t of) {
  Tokens tokens;
  for (int64_t i = 0; i < n; ++i) tokens.push_back(static_cast<int32_t>((i * i * 7 + 3 * i + 11 * of) % kVocab));
  return tokens;
}

EngineOptions RowOptions(int threads = 2, int64_t context = 400) {
  EngineOptions options = SmallOptions();
  options.threads = threads;
  options.context = context;
  options.max_batch = 256;
  options.max_logit_rows = 256;
  options.sequences = 4;
  return options;
}

class Rows : public testing::TestWithParam<std::string> {
 protected:
  std::string Make(const std::string& name) {
    std::ofstream(folder_ / "config.json") << SmallConfig(name);
    SynthOptions options;
    options.type = DType::kF32;
    const auto made = Synthesize(folder_ / "config.json", folder_ / "made", options);
    EXPECT_TRUE(made.ok()) << made.status().message();
    return folder_ / "made";
  }

  const TempFolder folder_;
};

// What the table gives for tokens, scaled, [tokens, width]: the first op of a step.
std::vector<Floats> EmbeddingsOf(Engine& engine, const Tokens& tokens) {
  std::vector<Floats> rows;
  engine.probe().SetTap([&](Site, std::string_view op, Mat<const float> out) {
    if (op != "embed" || !rows.empty()) return;
    for (int64_t r = 0; r < out.rows; ++r) rows.emplace_back(out.Row(r), out.Row(r) + out.cols);
  });
  const int32_t s = engine.NewSequence().value();
  std::vector<BatchRow> batch;
  for (const int32_t token : tokens) batch.push_back({token, s});
  EXPECT_TRUE(engine.StepAll(batch).ok());
  engine.Free(s);
  engine.probe().SetTap(nullptr);
  return rows;
}

// A text of which some rows are given as embeddings, those of their tokens.
struct Given {
  Tokens tokens;
  std::vector<Floats> embeddings;
  int64_t begin = 0, end = 0;
  uint64_t hash = 0;

  BatchRow Row(int64_t i, int32_t s) const {
    BatchRow row{tokens[static_cast<size_t>(i)], s, true};
    if (i < begin || i >= end) return row;
    row.embedding = embeddings[static_cast<size_t>(i)];
    row.identity = hash != 0 ? RowIdentity{hash, 1, static_cast<int32_t>(i - begin)} : RowIdentity();
    return row;
  }
  std::vector<PrefixRow> Prefix() const {
    std::vector<PrefixRow> rows;
    for (int64_t i = begin; i < end; ++i) {
      rows.push_back({.index = i, .embedding = true, .identity = Row(i, 0).identity});
    }
    return rows;
  }
};

// Rows [begin, end) of the text in steps of `piece`, with rows of another sequence between them if there is one; their logits.
Floats RunGiven(Engine& engine, const Given& text, int32_t s, int64_t begin, int64_t end, int64_t piece, int32_t beside = -1) {
  Floats logits;
  const Tokens other = Text(end, 5);
  for (int64_t at = begin; at < end; at += piece) {
    std::vector<BatchRow> rows;
    for (int64_t i = at; i < std::min(end, at + piece); ++i) {
      if (beside >= 0) rows.push_back({other[static_cast<size_t>(i)], beside, false});
      rows.push_back(text.Row(i, s));
    }
    const auto out = engine.StepAll(rows);
    EXPECT_TRUE(out.ok()) << out.status().message();
    if (!out.ok()) return {};
    logits.insert(logits.end(), out->data, out->Row(out->rows));
  }
  return logits;
}

// Rows from `row` on, of `rows`.
Floats From(const Floats& logits, int64_t row, int64_t rows = 24) {
  return {logits.begin() + row * (static_cast<int64_t>(logits.size()) / rows), logits.end()};
}

TEST_P(Rows, AnEmbeddingOfATokenGivesItsBits) {
  const std::string path = Make(GetParam());
  const Opened opened = Open(path, RowOptions(2, 60));
  ASSERT_NE(opened.engine, nullptr);
  Engine& engine = *opened.engine;
  const bool recurrent = AnyLayer(opened.model->recipe(), &LayerRecipe::recurrent);
  Given text{Text(24, 1), EmbeddingsOf(engine, Text(24, 1)), 0, 0, 77};
  const int32_t plain = engine.NewSequence().value();
  const Floats wanted = RunGiven(engine, text, plain, 0, 24, 24);
  engine.Free(plain);
  text.begin = 5, text.end = 12;

  int32_t s = engine.NewSequence().value();
  EXPECT_EQ(RunGiven(engine, text, s, 0, 24, 24), wanted);
  engine.Free(s);
  s = engine.NewSequence().value();
  const int32_t beside = engine.NewSequence().value();
  EXPECT_EQ(RunGiven(engine, text, s, 0, 24, 7, beside), wanted);
  engine.Free(beside);
  engine.Free(s);
  s = engine.NewSequence().value();
  EXPECT_EQ(RunGiven(engine, text, s, 0, 24, 1), wanted);

  const int32_t fork = engine.Fork(s, 21).value();
  EXPECT_EQ(RunGiven(engine, text, fork, 21, 24, 2), From(wanted, 21));
  engine.Free(fork);
  if (!recurrent) {
    const int32_t inside = engine.Fork(s, 8).value();  // between rows that see the past alone
    EXPECT_EQ(RunGiven(engine, text, inside, 8, 24, 5), From(wanted, 8));
    engine.Free(inside);
  }
  ASSERT_TRUE(engine.Truncate(s, 8).ok());
  EXPECT_EQ(RunGiven(engine, text, s, 8, 24, 3), From(wanted, 8));
  ASSERT_TRUE(engine.Truncate(s, 8).ok());
  RunGiven(engine, text, s, 8, 23, 3);

  // Found by what it is, and by nothing else.
  engine.Remember(s, "key", text.tokens, 2);
  engine.Free(s);
  const int64_t before = recurrent ? 0 : 5;
  const std::span<const int32_t> asked = std::span(text.tokens).first(23);
  Given other = text;
  other.hash = 78;
  EXPECT_EQ(engine.Reusable("key", asked), before) << "the tokens alone";
  EXPECT_EQ(engine.Reusable("key", asked, other.Prefix()), before);
  if (!recurrent) {
    std::vector<PrefixRow> moved = text.Prefix();
    moved[3].identity.row = 9;
    EXPECT_EQ(engine.Reusable("key", asked, moved), 8);
    Tokens changed = text.tokens;
    changed[10] = (changed[10] + 1) % kVocab;
    EXPECT_EQ(engine.Reusable("key", std::span(changed).first(23), text.Prefix()), 10) << "the token of an embedding";
  }
  s = engine.NewSequenceFor("key", asked, text.Prefix()).value();
  EXPECT_EQ(engine.Length(s), 23);
  EXPECT_EQ(RunGiven(engine, text, s, 23, 24, 1), From(wanted, 23));
  EXPECT_EQ(engine.Export(s, [](std::span<const uint8_t>) { return Status(); }).code(), StatusCode::kBadInput);
  engine.Free(s);
  // Without an identity: by nobody.
  Given nameless = text;
  nameless.hash = 0;
  s = engine.NewSequence().value();
  EXPECT_EQ(RunGiven(engine, nameless, s, 0, 24, 24), wanted);
  engine.Remember(s, "other", text.tokens, 2);
  EXPECT_EQ(engine.Reusable("other", asked, nameless.Prefix()), before);
  EXPECT_EQ(engine.Reusable("other", asked), before);
}

INSTANTIATE_TEST_SUITE_P(All, Rows,
                         testing::Values("Gemma-3-4B", "Gemma-4-E2B", "BLOOM-560M", "OPT-350M", "OPT-125M", "Qwen3.5-4B"),
                         SmallModelName);

using OneRows = Rows;
INSTANTIATE_TEST_SUITE_P(All, OneRows, testing::Values("Gemma-3-4B"), SmallModelName);

// What the last norm's tap shows is what rows get that ask for it; nobody's bits change, and the books know of it.
TEST_P(OneRows, HiddenStatesAreWhatTheHeadReads) {
  const Opened opened = Open(Make(GetParam()), RowOptions());
  ASSERT_NE(opened.engine, nullptr);
  Engine& engine = *opened.engine;
  const int64_t width = opened.model->recipe().d_model;
  const Tokens text = Text(12, 1);
  const auto run = [&](bool hidden, Floats* states) {
    const int32_t a = engine.NewSequence().value(), b = engine.NewSequence().value(), bill_a = engine.OpenBill(),
                  bill_b = engine.OpenBill();
    engine.ledger().Reset();
    std::vector<BatchRow> rows;
    for (size_t i = 0; i < text.size(); ++i) {
      BatchRow row{text[i], i % 3 == 0 ? a : b, i % 4 == 1, false, i % 3 == 0 ? bill_a : bill_b};
      row.want_hidden = hidden && (i % 4 == 1 || i % 5 == 0);
      rows.push_back(row);
    }
    const auto out = engine.Step(rows);
    EXPECT_TRUE(out.ok()) << out.status().message();
    Floats logits;
    for (size_t i = 0; i < out->logit_rows.size(); ++i) logits.insert(logits.end(), out->Logits(i).begin(), out->Logits(i).end());
    for (size_t i = 0; i < out->hidden_rows.size(); ++i) {
      EXPECT_EQ(out->Hidden(i).size(), static_cast<size_t>(width));
      states->insert(states->end(), out->Hidden(i).begin(), out->Hidden(i).end());
    }
    Cost billed = engine.CloseBill(bill_a).total().useful;
    billed += engine.CloseBill(bill_b).total().useful;
    EXPECT_TRUE(billed == engine.ledger().total(Phase::kPrefill).useful);
    engine.Free(a);
    engine.Free(b);
    return logits;
  };
  Floats states, normed, none;
  const Site norm{-1, Component::kOutputNorm};
  const Floats plain = run(false, &none);
  const uint64_t norm_flops = engine.ledger().at(Phase::kPrefill, norm).useful.TotalFlops(),
                 head = engine.ledger().at(Phase::kPrefill, {-1, Component::kHead}).useful.TotalFlops();
  engine.probe().SetTap([&](Site site, std::string_view, Mat<const float> out) {
    if (site == norm) normed.insert(normed.end(), out.data, out.Row(out.rows));
  });
  EXPECT_EQ(run(true, &states), plain);
  engine.probe().SetTap(nullptr);
  EXPECT_TRUE(none.empty());
  // Rows 0, 1, 5, 9 and 10 want a hidden state, 1, 5 and 9 logits.
  EXPECT_EQ(states, normed);
  EXPECT_EQ(states.size(), static_cast<size_t>(5 * width));
  EXPECT_EQ(engine.ledger().at(Phase::kPrefill, norm).useful.TotalFlops(), norm_flops / 3 * 5);
  EXPECT_EQ(engine.ledger().at(Phase::kPrefill, {-1, Component::kHead}).useful.TotalFlops(), head);
  EXPECT_EQ(engine.ledger().logit_rows(Phase::kPrefill), 3u);
  // One alone, and without logits.
  const int32_t s = engine.NewSequence().value();
  std::vector<BatchRow> one(1, {text[0], s});
  one[0].want_hidden = true;
  const auto out = engine.Step(one);
  ASSERT_TRUE(out.ok()) << out.status().message();
  EXPECT_EQ(Floats(out->Hidden(0).begin(), out->Hidden(0).end()), Floats(states.begin(), states.begin() + width));
}

// A sequence with a span that sees both ways, and what comes before and after it.
struct Picture {
  int64_t rows = 0;
  RowSpan span;
  Tokens tokens;
  std::vector<Floats> embeddings;

  std::vector<BatchRow> Batch(int64_t begin, int64_t end, int32_t s) const {
    std::vector<BatchRow> batch;
    for (int64_t i = begin; i < end; ++i) {
      BatchRow row{tokens[static_cast<size_t>(i)], s, true};
      if (i >= span.begin && i < span.end) {
        row.embedding = embeddings[static_cast<size_t>(i - span.begin)];
        row.identity = {3, 4, static_cast<int32_t>(i - span.begin)};
        row.both_ways = span;
      }
      batch.push_back(row);
    }
    return batch;
  }
};

Picture MakePicture(Engine& engine, int64_t rows, RowSpan span) {
  return {rows, span, Text(rows, 2), EmbeddingsOf(engine, Text(span.end - span.begin, 3))};
}

Floats RunBatches(Engine& engine, const Picture& p, int32_t s, std::vector<int64_t> cuts) {
  Floats logits;
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    const auto out = engine.StepAll(p.Batch(cuts[i], cuts[i + 1], s));
    EXPECT_TRUE(out.ok()) << out.status().message();
    if (!out.ok()) return {};
    logits.insert(logits.end(), out->data, out->Row(out->rows));
  }
  return logits;
}

// Across two blocks of the cache, in windows of 5: the same bits however the rest is cut, on more threads, beside others, found again.
TEST_P(OneRows, SpansSeeBothWaysWhateverTheCut) {
  const std::string path = Make(GetParam());
  Floats wanted;
  for (const int threads : {1, 3}) {
    const Opened opened = Open(path, RowOptions(threads));
    ASSERT_NE(opened.engine, nullptr);
    Engine& engine = *opened.engine;
    const Picture p = MakePicture(engine, 170, {115, 150});
    int32_t s = engine.NewSequence().value();
    const Floats whole = RunBatches(engine, p, s, {0, 170});
    engine.Free(s);
    if (wanted.empty()) wanted = whole;
    EXPECT_EQ(whole, wanted) << threads;
    s = engine.NewSequence().value();
    EXPECT_EQ(RunBatches(engine, p, s, {0, 60, 115, 150, 151, 170}), wanted);
    // A cut between its rows is refused.
    EXPECT_EQ(engine.Truncate(s, 130).code(), StatusCode::kBadInput);
    EXPECT_EQ(engine.Fork(s, 149).status().code(), StatusCode::kBadInput);
    EXPECT_EQ(engine.Length(s), 170);
    engine.Remember(s, "key", p.tokens, 0);
    engine.Free(s);
    std::vector<PrefixRow> rows;
    for (int64_t i = 115; i < 150; ++i) {
      rows.push_back({.index = i,
                      .embedding = true,
                      .identity = {3, 4, static_cast<int32_t>(i - 115)},
                      .position = {},
                      .both_ways = p.span});
    }
    EXPECT_EQ(engine.Reusable("key", std::span(p.tokens).first(140), rows), 115) << "a part of the span";
    EXPECT_EQ(engine.Reusable("key", std::span(p.tokens).first(150), rows), 150);
    std::vector<PrefixRow> other = rows;
    other.back().identity.row = 7;
    EXPECT_EQ(engine.Reusable("key", std::span(p.tokens).first(169), other), 115) << "its last row is another";
    s = engine.NewSequenceFor("key", std::span(p.tokens).first(155), rows).value();
    EXPECT_EQ(engine.Length(s), 155);
    EXPECT_EQ(RunBatches(engine, p, s, {155, 170}), From(wanted, 155, 170));
  }
  // The past alone gives other logits within the span and after it, and the same before.
  const Opened opened = Open(path, RowOptions());
  Picture causal = MakePicture(*opened.engine, 170, {115, 150});
  std::vector<BatchRow> batch = causal.Batch(0, 170, opened.engine->NewSequence().value());
  for (BatchRow& row : batch) row.both_ways = {};
  const auto out = opened.engine->StepAll(batch);
  ASSERT_TRUE(out.ok()) << out.status().message();
  const auto same = [&](int64_t row) {
    return std::equal(out->Row(row), out->Row(row) + out->cols, wanted.begin() + row * out->cols);
  };
  EXPECT_TRUE(same(114));
  EXPECT_FALSE(same(115));
  EXPECT_FALSE(same(148));
  EXPECT_FALSE(same(160));
}

// Useful work of attention is that of the keys that rows see; bills add up.
TEST_P(OneRows, TheBooksCountTheKeysSeen) {
  const Opened opened = Open(Make(GetParam()), RowOptions());
  ASSERT_NE(opened.engine, nullptr);
  Engine& engine = *opened.engine;
  const Recipe& r = opened.model->recipe();
  const Picture p = MakePicture(engine, 60, {20, 45});
  const int32_t s = engine.NewSequence().value(), other = engine.NewSequence().value();
  const std::vector<int32_t> bills = {engine.OpenBill(), engine.OpenBill()};
  std::vector<BatchRow> batch = p.Batch(0, 60, s);
  for (BatchRow& row : batch) row.bill = bills[0];
  for (const int32_t token : Text(9, 4)) batch.push_back({token, other, true, true, bills[1]});
  engine.ledger().Reset();
  const auto out = engine.StepAll(batch);
  ASSERT_TRUE(out.ok()) << out.status().message();
  Cost all, billed;
  for (int phase = 0; phase < kPhases; ++phase) all += engine.ledger().total(static_cast<Phase>(phase)).useful;
  for (int32_t layer = 0; layer < r.n_layers; ++layer) {
    const LayerRecipe& l = r.layers[static_cast<size_t>(layer)];
    uint64_t seen = 0;
    for (int64_t i = 0; i < 60; ++i) {
      for (int64_t j = 0; j < 60; ++j) {
        const bool past = j <= i && (l.attention.window == 0 || i - j < l.attention.window);
        seen += past || (i >= 20 && i < 45 && j >= 20 && j < 45) ? 1 : 0;
      }
    }
    const Account prefill = engine.ledger().at(Phase::kPrefill, {layer, Component::kAttention});
    EXPECT_EQ(prefill.useful.Flops(WorkClass::kAttention),
              seen * 4 * static_cast<uint64_t>(l.attention.n_heads * l.attention.head_dim))
        << layer;
  }
  // The embedding: of the table 35 and 9 rows, of which some are the same; the given ones are read.
  Account embedding;
  for (int phase = 0; phase < kPhases; ++phase) {
    const Account a = engine.ledger().at(static_cast<Phase>(phase), {-1, Component::kEmbedding});
    embedding.useful += a.useful;
  }
  const std::vector<BatchRow> tokens = [&] {
    std::vector<BatchRow> kept;
    std::ranges::copy_if(batch, std::back_inserter(kept), [](const BatchRow& row) { return row.embedding.empty(); });
    return kept;
  }();
  std::set<int32_t> distinct;
  for (const BatchRow& row : tokens) distinct.insert(row.token);
  EXPECT_EQ(embedding.useful.Bytes(ByteKind::kWeightsStored), distinct.size() * static_cast<uint64_t>(r.d_model) * 4);
  EXPECT_EQ(embedding.useful.Bytes(ByteKind::kActivationsRead),
            tokens.size() * 4 + (25 + tokens.size()) * static_cast<uint64_t>(r.d_model) * 4);
  for (const int32_t bill : bills) billed += engine.CloseBill(bill).total().useful;
  EXPECT_TRUE(billed == all);
}

using MRope = Rows;
INSTANTIATE_TEST_SUITE_P(All, MRope, testing::Values("Qwen3-VL-4B"), SmallModelName);

// Positions in three: the table of angles is that of the formula, equal ones give the bits of text, and later rows go on after the largest.
TEST_P(MRope, PositionsTurnHeads) {
  const Opened opened = Open(Make(GetParam()), RowOptions());
  ASSERT_NE(opened.engine, nullptr);
  Engine& engine = *opened.engine;
  const Rope& rope = opened.model->recipe().rope;
  ASSERT_TRUE(rope.sections_interleaved);
  const Tokens text = Text(16, 1);
  const auto at = [](int64_t i) -> RowPosition {  // a picture of 2 rows and 4 columns at position 3
    if (i < 3 || i >= 11) return {};
    return {3, static_cast<int32_t>(3 + (i - 3) / 4), static_cast<int32_t>(3 + (i - 3) % 4)};
  };
  const auto run = [&](const std::function<RowPosition(int64_t)>& position, int64_t piece, std::vector<Floats>* cosines) {
    const int32_t s = engine.NewSequence().value();
    engine.probe().SetTap([&](Site, std::string_view op, Mat<const float> out) {
      for (int64_t r = 0; op == "rope_table" && r < out.rows; ++r) cosines->emplace_back(out.Row(r), out.Row(r) + out.cols);
    });
    Floats logits;
    for (int64_t from = 0; from < 16; from += piece) {
      std::vector<BatchRow> batch;
      for (int64_t i = from; i < std::min<int64_t>(16, from + piece); ++i) {
        batch.push_back({text[static_cast<size_t>(i)], s, true});
        batch.back().position = position(i);
      }
      const auto out = engine.StepAll(batch);
      EXPECT_TRUE(out.ok()) << out.status().message();
      logits.insert(logits.end(), out->data, out->Row(out->rows));
    }
    engine.probe().SetTap(nullptr);
    EXPECT_EQ(engine.NextPosition(s), position(3).given() && position(3).h != -1 ? 12 : 16);
    engine.Free(s);
    return logits;
  };
  std::vector<Floats> cosines, unused;
  const Floats turned = run(at, 16, &cosines);
  ASSERT_EQ(cosines.size(), 16u);
  for (int64_t i = 0; i < 16; ++i) {
    // The picture ends at max(3, 4, 6) = 6, so the text after it begins at 7.
    const int32_t own = static_cast<int32_t>(i < 3 ? i : i - 4);
    const RowPosition p = at(i).given() ? at(i) : RowPosition{own, own, own};
    for (int32_t pair = 0; pair < rope.dim / 2; ++pair) {
      const double angle_of = std::pow(rope.theta, -2.0 * pair / rope.dim);
      const int32_t axis = pair % 3 == 1 && pair < 3 * rope.sections[1]   ? p.h
                           : pair % 3 == 2 && pair < 3 * rope.sections[2] ? p.w
                                                                          : p.t;
      EXPECT_NEAR(cosines[static_cast<size_t>(i)][static_cast<size_t>(pair)], std::cos(axis * angle_of), 1e-5)
          << i << " " << pair;
    }
  }
  EXPECT_EQ(run(at, 5, &unused), turned);
  const Floats plain = run([](int64_t) { return RowPosition(); }, 16, &unused);
  EXPECT_EQ(run([](int64_t i) { return RowPosition{static_cast<int32_t>(i)}; }, 3, &unused), plain);
  EXPECT_NE(turned, plain);
  EXPECT_TRUE(std::equal(plain.begin(), plain.begin() + static_cast<ptrdiff_t>(plain.size()) / 16 * 3, turned.begin()));
}

// Text at positions of its own is found only by them.
TEST_P(MRope, PositionsArePartOfWhatIsFound) {
  const Opened opened = Open(Make("Gemma-3-4B"), RowOptions());
  ASSERT_NE(opened.engine, nullptr);
  Engine& engine = *opened.engine;
  const Tokens text = Text(20, 1);
  const int32_t s = engine.NewSequence().value();
  std::vector<BatchRow> batch;
  for (const int32_t token : text) batch.push_back({token, s});
  batch[6].position = {40};
  ASSERT_TRUE(engine.StepAll(batch).ok());
  EXPECT_EQ(engine.NextPosition(s), 41 + 13);
  engine.Remember(s, "key", text, 0);
  EXPECT_EQ(engine.Reusable("key", text), 6);
  EXPECT_EQ(engine.Reusable("key", text, std::vector<PrefixRow>{{.index = 6, .position = {40}}}), 20);
  EXPECT_EQ(engine.Reusable("key", text, std::vector<PrefixRow>{{.index = 6, .position = {41}}}), 6);
  ASSERT_TRUE(engine.Truncate(s, 6).ok());
  EXPECT_EQ(engine.NextPosition(s), 6);
}

TEST_P(OneRows, BadRowsAreOneLineAndChangeNothing) {
  const Opened opened = Open(Make(GetParam()), RowOptions());
  ASSERT_NE(opened.engine, nullptr);
  Engine& engine = *opened.engine;
  const Floats embedding = EmbeddingsOf(engine, {5})[0];
  const int32_t s = engine.NewSequence().value();
  ASSERT_TRUE(engine.StepAll(std::vector<BatchRow>(3, {1, s})).ok());
  const auto expect = [&](const std::string& message, const std::function<void(std::vector<BatchRow>&)>& spoil) {
    std::vector<BatchRow> rows(4, {7, s, true});
    rows[1].embedding = embedding;
    spoil(rows);
    const auto out = engine.Step(rows);
    ASSERT_FALSE(out.ok()) << message;
    EXPECT_EQ(out.status().code(), StatusCode::kBadInput);
    EXPECT_NE(out.status().message().find(message), std::string::npos) << out.status().message();
    EXPECT_EQ(out.status().message().find('\n'), std::string::npos);
    EXPECT_EQ(engine.Length(s), 3);
    EXPECT_EQ(engine.NextPosition(s), 3);
  };
  Floats narrow(embedding.begin(), embedding.end() - 1), infinite = embedding;
  infinite[3] = std::numeric_limits<float>::infinity();
  expect("row 1: an embedding of 63 numbers; the model's have 64", [&](auto& rows) { rows[1].embedding = narrow; });
  expect("row 1: an embedding that is not finite", [&](auto& rows) { rows[1].embedding = infinite; });
  expect("row 2: an identity without an embedding", [&](auto& rows) { rows[2].identity = {1, 2, 0}; });
  expect("row 3: position 400 is out of range", [&](auto& rows) { rows[3].position = {400}; });
  expect("row 0: position -2 is out of range", [&](auto& rows) { rows[0].position = {-2}; });
  expect("row 0: three positions, and the model has one", [&](auto& rows) { rows[0].position = {4, 5, 4}; });
  const auto span = [](std::vector<BatchRow>& rows, size_t begin, size_t end, RowSpan of) {
    for (size_t i = begin; i < end; ++i) rows[i].both_ways = of;
  };
  expect("rows that see one another are in one step; those up to 8 end at 7", [&](auto& rows) { span(rows, 2, 4, {5, 8}); });
  expect("row 0: rows that see one another are one after another", [&](auto& rows) { span(rows, 0, 4, {2, 7}); });
  expect("row 2: rows that see one another are one after another", [&](auto& rows) { span(rows, 0, 2, {3, 6}); });
  expect("row 2: rows that see one another are one after another", [&](auto& rows) {
    span(rows, 0, 3, {3, 6});
    span(rows, 2, 4, {5, 7});
  });
  expect("row 1: rows that see one another are one after another", [&](auto& rows) { span(rows, 1, 2, {4, 4}); });
  expect("row 3: a drafted row sees the past alone", [&](auto& rows) {
    span(rows, 2, 4, {5, 7});
    rows[3].draft = true;
  });
  // No position is left: the sequence's own error.
  std::vector<BatchRow> good(4, {7, s, true});
  good[2].position = {399};
  const auto full = engine.Step(good);
  ASSERT_TRUE(full.ok() && full->ErrorOf(s) != nullptr);
  EXPECT_EQ(full->ErrorOf(s)->code(), StatusCode::kNoRoom);
  EXPECT_EQ(engine.Length(s), 3);
  good[2].position = {};
  span(good, 1, 4, {4, 7});
  EXPECT_TRUE(engine.Step(good).ok());
}

// Everything at once, on an engine that may be one of several processes. The logits and hidden states of all rows.
Floats RunEverything(Engine& engine, const std::vector<Floats>& embeddings, bool three) {
  Floats all;
  const Tokens text = Text(30, 2);
  int32_t s = engine.NewSequence().value();
  const int32_t beside = engine.NewSequence().value(), bill = engine.OpenBill();
  const auto row_of = [&](int64_t i) {
    BatchRow row{text[static_cast<size_t>(i)], s, i % 2 == 0, false, bill};
    row.want_hidden = i % 3 == 0;
    if (i >= 6 && i < 6 + static_cast<int64_t>(embeddings.size())) {
      row.embedding = embeddings[static_cast<size_t>(i - 6)];
      row.identity = {9, 9, static_cast<int32_t>(i - 6)};
      row.both_ways = {6, 6 + static_cast<int64_t>(embeddings.size())};
      if (three) row.position = {6, static_cast<int32_t>(6 + (i - 6) / 3), static_cast<int32_t>(6 + (i - 6) % 3)};
    }
    return row;
  };
  const auto step = [&](int64_t begin, int64_t end) {
    std::vector<BatchRow> rows;
    for (int64_t i = begin; i < end; ++i) {
      rows.push_back(row_of(i));
      rows.push_back({text[static_cast<size_t>(29 - i)], beside, i == end - 1, true});
    }
    const auto out = engine.Step(rows);
    ASSERT_TRUE(out.ok()) << out.status().message();
    ASSERT_TRUE(out->failed.empty()) << out->failed[0].status.message();
    for (size_t i = 0; i < out->logit_rows.size(); ++i) all.insert(all.end(), out->Logits(i).begin(), out->Logits(i).end());
    for (size_t i = 0; i < out->hidden_rows.size(); ++i) all.insert(all.end(), out->Hidden(i).begin(), out->Hidden(i).end());
  };
  step(0, 5);
  step(5, 20);
  step(20, 21);
  std::vector<PrefixRow> prefix;
  for (int64_t i = 6; i < 6 + static_cast<int64_t>(embeddings.size()); ++i) {
    const BatchRow r = row_of(i);
    prefix.push_back({.index = i, .embedding = true, .identity = r.identity, .position = r.position, .both_ways = r.both_ways});
  }
  engine.Remember(s, "key", text, 2);
  engine.Free(s);
  s = engine.NewSequenceFor("key", std::span(text).first(21), prefix).value();
  EXPECT_EQ(engine.Length(s), 21);
  step(21, 25);
  EXPECT_TRUE(engine.Truncate(s, 22).ok());
  EXPECT_FALSE(engine.ExportedBytes(s).ok());
  const int64_t length = engine.Length(s);
  step(length, length + 2);
  Cost own = engine.CloseBill(bill).total().useful;
  all.push_back(static_cast<float>(own.Flops(WorkClass::kAttention)));
  return all;
}

class RankRows : public Rows {};
INSTANTIATE_TEST_SUITE_P(All, RankRows, testing::Values("Gemma-3-4B", "Gemma-4-E2B", "Qwen3.5-4B", "OPT-350M"), SmallModelName);

TEST_P(RankRows, AGroupCarriesTheSameRows) {
  const std::string path = Make(GetParam());
  const Opened one = Open(path, RowOptions(1, 60));
  ASSERT_NE(one.engine, nullptr);
  const bool three = one.model->recipe().rope.sections_interleaved;
  const std::vector<Floats> embeddings = EmbeddingsOf(*one.engine, Text(9, 7));
  const Floats wanted = RunEverything(*one.engine, embeddings, three);
  ThreadGroup group(3);
  std::vector<std::thread> followers;
  for (int r = 1; r < group.ranks(); ++r) {
    followers.emplace_back([&, r] {
      const auto model = LoadModel(path, RowOptions(1, 60), {.group = group.member(r)});
      ASSERT_TRUE(model.ok()) << model.status().message();
      const Status followed = FollowGroup(*model, RowOptions(1, 60));
      EXPECT_TRUE(followed.ok()) << followed.message();
    });
  }
  {
    const Opened first = Open(path, RowOptions(1, 60), {.group = group.member(0)});
    EXPECT_NE(first.engine, nullptr);
    if (first.engine != nullptr) {
      EXPECT_EQ(RunEverything(*first.engine, embeddings, three), wanted);
    }
  }
  for (std::thread& follower : followers) follower.join();
}

// The layer for multi-token prediction guesses nothing for a sequence with such rows, and goes on for others.
TEST(RowsPrediction, NoGuessesAfterEmbeddings) {
  const TempFolder folder;
  MakePredicting("qwen35", folder / "made");
  EngineOptions options = RowOptions();
  options.prediction = true;
  const Opened opened = Open(folder / "made", options);
  ASSERT_NE(opened.engine, nullptr);
  Engine& engine = *opened.engine;
  const Floats embedding(32, 0.25f);
  const int32_t s = engine.NewSequence().value(), plain = engine.NewSequence().value();
  std::vector<BatchRow> rows;
  for (int32_t i = 0; i < 6; ++i) {
    rows.push_back({i, s, i == 5});
    rows.push_back({i, plain, i == 5});
  }
  rows[4].embedding = embedding;
  ASSERT_TRUE(engine.StepAll(rows).ok());
  const auto guesses = engine.Predict(std::vector<DraftWish>{{s, 7, 2}, {plain, 7, 2}});
  ASSERT_TRUE(guesses.ok()) << guesses.status().message();
  EXPECT_TRUE((*guesses)[0].empty());
  EXPECT_EQ((*guesses)[1].size(), 2u);
}

}  // namespace
}  // namespace tally
