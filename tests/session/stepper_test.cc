// SPDX-License-Identifier: Apache-2.0
// Step()'s errors: requests that cannot be honoured leave the sequences as they were, and NaN is traced to where it began.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "engine/recipe/recipe.h"
#include "loaders/loaders.h"
#include "tests/support/open_engine.h"
#include "tests/support/temp_folder.h"

namespace tally {
namespace {

const std::string kF32Llama = std::string(TALLY_SOURCE_DIR) + "/tests/goldens/llama/llama-a-f32-gqa-untied/model.gguf";
const std::string kGptOssFolder = std::string(TALLY_SOURCE_DIR) + "/tests/goldens/gptoss/gptoss-a-top4of8-realyarn";
const std::string kLfm2Folder = std::string(TALLY_SOURCE_DIR) + "/tests/goldens/lfm2/lfm2-a-f32-tied";

TEST(Stepper, BadRequestsAreOneLineAndChangeNothing) {
  auto engine = Open(kF32Llama, SmallOptions()).engine;
  ASSERT_NE(engine, nullptr);
  auto s = engine->NewSequence();
  ASSERT_TRUE(s.ok());
  auto expect = [&](std::vector<BatchRow> rows, const std::string& message, StatusCode code = StatusCode::kBadInput) {
    const int64_t before = engine->Length(*s);
    auto result = engine->StepAll(rows);
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.status().code(), code);
    EXPECT_NE(result.status().message().find(message), std::string::npos) << result.status().message();
    EXPECT_EQ(engine->Length(*s), before);
  };
  ASSERT_TRUE(engine->StepAll(std::vector<BatchRow>{{1, *s, false}, {2, *s, true}}).ok());
  expect({}, "at least one row");
  expect({{-1, *s, true}}, "token id -1 is outside the vocabulary");
  expect({{1 << 20, *s, true}}, "outside the vocabulary");
  expect({{1, 7, true}}, "no sequence 7");
  expect(std::vector<BatchRow>(9, {1, *s, false}), "at most 8");
  expect(std::vector<BatchRow>(2, {1, *s, true}), "a step that wants the logits of 2 rows: at most 1 (max_logit_rows)");
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(engine->StepAll(std::vector<BatchRow>(6, {1, *s, false})).ok());
  EXPECT_EQ(engine->Length(*s), 32);
  expect({{1, *s, true}}, "the context is full", StatusCode::kNoRoom);
  EXPECT_FALSE(engine->NewSequence().ok());  // room for one
  engine->Free(*s);
  EXPECT_TRUE(engine->NewSequence().ok());
}

TEST(Stepper, TruncatedSequencesGoOnWithTheSameBits) {
  for (const std::string& path : {kGptOssFolder, kLfm2Folder}) {
    SCOPED_TRACE(path);
    EngineOptions options = SmallOptions();
    options.context = 150;
    auto engine = Open(path, options).engine;
    ASSERT_NE(engine, nullptr);
    auto s = engine->NewSequence();
    ASSERT_TRUE(s.ok());
    auto step = [&](int32_t token) {
      auto logits = engine->StepAll(std::vector<BatchRow>{{token, *s, true}});
      EXPECT_TRUE(logits.ok()) << logits.status().message();
      return std::vector<float>(logits->data, logits->data + logits->cols);
    };
    const auto token = [](int32_t position) { return position % 17 + 3; };
    std::vector<std::vector<float>> first;
    for (int32_t t = 0; t < 140; ++t) first.push_back(step(token(t)));
    // About the border of a block, whose first rows see the block before. Recurrent layers cannot come back from so far as 9.
    const bool recurrent = AnyLayer(engine->model().recipe(), &LayerRecipe::recurrent);
    for (const int32_t length : {130, 129, 128, 127, recurrent ? 108 : 9, recurrent ? 97 : 1}) {
      if (recurrent) {
        EXPECT_FALSE(engine->Truncate(*s, 9).ok());
        EXPECT_EQ(engine->Length(*s), 140);
      }
      ASSERT_TRUE(engine->Truncate(*s, length).ok());
      for (int32_t t = length; t < 140; ++t)
        EXPECT_EQ(step(token(t)), first[static_cast<size_t>(t)]) << length << ", position " << t;
    }
    EXPECT_FALSE(engine->Truncate(*s, 141).ok());
  }
}

// kF32Llama with a NaN in row `row` of a matrix, written to the folder; empty, and the test failed, where that cannot be.
std::string WithNan(const TempFolder& folder, const std::string& tensor, uint64_t row) {
  const auto inventory = ReadGguf(kF32Llama);
  EXPECT_TRUE(inventory.ok()) << inventory.status().message();
  const StoredTensor* t = inventory.ok() ? inventory->Find(tensor) : nullptr;
  EXPECT_NE(t, nullptr) << tensor;
  if (t == nullptr) return "";
  EXPECT_EQ(t->dtype, DType::kF32);
  std::string bytes = ReadAll(kF32Llama);
  const float nan = std::nanf("");
  std::memcpy(bytes.data() + t->offset + 4 * (row * t->shape[1] + 5), &nan, 4);
  return folder.Write("nan.gguf", bytes);
}

// A NaN in a weight is reported where it first reaches the activations, in whichever kernel ran.
TEST(Stepper, NanNamesTheLayerAndOp) {
  const TempFolder folder;
  const std::string path = WithNan(folder, "blk.1.ffn_down.weight", 0);
  for (ImplChoice impl : {ImplChoice::kAuto, ImplChoice::kRef}) {
    EngineOptions options = SmallOptions();
    options.impl = impl;
    auto engine = Open(path, options).engine;
    ASSERT_NE(engine, nullptr);
    auto s = engine->NewSequence();
    auto result = engine->StepAll(std::vector<BatchRow>{{3, *s, false}, {4, *s, true}});
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.status().message(), "logits are not finite: NaN or infinity first appears at layer 1 ffn.down (matmul)");
    EXPECT_EQ(engine->Length(*s), 0);
  }
}

// Keys that the cache's type has no room for are refused, not taken for infinity, which only makes a position weigh nothing.
TEST(Stepper, KeysBeyondTheCachesType) {
  const TempFolder folder;
  const auto inventory = ReadGguf(kF32Llama);
  ASSERT_TRUE(inventory.ok());
  const auto scaled = [&](const char* tensor, float by) {
    const StoredTensor* t = inventory->Find(tensor);
    std::string bytes = ReadAll(kF32Llama);
    for (uint64_t at = t->offset; at < t->offset + t->bytes; at += 4) {
      float x = 0;
      std::memcpy(&x, bytes.data() + at, 4);
      x *= by;
      std::memcpy(bytes.data() + at, &x, 4);
    }
    return folder.Write("scaled.gguf", bytes);
  };
  const auto message = [](const std::string& path, KvType kv) {
    EngineOptions options = SmallOptions();
    options.kv = kv;
    auto engine = Open(path, options).engine;
    EXPECT_NE(engine, nullptr);
    if (engine == nullptr) return std::string();
    auto s = engine->NewSequence();
    const auto result = engine->StepAll(std::vector<BatchRow>{{3, *s, false}, {4, *s, true}});
    EXPECT_EQ(engine->Length(*s), result.ok() ? 2 : 0);
    return result.status().message();
  };
  const std::string keys = scaled("blk.1.attn_k.weight", 1e6F);
  const std::string refused = message(keys, KvType::kF16);
  EXPECT_EQ(refused.find("layer 1: a key of "), 0u) << refused;
  EXPECT_NE(refused.find(" is too large for a KV cache of f16: --kv bf16 has room for it"), std::string::npos) << refused;
  for (const KvType kv : {KvType::kF32, KvType::kBF16, KvType::kQ8_0}) EXPECT_EQ(message(keys, kv), "");
  const std::string values = scaled("blk.0.attn_v.weight", 1e9F);
  EXPECT_EQ(message(values, KvType::kF16).find("layer 0: a value of "), 0u);
  EXPECT_EQ(message(values, KvType::kQ8_0).find("layer 0: a value of "), 0u);
  EXPECT_EQ(message(values, KvType::kBF16), "");
}

// Why a step failed comes first, also where it cannot be taken back: here because a tap has shortened the sequence meanwhile.
// The other sequence is taken back nonetheless.
TEST(Stepper, ARollbackThatFailsDoesNotHideTheCause) {
  const TempFolder folder;
  EngineOptions options = SmallOptions();
  options.sequences = 2;
  auto engine = Open(WithNan(folder, "token_embd.weight", 7), options).engine;
  ASSERT_NE(engine, nullptr);
  auto s = engine->NewSequence(), other = engine->NewSequence();
  ASSERT_TRUE(s.ok() && other.ok());
  ASSERT_TRUE(engine->StepAll(std::vector<BatchRow>{{1, *s}, {2, *s}}).ok());
  engine->probe().SetTap([&](Site, std::string_view, Mat<const float>) {
    EXPECT_TRUE(engine->Truncate(*s, std::min<int64_t>(1, engine->Length(*s))).ok());
  });
  const auto failed = engine->StepAll(std::vector<BatchRow>{{7, *s}, {4, *other}});
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.status().code(), StatusCode::kNotFinite);
  EXPECT_EQ(failed.status().message(),
            "activations are not finite; sequence 0 is not as it was before the step: cannot keep 2 of 1 positions");
  EXPECT_EQ(engine->Length(*s), 1);
  EXPECT_EQ(engine->Length(*other), 0);
}

// The residual stream, from the embedding to what the last norm reads.
TEST(Stepper, TheStreamIsTappedAfterEachLayer) {
  auto engine = Open(kGptOssFolder, SmallOptions()).engine;
  ASSERT_NE(engine, nullptr);
  std::vector<int32_t> layers;
  std::vector<float> embedded, first, last;
  const auto copy = [](Mat<const float> m) {
    std::vector<float> rows;
    for (int64_t r = 0; r < m.rows; ++r) rows.insert(rows.end(), m.Row(r), m.Row(r) + m.cols);
    return rows;
  };
  engine->probe().SetTap([&](Site, std::string_view op, Mat<const float> out) {
    if (op == "embed") embedded = copy(out);
  });
  engine->probe().SetStreamTap([&](int32_t layer, Mat<const float> x) {
    layers.push_back(layer);
    (layer == 0 ? first : last) = copy(x);
  });
  const auto s = engine->NewSequence();
  ASSERT_TRUE(s.ok() && engine->StepAll(std::vector<BatchRow>{{1, *s}, {2, *s}, {3, *s, true}}).ok());
  const int32_t n = engine->model().sizes().layers;
  ASSERT_EQ(static_cast<int32_t>(layers.size()), n + 1);
  for (int32_t i = 0; i <= n; ++i) EXPECT_EQ(layers[static_cast<size_t>(i)], i);
  EXPECT_EQ(first, embedded);
  EXPECT_EQ(last.size(), first.size());
  EXPECT_NE(last, first);
  engine->probe().SetStreamTap({});
  ASSERT_TRUE(engine->StepAll(std::vector<BatchRow>{{1, *s}}).ok());
  EXPECT_EQ(static_cast<int32_t>(layers.size()), n + 1);
}

// Rows whose logits nobody wants are looked at too: what they leave in the cache would be met in a later step, far from its
// cause.
TEST(Stepper, NanInARowWithoutLogits) {
  constexpr int32_t kBad = 7;
  const TempFolder folder;
  const std::string path = WithNan(folder, "token_embd.weight", kBad);
  for (ImplChoice impl : {ImplChoice::kAuto, ImplChoice::kRef}) {
    EngineOptions options = SmallOptions();
    options.impl = impl;
    options.sequences = 2;
    auto engine = Open(path, options).engine;
    ASSERT_NE(engine, nullptr);
    auto s = engine->NewSequence(), other = engine->NewSequence();
    ASSERT_TRUE(s.ok() && other.ok());
    ASSERT_TRUE(engine->StepAll(std::vector<BatchRow>{{1, *s}, {2, *s}}).ok());
    auto refused = [&](std::vector<BatchRow> rows, const std::string& what) {
      auto result = engine->StepAll(rows);
      ASSERT_FALSE(result.ok());
      EXPECT_EQ(result.status().code(), StatusCode::kNotFinite);
      EXPECT_EQ(result.status().message(), what + " are not finite: NaN or infinity first appears at embedding (embed)");
      EXPECT_EQ(engine->Length(*s), 2);
      EXPECT_EQ(engine->Length(*other), 0);
    };
    refused({{kBad, *s}}, "activations");
    refused({{3, *s}, {4, *s}, {kBad, *s}, {6, *s}}, "activations");
    refused({{4, *s, true}, {kBad, *s}}, "activations");      // logits of a row that does not see it
    refused({{kBad, *s}, {4, *other, true}}, "activations");  // nor does another sequence
    refused({{3, *s}, {kBad, *s}, {4, *s, true}}, "logits");  // a later row does

    // What the refused rows wrote beyond the end is not seen: the same bits as in a sequence that never met it.
    auto last = [&](std::vector<BatchRow> rows) {
      auto logits = engine->StepAll(rows);
      EXPECT_TRUE(logits.ok()) << logits.status().message();
      return logits.ok() ? std::vector<float>(logits->data, logits->data + logits->cols) : std::vector<float>();
    };
    const std::vector<float> after = last({{5, *s, true}});
    EXPECT_FALSE(after.empty());
    EXPECT_EQ(after, last({{1, *other}, {2, *other}, {5, *other, true}}));
  }
}

// A sequence fails alone: the others' logits have the bits that they have without it, whatever order they stand in.
TEST(Stepper, ASequenceFailsAlone) {
  constexpr int32_t kBad = 7;
  const TempFolder folder;
  EngineOptions options = SmallOptions();
  options.sequences = 4;
  options.max_logit_rows = 4;
  auto engine = Open(WithNan(folder, "token_embd.weight", kBad), options).engine;
  ASSERT_NE(engine, nullptr);
  int32_t s[4];
  for (int32_t& id : s) id = *engine->NewSequence();
  const auto copy = [](std::span<const float> row) { return std::vector<float>(row.begin(), row.end()); };
  std::vector<std::vector<float>> alone;
  for (const std::vector<BatchRow>& rows : {std::vector<BatchRow>{{3, s[0], true}}, {{4, s[1]}, {5, s[1], true}}}) {
    const auto logits = engine->StepAll(rows);
    ASSERT_TRUE(logits.ok());
    alone.push_back(copy({logits->Row(0), static_cast<size_t>(logits->cols)}));
  }
  for (const int32_t id : {s[0], s[1]}) ASSERT_TRUE(engine->Truncate(id, 0).ok());
  const auto out = engine->Step(
      std::vector<BatchRow>{{kBad, s[2], true}, {3, s[0], true}, {4, s[1]}, {2, s[3]}, {kBad, s[3]}, {5, s[1], true}});
  ASSERT_TRUE(out.ok()) << out.status().message();
  ASSERT_EQ(out->logit_rows.size(), 3u);
  EXPECT_TRUE(out->Logits(0).empty());
  EXPECT_EQ(copy(out->Logits(1)), alone[0]);
  EXPECT_EQ(copy(out->Logits(2)), alone[1]);
  ASSERT_EQ(out->failed.size(), 2u);
  ASSERT_NE(out->ErrorOf(s[2]), nullptr);
  ASSERT_NE(out->ErrorOf(s[3]), nullptr);
  EXPECT_EQ(out->ErrorOf(s[2])->message(), "logits are not finite: NaN or infinity first appears at embedding (embed)");
  EXPECT_EQ(out->ErrorOf(s[3])->message(), "activations are not finite: NaN or infinity first appears at embedding (embed)");
  EXPECT_EQ(engine->Length(s[0]), 1);
  EXPECT_EQ(engine->Length(s[1]), 2);
  EXPECT_EQ(engine->Length(s[2]), 0);
  EXPECT_EQ(engine->Length(s[3]), 0);
}

// The ledger's step: a decode of one token touches what a token touches, a prefill the union.
TEST(Stepper, ChargesEachStep) {
  auto engine = Open(kGptOssFolder, SmallOptions()).engine;
  ASSERT_NE(engine, nullptr);
  auto s = engine->NewSequence();
  ASSERT_TRUE(engine->StepAll(std::vector<BatchRow>{{3, *s, false}, {4, *s, false}, {5, *s, true}}).ok());
  Ledger& ledger = engine->ledger();
  EXPECT_EQ(ledger.last_step().phase, Phase::kPrefill);
  EXPECT_EQ(ledger.last_step().rows, 3u);
  EXPECT_EQ(ledger.last_step().logit_rows, 1u);
  const uint64_t prefill = ledger.last_step().parameters_touched;
  ASSERT_TRUE(engine->StepAll(std::vector<BatchRow>{{6, *s, true, true}}).ok());
  const StepRecord decode = ledger.last_step();
  EXPECT_EQ(decode.phase, Phase::kDecode);
  // active(head) and the one row of the embedding that was read.
  EXPECT_EQ(decode.parameters_touched, engine->model().parameters().active_head + 64);
  EXPECT_GE(prefill, decode.parameters_touched);
  EXPECT_LE(prefill, engine->model().parameters().total);
  EXPECT_EQ(ledger.touched().bad(), 0u);
  const Account account = ledger.total(Phase::kDecode);
  for (int c = 0; c < kWorkClasses; ++c) {
    EXPECT_GE(account.executed.Flops(static_cast<WorkClass>(c)), account.useful.Flops(static_cast<WorkClass>(c)));
  }
}

// A row that was given is prefill, be it one of a sequence that has begun; a generated one is decode. A step with both is mixed.
TEST(Stepper, TheCallerSaysThePhase) {
  EngineOptions options = SmallOptions();
  options.sequences = 2;
  auto engine = Open(kGptOssFolder, options).engine;
  ASSERT_NE(engine, nullptr);
  auto s = engine->NewSequence(), other = engine->NewSequence();
  ASSERT_TRUE(s.ok() && other.ok());
  auto phase = [&](std::vector<BatchRow> rows) {
    auto result = engine->StepAll(rows);
    EXPECT_TRUE(result.ok()) << result.status().message();
    return engine->ledger().last_step().phase;
  };
  EXPECT_EQ(phase(std::vector<BatchRow>(8, {1, *s})), Phase::kPrefill);
  EXPECT_EQ(phase({{2, *s, true}}), Phase::kPrefill);
  EXPECT_EQ(phase({{3, *s, true, true}}), Phase::kDecode);
  EXPECT_EQ(phase({{3, *s, true, true}, {4, *other, true}}), Phase::kMixed);
  EXPECT_EQ(phase({{3, *s, true, true}, {4, *other, true, true}}), Phase::kDecode);
  EXPECT_EQ(phase({{3, *s, true, true}, {4, *s, false, true}}), Phase::kDecode);  // a draft under verification
}

// A prompt of one token more than a batch: the last piece is still a piece of the prompt.
TEST(Stepper, TheLastTokenOfAPromptIsNoDecodeStep) {
  auto engine = Open(kGptOssFolder, SmallOptions()).engine;
  ASSERT_NE(engine, nullptr);
  GenerateOptions options;
  options.sampling.temperature = 0;
  options.ignore_eos = true;
  options.max_tokens = 4;
  const auto result = Generate(*engine, std::vector<int32_t>(static_cast<size_t>(engine->max_batch()) + 1, 5), options);
  ASSERT_TRUE(result.ok()) << result.status().message();
  const Ledger& ledger = engine->ledger();
  EXPECT_EQ(ledger.steps(Phase::kPrefill), 2u);
  EXPECT_EQ(ledger.rows(Phase::kPrefill), 9u);
  EXPECT_EQ(ledger.steps(Phase::kDecode), 3u);
  EXPECT_EQ(ledger.rows(Phase::kDecode), 3u);
  EXPECT_EQ(result->decode_steps, 3);
}

}  // namespace
}  // namespace tally
