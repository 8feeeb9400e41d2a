// SPDX-License-Identifier: Apache-2.0
// What NewEngine makes of its own options: they need not be those the model was loaded with.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/machine/machine.h"
#include "engine/session/loaded_model.h"
#include "tests/support/goldens.h"
#include "tests/support/open_engine.h"

namespace tally {
namespace {

const std::string kLlama = kGoldens + "llama/llama-a-f32-gqa-untied/model.gguf";
const std::string kGptOss = kGoldens + "gptoss/gptoss-a-top4of8-realyarn/model.gguf";
const std::string kLfm2 = kGoldens + "lfm2/lfm2-a-f32-tied/model.gguf";
const std::string kGpt2 = kGoldens + "gpt2/gpt2-a-f32-release-names/model.gguf";

std::shared_ptr<const Model> LoadWith(const std::string& path, const EngineOptions& options) {
  auto model = LoadModel(path, options);
  EXPECT_TRUE(model.ok()) << model.status().message();
  return model.ok() ? *model : nullptr;
}

TEST(Engine, ItsPlanIsOfItsOwnOptions) {
  const auto model = LoadWith(kLlama, SmallOptions());
  ASSERT_NE(model, nullptr);
  auto same = NewEngine(model, SmallOptions());
  ASSERT_TRUE(same.ok()) << same.status().message();
  EXPECT_EQ((*same)->context(), 32);
  EXPECT_EQ((*same)->memory_plan().total(), model->memory_plan().total());

  EngineOptions larger = SmallOptions();
  larger.context = 300;
  larger.sequences = 2;
  auto engine = NewEngine(model, larger);
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  EXPECT_EQ((*engine)->context(), 300);
  EXPECT_EQ(model->memory_plan().context, 32);
  EXPECT_EQ((*engine)->memory_plan().kv, 6 * (*same)->memory_plan().kv);  // 3 blocks of 128 positions for each of two sequences
  // And Generate goes by it: a prompt that is too long for the model's own plan.
  GenerateOptions options;
  options.max_tokens = 1;
  const std::vector<int32_t> prompt(100, 1);
  EXPECT_TRUE(Generate(**engine, prompt, options).ok());
  EXPECT_NE(Generate(**same, prompt, options).status().message().find("room for 32"), std::string::npos);
}

TEST(Engine, RefusesWhatTheModelCannotDo) {
  const auto model = LoadWith(kGpt2, SmallOptions());
  ASSERT_NE(model, nullptr);
  const auto expect = [&](EngineOptions options, const std::string& part) {
    const auto engine = NewEngine(model, options);
    ASSERT_FALSE(engine.ok());
    EXPECT_EQ(engine.status().code(), StatusCode::kBadInput);
    EXPECT_NE(engine.status().message().find(part), std::string::npos) << engine.status().message();
  };
  EngineOptions options = SmallOptions();
  options.context = 65;  // it has learned 64
  expect(options, "the model has learned 64");
  options.context = int64_t{1} << 31;
  expect(options, "0 (the model's) to 2147483647 positions, not 2147483648");
  options.context = -1;
  expect(options, "not -1");
  options = SmallOptions();
  options.activations = ActivationMode::kInt8;
  expect(options, "int8 activations need quantised weights");
}

// Rows of logits are planned for, and no more are given.
TEST(Engine, RowsOfLogitsAreInThePlan) {
  EngineOptions options = SmallOptions();
  const auto model = LoadWith(kLlama, options);
  ASSERT_NE(model, nullptr);
  const uint64_t row = 4 * static_cast<uint64_t>(model->recipe().vocab);
  auto scratch = [&](int64_t rows, int32_t sequences, int64_t expected) {
    options.max_logit_rows = rows;
    options.sequences = sequences;
    auto engine = NewEngine(model, options);
    EXPECT_TRUE(engine.ok()) << engine.status().message();
    if (!engine.ok()) return uint64_t{0};
    EXPECT_EQ((*engine)->max_logit_rows(), expected);
    auto sequence = (*engine)->NewSequence();
    auto step = [&](int64_t n) {
      return (*engine)->StepAll(std::vector<BatchRow>(static_cast<size_t>(n), {1, *sequence, true}));
    };
    EXPECT_TRUE(step(expected).ok());
    if (expected < 8) {
      EXPECT_EQ(step(expected + 1).status().code(), StatusCode::kBadInput);
    }
    EXPECT_EQ((*engine)->Length(*sequence), expected);
    return (*engine)->memory_plan().scratch;
  };
  const uint64_t one = scratch(0, 1, 1);
  EXPECT_EQ(scratch(1, 1, 1), one);
  const auto expect_more = [&](uint64_t bytes, uint64_t rows) {  // each buffer is whole cache lines
    EXPECT_NEAR(static_cast<double>(bytes), static_cast<double>(one + rows * row), 64);
  };
  expect_more(scratch(0, 3, 3), 2);  // one a sequence
  expect_more(scratch(8, 1, 8), 7);
  expect_more(scratch(1000, 1, 8), 7);  // no more than a batch has
}

// More than there is: refused with the numbers, whatever was planned at the load.
TEST(Engine, MoreMemoryThanThereIs) {
  const auto model = LoadWith(kLlama, SmallOptions());
  ASSERT_NE(model, nullptr);
  EngineOptions huge = SmallOptions();
  huge.context = 2147483647;
  huge.sequences = 64;
  const auto engine = NewEngine(model, huge);
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.status().code(), StatusCode::kNoRoom);
  EXPECT_NE(engine.status().message().find("not enough memory"), std::string::npos) << engine.status().message();
  EXPECT_NE(engine.status().message().find("context 2147483647"), std::string::npos) << engine.status().message();
}

// Caches fill as they are used, so that what is free does not tell what other engines have been promised.
TEST(Engine, EnginesOfAModelDoNotPlanTheSameMemory) {
  const auto model = LoadWith(kLlama, SmallOptions());
  ASSERT_NE(model, nullptr);
  EngineOptions options = SmallOptions();
  const uint64_t bytes_per_block = model->memory_plan().kv;  // of a context of 32
  options.context = static_cast<int64_t>(AvailableMemoryBytes() / 5 * 3 / bytes_per_block) * 128;
  if (options.context > 2147483647) GTEST_SKIP() << "more memory than a sequence of this model can fill";
  auto first = NewEngine(model, options);
  ASSERT_TRUE(first.ok()) << first.status().message();
  auto second = NewEngine(model, options);
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.status().message().find("not enough memory"), std::string::npos) << second.status().message();
  EXPECT_NE(second.status().message().find("other engines"), std::string::npos) << second.status().message();
  EXPECT_TRUE(NewEngine(model, SmallOptions()).ok());
  first = InternalError("gone");
  EXPECT_TRUE(NewEngine(model, options).ok());
}

// Branches of a prompt have the bits of sequences that never met, wherever they part and whatever the other does: in windows, at
// the end of a block, in the middle of one, at a length that the first sequence has long left.
TEST(Engine, ForksHaveTheBitsOfSeparateRuns) {
  for (const std::string& path : {kGptOss, kLlama, kLfm2}) {
    EngineOptions options = SmallOptions();
    options.context = 320;
    options.max_batch = 64;
    options.sequences = 5;
    const auto model = LoadWith(path, options);
    ASSERT_NE(model, nullptr);
    const auto vocab = model->recipe().vocab;
    const auto token = [&](int branch, int64_t position) {
      return static_cast<int32_t>((position * 7 + branch * 31 + 3) % vocab);
    };
    constexpr int64_t kPrompt = 150, kMore = 12;
    const auto logits = [&](Engine& engine, int32_t s, std::vector<BatchRow> rows) {
      for (BatchRow& row : rows) row.sequence = s;
      rows.back().want_logits = true;
      auto out = engine.StepAll(rows);
      EXPECT_TRUE(out.ok()) << out.status().message();
      return out.ok() ? std::vector<float>(out->data, out->data + out->cols) : std::vector<float>();
    };
    const auto prefill = [&](Engine& engine, int32_t s, int64_t n) {
      for (int64_t p = 0; p < n; p += 50) {
        std::vector<BatchRow> rows;
        for (int64_t i = p; i < std::min(n, p + 50); ++i) rows.push_back({token(0, i), s});
        logits(engine, s, rows);
      }
    };
    auto made = NewEngine(model, options), apart = NewEngine(model, options);
    ASSERT_TRUE(made.ok() && apart.ok());
    Engine& engine = **made;
    const auto first = engine.NewSequence();
    prefill(engine, *first, kPrompt);
    struct Branch {
      int32_t sequence;
      int64_t length;
    };
    std::vector<Branch> branches = {{*first, kPrompt}};
    for (const int64_t length : {kPrompt, int64_t{128}, int64_t{140}}) {
      const auto fork = engine.Fork(*first, length);
      ASSERT_TRUE(fork.ok()) << fork.status().message();
      EXPECT_EQ(engine.Length(*fork), length);
      branches.push_back({*fork, length});
    }
    const auto copy = engine.Copy(*first);
    ASSERT_TRUE(copy.ok()) << copy.status().message();
    branches.push_back({*copy, kPrompt});
    EXPECT_EQ(engine.Fork(*first, kPrompt).status().code(), StatusCode::kNoRoom);  // all sequences are in use
    EXPECT_EQ(engine.Copy(*first).status().code(), StatusCode::kNoRoom);
    // The first rolls back into what the others share.
    ASSERT_TRUE(engine.Truncate(*first, 100).ok());
    branches[0].length = 100;
    std::vector<std::vector<std::vector<float>>> seen(branches.size());
    for (int64_t i = 0; i < kMore; ++i) {  // in turns
      for (size_t b = 0; b < branches.size(); ++b) {
        seen[b].push_back(logits(engine, branches[b].sequence, {{token(static_cast<int>(b) + 1, branches[b].length + i)}}));
      }
    }
    for (size_t b = 0; b < branches.size(); ++b) {
      const auto alone = (*apart)->NewSequence();
      prefill(**apart, *alone, branches[b].length);
      for (int64_t i = 0; i < kMore; ++i) {
        EXPECT_EQ(seen[b][static_cast<size_t>(i)],
                  logits(**apart, *alone, {{token(static_cast<int>(b) + 1, branches[b].length + i)}}))
            << path << ", branch " << b << ", token " << i;
      }
      (*apart)->Free(*alone);
    }
  }
}

// A cache of three blocks for four sequences: refused when it is full, for as long as it is.
TEST(Engine, ACacheInBytesIsSharedBySequences) {
  const auto model = LoadWith(kLlama, SmallOptions());
  ASSERT_NE(model, nullptr);
  EngineOptions options = SmallOptions();
  const uint64_t block = model->memory_plan().kv;  // of a context of 32
  options.context = 256;
  options.max_batch = 128;
  options.sequences = 4;
  options.kv_bytes = 3 * block + 5;
  auto engine = NewEngine(model, options);
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  EXPECT_EQ((*engine)->memory_plan().kv, 3 * block);
  std::vector<int32_t> s;
  for (int i = 0; i < 4; ++i) s.push_back(*(*engine)->NewSequence());
  const auto step = [&](int32_t sequence, int64_t n) {
    return (*engine)->StepAll(std::vector<BatchRow>(static_cast<size_t>(n), {5, sequence})).status();
  };
  ASSERT_TRUE(step(s[0], 128).ok());
  ASSERT_TRUE(step(s[0], 1).ok());
  ASSERT_TRUE(step(s[1], 100).ok());
  const Status full = step(s[2], 1);
  EXPECT_EQ(full.code(), StatusCode::kNoRoom);
  EXPECT_EQ(full.message(), "the KV cache is full: room for 0 more positions of this sequence");
  EXPECT_EQ((*engine)->Fork(s[0], 129).status().code(), StatusCode::kNoRoom);
  EXPECT_TRUE(step(s[1], 28).ok());  // in the block that it has
  EXPECT_FALSE(step(s[1], 1).ok());
  EXPECT_EQ((*engine)->Length(s[1]), 128);
  (*engine)->Free(s[3]);
  EXPECT_TRUE((*engine)->Fork(s[0], 128).ok());  // whole blocks take no room
  (*engine)->Free(s[1]);
  EXPECT_TRUE(step(s[2], 1).ok());
  // Of several sequences those that have room go on, unless they are to stand or fall together.
  const std::vector<BatchRow> rows = {{5, s[2]}, {5, s[0]}, {5, 3}};
  EXPECT_EQ((*engine)->StepAll(rows).status().message(), full.message());
  EXPECT_EQ((*engine)->Length(s[2]), 1);
  EXPECT_EQ((*engine)->Length(s[0]), 129);
  const auto some = (*engine)->Step(rows);
  ASSERT_TRUE(some.ok());
  ASSERT_EQ(some->failed.size(), 1u);
  EXPECT_EQ(some->failed[0].sequence, 3);
  EXPECT_EQ(some->failed[0].status.code(), StatusCode::kNoRoom);
  EXPECT_EQ((*engine)->Length(s[2]), 2);
  EXPECT_EQ((*engine)->Length(s[0]), 130);

  options.kv_bytes = block - 1;
  for (const Status& small : {NewEngine(model, options).status(), LoadModel(kLlama, options).status()}) {
    EXPECT_EQ(small.code(), StatusCode::kBadInput);
    EXPECT_NE(small.message().find("a KV cache of " + std::to_string(block - 1) +
                                   " bytes has no room for one batch of 128 positions: expected at least"),
              std::string::npos)
        << small.message();
  }
}

// By the bytes that are stored: an expert's two packed projections are halves of one tensor, and count once.
TEST(Model, MatrixTypesByStoredBytes) {
  Inventory inventory;
  ModelSpec spec;
  const auto add = [&](const std::string& name, DType type, uint64_t bytes) {
    StoredTensor t;
    t.name = name;
    t.dtype = type;
    t.bytes = bytes;
    inventory.tensors.push_back(t);
  };
  add("gate_up_blocks", DType::kU8, 1000);
  add("gate_up_scales", DType::kU8, 60);
  add("down_blocks", DType::kU8, 500);
  add("down_scales", DType::kU8, 30);
  add("embedding", DType::kBF16, 2000);
  add("expert.0", DType::kF16, 800);
  add("expert.1", DType::kF16, 800);
  add("norm", DType::kF32, 10000);
  inventory.BuildIndex();
  const std::vector<uint64_t> experts = {2, 4, 4};
  for (const RowMap half : {RowMap{0, 1, 2}, RowMap{1, 1, 2}}) {
    spec.bindings.push_back({.role = Role::kExpertGate,
                             .names = {"gate_up_blocks", "gate_up_scales"},
                             .shape = experts,
                             .rows = half,
                             .split = DType::kMXFP4});
  }
  spec.bindings.push_back(
      {.role = Role::kExpertDown, .names = {"down_blocks", "down_scales"}, .shape = experts, .split = DType::kMXFP4});
  spec.bindings.push_back({.role = Role::kTokenEmbedding, .names = {"embedding"}, .shape = {10, 10}});
  spec.bindings.push_back({.role = Role::kExpertUp, .names = {"expert.0", "expert.1"}, .shape = experts});
  spec.bindings.push_back({.role = Role::kAttnNorm, .names = {"norm"}, .shape = {10}});
  EXPECT_EQ(MatrixTypes(inventory, spec), (std::vector<DType>{DType::kBF16, DType::kF16, DType::kMXFP4}));
}

}  // namespace
}  // namespace tally
